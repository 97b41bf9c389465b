"""What can go wrong, by whose fault it is.

TrimtabError
├── ConfigError      the operator's: a configuration that cannot be used; stops the start
├── ClientError      the client's: answered by the proxy itself, in OpenAI's error shape
├── ClientGone       nobody's: the client closed its connection, and nobody waits for an answer
└── UpstreamError    the upstream's: it could not be reached or did not answer
"""


class TrimtabError(Exception):
    """The root of everything this project raises on purpose."""


class ConfigError(TrimtabError):
    """A configuration that cannot be used: `problems` are lines of «path.of.key: what is wrong, got value»."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class ClientError(TrimtabError):
    """A request that the proxy answers itself, with HTTP `status` and a stable `code`."""

    def __init__(self, status: int, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param


class ClientGone(TrimtabError):  # noqa: N818 - an event, and nobody's error
    """The client closed its connection before its answer was complete."""


class UpstreamError(TrimtabError):
    """An upstream that could not be reached (`code` upstream_unreachable), was too slow (upstream_timeout) or
    broke off or answered with something that is not HTTP (upstream_broken)."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
