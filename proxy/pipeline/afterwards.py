"""What is to be done once a turn has ended: telling what was evicted."""

from collections.abc import Callable, Collection

from proxy.pipeline.evicted import Evicted, Hooks
from proxy.pipeline.outcome import Outcome
from proxy.wire import Chat


def afterwards(chat: Chat, outcome: Outcome, gone: Collection[int], hooks: Hooks | None) -> Callable[[], None] | None:
    """The work after the turn of a request, None where there is none; `gone` are messages that its decision evicted."""
    if hooks is None or not gone or not (outcome.notes_made or outcome.fates):
        return None

    def work() -> None:
        hooks.tell(
            Evicted(
                audit_id=outcome.audit_id,
                conversation=outcome.conversation,
                route=outcome.route.name,
                model=outcome.model,
                messages=tuple((i, chat.raw(i)) for i in sorted(gone)),
            )
        )

    return work
