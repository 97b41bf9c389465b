"""Load: a proxy against the upstream behind it, in one run. `python -m bench.load`."""
