"""What the load bench asks and whom: bodies, configurations and peers are what the table says they are."""

import json
from itertools import islice
from pathlib import Path

import pytest

from bench.load import servers
from bench.load.__main__ import markdown, model_ms, table
from bench.load.measuring import Times, added
from bench.load.peers import KNOWN, named
from bench.load.profile import part, shares
from bench.load.requests import HYBRID, LOADS, TIGHT, TRIMMED_BY_HYBRID, Load
from proxy import config as configs


@pytest.mark.parametrize("asked", [*LOADS, TRIMMED_BY_HYBRID], ids=lambda asked: asked.name)
def test_bodies_have_the_size_that_they_are_named_for(asked: Load) -> None:
    first, second = islice(asked.bodies(), 2)

    assert asked.size <= len(first) <= 1.05 * asked.size + 400
    assert json.loads(first)["model"] == asked.model
    grown = len(json.loads(second)["messages"]) - len(json.loads(first)["messages"])
    assert (grown, first == second) == (2 if asked.grows else 0, not (asked.grows or asked.fresh))


def test_new_bodies_are_like_none_that_were_asked_before() -> None:
    (fresh,) = [asked for asked in LOADS if asked.fresh]

    assert len({*islice(fresh.bodies(), 3), *islice(fresh.bodies(first=3), 3)}) == 6


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("hybrid", [False, True])
def test_the_configuration_is_one(tmp_path: Path, workers: int, hybrid: bool) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(servers.settings(1234, tmp_path, workers, hybrid=hybrid))

    config = configs.load(file)
    router = configs.router(config)

    assert config.state.startswith("memory:" if workers == 1 else "sqlite:")
    for model, window, policy in [
        (TIGHT, 32_000, "priority"),
        ("gpt-4o", 200_000, "priority"),
        (HYBRID, 32_000 if hybrid else 200_000, "hybrid" if hybrid else "priority"),
    ]:
        found = router.find("/v1/chat/completions", model, {}, None)
        assert found is not None
        assert (found.route.window, found.route.policy.name) == (window, policy)


@pytest.mark.parametrize("name", KNOWN)
def test_a_known_peer_is_found_in_its_environment(tmp_path: Path, name: str) -> None:
    program = tmp_path / name / "bin" / name
    program.parent.mkdir(parents=True)
    program.touch()

    found, peer = named(name, tmp_path)

    assert found == name
    assert str(program) in peer.command
    assert "{port}" in " ".join((peer.command, *peer.files.values()))
    assert "{upstream}" in " ".join((peer.command, *peer.files.values()))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("nobody", "must be NAME=COMMAND, or one of awecompress"),
        ("own=serve --port 8080", "with {port} in the command"),
        ("=serve {port}", "with {port} in the command"),
        ("litellm", "neither in"),
    ],
)
def test_a_peer_that_cannot_be_started_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, why: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ValueError, match=why):
        named(given, tmp_path)


def test_what_a_server_adds_is_the_difference_to_none() -> None:
    direct, own = Times([1.0] * 99 + [5.0]), Times([3.0] * 99 + [9.0])

    assert added(direct, own) == {"p50_ms": 3.0, "added_p50_ms": 2.0, "added_p99_ms": 4.0}


def test_the_model_has_a_column_where_it_was_measured(tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    lines = [
        {"event": "decision", "model": HYBRID, "overhead_ms": {"gather": 20.0, "total": 25.0}},
        {"event": "decision", "model": HYBRID, "overhead_ms": {"gather": 30.0, "total": 35.0}},
        {"event": "decision", "model": HYBRID, "overhead_ms": {"total": 1.0}},
        {"event": "decision", "model": "gpt-4o", "overhead_ms": {"gather": 99.0, "total": 99.0}},
        {"event": "refused", "model": HYBRID},
    ]
    audit.write_text("".join(json.dumps(line) + "\n" for line in lines))
    row = {"p50_ms": 1.0, "added_p50_ms": 0.5, "added_p99_ms": 2.0}

    assert model_ms(audit) == 20.0
    assert "of which model" not in [column.header for column in table({"r": {"direct": row}}).columns]
    with_model = table({"r": {"direct": row, "trimtab": row | {"model_ms": 20.0}}})
    assert "of which model" in [column.header for column in with_model.columns]


def test_time_is_shared_out_among_the_parts_that_took_it() -> None:
    own = ("/x/proxy/wire/rawjson.py", 1, "read")
    elsewhere, built_in = ("/x/aiohttp/client.py", 1, "send"), ("~", 0, "<built-in method len>")
    stats = {
        own: (1, 1, 2.0, 2.0, {}),
        elsewhere: (1, 1, 1.0, 1.0, {}),
        built_in: (4, 4, 1.0, 1.0, {own: (3, 3, 0.75, 0.75), elsewhere: (1, 1, 0.25, 0.25)}),
    }

    assert shares(stats) == {part(own[0]): 2.75 / 4, part(elsewhere[0]): 1.25 / 4}


def test_servers_stand_side_by_side_without_the_direct_way() -> None:
    direct = {"p50_ms": 1.0, "added_p50_ms": 0.0, "added_p99_ms": 0.0, "per_s": 9000.0}
    own = {"p50_ms": 1.5, "added_p50_ms": 0.5, "added_p99_ms": 2.0}

    made = markdown(
        {"2 KB": {"direct": direct, "trimtab": own | {"cpu_ms": 0.25, "per_s": 1234.5}}, "stream": {"trimtab": own}}
    )

    assert made.splitlines()[0] == "| added P50 / P99 ms (processor ms), requests/s | trimtab |"
    assert made.splitlines()[2:] == ["| 2 KB | 0.50 / 2.00 (0.25), 1,234/s |", "| stream | 0.50 / 2.00 |"]
