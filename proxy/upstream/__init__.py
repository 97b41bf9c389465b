"""An upstream: where requests are forwarded to, with whose key, and what comes back."""

import asyncio
import re
import socket
import ssl
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass
from typing import Protocol

import httpx

from proxy.errors import ConfigError, UpstreamError
from proxy.http import headers as fields
from proxy.http import targets
from proxy.http.headers import Headers
from proxy.upstream.pool import Pool
from proxy.upstream.transport import Transport, proxied

_CREDENTIALS = frozenset({b"authorization", b"api-key", b"x-api-key"})
_WHOLE = 1 << 20  # bytes; a larger body is sent in slices, so that it does not hold the event loop up
_ASIDE = frozenset({"HEAD", "CONNECT"})  # their answers have no body, whatever their heads say
_NO_CONTENT = frozenset({b"GET", b"OPTIONS", b"TRACE"})  # RFC 9110, section 8.6: others say that they have none
_BREAKS = re.compile(rb"[\r\n\x00]")


class Source(Protocol):
    """The body of an answer, wherever it comes from; reading it raises httpx.TransportError."""

    @property
    def ended(self) -> bool: ...  # noqa: D102

    async def read(self) -> bytes: ...  # noqa: D102

    async def aclose(self) -> None: ...  # noqa: D102


class Reply(AsyncIterator[bytes]):
    """What an upstream answers: status and header fields, and a body that is still on its way.

    Iterating it gives each chunk of the body as soon as it is there, and raises UpstreamError if it breaks off.
    Whoever gets it closes it; closing before the end of the body drops the connection, which tells the upstream
    to stop.
    """

    def __init__(self, name: str, status: int, headers: Headers, source: Source, slots: asyncio.Semaphore) -> None:
        self._name = name
        self._stream = source
        self._slots: asyncio.Semaphore | None = slots
        self._peeked: deque[bytes] = deque()
        self.status = status
        self.headers = headers

    async def __anext__(self) -> bytes:
        if self._peeked:
            return self._peeked.popleft()
        try:
            chunk = await self._stream.read()
        except httpx.TransportError as error:
            raise _failure(self._name, error) from error
        if not chunk:
            raise StopAsyncIteration
        return chunk

    @property
    def ended(self) -> bool:
        """Whether it is known already that nothing follows on what was read."""
        return not self._peeked and self._stream.ended

    def chunks(self) -> AsyncIterator[bytes]:
        """The rest of the body."""
        return self

    async def peek(self, limit: int) -> bytes:
        """The body's first bytes, until at least `limit` are there or it ends; iterating still gives them.

        Raises UpstreamError if it breaks off before.
        """
        size = sum(map(len, self._peeked))
        while size < limit and (chunk := await self._read()):
            self._peeked.append(chunk)
            size += len(chunk)
        return b"".join(self._peeked)

    async def aclose(self) -> None:
        """Let the connection go: back to the pool if the body was read to its end, else closed."""
        slots, self._slots = self._slots, None
        if slots is not None:
            slots.release()
            await self._stream.aclose()

    async def _read(self) -> bytes:
        try:
            return await self._stream.read()
        except httpx.TransportError as error:
            raise _failure(self._name, error) from error


@dataclass(frozen=True, slots=True)
class Place:
    """Where an upstream is reached: its name in the configuration, host and port."""

    name: str
    host: str
    port: int


class Upstream:
    """A place that speaks OpenAI's API, reached over its own pool of connections.

    `base_url` is what an SDK would take as its base URL (`targets.join` has the rules). With an `api_key` that
    key is used and the client's credentials are dropped; without, the client's go through. `connect_s` bounds
    connecting, `idle_s` the silence before and between bytes, both in seconds; a response may take as long as it
    likes. `ca_bundle` is a PEM file that replaces the system's trusted authorities; SSL_CERT_FILE is honoured.

    Raises ConfigError for a base URL that cannot be used.
    """

    def __init__(
        self,
        name: str,
        base_url: str,
        api_key: str | None = None,
        *,
        connect_s: float = 10.0,
        idle_s: float = 600.0,
        connections: int = 1000,
        keepalive_s: float = 15.0,
        ca_bundle: str | None = None,
    ) -> None:
        self.name = name
        self._origin, self._base = _parse(name, base_url)
        self._api_key = api_key
        self.idle_s = idle_s
        self._connect_s = connect_s
        self._slots = asyncio.Semaphore(connections)
        tls, where = _tls(name, ca_bundle), self.place
        self._transport = Transport(tls=tls, connect_s=connect_s, idle_s=idle_s, keepalive_s=keepalive_s)
        # What goes through a proxy of the environment, or comes in pieces, is rare: the library sees to it.
        self._pool = None
        if not proxied(self._origin.scheme, where.host, where.port):
            self._pool = Pool(
                self._origin.raw_host.decode("ascii"),
                where.port,
                tls if self._origin.scheme == "https" else None,
                connect_s=connect_s,
                idle_s=idle_s,
                keepalive_s=keepalive_s,
            )
        self._host_field = b"Host: " + self._origin.netloc

    @property
    def host(self) -> str:
        """The host that requests go to."""
        return self._origin.host

    @property
    def place(self) -> Place:
        """Where requests go to."""
        return Place(self.name, self.host, self._origin.port or (443 if self._origin.scheme == "https" else 80))

    async def send(
        self,
        method: str,
        target: bytes,
        headers: Headers,
        body: bytes | AsyncIterable[bytes] = b"",
        *,
        changed: bool = False,
        behind_base: bool = True,
    ) -> Reply:
        """Forward a request and return the reply once its header fields are there.

        `target` is the client's raw path and query, `headers` are the client's; `changed` says that `body` is not
        the client's own bytes any more. A body in pieces is sent as they come, in the framing that the client
        declared. Without `behind_base` the target is one of the host's own. Raises UpstreamError.
        """
        length = len(body) if isinstance(body, bytes) else None
        forwarded = fields.for_upstream(headers, length=length, changed=changed)
        if self._api_key is not None:
            forwarded = _with_key(forwarded, self._api_key, azure=targets.is_azure(target))
        target = targets.join(self._base, target) if behind_base else target
        await self._slot()
        try:
            reply = await self._sent(method, target, forwarded, body)
        except httpx.TransportError as error:
            self._slots.release()
            raise _failure(self.name, error) from error
        except BaseException:
            self._slots.release()
            raise
        if not 200 <= reply.status <= 599:
            await reply.aclose()
            raise UpstreamError("upstream_broken", f"upstream '{self.name}' answered with status {reply.status}")
        return reply

    async def _slot(self) -> None:
        """Wait until one of the connections is free. Raises UpstreamError."""
        if not self._slots.locked():
            await self._slots.acquire()
            return
        try:
            async with asyncio.timeout(self._connect_s):
                await self._slots.acquire()
        except TimeoutError as error:
            raise _failure(self.name, httpx.ConnectTimeout("all connections are in use")) from error

    async def _sent(
        self, method: str, target: bytes, headers: list[tuple[bytes, bytes]], body: bytes | AsyncIterable[bytes]
    ) -> Reply:
        if self._pool is not None and isinstance(body, bytes) and len(body) <= _WHOLE and method not in _ASIDE:
            verb = method.encode()
            answer = await self._pool.send(verb, self._head(verb, target, headers), body)
            return Reply(self.name, answer.status, answer.headers, answer, self._slots)
        stream = httpx.ByteStream(body) if isinstance(body, bytes) else _Pieces(body)
        request = httpx.Request(method, self._origin, headers=headers, stream=stream, extensions={"target": target})
        response, source = await self._transport.answer(request)
        return Reply(self.name, response.status_code, fields.lowered(response.headers.raw), source, self._slots)

    def _head(self, method: bytes, target: bytes, headers: Headers) -> bytes:
        """The head of a request.

        Raises:
            ValueError: a value, such as that of a key's variable, has a line break in it.
        """
        lines = [method + b" " + target + b" HTTP/1.1", self._host_field]
        lines += [name + b": " + value for name, value in headers]
        if method not in _NO_CONTENT and not any(name == b"content-length" for name, _ in headers):
            lines.append(b"Content-Length: 0")
        if _BREAKS.search(b"".join(lines)):
            raise ValueError(f"upstream '{self.name}': no header field and no key must have a line break in it")
        return b"\r\n".join((*lines, b"", b""))

    async def aclose(self) -> None:
        """Close all connections."""
        if self._pool is not None:
            self._pool.close()
        await self._transport.aclose()


class _Pieces(httpx.AsyncByteStream):
    def __init__(self, pieces: AsyncIterable[bytes]) -> None:
        self._pieces = pieces

    def __aiter__(self) -> AsyncIterator[bytes]:
        return aiter(self._pieces)


def _with_key(headers: Headers, key: str, *, azure: bool) -> list[tuple[bytes, bytes]]:
    kept = [(name, value) for name, value in headers if name not in _CREDENTIALS]
    if azure or any(name == b"api-key" for name, _ in headers):
        return [*kept, (b"api-key", key.encode())]
    return [*kept, (b"authorization", b"Bearer " + key.encode())]


def _parse(name: str, base_url: str) -> tuple[httpx.URL, bytes]:
    """The origin and the raw path of a base URL."""
    where = f"upstreams.{name}.base_url"
    try:
        url = httpx.URL(base_url)
    except (httpx.InvalidURL, ValueError) as error:
        raise ConfigError(f"{where}: must be a URL like https://api.openai.com/v1 ({error})") from error
    if url.userinfo:
        raise ConfigError(f"{where}: must not carry credentials; name the key's variable in api_key_env")
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigError(f"{where}: must be an http or https URL with a host, got '{base_url}'")
    if url.query or url.fragment:
        raise ConfigError(f"{where}: must end with its path (no '?' or '#'), got '{base_url}'")
    return url.copy_with(path="/"), url.raw_path.rstrip(b"/")


def _tls(name: str, ca_bundle: str | None) -> ssl.SSLContext:
    if ca_bundle is None:
        return httpx.create_ssl_context()
    try:
        return ssl.create_default_context(cafile=ca_bundle)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"upstreams.{name}.ca_bundle: must be a file of PEM certificates, got '{ca_bundle}'"
        ) from error


def _failure(name: str, error: httpx.TransportError) -> UpstreamError:
    """What went wrong, in words that carry neither content nor credentials nor addresses."""
    match error:
        case httpx.ConnectTimeout():
            return UpstreamError("upstream_timeout", f"upstream '{name}': no connection in time")
        case httpx.TimeoutException():
            return UpstreamError("upstream_timeout", f"upstream '{name}': nothing received in time")
        case httpx.ConnectError() | httpx.ProxyError() | httpx.UnsupportedProtocol():
            return UpstreamError("upstream_unreachable", f"upstream '{name}' could not be reached: {_cause(error)}")
        case httpx.RemoteProtocolError():
            return UpstreamError("upstream_broken", f"upstream '{name}' answered with something that is not HTTP")
        case _:
            return UpstreamError("upstream_broken", f"upstream '{name}' closed the connection")


def _cause(error: BaseException) -> str:
    """The kind of a failed connection attempt, by the error at its root."""
    while error.__cause__ is not None:
        error = error.__cause__
    match error:
        case ssl.SSLCertVerificationError(verify_message=str(reason)):
            return f"TLS certificate not accepted: {reason}"
        case ssl.SSLError():
            return "TLS handshake failed"
        case socket.gaierror():
            return "name not resolved"
        case ConnectionRefusedError():
            return "connection refused"
    return "connection failed"
