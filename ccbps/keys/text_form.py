"""The text of a key: ``ccbps-<kind>-2:<hex>``, one line for a key file or a variable.

The digits are the key's bytes and the first 8 bytes of SHA-256(kind, bytes), so that a key that was
damaged, cut off or renamed is refused. The check uses no secret: it guards against accidents only.

Hazard: the text is the key. No error shows it, and frames of this package that an error leaves are
emptied (`ccbps.keys.confine`).
"""

from __future__ import annotations

import hmac
import re
from hashlib import sha256
from typing import Final

from ccbps.errors import KeyMismatchError

KINDS: Final = {
    "seed": "a seed",
    "epoch-seed": "an epoch seed",
    "seed-ring": "a ring of seeds",
    "server-key": "a key server's key",
    "publisher-key": "a publisher's key",
    "subscriber-key": "a subscriber's key",
    "broker-key": "a broker's key",
    "broker-update": "a broker's key update",
    "filter-key": "a key of filters",
    "ledger-key": "a key of a ledger's server",
    "delivery-key": "a subscriber's key for delivery",
    "delivery-ring": "a ring of subscribers' keys for delivery",
    "delivery-state": "a broker's state for delivery",
}
"""What stands in front of a key, and what errors call it."""
VERSION: Final = 2
CHECK_BYTES: Final = 8

_TEXT: Final = re.compile(r"ccbps-([a-z-]+)-([0-9]+):((?:[0-9a-f]{2})*)")
_START: Final = re.compile(r"\s*ccbps-[a-z-]+-[0-9]+:")


def write_key(kind: str, secret: bytes) -> str:
    """The text of a key from its kind, one of `KINDS`, and its bytes."""
    return f"ccbps-{kind}-{VERSION}:{(secret + _check(kind, secret)).hex()}"


def read_key(text: str) -> tuple[str, bytes]:
    """Kind and bytes of what `write_key` wrote; white space around it does not matter.

    Raises:
        KeyMismatchError: it is not such a text, or a damaged one (the text is not shown).
    """
    match = _TEXT.fullmatch(text.strip()) if isinstance(text, str) else None
    kind = match[1] if match else ""
    if match is None or kind not in KINDS or match[2] != str(VERSION):
        raise KeyMismatchError(
            "not a key: expected one line, 'ccbps-<kind>-2:' and hex digits, which the key's "
            "to_text() wrote"
        )
    raw = bytes.fromhex(match[3])
    secret, check = raw[:-CHECK_BYTES], raw[-CHECK_BYTES:]
    if not hmac.compare_digest(check, _check(kind, secret)):
        raise damaged(kind)
    return kind, secret


def damaged(kind: str) -> KeyMismatchError:
    """What to raise for the text of a key that was damaged."""
    return KeyMismatchError(f"{KINDS[kind]}, but damaged: take the text that its to_text() wrote")


def other_kind(kind: str, wanted: str) -> KeyMismatchError:
    """What to raise for the text of a key of another kind."""
    return KeyMismatchError(f"this is {KINDS[kind]}, wanted {wanted}")


def is_key_text(text: str) -> bool:
    """Whether a text looks like a key's, damaged or not."""
    return _START.match(text) is not None


def _check(kind: str, secret: bytes) -> bytes:
    return sha256(f"ccbps-{kind}-{VERSION}:".encode() + secret).digest()[:CHECK_BYTES]
