"""What the parts of a message that are neither text nor image cost, from their size alone.

Flat costs: nothing is decoded. They are on the high side, as the text and the pages in a file and the seconds in a
recording are not known.
"""

import re

from proxy.wire import chat

# 10 tokens a second (OpenAI's «Audio» guide), and what a tenth of a second takes at least in base64: 16 kHz mono
# for the uncompressed formats, half of that for flac, 64 kbit/s for the rest.
_AUDIO_BYTES_PER_TOKEN = {"wav": 4_300, "pcm16": 4_300, "flac": 2_100}
_COMPRESSED_BYTES_PER_TOKEN = 1_100
_AUDIO_FRAMING = 4

# A document is read as its text and as pictures of its pages: one page in 13 kB of PDF was billed at 220 tokens.
_FILE_BYTES_PER_TOKEN = 80
_FILE_LEAST = 200
_FILE_BY_ID = 1_500  # nothing is known but that there is one

_MEDIA = re.compile(r"image|video|audio|media|file|document|pdf", re.IGNORECASE)
_BYTES_PER_TOKEN = 3
_MEDIA_MOST = 2_000  # so that base64 in a part of a new type is not taken for text


def cost(part: chat.Part) -> int:
    """Tokens of an audio, file or opaque part; 0 for text and images, which are counted elsewhere."""
    match part:
        case chat.Audio(size=size, format=kind):
            return _AUDIO_FRAMING + -(-size // _AUDIO_BYTES_PER_TOKEN.get(kind.lower(), _COMPRESSED_BYTES_PER_TOKEN))
        case chat.File(size=0):
            return _FILE_BY_ID
        case chat.File(size=size):
            return max(_FILE_LEAST, -(-size // _FILE_BYTES_PER_TOKEN))
        case chat.Opaque(type=kind, size=size):
            return min(json_cost(size), _MEDIA_MOST) if _MEDIA.search(kind) else json_cost(size)
        case _:
            return 0


_GUESSED = (chat.Audio, chat.File, chat.Opaque)


def guessed(part: chat.Part) -> bool:
    """Whether what a part costs is a guess from its size, whatever the tokenizer."""
    return isinstance(part, _GUESSED)


def json_cost(size: int) -> int:
    """Tokens of `size` bytes of JSON that nobody here can read."""
    return -(-size // _BYTES_PER_TOKEN)
