"""The policies by name: this package's own, one a file, and those of other packages.

Another package offers a policy through the entry point group `trimtab.policies` (the class, or a module that
registers it). All are loaded when first asked for; what cannot be loaded is left out and listed by `broken()`.
"""

import dataclasses
import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any, TypeVar

import policies
from policies.errors import PolicyError
from policies.options import Option, option, validated
from policies.types import Need, Policy

GROUP = "trimtab.policies"

_known: dict[str, type[Policy]] = {}
_broken: dict[str, str] = {}

P = TypeVar("P", bound=type[Policy])


@dataclasses.dataclass(frozen=True, slots=True)
class Description:
    """A policy as its users see it: what it does, its options, and what it needs where they have their defaults."""

    name: str
    doc: str
    needs: frozenset[Need]
    options: tuple[Option, ...]


def register(policy: P) -> P:
    """Make a policy class available under its `name`; raise PolicyError if it has none or the name is taken.

    The class is a dataclass, frozen so that one instance can serve every request.
    """
    name = getattr(policy, "name", None)
    if not isinstance(name, str) or not name:
        raise PolicyError(f"{policy.__qualname__}.name: must be a non-empty string, got {name!r}")
    if not dataclasses.is_dataclass(policy) or not policy.__dataclass_params__.frozen:
        raise PolicyError(f"{policy.__qualname__}: must be a frozen dataclass; its fields are the policy's options")
    if not callable(getattr(policy, "plan", None)) or not hasattr(policy, "needs"):
        raise PolicyError(f"{policy.__qualname__}: must have `needs` and a method `plan`")
    if (holder := _known.get(name, policy)) is not policy:
        raise PolicyError(f"{policy.__qualname__}.name: {name!r} is already the name of {holder.__qualname__}")
    _known[name] = policy
    return policy


def names() -> tuple[str, ...]:
    """The names of all policies, in alphabetical order."""
    _load()
    return tuple(sorted(_known))


def broken() -> Mapping[str, str]:
    """Modules and entry points that could not be loaded, with the error of each."""
    _load()
    return dict(_broken)


def create(name: str, options: Mapping[str, Any] | None = None, path: str = "policy") -> Policy:
    """The policy of that name with these options; the others have their defaults.

    Raises PolicyError with a line for each option that is unknown, missing or of the wrong type or range; `path` is
    what the lines call the policy.
    """
    policy = _find(name, path)
    values = validated(policy, options or {}, f"{path}.options")
    try:
        return policy(**values)
    except ValueError as error:
        key = str(error).partition(":")[0]
        known = {field.name for field in dataclasses.fields(policy)}  # type: ignore[arg-type]
        raise PolicyError(f"{path}.options{'.' if key in known else ': '}{error}") from error


def describe(name: str) -> Description:
    """What the policy of that name does and which options it has; raise PolicyError if there is none."""
    policy = _find(name, "policy")
    options = tuple(option(policy, field) for field in dataclasses.fields(policy))  # type: ignore[arg-type]
    declared: object = policy.needs  # a property where options change it
    if isinstance(declared, frozenset):
        needs = declared
    else:
        needs = frozenset() if any(one.required for one in options) else create(name).needs
    return Description(name, inspect.cleandoc(policy.__doc__ or ""), needs, options)


def _find(name: str, path: str) -> type[Policy]:
    _load()
    if isinstance(name, str) and (policy := _known.get(name)) is not None:
        return policy
    if isinstance(name, str) and name in _broken:
        raise PolicyError(f'{path}: policy "{name}" could not be loaded: {_broken[name]}')
    near = difflib.get_close_matches(str(name), _known, n=1)
    hint = f', did you mean "{near[0]}"?' if near else ""
    raise PolicyError(f'{path}: unknown policy "{name}"{hint} (policies: {", ".join(sorted(_known))})')


@cache
def _load() -> None:
    """Import every module of this package and every entry point, once."""
    for module in pkgutil.iter_modules(policies.__path__):
        try:
            importlib.import_module(f"policies.{module.name}")
        except Exception as error:  # noqa: BLE001 - a dropped-in file may raise anything, and must not stop the start
            _broken[module.name] = f"{type(error).__name__}: {error}"
    for point in entry_points(group=GROUP):
        try:
            loaded = point.load()
            if isinstance(loaded, type):
                register(loaded)
        except Exception as error:  # noqa: BLE001 - other people's code, likewise
            _broken[point.name] = f"{type(error).__name__}: {error}"
