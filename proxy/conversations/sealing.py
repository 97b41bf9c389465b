"""The secrets that an operator's state key gives, and the sealing of the few texts that are ever stored.

AES-256-GCM (NIST SP 800-38D) with a random nonce of 12 bytes in front; good for 2³² texts under one key. Keys are
derived with BLAKE2b, one for each purpose, so that none of them tells another.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE_BYTES = 12
_TAG_BYTES = 16


@dataclass(frozen=True, slots=True)
class Secrets:
    """`salt` goes into every digest, `seal` is the key of a `Sealer`."""

    salt: bytes = field(repr=False)
    seal: bytes = field(repr=False)


def derive(state_key: bytes) -> Secrets:
    """The secrets of a state key: the same in every worker that has it. Raises ValueError if it is empty."""
    if not state_key:
        raise ValueError("state key: must not be empty; 32 random bytes would do")
    root = blake2b(state_key).digest()

    def purpose(name: bytes) -> bytes:
        return blake2b(key=root, digest_size=32, person=name).digest()

    return Secrets(salt=purpose(b"trimtab salt"), seal=purpose(b"trimtab seal"))


class Sealer:
    """Encrypts texts for a store and tells whether they come back unchanged. `key` has 32 bytes."""

    def __init__(self, key: bytes, *, random: Callable[[int], bytes] = os.urandom) -> None:
        self._cipher = AESGCM(key)
        self._random = random

    def seal(self, plain: bytes) -> bytes:
        """The sealed form, 28 bytes longer."""
        nonce = self._random(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, plain, None)

    def open(self, sealed: bytes) -> bytes | None:
        """What was sealed; None if it was with another key, or has been changed since."""
        if len(sealed) < _NONCE_BYTES + _TAG_BYTES:
            return None
        try:
            return self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], None)
        except InvalidTag:
            return None
