"""What `trimtab check` says about a configuration: all of it as it takes effect, and what to look at."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from policies import registry
from proxy import config
from proxy.stores import urls


@dataclass(frozen=True, slots=True)
class Checked:
    """A valid configuration: `effective` is YAML with every default filled in, `warnings` stop nothing."""

    effective: str
    warnings: tuple[str, ...]


def check(path: Path | str | None, environ: Mapping[str, str]) -> Checked:
    """Read a configuration and say what takes effect. Raises ConfigError with every problem in it.

    `environ` is the environment that the proxy would find: a variable missing there is a warning here, since a
    file may be checked elsewhere than it is used, and a problem at the start.
    """
    read = config.load(path)
    plain = read.model_dump(mode="json")
    plain["state"] = urls.masked(read.state)
    first = ("name", "match", "upstream")
    plain["routes"] = [{key: one[key] for key in dict.fromkeys((*first, *one))} for one in plain["routes"]]
    effective = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, indent=2, width=120)
    broken = (f"policy {name!r} could not be loaded: {error}" for name, error in registry.broken().items())
    alone = config.audit_apart(read, read.server.workers)
    warnings = (*broken, *config.unreachable_routes(read), *config.unset_variables(read, environ), *alone)
    return Checked(effective, warnings)
