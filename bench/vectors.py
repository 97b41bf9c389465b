"""Vectors kept on disk between runs of a bench, by model and content."""

import os
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from proxy.embeddings import Embedder, Vectors, key
from proxy.embeddings.sentence import SentenceTransformerEmbedder
from proxy.wire.memo import Memo

BATCH = 32
PATIENCE_S = 60.0  # for another process to have written its batch


def folder() -> Path:
    """The user's cache folder, by the XDG base directory specification."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "trimtab-bench"


class DiskVectors:
    """The vectors of an embedder; those that were made before come from `path`. Itself an embedder, for the pipeline.

    May be used from any thread, by one at a time, and `path` by any number of processes.
    """

    def __init__(self, embedder: Embedder, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._embedder = embedder
        self._disk = sqlite3.connect(path, timeout=PATIENCE_S, check_same_thread=False)
        self._disk.execute("PRAGMA journal_mode=WAL")  # who reads does not wait for who writes
        self._disk.execute("PRAGMA synchronous=NORMAL")
        self._disk.execute(
            "CREATE TABLE IF NOT EXISTS vectors (model TEXT, key BLOB, data BLOB, pieces INT, "
            "PRIMARY KEY (model, key)) WITHOUT ROWID"
        )
        self._known: dict[bytes, Vectors] = {}
        self._reads = Memo[bool]()  # a long conversation is looked through for each of its questions

    @property
    def name(self) -> str:
        """The embedder's own."""
        return self._embedder.name

    def reads(self, text: str) -> bool:
        """What the embedder says."""
        found = self._reads.get(text)
        if found is None:
            found = self._embedder.reads(text)
            self._reads.put(text, found, len(text))
        return found

    def embed(self, texts: Sequence[str]) -> list[Vectors]:
        """The vectors of texts, made where they are not known yet."""
        if missing := self.missing(texts):
            self.make(missing)
        return [self._known[key(text)] for text in texts]

    def close(self) -> None:
        """Nothing: the bench goes on with what is on disk."""

    def missing(self, texts: Iterable[str]) -> list[str]:
        """The texts that have vectors and none that are known, each once, the shortest first."""
        new = (text for text in dict.fromkeys(texts) if self.reads(text) and self._find(key(text)) is None)
        return sorted(new, key=len)

    def make(self, texts: Sequence[str]) -> None:
        """Make the vectors of a batch of texts and keep them."""
        for text, vectors in zip(texts, self._embedder.embed(texts), strict=True):
            half = vectors.astype(np.float16)
            self._known[key(text)] = half
            row = (self.name, key(text), half.tobytes(), len(half))
            self._disk.execute("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)", row)
        self._disk.commit()

    def anew(self, texts: Sequence[str]) -> list[Vectors]:
        """The vectors of texts, made by the embedder though they may be on disk: it takes the time that it takes."""
        return [vectors.astype(np.float16) for vectors in self._embedder.embed(texts)]

    def get(self, text: str) -> Vectors | None:
        """The vectors of a text that were made before; None in a script that the model does not know."""
        return self._find(key(text)) if self.reads(text) else None

    def _find(self, digest: bytes) -> Vectors | None:
        if digest not in self._known:
            query = "SELECT data, pieces FROM vectors WHERE model = ? AND key = ?"
            row = self._disk.execute(query, (self.name, digest)).fetchone()
            if row is None:
                return None
            self._known[digest] = np.frombuffer(row[0], dtype=np.float16).reshape(row[1], -1)
        return self._known[digest]


def opened(model: str) -> DiskVectors | None:
    """The vectors of a sentence-transformers model by name or path, kept in the user's cache folder; of `none`, none.

    Raises SystemExit where the model is not installed.
    """
    if model == "none":
        return None
    embedder = SentenceTransformerEmbedder(model)
    if embedder.missing:
        raise SystemExit(f"--model: {embedder.missing}; or --model none does without vectors")
    return DiskVectors(embedder, folder() / "vectors.sqlite")
