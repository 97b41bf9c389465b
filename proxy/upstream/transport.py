"""The HTTP transport: httpx's requests over aiohttp's connections, with every byte of both left as it is.

This is the only place that knows aiohttp. It keeps what httpx-aiohttp's own transport does not: the raw request
target (httpx's `target` extension; otherwise both libraries normalise percent-encoding), repeated header fields,
chunks handed on the moment they are read, and errors told apart by their cause.
"""

import asyncio
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

import aiohttp
import httpx
from aiohttp import hdrs
from httpx_aiohttp import AiohttpTransport
from multidict import CIMultiDict
from yarl import URL

_SLICE = 1 << 18  # bytes written at a time, so that a large body does not hold the event loop up
_WHOLE = 1 << 20  # bodies up to this many bytes are written at once

# The first entry that fits decides: subclasses stand before their parents.
_ERRORS: tuple[tuple[type[BaseException], type[httpx.TransportError]], ...] = (
    (aiohttp.ConnectionTimeoutError, httpx.ConnectTimeout),
    (aiohttp.SocketTimeoutError, httpx.ReadTimeout),
    (aiohttp.ClientProxyConnectionError, httpx.ProxyError),
    (aiohttp.ClientHttpProxyError, httpx.ProxyError),
    (aiohttp.ClientConnectorError, httpx.ConnectError),
    (aiohttp.InvalidURL, httpx.UnsupportedProtocol),
    (aiohttp.ClientResponseError, httpx.RemoteProtocolError),
    (aiohttp.ClientError, httpx.ReadError),
    (TimeoutError, httpx.ConnectTimeout),
    (OSError, httpx.ReadError),
)


_CAUSES = (aiohttp.ClientError, TimeoutError, OSError)


def _httpx_error(error: BaseException) -> httpx.TransportError:
    kind = next(kind for cause, kind in _ERRORS if isinstance(error, cause))
    return kind(type(error).__name__)


class Stream(httpx.AsyncByteStream, AsyncIterator[bytes]):
    """A response body, handed on read by read; no generator, so that nothing is left behind by a reader that stops.

    A read that gives nothing for `idle_s` seconds fails. One timer sees to that, while aiohttp would set a new one for
    each piece that comes, which costs a good part of what handing it on does.
    """

    def __init__(self, response: aiohttp.ClientResponse, idle_s: float) -> None:
        self._response = response
        self._idle_s = idle_s
        self._loop = asyncio.get_running_loop()
        self._asked: float | None = None  # since when a read has waited
        self._timer: asyncio.TimerHandle | None = None
        if response.connection is not None and (protocol := response.connection.protocol) is not None:
            protocol.read_timeout = None
            self._timer = self._loop.call_later(idle_s, self._look)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if chunk := await self.read():
            return chunk
        raise StopAsyncIteration

    async def read(self) -> bytes:
        """The next bytes, none at the end. Raises httpx.TransportError."""
        self._asked = self._loop.time()
        try:
            return await self._response.content.readany()
        except _CAUSES as error:
            raise _httpx_error(error) from error
        finally:
            self._asked = None

    @property
    def ended(self) -> bool:
        """Whether the body has been read to its end, which came in order."""
        content = self._response.content
        return content.at_eof() and content.exception() is None

    async def aclose(self) -> None:
        """Let the connection go; one that is not read to its end is closed, which tells the upstream to stop."""
        if self._timer is not None:
            self._timer.cancel()
        if self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()

    def _look(self) -> None:
        """Fail a read that has waited too long; come again when the one that waits, or the next, might have."""
        waited = 0.0 if self._asked is None else self._loop.time() - self._asked
        if waited < self._idle_s:
            self._timer = self._loop.call_later(self._idle_s - waited, self._look)
        else:
            self._response.content.set_exception(aiohttp.SocketTimeoutError("nothing was read in time"))


class Transport(AiohttpTransport):
    """Sends an httpx.Request and returns its httpx.Response as soon as the headers are there.

    Adds no header of its own but Host and the framing of the body, keeps no cookies, follows no redirects and
    inflates nothing. `connect_s` bounds name resolution, connection and TLS together with the wait for a free
    connection; `idle_s` the silence between two reads; nothing bounds the whole. Proxies are those of the
    environment (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY), read once.
    """

    def __init__(self, *, tls: ssl.SSLContext, connect_s: float, idle_s: float, keepalive_s: float) -> None:
        super().__init__(verify=tls, client=self._session)
        self._timeout = aiohttp.ClientTimeout(total=None, connect=connect_s, sock_connect=connect_s, sock_read=idle_s)
        self._idle_s = idle_s
        self._keepalive_s = keepalive_s
        self._proxies = getproxies_environment()
        self._open: aiohttp.ClientSession | None = None

    def _session(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=0,  # its user has one for all ways together
            keepalive_timeout=self._keepalive_s,
            ttl_dns_cache=30,
            ssl=self.ssl_context,
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=(hdrs.USER_AGENT, hdrs.ACCEPT, hdrs.ACCEPT_ENCODING, hdrs.CONTENT_TYPE),
            timeout=self._timeout,
            auto_decompress=False,
            max_line_size=1 << 16,
            max_field_size=1 << 16,
            max_headers=1 << 10,
            trust_env=False,  # would look .netrc and the environment up for every request
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The response to a request, its body still to be read. Raises httpx.TransportError."""
        return (await self.answer(request))[0]

    async def answer(self, request: httpx.Request) -> tuple[httpx.Response, Stream]:
        """The same, and the stream of its body."""
        if self._open is None:
            self._open = self.client = self._session()
        url = _url(request)
        headers = CIMultiDict([(_text(name), _text(value)) for name, value in request.headers.raw])
        proxy, proxy_headers = self._proxy(url)
        if proxy_headers and url.scheme == "http":
            headers.extend(proxy_headers)  # aiohttp sends them with CONNECT only
        try:
            response = await self._open.request(
                request.method,
                url,
                headers=headers,
                data=_data(request.stream),
                allow_redirects=False,
                proxy=proxy,
                proxy_headers=proxy_headers,
            )
        except _CAUSES as error:
            raise _httpx_error(error) from error
        stream = Stream(response, self._idle_s)
        made = httpx.Response(response.status, headers=response.raw_headers, stream=stream, request=request)
        return made, stream

    def _proxy(self, url: URL) -> tuple[URL | None, dict[str, str] | None]:
        """The proxy of the environment for a URL, and the header with the credentials it was given with."""
        address = _address(url.scheme, f"{url.host}:{url.port}", self._proxies)
        if address is None:
            return None, None
        proxy = URL(address if "://" in address else f"http://{address}")
        if proxy.user is None:
            return proxy, None
        credentials = aiohttp.encode_basic_auth(proxy.user, proxy.password or "")
        return proxy.with_user(None), {hdrs.PROXY_AUTHORIZATION: credentials}


def proxied(scheme: str, host: str, port: int) -> bool:
    """Whether what is sent to an origin goes through a proxy of the environment."""
    return _address(scheme, f"{host}:{port}", getproxies_environment()) is not None


def _address(scheme: str, place: str, proxies: Mapping[str, str]) -> str | None:
    if not proxies or proxy_bypass_environment(place, proxies):
        return None
    return proxies.get(scheme) or proxies.get("all") or None


def _url(request: httpx.Request) -> URL:
    """The URL of a request with its target as raw as it was given."""
    target: bytes | None = request.extensions.get("target")
    if target is None:
        return URL(str(request.url), encoded=True)
    return URL(f"{request.url.scheme}://{request.url.netloc.decode('ascii')}{_text(target)}", encoded=True)


def _text(raw: bytes) -> str:
    """Bytes as a string that aiohttp, which writes UTF-8, turns into the same bytes where they are UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _data(stream: httpx.SyncByteStream | httpx.AsyncByteStream) -> bytes | AsyncIterable[bytes] | None:
    if isinstance(stream, httpx.ByteStream):
        body = b"".join(stream)
        return (body if len(body) <= _WHOLE else _slices(body)) or None
    if isinstance(stream, httpx.AsyncByteStream):
        return stream
    raise TypeError(f"request stream: must be bytes or async, got {type(stream).__name__}")


async def _slices(body: bytes) -> AsyncIterator[bytes]:
    view = memoryview(body)
    for start in range(0, len(body), _SLICE):
        yield bytes(view[start : start + _SLICE])
