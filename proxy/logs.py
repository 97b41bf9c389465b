"""The server's own log on stderr: for people on a terminal, JSON lines for machines; libraries' records look the same.

Standard output is for audit records alone.
"""

import logging
import sys
from typing import TextIO

import structlog

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_LIBRARIES = logging.WARNING  # what they say below that is about themselves


def _event_first(logger: object, name: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """The fields that every line has before those of its own."""
    first = {key: event.pop(key) for key in ("timestamp", "level", "event") if key in event}
    return {**first, **event}


def set_up(form: str | None = None, level: str = "info", stream: TextIO | None = None) -> None:
    """Log from `level` on as `form`, "console" or "json"; without a form, by whether the stream is a terminal.

    Raises KeyError for another level.
    """
    out = sys.stderr if stream is None else stream
    people = out.isatty() if form is None else form == "console"
    least = _LEVELS[level]
    shared: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if people else "iso", utc=not people),
    ]
    rendered: list[structlog.typing.Processor] = (
        [structlog.dev.ConsoleRenderer(colors=out.isatty(), pad_event_to=24, sort_keys=False)]
        if people
        else [structlog.processors.format_exc_info, _event_first, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[*shared, *rendered],
        wrapper_class=structlog.make_filtering_bound_logger(least),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendered],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(least, _LIBRARIES))
