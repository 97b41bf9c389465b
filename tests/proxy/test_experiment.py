"""Conversations are split between policies by what they begin with, and stay where they are."""

import json

import pytest

from policies import registry
from policies.priority import Priority
from proxy import config as configs
from proxy.errors import ConfigError
from proxy.experiment import Arm, Experiment
from proxy.offline import trim_body
from tests.fakes.upstream import FakeUpstream
from tests.proxy.dialogues import user, words
from tests.proxy.proxied import Records, Start, post
from tests.proxy.talks import MODEL, Talk, answering

HALVES = Experiment((Arm(registry.create("fifo", {}), 0.5), Arm(registry.create("lru", {}), 0.5)))
SETTINGS = "defaults: {window: 2000, reserve_output: 500, recall: {budget: 0}, experiment: {fifo: 0.5, priority: 0.5}}"


def digests(number: int) -> list[bytes]:
    return [n.to_bytes(16) for n in range(number)]


def test_each_arm_gets_its_share() -> None:
    arms = Experiment(
        tuple(Arm(registry.create(name, {}), s) for name, s in (("fifo", 0.7), ("lru", 0.2), ("rwr", 0.1)))
    )
    chosen = [arms.choose(digest).name for digest in digests(20_000)]

    assert [round(chosen.count(name) / 20_000, 1) for name in ("fifo", "lru", "rwr")] == [0.7, 0.2, 0.1]


def test_another_share_moves_only_the_conversations_at_the_border() -> None:
    more = Experiment((Arm(HALVES.arms[0].policy, 0.6), Arm(HALVES.arms[1].policy, 0.4)))
    moved = [(HALVES.choose(d).name, more.choose(d).name) for d in digests(5000)]

    assert {pair for pair in moved if pair[0] != pair[1]} == {("lru", "fifo")}
    assert 0.08 < sum(a != b for a, b in moved) / 5000 < 0.12


async def test_a_conversation_stays_with_its_policy(start: Start, upstream: FakeUpstream, records: Records) -> None:
    answering(upstream)
    client = await start(SETTINGS)
    arms: list[set[str]] = []
    for number in range(12):
        talk = Talk(client, upstream, [user(f"Task {number}: {words(500, number)}")])
        seen = set()
        for turn in range(5):
            sent = await (talk.send(user(f"Go on {turn}: {words(200, turn)}")) if turn else talk.send())
            seen.add(sent.response.headers["x-trimtab-policy"])
        arms.append(seen - {"experiment"})

    assert all(len(seen) == 1 for seen in arms)
    assert {name for seen in arms for name in seen} == {"fifo", "priority"}
    decided = await records.get(60)
    assert {record["policy"] for record in decided if record["trigger"]} == {"fifo", "priority"}


async def test_what_surely_fits_belongs_to_no_policy(start: Start) -> None:
    client = await start(SETTINGS)

    answer = await post(client, json.dumps({"model": MODEL, "messages": [user("Hello")]}).encode())

    assert answer.headers["x-trimtab-policy"] == "experiment"


async def test_a_policy_that_a_client_asks_for_stands(start: Start, upstream: FakeUpstream) -> None:
    answering(upstream)
    client = await start(SETTINGS.replace("{window", "{allow_overrides: true, window"))
    body = json.dumps({"model": MODEL, "messages": [user(words(2000))]}).encode()

    assert (await post(client, body, **{"x-trimtab-policy": "lru"})).headers["x-trimtab-policy"] == "lru"


def test_offline_a_conversation_gets_one_policy_too() -> None:
    (route,) = configs.routes(configs.loads(SETTINGS))
    bodies = [
        json.dumps({"model": MODEL, "messages": [user(f"Task {number} {words(900)}"), user(words(900))]}).encode()
        for number in range(12)
    ]

    first, again = ([trim_body(body, route).record["policy"] for body in bodies] for _ in range(2))
    assert first == again
    assert set(first) == {"fifo", "priority"}


def test_the_arm_of_the_own_policy_has_its_options() -> None:
    text = "defaults: {policy: {name: priority, decay: 0.5}, experiment: {priority: 0.25, fifo: 0.75}}"
    (route,) = configs.routes(configs.loads(text))

    assert route.experiment is not None
    assert route.experiment.arms[0] == Arm(Priority(decay=0.5), 0.25)
    assert [policy.name for policy in route.policies] == ["priority", "fifo"]


@pytest.mark.parametrize(
    ("settings", "arms"),
    [
        ("", ["fifo", "lru"]),
        ("experiment: {rwr: 0.5, fifo: 0.5}", ["rwr", "fifo"]),
        ("experiment: null", ["hybrid"]),
        ("policy: lru", ["lru"]),
    ],
)
def test_a_route_replaces_the_inherited_experiment(settings: str, arms: list[str]) -> None:
    text = f"{{defaults: {{experiment: {{fifo: 0.5, lru: 0.5}}}}, routes: [{{name: a, {settings}}}]}}"

    assert [policy.name for policy in configs.routes(configs.loads(text))[0].policies] == arms


@pytest.mark.parametrize(
    ("shares", "told"),
    [
        ("{}", "must be shares of two policies or more that sum to 1, got none"),
        ("{fifo: 0.5}", "must be shares of two policies or more that sum to 1, got fifo 0.5"),
        ("{fifo: 0.5, lru: 0.6}", "must be shares of two policies or more that sum to 1, got fifo 0.5, lru 0.6"),
        ("{fifo: 1.5, lru: -0.5}", "fifo: must be a share between 0 and 1, got 1.5"),
        ("{fifo: 0.5, best: 0.5}", "no policy is called 'best'; known: adaptive, "),
        ("{fifo: half, lru: 0.5}", "must be a number"),
    ],
)
def test_shares_that_cannot_be_are_told(shares: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        configs.loads(f"defaults: {{experiment: {shares}}}")

    (problem,) = caught.value.problems
    assert problem.startswith("defaults.experiment")
    assert told in problem
