"""Request targets: where a client's path and query belong on an upstream."""

import re
from urllib.parse import quote

from starlette.types import Scope

from proxy.errors import ClientError

_VERSION = re.compile(rb"/v\d+[a-z0-9]*(?=/|$)")
_OWN_VERSION = re.compile(rb"/v1(?=[/?]|$)")
_API_ROOT = re.compile(rb"(/openai)?(/v\d+[a-z0-9]*)?$")
_OCTET = re.compile(rb"%([0-9A-Fa-f]{2})|.", re.DOTALL)
_DOTS = re.compile(rb"/(\.|%2e){1,2}(?=[/?;\\]|$)", re.IGNORECASE)


def of(scope: Scope, prefix: str = "") -> bytes:
    """The raw path and query of an ASGI request, exactly as the client wrote them, without a route's `prefix`.

    Raises ClientError `bad_path` (400) for `.` and `..` segments, encoded or not: behind a base URL with a path
    they would lead out of it.
    """
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    path = _without(raw, prefix.rstrip("/").encode())
    if not path.startswith(b"/"):
        path = b"/" + path
    if _DOTS.search(path):
        raise ClientError(400, "bad_path", "path: must not contain '.' or '..' segments; send the resolved path")
    query: bytes = scope["query_string"]
    return path + b"?" + query if query else path


def _without(raw: bytes, prefix: bytes) -> bytes:
    """A raw path without a prefix, however much of that is percent-encoded; all of it where it begins otherwise."""
    at = 0
    for wanted in prefix:
        octet = _OCTET.match(raw, at)
        if octet is None or (int(octet[1], 16) if octet[1] else raw[at]) != wanted:
            return raw
        at = octet.end()
    rest = raw[at:]
    return b"/" + rest[3:] if rest[:3].lower() == b"%2f" else rest  # it ends the prefix, as the routes saw the path


def join(base: bytes, target: bytes) -> bytes:
    """The target on an upstream whose base URL has the path `base`, for a client's `target`; nothing is re-encoded.

    - Azure: a path that starts with `/openai/` stands behind the host; of `base` only what comes before its own
      `/openai` and version stays.
    - A base with a version segment (`/v1`, `/api/v1`, `/v1beta/openai`) is the API's root, so the client's own
      leading `/v1` is dropped.
    - Everything else is put behind the base.

    | base            | target                    | joined                         |
    | --------------- | ------------------------- | ------------------------------ |
    |                 | /v1/chat/completions      | /v1/chat/completions           |
    | /v1             | /v1/chat/completions      | /v1/chat/completions           |
    | /v1/            | /chat/completions         | /v1/chat/completions           |
    | /v1beta/openai  | /v1/chat/completions      | /v1beta/openai/chat/completions |
    | /gateway        | /v1/chat/completions      | /gateway/v1/chat/completions   |
    | /v1             | /openai/deployments/x?a=b | /openai/deployments/x?a=b      |
    """
    base = base.rstrip(b"/")
    if is_azure(target):
        return _API_ROOT.sub(b"", base, count=1) + target
    if _VERSION.search(base) and _OWN_VERSION.match(target):
        target = target[3:]
    return base + target


def is_azure(target: bytes) -> bool:
    """Whether the path is one of Azure's, whose credentials go into `api-key`."""
    return target.startswith(b"/openai/")
