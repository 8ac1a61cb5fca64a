"""The text of a key: ``ccbps-<kind>-3:<hex>``, one line for a key file or a variable.

The digits are the key's bytes and the first 8 bytes of SHA-256(kind, bytes), so a key that was
damaged, cut off or renamed is refused. The check uses no secret: it guards against accidents only.

Hazard: the text is the key. No error shows it, and `ccbps.keys.secret.confined` empties the frames
of this package that an error leaves.
"""

from __future__ import annotations

import contextlib
import re
from typing import ClassVar, Final, Self

from ccbps import primitives
from ccbps.checks import other_version
from ccbps.errors import CcbpsError, KeyMismatchError
from ccbps.keys.secret import confined

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
    "signing-key": "a key that signs events",
    "exchange-key": "a key by which a domain gets keys from others",
    "client-key": "the key of a client of three brokers",
    "operator-key": "the key of the operator of one of three brokers",
    "authority-key": "the master key of an authority of functional encryption",
    "policy-key": "a user's key of functional encryption",
    "tree-key": "the secret of a key server of trees",
    "range-key": "a key of ranges of a tree",
    "hello-key": "the key by which one of three brokers opens hellos",
}
"""Names of keys in errors, by the kinds that stand in front of their text."""
VERSION: Final = 3
CHECK_BYTES: Final = 8

_TEXT: Final = re.compile(r"ccbps-([a-z-]+)-([0-9]+):((?:[0-9a-f]{2})*)")
_START: Final = re.compile(r"\s*ccbps-[a-z-]+-[0-9]+:")


def write_key(kind: str, secret: bytes) -> str:
    """Return the text of a key from its kind, one of `KINDS`, and its bytes."""
    return f"ccbps-{kind}-{VERSION}:{(secret + _check(kind, secret)).hex()}"


def read_key(text: str) -> tuple[str, bytes]:
    """Read the kind and the bytes of a key that `write_key` wrote, with any white space around it.

    Raises:
        KeyMismatchError: the text is no key's, or damaged. The error does not show it.
    """
    match = _TEXT.fullmatch(text.strip()) if isinstance(text, str) else None
    kind = match[1] if match else ""
    if match is not None and kind in KINDS and match[2] != str(VERSION):
        came = int(match[2]) if len(match[2]) < 10 else match[2]
        raise KeyMismatchError(other_version(f"the text of {KINDS[kind]}", came, VERSION))
    if match is None or kind not in KINDS:
        raise KeyMismatchError(
            "not a key: expected one line, 'ccbps-<kind>-3:' and hex digits, which the key's "
            "to_text() wrote"
        )
    raw = bytes.fromhex(match[3])
    secret, check = raw[:-CHECK_BYTES], raw[-CHECK_BYTES:]
    if not primitives.compare_digest(check, _check(kind, secret)):
        raise _damaged(kind)
    return kind, secret


class TextKey:
    """Base of keys that have a text. Subclasses define the kinds of their texts and their bytes."""

    kind = "key"
    text_kind: ClassVar[str]
    __slots__ = ()

    @confined
    def to_text(self) -> str:
        """Return the secret in text form, for a key file or an environment variable."""
        return write_key(self._kind_of_text(), self._to_bytes())

    @classmethod
    @confined
    def from_text(cls, text: str) -> Self:
        """Parse the text that `to_text` wrote.

        Raises:
            KeyMismatchError: the text is not that of such a key, or damaged. The error does not
                show it.
        """
        kind, secret = read_key(text)
        if kind not in cls.text_kinds():
            expected = KINDS.get(cls.text_kind, f"a {cls.kind}")
            raise KeyMismatchError(f"this is {KINDS[kind]}, wanted {expected}")
        key = None
        with contextlib.suppress(CcbpsError):
            key = cls._from_bytes(secret)
        if key is None or key._kind_of_text() != kind:
            raise _damaged(kind)
        return key

    @classmethod
    def text_kinds(cls) -> tuple[str, ...]:
        """Return the kinds, of `KINDS`, that may stand in front of such a key's text."""
        return (cls.text_kind,)

    def _kind_of_text(self) -> str:
        return self.text_kind

    def _to_bytes(self) -> bytes:
        raise NotImplementedError

    @classmethod
    def _from_bytes(cls, secret: bytes) -> Self:
        raise NotImplementedError


def _damaged(kind: str) -> KeyMismatchError:
    return KeyMismatchError(f"{KINDS[kind]}, but damaged: take the text that its to_text() wrote")


def is_key_text(text: str) -> bool:
    """Return whether a text looks like a key's, damaged or not."""
    return _START.match(text) is not None


def _check(kind: str, secret: bytes) -> bytes:
    return primitives.sha256(f"ccbps-{kind}-{VERSION}:".encode() + secret).digest()[:CHECK_BYTES]
