"""`trimtab serve`: a configuration, checked, and the server that runs the application on it."""

import asyncio
import gc
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory

import structlog
import uvicorn
from starlette.types import ASGIApp
from uvicorn.supervisors import Multiprocess

from proxy import config as configs
from proxy import logs, malloc
from proxy.audit.store import AuditStore
from proxy.config.scalars import unshared
from proxy.config.schema import Config
from proxy.config.summary import summary
from proxy.errors import ConfigError
from proxy.http import listening

CONFIG_VARIABLE = "TRIMTAB_CONFIG_FILE"  # how a worker process learns which file it serves
METRICS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"  # how prometheus-client learns where workers keep values
KEEP_ALIVE_S = 75  # longer than load balancers keep idle connections, else they send requests into closing ones
PATIENCE_S = 30  # a worker that says nothing for so long is replaced; a busy machine takes seconds to start one
GARBAGE_FROM = 10_000  # objects more than before, from which the collector looks: one large request is more than 700
SWITCH_S = 0.0005  # the event loop gets its turn back from a thread so soon; by default, ten times later
STARTUP_FAILED = 3  # uvicorn's own exit code for it


def run(path: Path | None, *, host: str | None, port: int | None, workers: int | None) -> None:
    """Serve until stopped. Open answers may go on for `server.drain_s` seconds then; new connections are refused.

    Raises:
        ConfigError: the configuration cannot be used.
    """
    config = configs.load(path)
    number = workers or config.server.workers
    problem = unshared(config.state, number, setting="--workers")
    problems = ([] if problem is None else [f"state: {problem}"]) + [*configs.unset_variables(config, os.environ)]
    problems += _unwritable(config.audit.path)
    problems += _unkept(configs.audit_file(config))
    if config.server.admin_port is not None and config.server.admin_port == port:
        problems.append(f"--port: must be another than server.admin_port, got {port}")
    where = host or config.server.host, config.server.port if port is None else port
    problems = problems or [*_taken(where, config.server.admin_port, given=port)]
    if problems:
        raise ConfigError(*problems)
    configs.keyring(config, os.environ)  # what is wrong with them is told before any worker starts
    if path is not None:
        os.environ[CONFIG_VARIABLE] = str(path)
    else:
        os.environ.pop(CONFIG_VARIABLE, None)
    logs.set_up(config.log.format, config.log.level)
    _say_what_is_on(config, number, where[0], path)
    options = uvicorn.Config(
        "proxy.serving:worker",
        factory=True,
        host=where[0],
        port=where[1],
        http="proxy.http.heads:BoundedHeads",
        workers=number,
        access_log=False,
        proxy_headers=False,  # nobody asks who the client is
        log_config=None,
        log_level="warning",
        server_header=False,
        date_header=False,
        ws="none",  # upgrades arrive as plain requests, and are answered with 501
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_worker_healthcheck=PATIENCE_S,
        timeout_graceful_shutdown=config.server.drain_s,  # type: ignore[arg-type]  # asyncio takes fractions
        lifespan="on",
    )
    with _metrics_folder(number):
        if number > 1:
            bound = _sockets(options, config.server.admin_port)
            _announce(config, where[0], bound[0].getsockname()[1])
            _Workers(options, bound).run()
            return
        server = _Server(options, config)
        server.run(None if config.server.admin_port is None else _sockets(options, config.server.admin_port))
    if not server.started:
        sys.exit(STARTUP_FAILED)


def _sockets(options: uvicorn.Config, admin_port: int | None) -> list[socket.socket]:
    """What is listened to: the port that clients use, and the one for the proxy's own paths where it is apart."""
    bound = [options.bind_socket()]
    if admin_port is not None:
        bound.append(uvicorn.Config(options.app, host=options.host, port=admin_port, log_config=None).bind_socket())
    return bound


def worker() -> ASGIApp:
    """The application of one worker process, on the file that its parent was started with."""
    malloc.bound()
    # Imported here, since what it imports reads METRICS_VARIABLE, and since the parent does without.
    from proxy.app import create_app
    from proxy.http.heads import BoundedHeads

    path = os.environ.get(CONFIG_VARIABLE)
    if (parent := multiprocessing.parent_process()) is not None:
        threading.Thread(target=_follow, args=(parent,), name="trimtab-parent", daemon=True).start()
    logging.getLogger("uvicorn.error").addFilter(_unintended)
    config = configs.load(Path(path) if path else None)
    logs.set_up(config.log.format, config.log.level)
    BoundedHeads.max_bytes, BoundedHeads.timeout_s = config.server.max_header_bytes, config.server.read_timeout_s
    app = create_app(config, os.environ)
    # What there is by now stays. Walking through it again and again would hold requests up.
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_FROM)
    sys.setswitchinterval(SWITCH_S)
    return app


def _follow(parent: BaseProcess) -> None:
    """Stop when the parent has ended, however it did: workers without one would keep the port."""
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


class _Server(uvicorn.Server):
    """The one worker, which says where it listens from the moment that it does."""

    def __init__(self, options: uvicorn.Config, settings: Config) -> None:
        super().__init__(options)
        self._settings = settings

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the application, then listen."""
        await super().startup(sockets)
        _announce(self._settings, self.config.host, self.servers[0].sockets[0].getsockname()[1])


class _Workers(Multiprocess):
    """Worker processes, restarted when they die, that stop together."""

    def terminate_all(self) -> None:
        """Stop the workers, and listening: the parent's own socket would take connections that nobody serves."""
        for sock in self.sockets:
            sock.close()
        super().terminate_all()


@contextmanager
def _metrics_folder(workers: int) -> Iterator[None]:
    """A folder where several workers keep what they count, gone with the server; one worker needs none."""
    os.environ.pop(METRICS_VARIABLE, None)
    if workers == 1:
        yield
        return
    try:
        folder = TemporaryDirectory(prefix="trimtab-metrics-")
    except OSError as error:
        raise ConfigError(
            f"--workers: {workers} workers share their metrics in a temporary folder, and none can be made: "
            f"{error.strerror}. Make TMPDIR name a folder that can be written, or use --workers 1"
        ) from None
    with folder as name:
        os.environ[METRICS_VARIABLE] = name
        yield


def _taken(where: tuple[str, int], admin_port: int | None, *, given: int | None) -> Iterator[str]:
    """Problems: ports that cannot be listened on. Told at once, since the start takes seconds."""
    ports = {"server.port" if given is None else "--port": where[1], "server.admin_port": admin_port}
    for setting, port in ports.items():
        if port is not None and (why := listening.refusal(where[0], port)) is not None:
            free = "" if setting == "server.admin_port" else "; 0 takes a free one"
            yield f"{setting}: cannot listen on port {port} of {where[0]}: {why}. Name another{free}"


def _unwritable(paths: tuple[str, ...]) -> Iterator[str]:
    """Problems: audit files that cannot be opened."""
    for path in paths:
        try:
            if path != "-":
                Path(path).open("ab").close()
        except OSError as error:
            yield f"audit.path: cannot be written, {error.strerror}: {path!r}"


def _unkept(file: Path | None) -> Iterator[str]:
    """Problems: an audit store that cannot be opened."""
    if file is None:
        return
    store = AuditStore(file)
    try:
        store.open()
    except OSError as error:
        yield f"audit.store: cannot be written, {error.strerror}: {str(file)!r}"
    finally:
        store.close()


def _unintended(record: logging.LogRecord) -> bool:
    """Whether what uvicorn reports is a fault, and not how an answer is cut off that broke off or took too long."""
    if record.getMessage() == "ASGI callable returned without completing response.":
        return False  # the upstream broke off, and so that the client sees it, so does the answer
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))  # it has said how many


def _say_what_is_on(config: Config, workers: int, host: str, path: Path | None) -> None:
    log = structlog.get_logger("trimtab")
    log.info("starting", version=metadata.version("trimtab"), config=str(path) if path else "none: the defaults")
    for line in summary(config, os.environ, workers=workers, host=host):
        (log.warning if line.warns else log.info)(line.event, **line.fields)


def _announce(config: Config, host: str, port: int) -> None:
    log = structlog.get_logger("trimtab")
    at = f"http://[{host}]" if ":" in host else f"http://{host}"
    log.info("dashboard", address=f"{at}:{config.server.admin_port or port}/trimtab/", decisions=config.audit.store)
    log.info("listening", address=f"{at}:{port}", state=config.state.split("://")[0])
