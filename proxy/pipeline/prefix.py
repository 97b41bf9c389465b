"""How much of a prompt a provider's cache can hold from the request before. (pure)"""

from collections.abc import Mapping

from proxy.conversations.placed import Placed
from proxy.pipeline.prompt import Prompt


def shared_tokens(before: Prompt, length: int, after: Prompt) -> int:
    """Leading tokens of `after` that were sent the same way in `before`, which had only the first `length` messages.

    Both are of the same conversation, so their overhead (tool schemas, framing), which providers put first, is the
    same. Counting stops at the first message or note that went away, came or changed.
    """
    if before is after:
        notes = sum(placed.tokens for placed in after.notes if placed.note.before < length)
        return after.overhead + sum(after.tokens[:length]) + notes
    tokens = after.overhead
    there, here = _notes(before), _notes(after)
    for index in range(min(length, len(after.messages))):
        if index in there or index in here:
            noted = here.get(index, [])
            if [each.text for each in there.get(index, ())] != [each.text for each in noted]:
                return tokens
            tokens += sum(each.tokens for each in noted)
        old, new = before.messages[index], after.messages[index]
        if old is None and new is None:
            continue
        if old is None or new is None or old.digest != new.digest:
            return tokens
        tokens += after.tokens[index]
    return tokens


def _notes(prompt: Prompt) -> Mapping[int, list[Placed]]:
    """The notes of a prompt by the message that they stand before."""
    found: dict[int, list[Placed]] = {}
    for placed in prompt.notes:
        found.setdefault(placed.note.before, []).append(placed)
    return found
