"""Where decisions are kept between requests: one contract, and a backend by the scheme of its URL."""

from proxy.stores.opening import open_store

__all__ = ["open_store"]
