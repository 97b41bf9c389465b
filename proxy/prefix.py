"""How much of a prompt a provider's cache can hold from the request before. (pure)"""

from proxy.prompt import Prompt


def shared_tokens(before: Prompt, length: int, after: Prompt) -> int:
    """Leading tokens of `after` that were sent the same way in `before`, which had only the first `length` messages.

    Both are of the same conversation, so their overhead (tool schemas, framing), which providers put first, is the
    same. Counting stops at the first message that went away, came back or changed.
    """
    tokens = after.overhead
    for index in range(min(length, len(after.messages))):
        old, new = before.messages[index], after.messages[index]
        if old is None and new is None:
            continue
        if old is None or new is None or old.digest != new.digest:
            return tokens
        tokens += after.tokens[index]
    return tokens
