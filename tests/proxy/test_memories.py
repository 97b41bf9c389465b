"""What a worker remembers is bounded in bytes, all of it together, and told."""

import re
from dataclasses import fields

import pytest

from proxy.memories import Bounds, Held, together
from tests.proxy.dialogues import body, dialogue
from tests.proxy.proxied import Start, post

MB = 2**20


@pytest.mark.parametrize("total", [MB, 16 * MB, 480 * MB, 999_999_999])
def test_bounds_come_to_no_more_than_what_is_given(total: int) -> None:
    bounds = Bounds.of(total)

    assert total - len(fields(Bounds)) <= bounds.total <= total
    assert min(getattr(bounds, each.name) for each in fields(Bounds)) > 0
    assert bounds.messages * 480 == pytest.approx(total * 64, rel=0.001)


def test_too_little_is_no_bound() -> None:
    with pytest.raises(ValueError, match="total: must be at least 1048576 bytes, got 5"):
        Bounds.of(5)


def test_memories_are_summed() -> None:
    assert together({"a": lambda: Held(1, 20, 300), "b": lambda: Held(4, 50, 600)}) == Held(5, 70, 900)
    assert together({}) == Held(0, 0, 0)


async def told(start: Start, settings: str, requests: int) -> dict[str, dict[str, float]]:
    """What `/metrics` says of memories, after so many long requests that have nothing in common."""
    client = await start(
        f"server: {{memory_bytes: {16 * MB}}}\ndefaults: {{window: 4000, policy: priority}}\n{settings}"
    )
    for number in range(requests):
        await post(client, body([{**m, "content": f"{number} {m['content']}"} for m in dialogue(40)]))
    page = (await client.get("/metrics")).text
    found: dict[str, dict[str, float]] = {}
    for kind, memory, value in re.findall(r'(?m)^trimtab_memory_(\w+)\{memory="(\w+)"\} (\S+)', page):
        found.setdefault(kind, {})[memory] = float(value)
    return found


async def test_what_is_remembered_stays_within_what_may_be(start: Start) -> None:
    found = await told(start, "", 40)

    assert set(found) == {"bytes", "limit_bytes", "entries"}
    apart = {"vectors", "texts", "backlog", "audit", "audit_queue"}
    assert set(found["bytes"]) == {*(each.name for each in fields(Bounds)), "previews", *apart}
    assert sum(most for name, most in found["limit_bytes"].items() if name not in apart) <= 16 * MB
    assert [name for name, held in found["bytes"].items() if held > found["limit_bytes"][name]] == []
    full = {name for name, held in found["bytes"].items() if held > 0.8 * found["limit_bytes"][name]}
    assert {"messages", "requests"} <= full
    assert 0 < found["entries"]["requests"] < 40


async def test_a_store_elsewhere_takes_no_memory_of_the_worker(start: Start, tmp_path: object) -> None:
    found = await told(start, f"state: 'sqlite:///{tmp_path}/state.db'", 1)

    assert "state" not in found["bytes"]
    assert found["bytes"]["decisions"] > 0
