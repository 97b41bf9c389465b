"""What is to be done once a turn has ended: vectors for the next cut, and telling what was evicted."""

from collections.abc import Callable, Collection

from proxy.pipeline.evicted import Evicted, Hooks
from proxy.pipeline.gathering import Gatherer
from proxy.pipeline.outcome import Outcome
from proxy.wire import Chat


def afterwards(
    chat: Chat, outcome: Outcome, gone: Collection[int], gatherer: Gatherer | None, hooks: Hooks | None
) -> Callable[[], None] | None:
    """The work after the turn of a request, None where there is none.

    `gone` are the messages that its decision evicted; vectors are prepared from `warn` on, with a `gatherer`.
    """
    route = outcome.route
    prepares = gatherer is not None and (outcome.utilization_before or 0.0) >= route.thresholds.warn
    tells = hooks is not None and bool(gone) and bool(outcome.notes_made or outcome.fates)
    if not prepares and not tells:
        return None

    def work() -> None:
        if gatherer is not None and prepares:
            gatherer.prepare(chat.messages)
        if hooks is not None and tells:
            hooks.tell(
                Evicted(
                    audit_id=outcome.audit_id,
                    conversation=outcome.conversation,
                    route=route.name,
                    model=outcome.model,
                    messages=tuple((i, chat.raw(i)) for i in sorted(gone)),
                )
            )

    return work
