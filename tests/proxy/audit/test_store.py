"""What was decided can be asked for: found, counted, summed; bounded by rows and days; shared by processes."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex

import pytest

from proxy.audit import Audit, Sinks
from proxy.audit.figures import Figures
from proxy.audit.query import Filter
from proxy.audit.store import AuditStore
from tests.proxy.records import NOW, record, refusal

DAY = 86_400.0


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AuditStore]:
    kept = AuditStore(tmp_path / "audit.db" if request.param == "file" else None, now=lambda: NOW)
    kept.open()
    yield kept
    kept.close()


def fill(store: AuditStore, *records: dict[str, object]) -> None:
    for each in records:
        store.put(each)
    store.flush()


def read(store: AuditStore) -> Figures:
    figures = Figures()
    with store.reading() as decisions:
        figures.refresh(decisions)
    return figures


def ids(store: AuditStore, which: Filter, **page: int) -> list[int]:
    with store.reading() as decisions:
        return [int(row["audit_id"], 16) for row in decisions.newest(which, **page)]


def test_a_record_comes_back_as_it_was_put(store: AuditStore) -> None:
    fill(store, record(1), record(2, route="zwölf"))

    with store.reading() as decisions:
        assert decisions.records(f"{2:016x}") == [record(2, route="zwölf")]


def test_what_is_not_flushed_disturbs_no_reader(store: AuditStore) -> None:
    fill(store, record(1))
    with store.reading() as decisions:
        store.put(record(2))
        decisions.newest(Filter())
        store.put(record(3))
        store.flush()

        assert len(decisions.newest(Filter())) == 3


@pytest.mark.parametrize(
    ("which", "found"),
    [
        (Filter(), [5, 4, 3, 2, 1, 0]),
        (Filter(route="other"), [1]),
        (Filter(model="gpt-4"), [2]),
        (Filter(conversation="c1"), [3]),
        (Filter(policy="fifo"), [4]),
        (Filter(action="pass"), [5]),
        (Filter(since=NOW - 45), [4, 3, 2, 1, 0]),
        (Filter(until=NOW - 45), [5]),
        (Filter(route="main", policy="fifo", since=NOW - 45), [4]),
        (Filter(route="main' OR '1'='1"), []),
    ],
    ids=str,
)
def test_decisions_are_found_by_what_is_known_of_them(store: AuditStore, which: Filter, found: list[int]) -> None:
    fill(
        store,
        record(0),
        record(1, age_s=10, route="other"),
        record(2, age_s=20, model="gpt-4"),
        record(3, age_s=30, conversation="c1"),
        record(4, age_s=40, policy="fifo"),
        record(5, age_s=50, action="pass", trigger=None),
    )

    assert ids(store, which) == found


def test_pages_follow_each_other_without_gaps_while_more_comes(store: AuditStore) -> None:
    fill(store, *map(record, range(10)))
    with store.reading() as decisions:
        page = decisions.newest(Filter(), limit=4)
        fill(store, record(99))
        following = decisions.newest(Filter(), limit=4, before=page[-1]["id"])

    assert [int(row["audit_id"], 16) for row in (*page, *following)] == [9, 8, 7, 6, 5, 4, 3, 2]


def test_the_beginning_of_an_id_is_enough_where_only_one_has_it(store: AuditStore) -> None:
    fill(store, record(0, audit_id="abcd1111"), record(1, audit_id="abcd2222"), record(2, audit_id="abff0000"))

    with store.reading() as decisions:
        found = {start: len(decisions.records(start)) for start in ("abff", "abcd", "abcd2", "ab", "", "abff%", "a'--")}
    assert found == {"abff": 1, "abcd": 2, "abcd2": 1, "ab": 0, "": 0, "abff%": 0, "a'--": 0}


@pytest.mark.parametrize(("rows", "days", "left"), [(10, 0, 10), (0, 1, 26), (0, 0, 101), (10, 1, 10)])
def test_what_is_kept_is_bounded_by_rows_and_days(tmp_path: Path, rows: int, days: float, left: int) -> None:
    path = tmp_path / "audit.db"
    store = AuditStore(path, rows=rows, days=days, now=lambda: NOW)
    store.open()
    fill(store, *(record(number, age_s=(99.5 - number) * DAY / 25) for number in range(100)), record(100))
    with store.reading() as decisions:
        assert len(decisions.newest(Filter(), limit=1000)) == left
        assert decisions.newest(Filter())[0]["audit_id"] == f"{100:016x}"
    store.close()

    with sqlite3.connect(path) as connection:
        counts = [
            connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("decisions", "records")
        ]
    connection.close()
    assert counts[0] == counts[1]


def test_workers_share_a_file(tmp_path: Path) -> None:
    one, other = (AuditStore(tmp_path / "audit.db", now=lambda: NOW) for _ in range(2))
    one.open()
    other.open()
    fill(one, record(1))
    fill(other, record(2))

    assert ids(one, Filter()) == ids(other, Filter()) == [2, 1]
    one.close()
    other.close()


def test_a_file_outlives_its_proxy_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "audit ä?#%.db"
    for number in (1, 2):
        store = AuditStore(path, now=lambda: NOW)
        store.open()
        fill(store, record(number))
        store.close()

    assert ids(store, Filter()) == [2, 1]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_cannot_be_read_is_moved_aside(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    path.write_bytes(b"not a database, whatever its name says" * 100)
    store = AuditStore(path, now=lambda: NOW)

    store.open()
    fill(store, record(1))

    assert ids(store, Filter()) == [1]
    assert (tmp_path / "audit.db.corrupt").read_bytes().startswith(b"not a database")
    store.close()


def test_a_folder_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        AuditStore(tmp_path / "missing" / "audit.db").open()


def test_a_period_is_summed_by_policy(store: AuditStore) -> None:
    fill(
        store,
        record(0),
        record(1, overhead_ms={"total": 9.0}),
        record(2, policy="fifo", tokens_after=2600, utilization_after=0.9),
        record(3, action="shadow", mode="shadow", policy="fifo"),
        record(4, tokens_before=None, tokens_after=None, utilization_after=None, trigger=None, action="pass", slots=[]),
        refusal(),
    )

    figures = read(store)
    found = {each.name: each for each in figures.totals(Filter(), by="policy")}
    (everything,) = figures.totals(Filter())
    assert figures.totals(Filter(route="nowhere")) == []

    assert set(found) == {"priority", "fifo", "(fits, not counted)", "-"}
    priority, fifo = found["priority"], found["fifo"]
    assert (priority.requests, priority.trimmed, priority.cuts, priority.saved) == (2, 2, 2, 2000)
    assert (priority.cache_kept, priority.cache_lost, priority.cached_tokens) == (280, 1800, 256)
    assert (priority.avoided, priority.gone_tool, priority.gone_user) == (2, 2000, 0)
    assert priority.p50_ms == 1.0
    assert priority.p99_ms == 9.0
    assert (fifo.requests, fifo.trimmed, fifo.saved, fifo.would_save, fifo.cuts) == (2, 1, 500, 1000, 1)
    assert (everything.requests, everything.refused, everything.alarming) == (6, 1, 1)


def test_slots_that_are_summed_instead_of_listed_count_too(store: AuditStore) -> None:
    rest = [("evict", "user", 9), ("summarize", "system", 4), ("keep", "user", 100)]
    unlisted = [{"action": action, "role": role, "slots": 2, "tokens": tokens} for action, role, tokens in rest]
    fill(store, record(0), record(1, slots_unlisted=unlisted))

    (everything,) = read(store).totals(Filter())
    assert (everything.gone_tool, everything.gone_user, everything.gone_other) == (2000, 9, 4)


@pytest.mark.parametrize(
    ("fields", "avoided"),
    [
        ({}, 1),
        ({"tokens_before": 2900}, 0),
        ({"tokens_after": 3001}, 0),
        ({"status": 400}, 0),
        ({"status": None}, 0),
        ({"window": "unknown"}, 0),
        ({"action": "shadow"}, 0),
    ],
    ids=str,
)
def test_an_error_was_avoided_where_the_window_was_too_small_for_what_came(
    store: AuditStore, fields: dict[str, object], avoided: int
) -> None:
    fill(store, record(0, **fields))

    assert read(store).totals(Filter())[0].avoided == avoided


def test_a_series_has_the_spans_with_requests(store: AuditStore) -> None:
    fill(store, record(0, age_s=95), record(1, age_s=91), record(2, age_s=5))

    series = read(store).series(Filter(), start=NOW - 100, step=10, spans=11)
    assert [(at - NOW, totals.requests) for at, totals in series] == [(-100, 2), (-10, 1)]


def test_figures_keep_up_with_what_comes_and_goes(tmp_path: Path) -> None:
    store = AuditStore(tmp_path / "audit.db", rows=100, days=0, now=lambda: NOW)
    store.open()
    figures = Figures()
    seen = []
    for start in (0, 60, 120, 180):
        fill(store, *(record(number, route=f"r{number // 60}") for number in range(start, start + 60)))
        if start == 180:
            store._prune(store._current(), NOW)  # otherwise only now and then
            store.flush()
        with store.reading() as decisions:
            figures.refresh(decisions)
            kept = len(decisions.newest(Filter(), limit=1000))
        seen.append(sum(each.requests for each in figures.totals(Filter(), by="route")) == kept)
    store.close()

    assert seen == [True] * 4
    assert {each.name: each.requests for each in figures.totals(Filter(), by="route")} == {"r2": 40, "r3": 60}


def test_what_takes_more_than_it_may_makes_room() -> None:
    store = AuditStore(None, rows=0, days=0, max_bytes=1_000_000, now=lambda: NOW)
    store.open()
    for start in range(0, 1500, 100):
        slots = [{"index": n, "reason": token_hex(20)} for n in range(40)]
        fill(store, *(record(number, slots=slots) for number in range(start, start + 100)))
        if start >= 400:
            assert 500_000 < store.held().bytes <= 1_000_000
    with store.reading() as decisions:
        kept = [row["audit_id"] for row in decisions.newest(Filter(), limit=1000)]
    store.close()

    assert 100 < len(kept) < 1000
    assert kept == [f"{number:016x}" for number in range(1499, 1499 - len(kept), -1)]
    assert store.held().entries <= len(kept)


def test_names_that_no_decision_has_any_more_are_forgotten(tmp_path: Path) -> None:
    """Clients name their models, and may name another with every request."""
    store = AuditStore(tmp_path / "audit.db", rows=100, days=0, now=lambda: NOW)
    store.open()
    figures = Figures()
    for start in range(0, 4000, 400):
        fill(store, *(record(number, model=f"m{number}") for number in range(start, start + 400)))
        store._prune(store._current(), NOW)
        store.flush()
        with store.reading() as decisions:
            figures.refresh(decisions)
    store.close()

    assert sorted(each.name for each in figures.totals(Filter(), by="model")) == [f"m{n}" for n in range(3900, 4000)]
    assert [each.requests for each in figures.totals(Filter(model="m3950"))] == [1]
    assert figures.totals(Filter(model="m3899")) == []
    assert len(figures._loaded.known["model"]) < 1700


def test_conversations_are_listed_by_their_last_request(store: AuditStore) -> None:
    fill(store, record(0, age_s=9), record(1, conversation="c1"), record(2, trigger=None), record(3, conversation=None))

    with store.reading() as decisions:
        found = decisions.conversations(Filter())
    assert [(row["conversation"], row["requests"], row["cuts"]) for row in found] == [("c0", 2, 1), ("c1", 1, 1)]


def test_lines_hold_what_changed_while_the_store_holds_every_slot(tmp_path: Path) -> None:
    store = AuditStore(tmp_path / "audit.db")
    audit = Audit(Sinks(paths=(str(tmp_path / "audit.jsonl"),), everything=False), store)
    audit.start()
    fields = record(7)
    del fields["time"], fields["level"]
    audit.put(fields)
    audit.close()

    assert '"keep"' not in (tmp_path / "audit.jsonl").read_text()
    with store.reading() as decisions:
        assert [slot["action"] for slot in decisions.records(f"{7:016x}")[0]["slots"]] == ["keep", "evict"]


def test_a_store_that_fails_costs_no_line(tmp_path: Path) -> None:
    class Broken(AuditStore):
        def put(self, record: object) -> None:
            raise sqlite3.OperationalError("database or disk is full")

    audit = Audit(Sinks(paths=(str(tmp_path / "audit.jsonl"),)), Broken(None))
    audit.start()
    audit.put({"event": "decision", "number": 1})
    audit.put({"event": "decision", "number": 2})
    audit.close()

    assert len((tmp_path / "audit.jsonl").read_text().splitlines()) == 2
    assert (audit.counts.written, audit.counts.failed) == (2, 2)
