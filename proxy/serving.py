"""`trimtab serve`: a configuration, checked, and the server that runs the application on it."""

import logging
import os
import sys
from pathlib import Path

import structlog
import uvicorn
from starlette.applications import Starlette

from proxy import config as configs
from proxy.app import create_app
from proxy.errors import ConfigError
from proxy.schema import Config

CONFIG_VARIABLE = "TRIMTAB_CONFIG_FILE"  # how a worker process learns which file it serves


def run(path: Path | None, *, host: str | None, port: int | None, workers: int | None) -> None:
    """Serve until stopped.

    Raises:
        ConfigError: the configuration cannot be used.
    """
    config = configs.load(path)
    number = workers or config.server.workers
    if number > 1 and config.state.startswith("memory:"):
        raise ConfigError(
            f"state: must be shared by all workers, and {config.state} is of one; got {number} workers. Use "
            "sqlite:///trimtab.db on one machine, redis://host:6379/0 on several, or --workers 1"
        )
    problems = configs.unset_variables(config, os.environ)
    if problems:
        raise ConfigError(*problems)
    if path is not None:
        os.environ[CONFIG_VARIABLE] = str(path)
    else:
        os.environ.pop(CONFIG_VARIABLE, None)
    _log_to_stderr()
    where = host or config.server.host, config.server.port if port is None else port
    _announce(config, *where)
    uvicorn.run(
        "proxy.serving:worker",
        factory=True,
        host=where[0],
        port=where[1],
        workers=number,
        access_log=False,
        log_level="warning",
        server_header=False,
        date_header=False,
        ws="none",  # upgrades arrive as plain requests, and are answered with 501
        timeout_graceful_shutdown=int(config.server.drain_s),
        lifespan="on",
    )


def worker() -> Starlette:
    """The application of one worker process, on the file that its parent was started with."""
    path = os.environ.get(CONFIG_VARIABLE)
    _log_to_stderr()
    return create_app(configs.load(Path(path) if path else None), os.environ)


def _log_to_stderr() -> None:
    """Standard output is for audit records alone."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
            if sys.stderr.isatty()
            else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def _announce(config: Config, host: str, port: int) -> None:
    log = structlog.get_logger("trimtab")
    for route in config.routes:
        log.info(
            "route",
            name=route.name,
            upstream=config.upstreams[route.upstream].base_url,
            policy=route.policy.name,
            mode=route.mode.value,
        )
    log.info("listening", address=f"http://{host}:{port}", state=config.state.split("://")[0])
