"""Hooks are told what was evicted, off the request path, and cost no request anything."""

import threading
from collections.abc import Callable
from importlib.metadata import EntryPoint

import pytest

from proxy.pipeline import evicted
from proxy.pipeline.evicted import Evicted, Hooks, installed
from tests.fakes.upstream import FakeUpstream
from tests.proxy.dialogues import body, dialogue
from tests.proxy.proxied import Records, Start, post
from tests.proxy.talks import answering

TOLD: list[Evicted] = []
CALLED = threading.Event()


def keep(told: Evicted) -> None:
    """A hook of the kind that others install."""
    TOLD.append(told)
    CALLED.set()


def one(number: int = 0) -> Evicted:
    return Evicted(audit_id=str(number), conversation=None, route="r", model=None, messages=((0, b"{}"),))


def test_every_hook_hears_of_every_decision_whatever_the_others_do() -> None:
    heard: list[str] = []

    def broken(_: Evicted) -> None:
        raise ValueError

    hooks = Hooks([broken, lambda told: heard.append(told.audit_id)])
    for number in range(5):
        hooks.tell(one(number))

    assert hooks.close(5)
    assert heard == ["0", "1", "2", "3", "4"]


def test_what_finds_no_room_is_dropped_and_counted() -> None:
    go = threading.Event()
    hooks = Hooks([lambda _: go.wait(10) and None], size=1)
    for number in range(5):
        hooks.tell(one(number))
    go.set()

    assert 3 <= hooks.dropped <= 4
    assert hooks.close(5)


def test_without_hooks_nothing_is_started() -> None:
    hooks = Hooks([])
    hooks.tell(one())

    assert hooks.close(0)
    with pytest.raises(ValueError, match=r"size: must be at least 1, got 0"):
        Hooks([], size=0)


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def install(*values: str) -> None:
        found = [EntryPoint(f"hook{n}", value, evicted.GROUP) for n, value in enumerate(values)]
        monkeypatch.setattr(evicted, "entry_points", lambda group: found if group == evicted.GROUP else [])

    return install


def test_a_hook_that_cannot_be_loaded_is_left_out(points: Callable[..., None]) -> None:
    points("no_such_module:hook", "tests.proxy.pipeline.test_evicted:keep")

    assert [hook.__name__ for hook in installed()] == ["keep"]


async def test_a_hook_gets_the_clients_own_json_of_what_went(
    start: Start, upstream: FakeUpstream, records: Records, points: Callable[..., None]
) -> None:
    TOLD.clear()
    CALLED.clear()
    points("tests.proxy.pipeline.test_evicted:keep")
    answering(upstream)
    client = await start("defaults: {window: 1200, reserve_output: 0, policy: fifo}")
    await post(client, body(dialogue(4)))
    await post(client, body(dialogue(20)))
    record = (await records.get(2))[-1]

    assert CALLED.wait(5)
    (told,) = TOLD
    assert told.audit_id == record["audit_id"]
    assert (told.route, told.model, told.conversation) == ("default", "gpt-4o", record["conversation"])
    gone = [row["messages"][0] for row in record["slots"] if row["action"] == "evict"]
    assert [index for index, _ in told.messages] == sorted(gone)
    assert all(raw in body(dialogue(20)) for _, raw in told.messages)
    assert "Question" not in repr(told)
