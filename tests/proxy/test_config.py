"""Reading a configuration: what is filled in, what routes inherit, and what is said about a broken one."""

from pathlib import Path

import pytest
from pydantic import BaseModel

from policies.fifo import Fifo
from policies.hybrid import Hybrid
from policies.priority import Priority
from proxy import config
from proxy.config import yaml_paths
from proxy.config.schema import DEFAULT_POLICY, Config, Defaults, Match, RouteSettings, Upstream
from proxy.economics import Economy
from proxy.embeddings.vectors import Source
from proxy.errors import ConfigError
from proxy.route import Alternate, Mode, OnOverflow, Summaries, SummaryKind

EXAMPLE = Path(__file__).parents[2] / "config.example.yaml"
ROUTE = "routes: [{name: a, %s}]"


def problems(text: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        config.loads(text)
    return caught.value.problems


# -- defaults, and the file that lists them


def test_without_a_file_everything_goes_to_openai() -> None:
    (route,) = config.routes(config.load())

    assert (route.name, route.upstream, route.policy) == ("default", "openai", Hybrid())
    assert config.load().upstreams["openai"].base_url == "https://api.openai.com/v1"
    assert Hybrid.name == DEFAULT_POLICY


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "---\n", "{}", "\ufeff"], ids=repr)
def test_an_empty_file_is_the_defaults(text: str, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_bytes(text.encode())

    assert config.load(file) == config.load()


def test_the_example_is_the_defaults() -> None:
    assert config.load(EXAMPLE) == config.load()


def test_the_example_has_every_setting() -> None:
    text = yaml_paths.parse(EXAMPLE.read_text())

    assert missing(Config, text, ()) == []


def missing(model: type[BaseModel], given: object, path: tuple[str | int, ...]) -> list[str]:
    """The fields of `model` that `given` lacks, those below included; what routes inherit stands in `defaults`."""
    assert isinstance(given, dict), path
    fields = set(model.model_fields) - (set(Defaults.model_fields) if model is RouteSettings else set())
    found = [yaml_paths.dotted((*path, name)) for name in fields - set(given)]
    for name in fields & set(given):
        for child, value, below in children(model, name, given[name]):
            found += missing(child, value, (*path, name, *below))
    return sorted(found)


def children(
    model: type[BaseModel], name: str, value: object
) -> list[tuple[type[BaseModel], object, tuple[int | str, ...]]]:
    annotation = model.model_fields[name].annotation
    if name == "upstreams" and isinstance(value, dict):
        return [(Upstream, each, (key,)) for key, each in value.items()]
    if name == "routes" and isinstance(value, list):
        return [(RouteSettings, each, (index,)) for index, each in enumerate(value)]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel) and name != "policy":
        return [(annotation, value, ())]
    return []


def test_the_test_of_the_example_notices_a_setting_that_is_missing() -> None:
    text = yaml_paths.parse(EXAMPLE.read_text().replace("wait_s", "wait").replace("    ca_file", "    cafile"))

    assert missing(Config, text, ()) == ["defaults.hold.wait_s", "upstreams.openai.ca_file"]


# -- what routes inherit


def test_a_route_lays_its_settings_over_the_defaults() -> None:
    (first, second) = config.routes(
        config.loads("""
            defaults:
              policy: {name: priority, decay: 0.5}
              thresholds: {warn: 0.5, evict: 0.8}
              pin: {text: ["order #[0-9]+"], tools: [lookup]}
              mode: shadow
            routes:
              - {name: first, thresholds: {evict: 0.82}, pin: {first_user: false}, mode: off, window: 32000}
              - {name: second, policy: fifo, pin: {tools: []}}
        """)
    )

    assert (first.thresholds.warn, first.thresholds.evict, first.thresholds.emergency) == (0.5, 0.82, 0.95)
    assert first.policy == Priority(decay=0.5)
    assert (first.mode, first.window, second.mode, second.window) == (Mode.OFF, 32000, Mode.SHADOW, None)
    assert [pattern.pattern for pattern in first.pins.text] == ["order #[0-9]+"]
    assert (first.pins.first_user, first.pins.tools) == (False, {"lookup"})
    assert (second.pins.first_user, second.pins.tools) == (True, frozenset())
    assert second.policy == Fifo()


def test_a_policy_at_a_route_replaces_the_inherited_one_with_all_its_options() -> None:
    text = "{defaults: {policy: {name: priority, decay: 0.5}}, routes: [{name: a, policy: {name: priority, user: 1}}]}"

    assert config.routes(config.loads(text))[0].policy == Priority(user=1.0)


def test_every_setting_of_a_route_reaches_its_values() -> None:
    (route,) = config.routes(
        config.loads(
            ROUTE % "window: 9, budget_tokens: 8, reserve_output: 7, reserve_cap: 6, max_messages: 5, max_bytes: 4, "
            "targets: {evict: 0.5, emergency: 0.4}, breathing_turns: 3, keep_prefix: 0.1, protect_last: 2, "
            "on_overflow: force, first_role_user: true, recall: {budget: 0.2, exclude_tools: [t]}, hold: {wait_s: 0}, "
            "allow_overrides: true, cache: {price: 0.1, horizon_turns: 5}, notes: {placement: merge}, "
            "summaries: {kind: llm, upstream: openai, model: m, max_tokens: 99, deadline_s: 3, window: 2048}"
        )
    )

    assert (route.window, route.budget_tokens, route.reserve_output, route.reserve_cap, route.max_messages) == (
        (9, 8, 7, 6, 5)
    )
    assert route.max_bytes == 4
    assert (route.targets.evict, route.targets.emergency, route.breathing_turns) == (0.5, 0.4, 3)
    assert (route.keep_prefix, route.protect_last, route.on_overflow) == (0.1, 2, OnOverflow.FORCE)
    assert (route.first_role_user, route.recall_budget, route.recall_exclude_tools) == (True, 0.2, {"t"})
    assert (route.hold_wait_s, route.allow_overrides) == (0, True)
    assert route.cache == Economy(price=0.1, horizon_turns=5)
    assert route.merge_notes
    assert route.summaries == Summaries(
        kind=SummaryKind.LLM, upstream="openai", model="m", max_tokens=99, deadline_s=3, window=2048
    )


def test_where_vectors_come_from_is_read() -> None:
    text = "embeddings: {backend: endpoint, model: m, upstream: openai, cache_bytes: 5, wait_ms: 7}"

    assert config.vectors(config.loads(text)) == Source(backend="endpoint", model="m", upstream="openai", cache_bytes=5)
    assert config.vectors(config.load()).backend == "sentence-transformers"


def test_the_only_upstream_needs_no_mention() -> None:
    loaded = config.loads("{upstreams: {local: {base_url: 'http://[::1]:8000/v1/'}}, routes: [{name: a}, {name: b}]}")

    assert [route.upstream for route in config.routes(loaded)] == ["local", "local"]
    assert loaded.upstreams["local"].base_url == "http://[::1]:8000/v1"


@pytest.mark.parametrize(
    ("base_url", "given", "expected"),
    [
        ("https://api.openai.com/v1", "null", Alternate.FREE),
        ("https://API.openai.com:443/v1", "null", Alternate.FREE),
        ("https://api.openai.com.example.org/v1", "null", Alternate.AS_INPUT),
        ("http://localhost:8000/v1", "null", Alternate.AS_INPUT),
        ("http://localhost:8000/v1", "free", Alternate.FREE),
        ("https://api.openai.com/v1", "strict", Alternate.STRICT),
    ],
)
def test_roles_alternate_as_the_input_did_but_at_openai(base_url: str, given: str, expected: Alternate) -> None:
    text = f"upstreams: {{u: {{base_url: '{base_url}'}}}}\ndefaults: {{alternate_roles: {given}}}"

    assert config.routes(config.loads(text))[0].alternate_roles is expected


def test_a_router_takes_the_conditions_of_the_file() -> None:
    router = config.router(
        config.loads("""
            routes:
              - {name: support, match: {path: /support/, model: "gpt-4o*", header: {X-Team: "search-*"}}}
              - {name: rest}
        """)
    )

    found = router.find("/support/v1/chat/completions", "gpt-4o-mini", {"x-team": "search-eu"}, None)
    assert found is not None
    assert (found.route.name, found.path) == ("support", "/v1/chat/completions")
    other = router.find("/support/v1/chat/completions", "gpt-4o-mini", {}, None)
    assert other is not None
    assert (other.route.name, other.path) == ("rest", "/support/v1/chat/completions")


# -- broken ones

NO_ROUTE_FOR_TWO = "upstreams: {a: {base_url: http://a}, b: {base_url: http://b}}"

BROKEN = {
    "unknown top-level key": ("srever: {}", "srever: unknown key; did you mean 'server'? Known here: audit, "),
    "unknown nested key": (
        "server: {prot: 1}",
        "server.prot: unknown key; did you mean 'port'? Known here: admin_port",
    ),
    "unknown key of a route": (ROUTE % "treshold: 1", "routes[0].treshold: unknown key; did you mean 'thresholds'?"),
    "audit store elsewhere": (
        "audit: {store: redis://h}",
        "audit.store: must be memory://, sqlite:///relative/file.db or ",
    ),
    "audit store without a file": (
        "audit: {store: 'sqlite:///'}",
        "audit.store: must be memory://, sqlite:///relative",
    ),
    "audit store with a password": (
        "audit: {store: 'redis://u:hush@h'}",
        "audit.store: must be memory://, sqlite:///relative/file.db or sqlite:////absolute/file.db, got a text ",
    ),
    "text for a number": ("server: {port: '80'}", "server.port: must be a whole number, got '80'"),
    "boolean for a number": ("server: {workers: true}", "server.workers: must be a whole number, got true"),
    "fraction for a number": (ROUTE % "window: 1.5", "routes[0].window: must be a whole number, got 1.5"),
    "underscores in a number": (ROUTE % "window: 64_000", "routes[0].window: must be a whole number, got '64_000'"),
    "port too high": ("server: {port: 70000}", "server.port: must be at most 65535, got 70000"),
    "no timeout": (
        "upstreams: {a: {base_url: http://a, idle_timeout_s: 0}}",
        "upstreams.a.idle_timeout_s: must be more than 0, got 0",
    ),
    "share over one": (
        "defaults: {thresholds: {emergency: 85}}",
        "defaults.thresholds.emergency: must be at most 1, got 85",
    ),
    "text for a boolean": ("audit: {content: yes}", "audit.content: must be true or false, got 'yes'"),
    "unknown choice": ("audit: {slots: some}", "audit.slots: must be one of 'changed' or 'all', got 'some'"),
    "unknown mode": (ROUTE % "mode: dry", "routes[0].mode: must be one of 'enforce', 'shadow' or 'off', got 'dry'"),
    "no sink": ("audit: {path: []}", "audit.path: must hold at least one, and is empty"),
    "thresholds out of order": (
        "defaults: {thresholds: {warn: 0.9}}",
        "defaults.thresholds: must be ordered warn <= evict <= emergency <= 1, got 0.9, 0.85, 0.95",
    ),
    "targets out of order": (
        ROUTE % "targets: {evict: 0.5}",
        "routes[0].targets: must be ordered emergency <= evict, got 0.6 > 0.5",
    ),
    "target at its threshold": (
        ROUTE % "targets: {evict: 0.85}",
        "routes[0].targets.evict: must be less than thresholds.evict, which is 0.85, got 0.85",
    ),
    "threshold under the inherited target": (
        ROUTE % "thresholds: {warn: 0.5, evict: 0.65}",
        "routes[0].targets.evict: must be less than thresholds.evict, which is 0.65, got 0.7",
    ),
    "a summariser without a model": (
        ROUTE % "summaries: {kind: llm, upstream: openai}",
        "routes[0].summaries.model: required where kind is llm: the name of a small model that it has",
    ),
    "a summariser nowhere": (
        ROUTE % "summaries: {kind: llm, upstream: opnai, model: m}",
        "routes[0].summaries.upstream: no upstream is called 'opnai'; did you mean 'openai'?",
    ),
    "a rater without a model": (
        ROUTE % "policy: {name: rwr, relevance: llm}, ratings: {upstream: openai}",
        "routes[0].ratings.model: required where the policy's relevance is llm: the name of a small model that it has",
    ),
    "no rater": (
        ROUTE % "policy: {name: rwr, relevance: llm}, ratings: {model: small}",
        "routes[0].ratings.upstream: required where the policy's relevance is llm: an upstream that needs no key from "
        "a client",
    ),
    "a rater nowhere": (
        ROUTE % "ratings: {upstream: opnai, model: m}",
        "routes[0].ratings.upstream: no upstream is called 'opnai'; did you mean 'openai'?",
    ),
    "notes in no place": (
        ROUTE % "notes: {placement: system}",
        "routes[0].notes.placement: must be one of 'user' or 'merge', got 'system'",
    ),
    "an endpoint without an address": (
        "embeddings: {backend: endpoint, model: m}",
        "embeddings.upstream: required where backend is endpoint",
    ),
    "an endpoint nowhere": (
        "embeddings: {backend: endpoint, model: m, upstream: up}",
        "embeddings.upstream: no upstream is called 'up'",
    ),
    "recall over the target": (
        ROUTE % "targets: {emergency: 0.2}, recall: {budget: 0.3}",
        "routes[0].recall.budget: must be less than targets.emergency, which is 0.2, got 0.3",
    ),
    "cached tokens at more than the full price": (
        ROUTE % "cache: {price: 1.5}",
        "routes[0].cache.price: must be at most 1, got 1.5",
    ),
    "keep_prefix over the target": (
        ROUTE % "keep_prefix: 0.6",
        "routes[0].keep_prefix: must be less than targets.emergency, which is 0.6, got 0.6",
    ),
    "regex": (
        ROUTE % "pin: {text: [ok, '(']}",
        "routes[0].pin.text[1]: must be a regular expression, got '(': missing",
    ),
    "unknown policy": (
        ROUTE % "policy: pryority",
        'routes[0].policy: unknown policy "pryority", did you mean "priority"? (policies: ',
    ),
    "policy without a name": (
        ROUTE % "policy: {decay: 1}",
        "routes[0].policy.name: required: a policy's name; known: ",
    ),
    "policy of the wrong kind": (ROUTE % "policy: 7", "routes[0].policy: must be a policy's name or a mapping with"),
    "unknown option": (
        ROUTE % "policy: {name: priority, decai: 1}",
        'routes[0].policy: unknown option "decai", did you mean "decay"? (options: ',
    ),
    "option out of range": (
        ROUTE % "policy: {name: priority, decay: -1}",
        "routes[0].policy.decay: must be at least 0, got -1",
    ),
    "no route name": ("routes: [{window: 1}]", "routes[0].name: required: a name that no other route has"),
    "bad route name": ("routes: [{name: 'a b'}]", "routes[0].name: must be 1 to 64 letters, digits, dots, dashes or"),
    "same name twice": (
        "routes: [{name: a}, {name: b}, {name: a}]",
        "routes[2].name: must be unique, and routes[0] is called 'a' too",
    ),
    "no routes": ("routes: []", "routes: must hold at least one, and is empty"),
    "routes as a mapping": ("routes: {a: {}}", "routes: must be a list, got a mapping"),
    "route as a text": ("routes: [a]", "routes[0]: must be a mapping, got 'a'"),
    "no upstreams": ("{upstreams: {}, routes: [{name: a, upstream: x}]}", "upstreams: must hold at least one, and is"),
    "unknown upstream": (
        ROUTE % "upstream: opena",
        "routes[0].upstream: no upstream is called 'opena'; did you mean 'openai'? Known here: openai",
    ),
    "which upstream": (NO_ROUTE_FOR_TWO, "routes[0].upstream: required: the name of one of the upstreams"),
    "no address": ("upstreams: {a: {}}", "upstreams.a.base_url: required: the provider's address, such as https://"),
    "address without a scheme": (
        "upstreams: {a: {base_url: 'localhost:80'}}",
        "upstreams.a.base_url: must be an http or https address such as https://api.openai.com/v1, got 'localhost:80'",
    ),
    "address without a host": ("upstreams: {a: {base_url: 'http:///v1'}}", "upstreams.a.base_url: must be an http or"),
    "address with a bad port": ("upstreams: {a: {base_url: 'http://a:x'}}", "upstreams.a.base_url: must be an http or"),
    "address with a query": ("upstreams: {a: {base_url: 'http://a/?b=c'}}", "upstreams.a.base_url: must be an http or"),
    "path without a slash": (
        ROUTE % "match: {path: support}",
        "routes[0].match.path: must be a path that starts with a slash, without a query, such as ",
    ),
    "no header name": (
        ROUTE % "match: {header: {'x team': a}}",
        "routes[0].match.header: 'x team' is not a header name; use letters, digits and dashes",
    ),
    "one header twice": (
        ROUTE % "match: {header: {A: x, a: y}}",
        "routes[0].match.header: two keys are the same header",
    ),
    "match for the credential": (
        ROUTE % "match: {header: {Authorization: '*'}}",
        "routes[0].match.header: 'authorization' carries a credential; match the key's fingerprint with match.key",
    ),
    "state": ("state: file.db", "state: must be memory://, sqlite:///relative/file.db, "),
    "workers without a shared state": (
        "server: {workers: 4}",
        "state: must be sqlite:///file or redis://host:port/0, since server.workers is 4 and memory:// serves one",
    ),
    "section as a number": ("server: 1", "server: must be a mapping, got 1"),
    "section as nothing": ("server:", "server: must be a mapping, got null"),
    "upstream with an odd name": (
        "upstreams: {'my host': {base_url: http://a}}",
        "upstreams['my host']: must be 1 to 64 letters, digits, dots, dashes or underscores, got 'my host'",
    ),
}


@pytest.mark.parametrize(("text", "expected"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_setting_is_named_with_its_path_and_what_would_do(text: str, expected: str) -> None:
    (problem,) = problems(text)

    assert problem.startswith(expected)


def test_every_problem_is_told_at_once_and_once() -> None:
    told = problems("""
        server: {port: -1, colour: red}
        upstreams: {a: {base_url: ftp://a}, b: {base_url: http://b}}
        defaults: {protect_last: -1, policy: nope}
        routes:
          - {name: x, upstream: c, window: 0}
          - {name: x, upstream: b, targets: {evict: 0.9}, policy: {name: fifo, size: 1}}
    """)

    assert sorted(line.split(":")[0] for line in told) == [
        "defaults.policy",
        "defaults.protect_last",
        "routes[0].upstream",
        "routes[0].window",
        "routes[1].name",
        "routes[1].policy",
        "routes[1].targets.evict",
        "server.colour",
        "server.port",
        "upstreams.a.base_url",
    ]


SECRET = "sk-proj-0123456789abcdef"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (f"upstreams: {{a: {{base_url: http://a, api_key_env: {SECRET}}}}}", "upstreams.a.api_key_env"),
        (f"upstreams: {{a: {{base_url: http://a, api_key: {SECRET}}}}}", "upstreams.a.api_key"),
        (f"upstreams: {{a: {{base_url: 'https://me:{SECRET}@a/v1'}}}}", "upstreams.a.base_url"),
        (f"upstreams: {{a: {{base_url: ['https://{SECRET}']}}}}", "upstreams.a.base_url"),
        (f"upstreams: {{a: {SECRET}}}", "upstreams.a"),
        (f"upstreams: {SECRET}", "upstreams"),
        (f"state_key_env: {SECRET}", "state_key_env"),
        (f"state: redis://me:{SECRET}@a/x", "state"),
        (f"state: postgres://me:{SECRET}@a", "state"),
        (ROUTE % f"match: {{key: {SECRET}}}", "routes[0].match.key"),
        (ROUTE % f"match: {{header: {{authorization: 'Bearer {SECRET}'}}}}", "routes[0].match.header"),
    ],
    ids=lambda value: value if "sk-" not in value else "",
)
def test_a_secret_in_the_wrong_place_is_not_repeated(text: str, path: str) -> None:
    (problem,) = problems(text)

    assert problem.startswith(f"{path}: ")
    assert SECRET not in problem


@pytest.mark.parametrize("text", [f"api_key: {SECRET}: x", f'a: "{SECRET}'], ids=["nested", "open quote"])
def test_a_syntax_error_does_not_repeat_the_line(text: str) -> None:
    (problem,) = problems(text)

    assert problem.startswith("line 1, column ")
    assert SECRET not in problem


# -- files


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    latin = tmp_path / "latin.yaml"
    latin.write_bytes("state_key_env: Schlüssel".encode("latin-1"))
    cases = {
        tmp_path / "none.yaml": "no such file; give the path of a YAML file, or none for the defaults",
        tmp_path: "cannot be read: Is a directory",
        latin: "must be UTF-8, and byte 19 is not",
    }
    for path, expected in cases.items():
        with pytest.raises(ConfigError) as caught:
            config.load(path)
        assert caught.value.problems == (f"{path}: {expected}",)


# -- what only the place of use can tell


def test_variables_have_to_be_set_where_the_proxy_starts() -> None:
    loaded = config.loads("{upstreams: {a: {base_url: http://a, api_key_env: A_KEY}}, state_key_env: hunter2}")

    assert config.unset_variables(loaded, {"A_KEY": "x", "hunter2": "y"}) == ()
    assert config.unset_variables(loaded, {"A_KEY": ""}) == (
        # Looks more like a secret than like a name: not repeated.
        "state_key_env: must name an environment variable that is set, and this one is not",
        "upstreams.a.api_key_env: must name an environment variable that is set, and A_KEY is not",
    )


def test_a_route_behind_one_that_takes_everything_is_told() -> None:
    loaded = config.loads("routes: [{name: a, match: {path: /a}}, {name: b}, {name: c, match: {model: x}}]")

    assert config.unreachable_routes(loaded) == (
        "routes[2]: never reached, since routes[1] matches everything; move it up or give routes[1] a match",
    )
    assert config.unreachable_routes(config.load()) == ()


def test_a_match_without_conditions_is_the_default() -> None:
    assert Match() == config.load().routes[0].match
