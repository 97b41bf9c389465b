"""A configuration file read, checked as a whole, and turned into the values that the parts take."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from policies import registry
from proxy import route
from proxy.config import problems, yaml_paths
from proxy.config.schema import Config, RouteSettings
from proxy.economics import Economy
from proxy.embeddings.vectors import Source
from proxy.errors import ConfigError
from proxy.experiment import Arm, Experiment
from proxy.http.keys import Keyring
from proxy.http.keys import Source as KeySource
from proxy.http.keys import opened as opened_keys
from proxy.matching import Matcher, Router, glob
from proxy.stores import urls
from proxy.telemetry.opening import Traces

OPENAI = "https://api.openai.com/v1"
_OPENAI_HOST = "api.openai.com"


def load(path: Path | str | None = None) -> Config:
    """The configuration in a file, or the defaults alone. Raises ConfigError with every problem in it."""
    if path is None:
        return loads("")
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; give the path of a YAML file, or none for the defaults") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: must be UTF-8, and byte {error.start} is not") from None
    return loads(text)


def loads(text: str) -> Config:
    """The configuration in a text; an empty one is the defaults. Raises ConfigError with every problem in it."""
    given = yaml_paths.parse(text)
    filled = _filled(given)
    found: dict[problems.Path, list[str]] = {}
    for where, message in _references(filled):
        found.setdefault(where, []).append(message)
    try:
        # As JSON, pydantic's strict mode takes a list for a tuple and a text for an enum, and still nothing else.
        config = Config.model_validate_json(json.dumps(filled))
    except ValidationError as error:
        for where, message in problems.problems(error, Config):
            found.setdefault(where, []).append(message)
    except (ValueError, RecursionError):
        raise ConfigError("not valid here: an anchor that contains itself, or nesting too deep") from None
    inherited = [where for where in found if _inherited(where, given, found)]
    lines = [problems.line(where, message) for where in found if where not in inherited for message in found[where]]
    if lines:
        raise ConfigError(*lines)
    return config


def routes(config: Config) -> tuple[route.Route, ...]:
    """The routes' rules, in the order in which they are tried."""
    return tuple(_route(settings, config) for settings in config.routes)


def vectors(config: Config) -> Source:
    """Where vectors come from."""
    settings = config.embeddings
    return Source(
        backend=settings.backend,
        model=settings.model,
        upstream=settings.upstream,
        cache_bytes=settings.cache_bytes,
    )


def traces(config: Config) -> Traces:
    """Whether requests are traced, and where their spans go."""
    return Traces(wanted=config.telemetry.traces, endpoint=config.telemetry.endpoint)


def audit_file(config: Config) -> Path | None:
    """The file in which audit records are kept; None where they are in memory, or not kept."""
    place = None if config.audit.store is None else urls.parse(config.audit.store)
    return Path(place.target) if place is not None and place.backend is urls.Backend.SQLITE else None


def audit_apart(config: Config, workers: int) -> tuple[str, ...]:
    """Problems, none of which stops anything: workers that each keep decisions for themselves."""
    if workers == 1 or config.audit.store is None or audit_file(config) is not None:
        return ()
    return (
        f"audit.store: memory:// is each worker's own, and there are {workers}: the dashboard shows what the "
        "one that answers has done; set it to a file such as sqlite:///audit.db",
    )


def router(config: Config) -> Router:
    """The routes with their conditions, ready to be asked."""
    return Router(tuple(zip(map(_matcher, config.routes), routes(config), strict=True)))


def keyring(config: Config, environ: Mapping[str, str]) -> Keyring:
    """The keys that the proxy asks its clients for. Raises ConfigError where they cannot be read."""
    return opened_keys([KeySource(**dict(key)) for key in config.keys], environ)


def unset_variables(config: Config, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Problems: settings that name an environment variable which is not set, or empty."""
    named: dict[problems.Path, str | None] = {("state_key_env",): config.state_key_env}
    named |= {("upstreams", name, "api_key_env"): upstream.api_key_env for name, upstream in config.upstreams.items()}
    named |= {("keys", number, "env"): key.env for number, key in enumerate(config.keys)}
    return tuple(
        f"{yaml_paths.dotted(path)}: must name an environment variable that is set, and {_mentioned(name)} is not"
        for path, name in named.items()
        if name is not None and not environ.get(name)
    )


def unreachable_routes(config: Config) -> tuple[str, ...]:
    """Problems: routes that never get a request, because one before them takes everything."""
    for index, settings in enumerate(config.routes[:-1]):
        match = settings.match
        if not (match.path != "/" or match.model or match.header or match.key):
            return tuple(
                f"routes[{later}]: never reached, since routes[{index}] matches everything; move it up or give "
                f"routes[{index}] a match"
                for later in range(index + 1, len(config.routes))
            )
    return ()


def _mentioned(variable: str) -> str:
    # A key put here by mistake rarely looks like SOME_NAME.
    return variable if re.fullmatch(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*", variable) else "this one"


def _filled(given: Mapping[str, object]) -> dict[str, object]:
    """`given` with what may be left out of it: the upstream, the route, and in every route the defaults."""
    upstreams = given.get("upstreams", {"openai": {"base_url": OPENAI}})
    given_routes = given.get("routes", [{"name": "default"}])
    defaults = given.get("defaults")
    start = dict(defaults) if isinstance(defaults, dict) else {}
    if not isinstance(upstreams, dict) or len(upstreams) < 2:
        # Where there is none, that is the problem, and not that a route names none.
        start["upstream"] = next(iter(upstreams), "") if isinstance(upstreams, dict) else ""
    if isinstance(given_routes, list):
        given_routes = [_merged(start, one) if isinstance(one, dict) else one for one in given_routes]
    return {**given, "upstreams": upstreams, "routes": given_routes}


def _merged(under: Mapping[str, object], over: Mapping[str, object]) -> dict[str, object]:
    """`over` laid upon `under`, mapping by mapping.

    A policy replaces the inherited one with all its options, and an inherited experiment; an experiment likewise.
    """
    merged = dict(under)
    if "policy" in over:
        merged.pop("experiment", None)
    for key, value in over.items():
        below = under.get(key)
        deep = key not in ("policy", "experiment") and isinstance(value, dict) and isinstance(below, dict)
        merged[key] = _merged(below, value) if deep else value  # type: ignore[arg-type]
    return merged


def _references(filled: Mapping[str, object]) -> list[tuple[problems.Path, str]]:
    """What no single setting can know: names used twice, upstreams that are not there."""
    found: list[tuple[problems.Path, str]] = []
    upstreams, given_routes = filled["upstreams"], filled["routes"]
    names: dict[str, int] = {}
    for index, one in enumerate(given_routes if isinstance(given_routes, list) else ()):
        if not isinstance(one, dict):
            continue
        name, upstream = one.get("name"), one.get("upstream")
        if isinstance(name, str) and names.setdefault(name, index) != index:
            message = f"must be unique, and routes[{names[name]}] is called {name!r} too"
            found.append((("routes", index, "name"), message))
        if isinstance(upstream, str) and isinstance(upstreams, dict) and upstreams and upstream not in upstreams:
            message = f"no upstream is called {upstream!r}; {yaml_paths.suggest(upstream, upstreams)}"
            found.append((("routes", index, "upstream"), message))
        found += [
            (("routes", index, section, "upstream"), problem)
            for section in ("summaries", "ratings")
            if (problem := _unknown_upstream(one.get(section), upstreams)) is not None
        ]
    if (problem := _unknown_upstream(filled.get("embeddings"), upstreams)) is not None:
        found.append((("embeddings", "upstream"), problem))
    return found


def _unknown_upstream(section: object, upstreams: object) -> str | None:
    """What is wrong with a section that names an upstream which is not there."""
    name = section.get("upstream") if isinstance(section, dict) else None
    if not isinstance(name, str) or not isinstance(upstreams, dict) or not upstreams or name in upstreams:
        return None
    return f"no upstream is called {name!r}; {yaml_paths.suggest(name, upstreams)}"


def _inherited(where: problems.Path, given: Mapping[str, object], found: Mapping[problems.Path, object]) -> bool:
    """Whether a problem at a route is only that of `defaults`, which is named there."""
    if len(where) < 3 or where[0] != "routes" or ("defaults", *where[2:]) not in found:
        return False
    at: object = given.get("routes")
    steps: tuple[Any, ...] = where[1:]
    for step in steps:
        if (isinstance(at, list) and isinstance(step, int)) or (isinstance(at, dict) and step in at):
            at = at[step]
        else:
            return True
    return False


def _route(settings: RouteSettings, config: Config) -> route.Route:
    upstream = config.upstreams[settings.upstream]
    free = upstream.host == _OPENAI_HOST
    if settings.alternate_roles is not None:
        alternate = route.Alternate(settings.alternate_roles)
    else:
        alternate = route.Alternate.FREE if free else route.Alternate.AS_INPUT
    thresholds, targets = settings.thresholds, settings.targets
    return route.Route(
        name=settings.name,
        upstream=settings.upstream,
        policy=registry.create(settings.policy.name, settings.policy.options),
        experiment=_experiment(settings),
        window=settings.window,
        budget_tokens=settings.budget_tokens,
        reserve_output=settings.reserve_output,
        reserve_cap=settings.reserve_cap,
        max_messages=settings.max_messages,
        max_bytes=settings.max_bytes,
        thresholds=route.Thresholds(warn=thresholds.warn, evict=thresholds.evict, emergency=thresholds.emergency),
        targets=route.Targets(evict=targets.evict, emergency=targets.emergency),
        breathing_turns=settings.breathing_turns,
        keep_prefix=settings.keep_prefix,
        cache=Economy(
            price=settings.cache.price,
            horizon_turns=settings.cache.horizon_turns,
            min_tokens=settings.cache.min_tokens,
        ),
        protect_last=settings.protect_last,
        pins=route.Pins(
            first_user=settings.pin.first_user,
            text=tuple(map(re.compile, settings.pin.text)),
            tools=frozenset(settings.pin.tools),
        ),
        on_overflow=settings.on_overflow,
        mode=settings.mode,
        alternate_roles=alternate,
        first_role_user=settings.first_role_user,
        recall_budget=settings.recall.budget,
        recall_exclude_tools=frozenset(settings.recall.exclude_tools),
        summaries=route.Summaries(**dict(settings.summaries)),
        ratings=route.Ratings(**dict(settings.ratings)),
        merge_notes=settings.notes.placement == "merge",
        hold_wait_s=settings.hold.wait_s,
        allow_overrides=settings.allow_overrides,
        tenant_header=settings.tenant_header,
    )


def _experiment(settings: RouteSettings) -> Experiment | None:
    """The arms of a route's experiment; that of its own policy has the options that this has."""
    if settings.experiment is None:
        return None
    options = {settings.policy.name: settings.policy.options}
    return Experiment(
        tuple(Arm(registry.create(name, options.get(name, {})), share) for name, share in settings.experiment.items())
    )


def _matcher(settings: RouteSettings) -> Matcher:
    match = settings.match
    return Matcher(
        path="" if match.path == "/" else match.path,
        model=None if match.model is None else glob(match.model),
        headers={name: glob(pattern) for name, pattern in match.header.items()},
        key=match.key,
    )
