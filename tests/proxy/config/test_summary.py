"""The few lines at the start: what is on, and what is missing."""

from typing import Any

import pytest

from proxy import config as configs
from proxy.config.summary import summary

FULL = """
state: "redis://:hunter2@cache:6379/0"
audit: {path: ["-", /var/log/trimtab.jsonl], store: "sqlite:///audit.db"}
embeddings: {backend: none}
telemetry: {endpoint: "http://collector:4318"}
upstreams:
  openai: {base_url: https://api.openai.com/v1, api_key_env: OPENAI_API_KEY}
  local: {base_url: http://127.0.0.1:8000/v1}
keys: [{name: team, env: TEAM_KEY}]
routes:
  - {name: support, upstream: openai, match: {path: /support, model: "gpt-4o*", header: {x-team: "a*"}}, window: 32000}
  - {name: split, upstream: local, match: {path: /split}, experiment: {fifo: 0.5, priority: 0.5}, mode: shadow}
  - {name: rest, upstream: local, policy: fifo}
"""


def lines(settings: str, environ: dict[str, str] | None = None, **options: Any) -> dict[str, list[Any]]:
    """The fields of the lines, by event; those that warn under `warns`."""
    found: dict[str, list[Any]] = {"warns": []}
    for line in summary(configs.loads(settings), environ or {}, **{"workers": 1, "host": "127.0.0.1", **options}):
        found.setdefault(line.event, []).append(dict(line.fields))
        if line.warns:
            found["warns"].append(line.event)
    return found


def test_routes_upstreams_and_where_everything_is_kept_are_said() -> None:
    said = lines(FULL)

    support, split, rest = said["route"]
    takes = "path /support, model gpt-4o*, header x-team a*"
    assert support == {
        "name": "support",
        "takes": takes,
        "upstream": "openai",
        "policy": "hybrid",
        "mode": "enforce",
        "window": 32000,
    }
    assert (split["experiment"], split["mode"]) == ({"fifo": 0.5, "priority": 0.5}, "shadow")
    assert rest["takes"] == "everything"
    assert [each["key"] for each in said["upstream"]] == ["from OPENAI_API_KEY", "the client's"]
    assert said["state"] == [{"in": "redis://***@cache:6379/0", "workers": 1}]
    assert said["audit"][0]["lines"] == ["-", "/var/log/trimtab.jsonl"]
    assert said["keys"] == [{"for": ["team"]}]
    assert said["traces"] == [{"to": "http://collector:4318"}]
    assert "hunter2" not in str(said)


def test_what_is_missing_is_a_warning_that_says_why() -> None:
    said = lines(FULL, {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})

    assert said["warns"] == ["relevance_by_words_alone", "no_traces"]
    assert said["relevance_by_words_alone"] == [{"routes": ["support"], "why": "embeddings.backend is none"}]
    assert "must be http/protobuf" in said["no_traces"][0]["why"]


@pytest.mark.parametrize(
    ("settings", "options", "warns"),
    [
        ("defaults: {policy: fifo}", {}, []),
        ("defaults: {policy: fifo}", {"host": "0.0.0.0"}, ["open_to_all"]),
        ("defaults: {policy: fifo}\nkeys: [{name: a, env: A}]", {"host": "0.0.0.0"}, []),
        ("defaults: {policy: fifo}\naudit: {content: true}", {}, ["audit_has_content"]),
        ("defaults: {policy: fifo}\nstate: 'sqlite:///a.db'", {"workers": 2}, ["audit_apart"]),
    ],
    ids=["nothing", "open to the network", "behind keys", "content recorded", "decisions of each worker alone"],
)
def test_warnings_come_only_where_there_is_something_to_warn_of(
    settings: str, options: dict[str, Any], warns: list[str]
) -> None:
    assert lines(settings, **options)["warns"] == warns


def test_a_policy_that_looks_at_no_prompt_misses_no_vectors() -> None:
    assert "relevance_by_words_alone" not in lines("embeddings: {backend: none}\ndefaults: {policy: fifo}")
