"""The HTTP transport: httpx's requests over aiohttp's connections, with every byte of both left as it is.

This is the only place that knows aiohttp. It keeps what httpx-aiohttp's own transport does not: the raw request
target (httpx's `target` extension; otherwise both libraries normalise percent-encoding), repeated header fields,
chunks handed on the moment they are read, and errors told apart by their cause.
"""

import contextlib
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Iterator
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


@contextlib.contextmanager
def _httpx_errors() -> Iterator[None]:
    try:
        yield
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        kind = next(kind for cause, kind in _ERRORS if isinstance(error, cause))
        raise kind(type(error).__name__) from error


class _Stream(httpx.AsyncByteStream, AsyncIterator[bytes]):
    """A response body, handed on read by read; no generator, so that nothing is left behind by a reader that stops."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        with _httpx_errors():
            if chunk := await self._response.content.readany():
                return chunk
        raise StopAsyncIteration

    @property
    def ended(self) -> bool:
        """Whether the body has been read to its end, which came in order."""
        content = self._response.content
        return content.at_eof() and content.exception() is None

    async def aclose(self) -> None:
        # A connection whose response was not read to its end is of no further use, and closing it is what tells
        # the upstream to stop.
        if self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()


class Transport(AiohttpTransport):
    """Sends an httpx.Request and returns its httpx.Response as soon as the headers are there.

    Adds no header of its own but Host and the framing of the body, keeps no cookies, follows no redirects and
    inflates nothing. `connect_s` bounds name resolution, connection and TLS together with the wait for a free
    connection; `idle_s` the silence between two reads; nothing bounds the whole. Proxies are those of the
    environment (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY), read once.
    """

    def __init__(
        self, *, tls: ssl.SSLContext, connect_s: float, idle_s: float, connections: int, keepalive_s: float
    ) -> None:
        super().__init__(verify=tls, client=self._session)
        self._timeout = aiohttp.ClientTimeout(total=None, connect=connect_s, sock_connect=connect_s, sock_read=idle_s)
        self._connections = connections
        self._keepalive_s = keepalive_s
        self._proxies = getproxies_environment()
        self._open: aiohttp.ClientSession | None = None

    def _session(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=self._connections,
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
        if self._open is None:
            self._open = self.client = self._session()
        url = _url(request)
        headers = CIMultiDict((_text(name), _text(value)) for name, value in request.headers.raw)
        proxy, proxy_headers = self._proxy(url)
        if proxy_headers and url.scheme == "http":
            headers.extend(proxy_headers)  # aiohttp sends them with CONNECT only
        with _httpx_errors():
            response = await self._open.request(
                request.method,
                url,
                headers=headers,
                data=_data(request.stream),
                allow_redirects=False,
                proxy=proxy,
                proxy_headers=proxy_headers,
            )
        return httpx.Response(response.status, headers=response.raw_headers, stream=_Stream(response), request=request)

    def _proxy(self, url: URL) -> tuple[URL | None, dict[str, str] | None]:
        """The proxy of the environment for a URL, and the header with the credentials it was given with."""
        if not self._proxies or proxy_bypass_environment(f"{url.host}:{url.port}", self._proxies):
            return None, None
        address = self._proxies.get(url.scheme) or self._proxies.get("all")
        if not address:
            return None, None
        proxy = URL(address if "://" in address else f"http://{address}")
        if proxy.user is None:
            return proxy, None
        credentials = aiohttp.encode_basic_auth(proxy.user, proxy.password or "")
        return proxy.with_user(None), {hdrs.PROXY_AUTHORIZATION: credentials}


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
