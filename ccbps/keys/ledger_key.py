"""The key under which a publisher's workers and its ledger's server know each other."""

from __future__ import annotations

from ccbps.keys.plain_key import PlainKey


class LedgerKey(PlainKey):
    """What a `LedgerServer` has of a publisher's seed: 32 bytes, from `SharedSeed.ledger_key`.

    Whoever has it can allot rounds to that publisher's events, and so make it use a round twice; it
    opens no message and shows no event.

    Example:
        >>> from ccbps import SharedSeed
        >>> from ccbps.keys import LedgerKey
        >>> key = SharedSeed.generate().ledger_key()
        >>> LedgerKey.from_text(key.to_text()) == key
        True
    """

    kind = "ledger key"
    length = 32
    text_kind = "ledger-key"
    __slots__ = ()
