"""A store by its URL."""

from proxy.stores.contract import Store
from proxy.stores.memory import MemoryStore
from proxy.stores.sqlite import SQLiteStore
from proxy.stores.steady import Limits, Settled, SteadyStore
from proxy.stores.urls import Address, Backend, parse

MEMORY_BYTES = 128 * 2**20


def open_store(
    url: str, *, limits: Limits | None = None, settled: Settled | None = None, max_bytes: int = MEMORY_BYTES
) -> SteadyStore:
    """The store that `url` names, behind time limits, ready for its `open`; `settled` hears of late writes.

    One in memory takes at most `max_bytes`; what was used longest ago is forgotten.

    memory://                      this process alone, nothing kept
    sqlite:///file                 a file, relative to the working directory; sqlite:////path for an absolute one
    redis://host:port/0            Redis or Valkey; rediss:// with TLS
    redis+cluster://host:port      a Cluster, by any of its nodes; rediss+cluster:// with TLS

    Raises ConfigError for anything else, naming the URL (credentials masked) and what would do.
    """
    address = parse(url)
    return SteadyStore(backend(address, max_bytes), name=address.name, limits=limits, settled=settled)


def backend(address: Address, max_bytes: int = MEMORY_BYTES) -> Store:
    """The bare store at an address: what fails, fails at once."""
    match address.backend:
        case Backend.MEMORY:
            return MemoryStore(max_bytes=max_bytes)
        case Backend.SQLITE:
            return SQLiteStore(address.target)
        case Backend.REDIS | Backend.CLUSTER:
            # Imported late: the client takes 0.2 s to load, and most installations never use it
            from proxy.stores.redis import RedisStore

            return RedisStore(address.target, name=address.name, cluster=address.backend is Backend.CLUSTER)
