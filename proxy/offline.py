"""`trimtab trim` and `trimtab count`: the pipeline on one body, without a network or a memory of the last one."""

from dataclasses import dataclass

from policies.types import Policy
from proxy import wire
from proxy.embeddings import Embeddings
from proxy.pipeline import Pipeline
from proxy.pipeline.intake import Incoming
from proxy.route import Route
from proxy.tokens import counter, media, models

PATIENCE_S = 300.0  # nobody waits for an answer: vectors are worth some minutes


class NotChatError(Exception):
    """The input is not a chat request; the message says what it lacks."""


@dataclass(frozen=True, slots=True)
class Trimmed:
    """The body as it would be sent, and the audit record of the decision."""

    body: bytes
    record: dict[str, object]


def table_window(route: Route, model: str | None) -> int | None:
    """The context window of a model in tokens: the route's own word, else the table's."""
    return route.window if route.window is not None else models.window(model) if model else None


def trim_body(
    body: bytes,
    route: Route,
    *,
    policy: Policy | None = None,
    reserve: int | None = None,
    everything: bool = False,
    content: bool = False,
    embeddings: Embeddings | None = None,
) -> Trimmed:
    """Trim one body; where the policy needs vectors, they are waited for.

    Raises:
        NotChatError: it is none.
        ClientError: it does not fit, and the route says reject.
    """
    try:
        wire.parse(body)
    except wire.NotChat as error:
        raise NotChatError(error.reason.value) from None
    pipeline = Pipeline(table_window, embeddings=embeddings, wait_s=PATIENCE_S)
    outcome = pipeline.settle(Incoming(route=route, body=body, policy=policy, reserve=reserve))
    return Trimmed(outcome.body, outcome.record(everything=everything, content=content))


def count_body(body: bytes, model: str | None = None) -> dict[str, object]:
    """The tokens of a body: `total` with framing, `messages` one by one, `tools`, and `images` within `messages`.

    Raises:
        NotChatError: it is none.
    """
    try:
        chat = wire.parse(body)
    except wire.NotChat as error:
        raise NotChatError(error.reason.value) from None
    chosen = counter(model or chat.settings.model)
    messages = [chosen.message(message) for message in chat.messages]
    return {
        "tokenizer": chosen.name,
        "total": sum(messages) + chosen.overhead(chat.settings),
        "messages": messages,
        "tools": chosen.tools(chat.settings),
        "images": sum(chosen.images(message) for message in chat.messages),
        "estimated": chosen.estimated or any(media.guessed(part) for m in chat.messages for part in m.parts),
    }
