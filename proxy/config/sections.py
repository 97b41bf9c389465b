"""The parts of a configuration that say who may ask, where, how much at once, and what is recorded. (pure)"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from proxy.config.scalars import AuditPlace, BaseUrl, Count, Name, Positive, Seconds, Text, Texts, Variable


class Section(BaseModel):
    """A mapping of the file: frozen, unknown keys refused, no conversions (`"8080"` is no number)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Server(Section):
    """Where the proxy listens, and what it takes: of one request, and of all at once.

    `drain_s` is how long open streams may go on after a stop was asked for. Each worker answers `max_requests` at a
    time; `max_waiting` more wait for up to `queue_timeout_s`, and what is beyond gets a 503. A request's head must be
    there within `read_timeout_s`, and so must each piece of its body. Each worker remembers `memory_bytes` of requests
    and decisions at the most.
    """

    host: Text = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    admin_port: Annotated[int, Field(ge=1, le=65535)] | None = None
    workers: Positive = 1
    max_body_bytes: Positive = 64 * 1024 * 1024
    max_header_bytes: Annotated[int, Field(ge=1024)] = 64 * 1024
    read_timeout_s: Seconds = 60.0
    max_requests: Positive = 1000
    max_waiting: Count = 1000
    queue_timeout_s: Annotated[float, Field(ge=0)] = 10.0
    memory_bytes: Annotated[int, Field(ge=16 * 1024 * 1024)] = 512 * 1024 * 1024
    drain_s: Annotated[float, Field(ge=0)] = 30.0

    @field_validator("admin_port")
    @classmethod
    def _apart(cls, admin_port: int | None, info: ValidationInfo) -> int | None:
        if admin_port is not None and admin_port == info.data.get("port"):
            raise ValueError(f"must be another port than server.port, got {admin_port}")
        return admin_port


class Key(Section):
    """Keys of the proxy itself, in a variable or a file, and what may be done with them."""

    name: Name
    env: Variable | None = None
    file: Text | None = None
    routes: tuple[Name, ...] | None = None
    admin: bool = False

    @model_validator(mode="after")
    def _one_source(self) -> "Key":
        if (self.env is None) == (self.file is None):
            raise ValueError("must have either env, the variable with the key, or file, a file with one key a line")
        return self


class Audit(Section):
    """Where audit records go ("-" is stdout), what they hold, when files are rotated, and which can be asked for."""

    path: Texts = ("-",)
    content: bool = False
    slots: Literal["changed", "all"] = "changed"
    max_slots: Count = 1_000
    max_bytes: Count = 100 * 1024 * 1024
    backups: Count = 5
    store: AuditPlace | None = "memory://"
    keep_rows: Count = 20_000
    keep_bytes: Count = 256 * 1024 * 1024
    keep_days: Annotated[float, Field(ge=0)] = 7.0


class Telemetry(Section):
    """Whether each chat request is traced, and the OpenTelemetry collector that gets the spans, over OTLP/HTTP.

    `traces` null leaves it to the standard OTEL_* variables, which also say what these two do not.
    """

    traces: bool | None = None
    endpoint: BaseUrl | None = None


class Log(Section):
    """How the server's own log is written, to stderr: for people, or as JSON lines for machines; and from which level.

    `format` null chooses by whether stderr is a terminal.
    """

    format: Literal["console", "json"] | None = None
    level: Literal["debug", "info", "warning", "error"] = "info"
