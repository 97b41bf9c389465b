"""Server-sent events out of bytes (WHATWG HTML, section 9.2.6): CR, LF or CRLF, in any split, within a limit.

    line "data: x" → data += x        line "event: x" → event = x
    empty line     → the event is out  ": x", "id", "retry" → nothing
    anything else  → stray: bytes that are no event stream, kept up to a limit for whoever wants to know

An event larger than the limit is left out, and so is what is left of its lines; the next one is read again.
"""

from collections.abc import Iterator

_STRAY_LIMIT = 1 << 16
_BOM = b"\xef\xbb\xbf"


class Events:
    """Gives (event name, data) for each event that has ended; `truncated` once one was too large."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: list[bytes] = []  # pieces of the line that has not ended
        self._open_size = 0
        self._skipping = False  # the open line is too long and is not kept
        self._after_cr = False
        self._started = False
        self._event = b""
        self._data: list[bytes] = []
        self._data_size = 0
        self._spoilt = False  # the open event is too large
        self.stray = bytearray()
        self.truncated = False

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The events that end in `data`; the iterator must be used up before the next call."""
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if not data:
            return
        if data.endswith(b"\n\n") and self._between(data) and b"\r" not in data:
            yield from self._whole(data)
            return
        # Lines end in \n, \r or \r\n, which is exactly where bytes are split (str has many more line ends).
        lines = data.splitlines(keepends=True)
        rest = b"" if lines[-1].endswith((b"\n", b"\r")) else lines.pop()
        self._after_cr = data.endswith(b"\r")
        for line in lines:
            if self._open or self._skipping:
                line = self._complete(line)
            if (event := self._line(line.rstrip(b"\r\n"))) is not None:
                yield event
        if rest:
            self._keep(rest)

    def _between(self, data: bytes) -> bool:
        """Whether `data` begins with an event, and not amid one or with a mark of its encoding."""
        held = self._open or self._data or self._event or self._skipping or self._spoilt
        return not held and (self._started or data[:1] != _BOM[:1])

    def _whole(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The events of bytes that begin with one and end with one, as nearly all do: most are one line each."""
        self._started = True
        for each in data[:-2].split(b"\n\n"):
            if each.startswith(b"data: ") and b"\n" not in each and len(each) <= self._limit:
                yield b"", each[6:]
                continue
            for line in (*each.split(b"\n"), b""):
                if (event := self._line(line)) is not None:
                    yield event

    def close(self) -> Iterator[tuple[bytes, bytes]]:
        """The event that the end of the bytes left open, if any: servers forget the last empty line."""
        if self._open or self._skipping:
            self._line(self._complete(b""))
        if (event := self._line(b"")) is not None:
            yield event

    def _keep(self, piece: bytes) -> None:
        self._open_size += len(piece)
        if self._open_size > self._limit:
            self._open.clear()
            self._skipping = True
        else:
            self._open.append(piece)

    def _complete(self, end: bytes) -> bytes:
        self._keep(end)
        line = b"".join(self._open)
        if self._skipping:
            self.truncated = self._spoilt = True
        self._open.clear()
        self._open_size = 0
        self._skipping = False
        return line or b":"  # a line too long is not an empty one

    def _line(self, line: bytes) -> tuple[bytes, bytes] | None:
        if not self._started:
            self._started = True
            line = line.removeprefix(_BOM)
        if line.startswith(b"data:"):
            value = line[6:] if line.startswith(b"data: ") else line[5:]
            self._data_size += len(value)
            if self._data_size > self._limit:
                self.truncated = self._spoilt = True
                self._data.clear()
            else:
                self._data.append(value)
        elif not line:
            return self._dispatch()
        elif line.startswith(b"event:"):
            self._event = line[6:].strip()
        elif not line.startswith((b":", b"id:", b"retry:")) and len(self.stray) + len(line) <= _STRAY_LIMIT:
            self.stray += line + b"\n"
        return None

    def _dispatch(self) -> tuple[bytes, bytes] | None:
        event, data, spoilt = self._event, self._data, self._spoilt
        if event or data or spoilt:
            self._event, self._data, self._data_size, self._spoilt = b"", [], 0, False
        if spoilt or not data:
            return None
        return event, data[0] if len(data) == 1 else b"\n".join(data)
