"""First-seen times stay few and ordered; a turn in flight holds decisions back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.types import Kind
from proxy.conversations.known import MAX_RUNS, Entry, Known, Move, Runs, Seen, extend, hold
from proxy.conversations.ledger import Ledger, Truncation
from proxy.conversations.ledger_codec import decode, encode
from proxy.conversations.notes import Note, Quote
from tests.proxy.held import bytes_of


@pytest.mark.parametrize(
    ("turns", "fits", "waited", "move"),
    [
        pytest.param((), True, False, "free", id="nothing in flight"),
        pytest.param((), False, True, "free", id="nothing in flight any more"),
        pytest.param((b"t",), True, False, "held", id="fits: goes at once"),
        pytest.param((b"t",), True, True, "held", id="fits after waiting"),
        pytest.param((b"t",), False, False, "wait", id="does not fit"),
        pytest.param((b"t",), False, True, "alone", id="does not fit, and the turn still runs"),
    ],
)
def test_what_a_request_may_do(turns: tuple[bytes, ...], fits: bool, waited: bool, move: Move) -> None:
    assert hold(turns, fits=fits, waited=waited) == move


def test_a_message_keeps_the_time_it_was_first_seen() -> None:
    known = Known(seen=extend(extend((), 0, 2, 100.9), 2, 5, 160.2))

    assert [known.first_seen(i) for i in range(5)] == [100, 100, 160, 160, 160]


def test_nothing_is_known_of_messages_before_the_first_run() -> None:
    assert Known(seen=(Seen(3, 100),)).first_seen(2) is None
    assert Known().first_seen(0) is None


def test_a_request_without_new_messages_adds_no_time() -> None:
    assert extend((Seen(0, 1),), 2, 2, 50) == (Seen(0, 1),)


def test_a_slow_clock_does_not_turn_time_back() -> None:
    assert extend((Seen(0, 100),), 1, 2, 40) == (Seen(0, 100),)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(-5, 500)), min_size=1, max_size=300))
def test_times_stay_few_rise_and_never_make_a_message_younger(steps: list[tuple[int, int]]) -> None:
    runs: Runs = ()
    length, now = 0, 1_000
    truth: list[int] = []
    for messages, seconds in steps:
        now += seconds
        runs = extend(runs, length, length + messages, now)
        truth += [now] * messages
        length += messages
    known = Known(seen=runs)

    assert len(runs) <= MAX_RUNS
    assert list(runs) == sorted(runs, key=lambda run: (run.first, run.at))
    assert len({run.at for run in runs}) == len(runs)
    assert known.first_seen(0) == truth[0]
    highest = 0
    for index, at in enumerate(truth):
        highest = max(highest, at)
        assert (known.first_seen(index) or 0) <= highest


def test_the_newest_messages_keep_their_exact_times() -> None:
    runs: Runs = ()
    for turn in range(500):
        runs = extend(runs, 2 * turn, 2 * turn + 2, 10 * turn)

    assert [Known(seen=runs).first_seen(2 * turn) for turn in range(480, 500)] == [10 * t for t in range(480, 500)]


ENTRIES = {
    "nothing decided": Entry(ledger=Ledger(), seen=(Seen(0, 1_700_000_000),)),
    "often seen": Entry(ledger=Ledger(), seen=tuple(Seen(n * 7 + 300, 1_700_000_000 + n) for n in range(64))),
    "some dropped": Entry(
        ledger=Ledger(decision="0" * 16, length=600, drops=frozenset(range(300, 320))),
        conversation="1" * 16,
        seen=tuple(Seen(n * 70, 1_700_000_000 + n) for n in range(8)),
    ),
    "much quoted": Entry(
        ledger=Ledger(
            decision="0" * 16,
            length=3000,
            drops=frozenset(range(300, 2900)),
            clears=dict.fromkeys(range(2900, 2950), "cleared"),
            truncations={n: (Truncation(0, n, n + 400),) for n in range(2950, 2960)},
            notes=tuple(
                Note(
                    kind=Kind.SUMMARY,
                    before=2900 + k,
                    quotes=tuple(Quote(n, 300 + n, 500 + n) for n in range(300 + k, 340 + k)),
                    covers=tuple(range(300 + k, 700 + k)),
                )
                for k in range(4)
            ),
        ),
        conversation="1" * 16,
    ),
}


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_takes_what_is_counted_of_it(name: str) -> None:
    entry = decode(encode(ENTRIES[name], None), None)  # so that it shares nothing with what made it
    assert entry is not None

    assert bytes_of(entry) <= entry.size <= 2 * bytes_of(entry) + 1000
