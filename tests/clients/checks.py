"""What has to hold of a client that was run through the proxy, whichever it is."""

from typing import Any

from proxy.wire.canonical import digest
from tests.clients.driving import RESERVE, TALK, WIDE, WINDOW, Ran
from tests.clients.matrix import Client

QUESTIONS = len(TALK["questions"])


def check(ran: Ran, scenario: str, client: Client | None = None) -> None:
    """Everything that holds of this scenario."""
    if scenario == "responses":
        _went_through(ran)
        return
    _the_upstream_saw_nothing_wrong(ran, WIDE if client is not None and client.path else WINDOW)
    if client is None or client.own_history:
        _it_stayed_one_conversation(ran, 3 if scenario == "concurrent" else 1)
    if scenario != "edit":
        _what_came_back_was_what_was_said(ran, extra=1 if scenario == "abort" else 0)
    _SAID.get(scenario, _every_answer)(ran)


def _went_through(ran: Ran) -> None:
    """The other API: as it came, and not looked at."""
    assert ran.told == ["From the other API."]
    assert [each.target for each in ran.exchanges] == [b"/v1/responses"]
    assert ran.exchanges[0].header("authorization") == b"Bearer sk-client"
    assert ran.records == []


def _the_upstream_saw_nothing_wrong(ran: Ran, window: int) -> None:
    assert ran.wrong == []
    assert max(ran.sizes) <= window - RESERVE
    assert len(ran.cuts) >= 1, "the conversation was to be long enough"
    assert [record["faults"] for record in ran.records if record["faults"]] == []
    assert {record["action"] for record in ran.records} <= {"pass", "trimmed"}


def _it_stayed_one_conversation(ran: Ran, conversations: int) -> None:
    """From its first cut on, each request was known as the next of the same conversation."""
    named = [record for record in ran.records if record["conversation"] is not None]

    assert len({record["conversation"] for record in named}) == conversations
    assert sum(record["ledger"] != "replayed" for record in named) == conversations, "those of the first cuts"


def _what_came_back_was_what_was_said(ran: Ran, extra: int) -> None:
    """Each assistant message that reached the upstream again is one that it had said, as identity sees it."""
    said = {digest(message) for message in ran.said}
    back = [digest(message) for sent in ran.sent for message in sent["messages"] if message["role"] == "assistant"]

    assert len(back) >= 10
    assert len(set(back) - said) <= extra, "an answer that was cut off is the client's own"


def _every_answer(ran: Ran) -> None:
    assert ran.told == [message["content"] for message in ran.said if message["content"]]
    assert len(ran.told) == QUESTIONS


def _at_its_end(ran: Ran) -> None:
    assert ran.told == [ran.said[-1]["content"]]
    assert any(len(message.get("tool_calls", ())) == 2 for message in ran.said)


def _objects(ran: Ran) -> None:
    assert ran.told
    assert all(told == {"quay": "North Quay", "number": 7} for told in ran.told)


def _pictures(ran: Ran) -> None:
    _every_answer(ran)
    assert all(_pictured(sent["messages"][-1]) for sent in ran.sent)


def _pictured(message: dict[str, Any]) -> bool:
    return any(part.get("image_url", {}).get("url") == TALK["image"] for part in message["content"])


def _each_of_three(ran: Ran) -> None:
    assert len(ran.told) == QUESTIONS
    assert len(ran.said) == 3 * QUESTIONS
    assert set(ran.told) == {message["content"] for message in ran.said}


def _left_and_gone_on(ran: Ran) -> None:
    """The upstream is told that nobody listens any more, long before it has said everything."""
    left, *others = ran.said
    assert ran.exchanges[0].gone.is_set()
    assert ran.told == [message["content"] for message in others]
    assert ran.records[0]["stream_end"] == "client_gone"
    assert left["content"].startswith(ran.sent[1]["messages"][2]["content"])


def _tried_again(ran: Ran) -> None:
    assert len(ran.sent) == QUESTIONS + 2
    assert ran.sent[-1]["messages"] == ran.sent[-2]["messages"] == ran.sent[-3]["messages"]
    _every_answer(ran)


def _file_written(ran: Ran) -> None:
    history, written = ran.told
    assert written.strip() == "Halcyon: North Quay 7"
    assert history.count("Answer ") == QUESTIONS


_SAID = {
    "tools": _at_its_end,
    "structured": _objects,
    "images": _pictures,
    "concurrent": _each_of_three,
    "abort": _left_and_gone_on,
    "retry": _tried_again,
    "edit": _file_written,
}
