"""An experiment: the conversations of a route split between policies, each staying with its own. (pure)"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from policies.types import Policy
from proxy.wire.chat import Message

_SPAN = 2**64


@dataclass(frozen=True, slots=True)
class Arm:
    """A policy, and the share of the conversations that it gets."""

    policy: Policy
    share: float


@dataclass(frozen=True, slots=True)
class Experiment:
    """Arms whose shares sum to 1, in the order in which they divide the hashes of conversations.

    Where a share changes, only conversations at the border change sides.
    """

    arms: tuple[Arm, ...]

    def choose(self, digest: bytes) -> Policy:
        """The policy of the conversation that has this digest at its first user message."""
        hashed = int.from_bytes(blake2b(digest, digest_size=8, person=b"trimtab arms").digest())
        below = 0.0
        for arm in self.arms[:-1]:
            below += arm.share
            if hashed < below * _SPAN:
                return arm.policy
        return self.arms[-1].policy


def first_user(messages: Sequence[Message]) -> int:
    """The index of the first user message, which every request of a conversation has; the last message without one."""
    return next((index for index, message in enumerate(messages) if message.role == "user"), len(messages) - 1)
