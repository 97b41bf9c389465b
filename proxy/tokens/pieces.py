"""Counting the tokens of a text of any size and make, at a cost that is linear in its size.

A byte-level BPE spends far more on one long run without a break (a megabyte of one letter) than on prose, and tiktoken
panics on a million white-space characters. So a long text is encoded in pieces of at most PIECE characters. It is cut
where the encodings' own patterns begin a new piece whatever follows, so that the count stays exact: before a space
after something that is not white space, and before punctuation or a newline after a letter or digit. Only where
SEARCH characters hold no such place is a run cut in its middle, which adds a token or two per PIECE characters.
"""

import re

import tiktoken

PIECE = 4096
SEARCH = 1024
BREAK = re.compile(r"(?<=\S) |(?<=[^\W_])[\n.,;:!?()\[\]{}<>\"=/\\|+*#_。，、；：！？（）「」《》-]")


def count(encoding: tiktoken.Encoding, text: str) -> int:
    """Tokens of `text`; special tokens are ordinary text. Never raises."""
    if len(text) <= PIECE:
        return len(encoding.encode_ordinary(text))
    total = at = 0
    while len(text) - at > PIECE:
        found = BREAK.search(text, at + PIECE - SEARCH, at + PIECE)
        end = found.start() if found else at + PIECE
        total += len(encoding.encode_ordinary(text[at:end]))
        at = end
    return total + len(encoding.encode_ordinary(text[at:]))
