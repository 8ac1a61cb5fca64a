"""Payloads under a seed that a publisher and its subscribers share, and the broker does not have.

Each payload is encrypted under a key of its own, by `ccbps.delivery.PayloadSealer`, and goes with
that key, wrapped for the pair of the label `LABEL`. The publication's number is bound to both, so
nobody without the seed can put one payload in another's place.

Hazard: all who have the seed can read all payloads that they get, and could have sealed them.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ccbps.delivery.naive import KEY_BYTES, PayloadOpener, PayloadSealer
from ccbps.errors import DecodeError
from ccbps.keys.seeds import SharedSeed

LABEL: Final = "payloads of the command line"


def sealed_payloads(seed: SharedSeed, payloads: list[bytes], numbers: range) -> list[bytes]:
    """Payloads of publications with these numbers, each of which is used once."""
    sealer = PayloadSealer(seed)
    wraps = sealer.wrap([*numbers], [*numbers], pairs=[LABEL] * len(numbers))
    sealed = sealer.seal(payloads, [*numbers])
    return [wrap.tobytes() + one for wrap, one in zip(wraps, sealed, strict=True)]


def open_payload(seed: SharedSeed, sealed: bytes, number: int) -> bytes:
    """A payload.

    Raises:
        DecodeError: it was not sealed with this seed for this number, or was altered.
    """
    if len(sealed) < KEY_BYTES:
        raise DecodeError("not a sealed payload")
    wrap = np.frombuffer(sealed[:KEY_BYTES], dtype=np.uint8)[None]
    opener = PayloadOpener(seed.pair(LABEL))
    return opener.open([sealed[KEY_BYTES:]], wrap, [number])[0]
