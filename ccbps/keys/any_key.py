"""One door for the text of every key."""

from __future__ import annotations

from typing import Final, get_args

from ccbps.keys.confine import confined
from ccbps.keys.delivery_keys import BrokerState, SubscriberKey, SubscriberRing
from ccbps.keys.epochs import EpochSeed
from ccbps.keys.filter_key import FilterKey
from ccbps.keys.ledger_key import LedgerKey
from ccbps.keys.rings import SeedRing
from ccbps.keys.role_key import KeyUpdate, RoleKey
from ccbps.keys.seeds import SharedSeed
from ccbps.keys.text_form import read_key

Key = (
    SharedSeed
    | SeedRing
    | RoleKey
    | SubscriberKey
    | SubscriberRing
    | BrokerState
    | FilterKey
    | LedgerKey
)

_CLASSES: Final[dict[str, type[Key]]] = {
    kind: key for key in (*get_args(Key), EpochSeed, KeyUpdate) for kind in key.text_kinds()
}


@confined
def from_text(text: str) -> Key:
    """The key whose `to_text` wrote a text, of whichever kind it is.

    Example:
        >>> import ccbps.keys
        >>> from ccbps import SharedSeed
        >>> text = SharedSeed.generate().to_text()
        >>> ccbps.keys.from_text(text)
        <SharedSeed ...>
        >>> ccbps.keys.from_text(text[:-1])
        Traceback (most recent call last):
            ...
        ccbps.errors.KeyMismatchError: not a key: expected one line, 'ccbps-<kind>-3:' and hex \
digits, which the key's to_text() wrote

    Raises:
        KeyMismatchError: it is the text of no key, or a damaged one (the text is not shown).
    """
    kind, _ = read_key(text)
    return _CLASSES[kind].from_text(text)
