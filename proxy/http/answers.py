"""What the proxy answers by itself, in OpenAI's error shape."""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from proxy.errors import ClientError, UpstreamError
from proxy.http.headers import Headers

_STATUS = {"upstream_timeout": 504}


def error_response(
    status: int,
    code: str,
    message: str,
    param: str | None = None,
    type: str | None = None,  # noqa: A002 - the field's own name
    extra: Headers = (),
) -> Response:
    """An error as OpenAI's SDKs read it: {"error": {"message", "type", "param", "code"}}; `extra` fields are added."""
    kind = type or ("invalid_request_error" if status < 500 else "server_error")
    error = {"message": message, "type": kind, "param": param, "code": code}
    response = JSONResponse({"error": error}, status)
    response.raw_headers.extend(extra)
    return response


def failure(error: ClientError | UpstreamError, extra: Headers = ()) -> Response:
    """The answer to a request that an error ended: the client's own status, 504 for a slow upstream, else 502."""
    if isinstance(error, ClientError):
        if error.status == 408:  # what is still to come of the request is waited for no longer
            extra = [*extra, (b"connection", b"close")]
        return error_response(error.status, error.code, error.message, error.param, extra=extra)
    return error_response(_STATUS.get(error.code, 502), error.code, error.message, extra=extra)


def refusal(request: Request, error: Exception) -> Response:
    """The answer where nothing is under a path of the proxy's own, or not for this method."""
    if not isinstance(error, HTTPException):
        return broken(request, error)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "refused")
    extra = [(name.lower().encode(), value.encode()) for name, value in (error.headers or {}).items()]
    return error_response(error.status_code, code, str(error.detail), extra=extra)


class OnlyGet:
    """The ASGI endpoint of other methods on a path that is only read; no upstream has anything there."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with 405."""
        response = error_response(405, "method_not_allowed", "Method Not Allowed", extra=[(b"allow", b"GET, HEAD")])
        await response(scope, receive, send)


def broken(_: Request, error: Exception) -> Response:
    """The answer where the proxy itself failed; what went wrong may quote the request, so it is in the log alone."""
    return error_response(500, "internal_error", f"The proxy failed ({type(error).__name__}); its log says where")


def stopping() -> Response:
    """The answer to a request that the end of the server cut off before its own answer began."""
    return error_response(503, "server_stopping", "The proxy is stopping, and no answer came in time; send it again")


def no_websocket() -> Response:
    """The answer to a request for a WebSocket."""
    message = "WebSockets are not supported; connect to the upstream directly, or use HTTP streaming"
    return error_response(501, "websocket_unsupported", message)


def not_relayed(method: str) -> Response:
    """The answer to a method that does not go further than here."""
    return error_response(405, "method_not_relayed", f"{method}: is not sent on; use GET, POST or another method")


async def refuse_websocket(extensions: dict[str, object], send: Send) -> None:
    """Turn a WebSocket scope away: with 501 where the server can, else by closing it."""
    if "websocket.http.response" not in extensions:
        await send({"type": "websocket.close", "code": 1011, "reason": "WebSockets are not supported"})
        return
    response = no_websocket()
    await send(
        {"type": "websocket.http.response.start", "status": response.status_code, "headers": response.raw_headers}
    )
    await send({"type": "websocket.http.response.body", "body": bytes(response.body)})
