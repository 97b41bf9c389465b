"""The front-door fixtures of the proxy's own tests, shared with the cases."""

from tests.proxy.conftest import records, start

__all__ = ["records", "start"]
