"""One request through the pipeline: thresholds, overflow, and the table of faults."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import pytest

from policies.plan import Evict, Plan
from policies.types import Context, Need, Policy, Window
from proxy import wire
from proxy.economics import Economy
from proxy.errors import ClientError
from proxy.pipeline import Pipeline, trimming
from proxy.pipeline.intake import Incoming
from proxy.pipeline.outcome import Action, Outcome
from proxy.route import OnOverflow, Route
from proxy.tokens import Cache, Counter, counter
from tests.proxy.dialogues import Message, agent, assistant, body, call, dialogue, route, system, user, words
from tests.validator import violations, worsened


def size(messages: list[Message]) -> int:
    chat = wire.parse(body(messages))
    chosen = counter("gpt-4o")
    return sum(map(chosen.message, chat.messages)) + chosen.overhead(chat.settings)


def settle(messages: list[Message], through: Route, **incoming: Any) -> Outcome:
    pipeline = Pipeline(lambda route, model: route.window)
    return pipeline.settle(Incoming(route=through, body=body(messages), **incoming))


def sent(outcome: Outcome) -> list[Message]:
    messages: list[Message] = json.loads(outcome.body)["messages"]
    return messages


@pytest.mark.parametrize(
    ("utilization", "at_most"),
    [
        pytest.param(0.80, None, id="below"),
        pytest.param(0.86, 0.70, id="normal"),
        pytest.param(0.96, 0.60, id="emergency"),
    ],
)
@pytest.mark.parametrize("policy", ["fifo", "priority", "lru", "lru_token", "rwr", "token_cost"])
def test_thresholds_decide_how_deep_a_cut_goes(policy: str, utilization: float, at_most: float | None) -> None:
    messages = dialogue(40, size=20)
    outcome = settle(messages, route(policy, window=round(size(messages) / utilization), recall_budget=0.0))

    assert outcome.utilization_before == pytest.approx(utilization, abs=0.001)
    if at_most is None:
        assert outcome.body == body(messages)
        assert outcome.action is Action.PASS
    else:
        assert outcome.utilization_after is not None
        assert at_most - 0.05 < outcome.utilization_after <= at_most
        assert size(sent(outcome)) == outcome.tokens_after
        assert worsened(messages, sent(outcome)) == []


def test_what_surely_fits_is_not_counted() -> None:
    outcome = settle(dialogue(3), route(window=100_000))

    assert not outcome.counted
    assert outcome.tokens_before is None
    assert outcome.utilization_before == round(len(body(dialogue(3))) / 100_000, 4)


def test_an_image_is_counted_however_small_its_address() -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://example.org/quay.png"}}
    outcome = settle([user("what is this?"), {"role": "user", "content": [picture]}], route(window=100_000))

    assert outcome.counted


def test_an_unknown_window_leaves_a_request_alone() -> None:
    outcome = settle(dialogue(40), route(window=None))

    assert outcome.body == body(dialogue(40))
    assert outcome.reason == "window_unknown"


def test_a_budget_stands_in_for_an_unknown_window() -> None:
    assert settle(dialogue(40), route(window=None, budget_tokens=1000)).action is Action.TRIMMED


GIANT = "start " + words(4000) + " end"


def test_truncate_shortens_protected_results_in_the_middle_and_keeps_both_ends() -> None:
    messages = [system(), user("task"), *call(0, GIANT), *call(1, "small")]
    outcome = settle(messages, route(window=1500))

    after = sent(outcome)
    assert worsened(messages, after, frozenset({3})) == []
    assert [message for i, message in enumerate(after) if i != 3] == [m for i, m in enumerate(messages) if i != 3]
    assert after[3]["content"].startswith("start ")
    assert after[3]["content"].endswith(" end")
    assert "characters left out here" in after[3]["content"]
    assert 1200 < size(after) <= 1500
    assert outcome.action is Action.TRIMMED
    assert outcome.reason == "on_overflow_truncate"
    assert outcome.alarming


def test_truncate_goes_from_old_to_new_and_only_as_far_as_needed() -> None:
    messages = [system(), user("task"), *call(0, GIANT), *call(1, GIANT), *call(2, GIANT)]
    outcome = settle(messages, route(window=10_000))

    shortened = [i for i, (old, new) in enumerate(zip(messages, sent(outcome), strict=True)) if old != new]
    assert shortened == [3]


def test_truncate_cuts_parts_and_leaves_a_message_with_a_picture_alone() -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://example.org/quay.png", "detail": "low"}}
    seen = {"role": "user", "content": [{"type": "text", "text": GIANT}, picture]}
    plain = {"role": "user", "content": [{"type": "text", "text": GIANT, "x": 1}, {"type": "text", "text": "tail"}]}
    messages = [user("task"), assistant("ok"), seen, assistant("ok"), plain, assistant("ok"), user("now")]
    outcome = settle(messages, route(window=5500, protect_last=6))

    after = sent(outcome)
    assert after[2] == seen
    assert after[4]["content"][0]["x"] == 1
    assert after[4]["content"][1] == {"type": "text", "text": "tail"}
    assert len(after[4]["content"][0]["text"]) < len(GIANT)


def test_truncate_never_splits_a_grapheme() -> None:
    family = "👩‍👩‍👧‍👦"
    messages = [system(), user("task"), *call(0, family * 3000), user("now")]
    after = sent(settle(messages, route(window=3000)))

    text = after[3]["content"]
    head, tail = text.split("\n[… ")[0], text.split("…]\n")[1]
    assert head == family * (len(head) // len(family))
    assert tail == family * (len(tail) // len(family))


def test_the_live_prompt_is_never_shortened_and_what_does_not_fit_is_sent_as_unfit() -> None:
    messages = [system(), user("task"), assistant("ok"), user(GIANT)]
    outcome = settle(messages, route(window=1000))

    assert sent(outcome)[-1] == messages[-1]
    assert outcome.action is Action.UNFIT
    assert outcome.alarming


def test_reject_refuses_and_names_what_is_pinned() -> None:
    with pytest.raises(ClientError, match=r"by pinned user messages, \d+ by pinned system messages") as caught:
        settle([system(), user(GIANT)], route(window=1000, on_overflow=OnOverflow.REJECT))

    assert (caught.value.status, caught.value.code) == (400, "context_length_exceeded")


def test_force_evicts_protected_slots_oldest_first_and_pinned_never() -> None:
    messages = [system(), user("task"), *call(0, words(800)), *call(1, words(800)), *call(2, "small")]
    outcome = settle(messages, route(window=1200, on_overflow=OnOverflow.FORCE))

    assert sent(outcome) == [*messages[:2], *messages[4:]]
    assert outcome.fates["m2"].reason.startswith("protected")


def test_passthrough_sends_what_the_policy_left() -> None:
    messages = [system(), *dialogue(10)[1:-1], user(GIANT)]
    outcome = settle(messages, route(window=2000, on_overflow=OnOverflow.PASSTHROUGH))

    assert outcome.action is Action.UNFIT
    assert sent(outcome)[-1] == messages[-1]
    assert len(sent(outcome)) < len(messages)


@pytest.mark.parametrize("policy", ["fifo", "priority", "clear_tool_results", "lru_token"])
def test_what_alternated_alternates_after_a_cut(policy: str) -> None:
    messages = dialogue(30)
    outcome = settle(messages, route(policy, window=800))

    roles = [message["role"] for message in sent(outcome)[1:]]
    assert len(roles) < 60
    assert all(one != other for one, other in pairwise(roles))


def test_cleared_results_leave_their_calls_and_say_so() -> None:
    messages = agent(12)
    outcome = settle(messages, route("clear_tool_results", window=round(size(messages) / 0.9)))

    after = sent(outcome)
    assert len(after) == len(messages)
    assert violations(after) == []
    cleared = [message for message in after if "Result removed" in str(message["content"])]
    assert cleared
    assert size(after) == outcome.tokens_after


@dataclass(frozen=True, slots=True)
class Broken:
    """A policy with one way to go wrong."""

    way: str
    name: ClassVar[str] = "broken"
    needs: ClassVar[frozenset[Need]] = frozenset()

    def plan(self, window: Window, target: int, context: Context) -> Plan:
        if self.way == "raises":
            raise RuntimeError("a secret of the client")
        if self.way == "panics":
            raise BaseException("PanicException")
        pinned = next(slot.id for slot in window.slots if slot.pinned)
        return Plan(self.name, (Evict(pinned if self.way == "pinned" else "nowhere", None, ""),))


@pytest.mark.parametrize("way", ["raises", "panics", "pinned", "unknown"])
def test_a_broken_policy_costs_no_request_fifo_takes_over(way: str, capsys: pytest.CaptureFixture[str]) -> None:
    broken: Policy = Broken(way)
    messages = dialogue(30)
    outcome = settle(messages, route(window=1000), policy=broken)
    baseline = settle(messages, route(window=1000))

    assert outcome.body == baseline.body
    assert outcome.policy == "fifo"
    assert outcome.faults == ["policy"]
    assert (b"x-trimtab-faults", b"policy") in outcome.headers()
    assert "secret" not in capsys.readouterr().out


def broken(*args: object, **kwargs: object) -> Any:
    raise ValueError("broken")


@pytest.mark.parametrize(
    ("target", "attribute", "fault"),
    [
        pytest.param(wire, "parse", "pipeline", id="parsing"),
        pytest.param(trimming, "splice", "splice", id="splicing"),
    ],
)
def test_a_fault_of_ours_sends_the_clients_own_bytes(
    monkeypatch: pytest.MonkeyPatch, target: object, attribute: str, fault: str
) -> None:
    monkeypatch.setattr(target, attribute, broken)
    outcome = settle(dialogue(30), route(window=1000))

    assert outcome.body == body(dialogue(30))
    assert not outcome.changed
    assert outcome.faults == [fault]
    assert outcome.action is Action.PASS


def test_a_broken_counter_is_replaced_by_an_estimate_from_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cache, "message", broken)
    monkeypatch.setattr(Cache, "messages", broken)
    messages = dialogue(30)
    outcome = settle(messages, route(window=1000))

    assert outcome.faults == ["counter"]
    assert outcome.action is Action.TRIMMED
    assert worsened(messages, sent(outcome)) == []


def test_pins_of_the_client_hold_and_wrong_ones_are_refused() -> None:
    messages = dialogue(30)

    assert messages[5] in sent(settle(messages, route(window=1000), pins=(5,)))
    with pytest.raises(ClientError, match=r"message 61 .* 0 to 61, or -62 to -1|not there"):
        settle(messages, route(window=1000), pins=(62,))


def test_the_record_says_what_happened_and_nothing_of_what_was_said() -> None:
    outcome = settle(dialogue(30), route(window=1000))

    record = outcome.record()
    text = json.dumps(record)
    assert not any(word in text for word in ("tide", "Question", "harbour"))
    assert record["slots_total"] == 62
    assert isinstance(record["slots"], list)
    assert len(record["slots"]) == record["slots_evicted"]
    assert len(outcome.record(everything=True)["slots"]) == 62  # type: ignore[arg-type]
    assert "Question 9" in json.dumps(outcome.record(content=True))


def test_the_same_request_gets_the_same_bytes_and_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    original: Callable[[Counter, Any], Any] = Counter.measure

    def counting(self: Counter, message: Any) -> Any:
        calls.append(message)
        return original(self, message)

    monkeypatch.setattr(Counter, "measure", counting)
    pipeline = Pipeline(lambda route, model: route.window)
    incoming = Incoming(route=route(window=1000), body=body(dialogue(30)))

    first = pipeline.settle(incoming)
    counted = len(calls)
    second = pipeline.settle(incoming)

    assert first.body == second.body
    assert counted == len(calls) > 0


@pytest.mark.parametrize(("price", "horizon", "pays"), [(0.25, 20, True), (0.0, 20, False), (0.25, 0, False)])
def test_the_record_says_whether_a_cut_pays_what_it_takes(price: float, horizon: int, pays: bool) -> None:
    outcome = settle(dialogue(30), route(window=1000, cache=Economy(price=price, horizon_turns=horizon)))

    assert outcome.record()["cache_pays"] is pays
