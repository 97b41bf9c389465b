"""The dashboard's files: read once, served under a content security policy that lets nothing in from elsewhere."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import Response

INDEX = "index.html"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Mapping[str, str] = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}
_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "LICENSE": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class File:
    """What one path answers with."""

    content: bytes
    kind: str
    etag: str


def load() -> dict[str, File]:
    """The files by their paths below /trimtab/; the page itself is at the empty path."""
    found: dict[str, File] = {}
    _gather(files("proxy.dashboard").joinpath("static"), "", found)
    found[""] = found.pop(INDEX)
    return found


class Pages:
    """Serves the files; browsers ask again each time, and are told where nothing has changed."""

    def __init__(self, found: Mapping[str, File]) -> None:
        self._files = found

    async def __call__(self, request: Request) -> Response:
        """A file, 304 where the browser has it, or 404."""
        file = self._files.get(request.path_params.get("path", ""))
        if file is None:
            return Response("Nothing is here. The dashboard is at /trimtab/\n", 404, HEADERS, "text/plain")
        headers = {**HEADERS, "etag": file.etag, "cache-control": "no-cache"}
        if file.etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(file.content, headers=headers, media_type=file.kind)


def _gather(folder: Traversable, prefix: str, found: dict[str, File]) -> None:
    for entry in folder.iterdir():
        path = f"{prefix}{entry.name}"
        if entry.is_dir():
            _gather(entry, f"{path}/", found)
        elif (kind := _TYPES.get(entry.name.rpartition(".")[2])) is not None:
            content = entry.read_bytes()
            found[path] = File(content, kind, f'"{hashlib.sha256(content).hexdigest()[:16]}"')
