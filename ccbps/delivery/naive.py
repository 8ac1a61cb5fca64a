"""Naive delivery: one payload encryption per event, one wrapped key per subscriber.

A payload is encrypted once, with AES-256-GCM under its event's own key. For each subscriber the
32-byte key is wrapped: XORed with 32 bytes that publisher and subscriber share for that round. The
broker holds ciphertexts and wrapped keys, and passes a wrapped key on where the pair matched. A
subscriber that gets none learns nothing but the payload's padded length.

"Naive" as in the literature: the publisher wraps once for every subscriber; key caches that wrap
once for a group are measured against it.

Not protected against: a broker that hands a wrapped key to a subscriber that did not match. The
event's number and the payload's padded length are public: the length of an unpadded record would
tell something about its content. A wrapped key is not authenticated on its own: a wrong one fails
at the payload.

Sources: NIST SP 800-38D (GCM); Opyrchal and Prakash, USENIX Security 2001, section 3 (baseline).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ccbps.arrays import Bytes
from ccbps.ciphers.payloads import (
    NONCE_BYTES,
    PAD_TO,
    SEAL_BYTES,
    as_bytes,
    open_sealed,
    seal,
)
from ccbps.dictionary import DictionaryColumn, pair_column
from ccbps.errors import DecodeError, ParameterError
from ccbps.keys.seeds import SeedRing, SharedSeed
from ccbps.keys.used_rounds import RoundLedger, as_rounds
from ccbps.rounds.disk_ledger import DiskLedger
from ccbps.wire import Kind

KEY_BYTES: Final = 32
VERSION: Final = 2
"""Of sealed payloads."""
FRONT: Final = bytes([Kind.PAYLOAD, VERSION])
NONCE_AT: Final = len(FRONT) + 8
HEAD_BYTES: Final = NONCE_AT + NONCE_BYTES
"""Kind, version, event number (big-endian) and nonce: what a payload is bound to."""
OVERHEAD_BYTES: Final = HEAD_BYTES + SEAL_BYTES

_EVENT_KEY: Final = b"delivery: event key"
_WRAP: Final = b"delivery: key wrap"
_ONE_EVENT: Final = (
    "each number names one event, always, as its key opens everything sealed under it; take "
    "another number"
)


class PayloadSealer:
    """The publisher's side: encrypts payloads and wraps their keys.

    Holds the master seed; each event's key is derived from it by the event's number, so encrypting
    again after a failure gives the same keys.

    Example:
        >>> from ccbps import SharedSeed
        >>> from ccbps.delivery import PayloadOpener, PayloadSealer
        >>> master = SharedSeed.generate()
        >>> sealer = PayloadSealer(master)
        >>> ciphertexts = sealer.seal([b"the record"], events=[7])        # once, whoever reads it
        >>> wrapped = sealer.wrap(events=[7, 7], rounds=[0, 0], pairs=["alice", "bob"])
        >>> wrapped.shape                                                 # 32 bytes per subscriber
        (2, 32)

    Hazards: without a ledger on disk, event numbers and rounds are remembered only as long as the
    sealer lives. Whoever holds this seed can derive every event's key; subscribers get seeds of
    pairs.
    """

    def __init__(self, seed: SharedSeed, *, ledger: str | os.PathLike[str] | None = None) -> None:
        """
        Args:
            seed: the publisher's master.
            ledger: path of a file that remembers event numbers and rounds across sealers, processes
                and restarts (`ccbps.rounds.disk_ledger`), created if missing. With it, an event may
                be sealed and wrapped again unchanged.

        Raises:
            LedgerError: the file cannot be used.
        """
        if not isinstance(seed, SharedSeed):
            raise ParameterError(
                f"seed must be the publisher's master, a SharedSeed, got {type(seed).__name__}"
            )
        self._seed = seed
        again = ", or a new sealer to seal the same event again"
        self._ledger, self._sealed = RoundLedger(), RoundLedger("event number", _ONE_EVENT + again)
        self._disk = None
        if ledger is not None:
            self._disk = DiskLedger(ledger), DiskLedger(ledger, "event number", _ONE_EVENT)

    def seal(
        self, payloads: Sequence[bytes], events: ArrayLike, *, pad_to: int = PAD_TO
    ) -> list[bytes]:
        """Encrypt payloads.

        Args:
            payloads: one per row.
            events: event numbers, 0 .. 2^64 - 1; one number names one event, always.
            pad_to: pad each payload to a multiple of this many bytes; 1 shows its length.

        Raises:
            ParameterError: a payload is not bytes, or an argument does not fit.
            RandomnessReuseError: an event number was used before, or occurs twice; with a ledger on
                disk, for another payload. Nothing is encrypted.
            LedgerError: the ledger on disk cannot be used; nothing is encrypted.

        Returns:
            a ciphertext for each payload, `OVERHEAD_BYTES` longer than the padded payload.

        Cost: one AES-256 key schedule, one nonce and one GCM call per payload: a loop over rows, as
        each event has its own key.
        """
        if type(pad_to) is not int or pad_to < 1:
            raise ParameterError(f"pad_to must be a whole number, at least 1, got {pad_to!r}")
        payloads = as_bytes("payloads", payloads)
        numbers = as_rounds(events, len(payloads), "events")
        if self._disk is None:
            self._sealed.claim(numbers)
        elif payloads:
            hashed = b"".join(blake2b(payload, digest_size=32).digest() for payload in payloads)
            content = np.frombuffer(hashed, dtype=np.uint8).reshape(-1, 32)
            self._disk[1].claim(numbers, self._seed.marks(_EVENT_KEY, numbers, None, content))
        keys = self._event_keys(numbers)
        out = []
        for payload, key, number in zip(payloads, keys, numbers.tolist(), strict=True):
            nonce = os.urandom(NONCE_BYTES)
            head = FRONT + number.to_bytes(8, "big") + nonce
            out.append(head + seal(payload, key.tobytes(), head, pad_to=pad_to, nonce=nonce))
        return out

    def wrap(
        self,
        events: ArrayLike,
        rounds: ArrayLike,
        *,
        pairs: DictionaryColumn[str] | Sequence[str],
    ) -> Bytes:
        """Wrap each event's key for the subscriber and round of its row: uint8, (rows, 32).

        Args:
            events: event number of each row.
            rounds: round of each row, those of the match messages; each serves one event, once.
            pairs: pair label of each row.

        Raises:
            RandomnessReuseError: a pair's round was used before, with a ledger on disk for another
                event; nothing is wrapped.
            LedgerError: the ledger on disk cannot be used; nothing is wrapped.
        """
        numbers = as_rounds(events, None, "events")
        used = as_rounds(rounds, len(numbers))
        column = pair_column(pairs, len(used))
        # Before any round is claimed: an epoch seed may not know a pair yet.
        masks = self._seed.reader(_WRAP, KEY_BYTES, used, column)
        if self._disk is None:
            self._ledger.claim(used, column)
        elif len(used):
            content = numbers.astype(">u8").view(np.uint8).reshape(-1, 8)
            self._disk[0].claim(used, self._seed.marks(_WRAP, used, column, content), column)
        distinct, index = np.unique(numbers, return_inverse=True)
        keys = self._event_keys(distinct)
        out: Bytes = keys[index] ^ masks(0, len(used)) if len(used) else keys[index]
        return out

    def _event_keys(self, numbers: NDArray[np.uint64]) -> Bytes:
        if not len(numbers):
            return np.empty((0, KEY_BYTES), dtype=np.uint8)
        return self._seed.reader(_EVENT_KEY, KEY_BYTES, numbers, None)(0, len(numbers)).copy()


class PayloadOpener:
    """The subscriber's side: unwraps keys and decrypts payloads. Holds the pair's seed.

    Example:
        >>> from ccbps import SharedSeed
        >>> from ccbps.delivery import PayloadOpener, PayloadSealer
        >>> master = SharedSeed.generate()
        >>> sealer = PayloadSealer(master)
        >>> ciphertexts = sealer.seal([b"the record"], events=[7])
        >>> wrapped = sealer.wrap(events=[7], rounds=[0], pairs=["alice"])
        >>> PayloadOpener(master.pair("alice")).open(ciphertexts, wrapped, rounds=[0])
        [b'the record']
        >>> PayloadOpener(master.pair("bob")).open(ciphertexts, wrapped, rounds=[0])
        Traceback (most recent call last):
            ...
        ccbps.errors.DecodeError: row 0: not a payload for this key, or one that was altered
    """

    def __init__(self, seed: SharedSeed | SeedRing) -> None:
        if not isinstance(seed, (SharedSeed, SeedRing)):
            raise ParameterError(
                f"seed must be a SharedSeed or a SeedRing, got {type(seed).__name__}"
            )
        self._seed = seed

    def open(
        self,
        ciphertexts: Sequence[bytes],
        wrapped: Bytes,
        rounds: ArrayLike,
        *,
        pairs: DictionaryColumn[str] | Sequence[str] | None = None,
    ) -> list[bytes]:
        """Decrypt payloads.

        Args:
            ciphertexts: from `PayloadSealer.seal`.
            wrapped: uint8, shape (rows, 32), from `PayloadSealer.wrap` for this subscriber.
            rounds: the rounds they were wrapped under.
            pairs: pair label of each row, when the seed is a master or a ring.

        Raises:
            DecodeError: a ciphertext is malformed, or its key, round or pair is another's.
        """
        opened, causes = self.examine(ciphertexts, wrapped, rounds, pairs=pairs)
        if causes:
            row = min(causes)
            raise DecodeError(f"row {row}: {causes[row]}", rows=(row,))
        return [payload for payload in opened if payload is not None]

    def examine(
        self,
        ciphertexts: Sequence[bytes],
        wrapped: Bytes,
        rounds: ArrayLike,
        *,
        pairs: DictionaryColumn[str] | Sequence[str] | None = None,
    ) -> tuple[list[bytes | None], dict[int, str]]:
        """As `open`, but rows that cannot be opened give None, and what is wrong, by row."""
        ciphertexts = as_bytes("ciphertexts", ciphertexts)
        used = as_rounds(rounds, len(ciphertexts))
        if wrapped.shape != (len(ciphertexts), KEY_BYTES) or wrapped.dtype != np.uint8:
            raise DecodeError(
                f"wrapped must be uint8 of shape ({len(ciphertexts)}, {KEY_BYTES}), "
                f"got {wrapped.dtype} {wrapped.shape}"
            )
        if not len(used):
            return [], {}
        column = pair_column(pairs, len(used))
        keys = wrapped ^ self._seed.reader(_WRAP, KEY_BYTES, used, column)(0, len(used))
        out: list[bytes | None] = []
        causes = {}
        for row, (ciphertext, key) in enumerate(zip(ciphertexts, keys, strict=True)):
            head, sealed = ciphertext[:HEAD_BYTES], ciphertext[HEAD_BYTES:]
            try:
                if not head.startswith(FRONT):
                    raise DecodeError("not a sealed payload of this version")
                out.append(open_sealed(sealed, key.tobytes(), head, nonce=head[NONCE_AT:]))
            except DecodeError as error:
                out.append(None)
                causes[row] = str(error)
        return out, causes
