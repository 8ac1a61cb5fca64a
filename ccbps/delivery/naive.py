"""Naive delivery: one payload encryption per event, one wrapped key per subscriber.

A payload is encrypted once, with AES-256-GCM under its event's own key. For each subscriber the
32-byte key is wrapped: it is XORed with 32 bytes that publisher and subscriber share for that
round. The broker holds ciphertexts and wrapped keys, and passes a wrapped key on if the pair
matched. A subscriber without a wrapped key learns only the payload's padded length.

The literature calls this naive: the publisher wraps once for every subscriber. It is the baseline
for key caches, which wrap once for a group.

There is no protection against a broker that hands a wrapped key to a subscriber that did not match.
The event's number and the payload's padded length are public. (The length of an unpadded record
would leak information on its content.) A wrapped key is not authenticated on its own: a wrong key
is detected when the payload is opened.

Sources: NIST SP 800-38D (GCM); Opyrchal and Prakash, USENIX Security 2001, section 3 (baseline).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from ccbps.arrays import Bytes, Words
from ccbps.checks import instance, whole
from ccbps.ciphers.payloads import NONCE_BYTES, PAD_TO, SEAL_BYTES, as_bytes, open_sealed, seal
from ccbps.dictionary import DictionaryColumn, pair_column
from ccbps.errors import DecodeError
from ccbps.keys.seeds import SeedRing, SharedSeed
from ccbps.keys.used_rounds import RoundLedger, as_rounds
from ccbps.rounds.disk_ledger import DiskLedger
from ccbps.wire import Kind

KEY_BYTES: Final = 32
VERSION: Final = 2
"""Version of sealed payloads."""
FRONT: Final = bytes([Kind.PAYLOAD, VERSION])
NONCE_AT: Final = len(FRONT) + 8
HEAD_BYTES: Final = NONCE_AT + NONCE_BYTES
"""Bytes of kind, version, event number (big-endian) and nonce, which a payload is bound to."""
OVERHEAD_BYTES: Final = HEAD_BYTES + SEAL_BYTES

_EVENT_KEY: Final = b"delivery: event key"
_WRAP: Final = b"delivery: key wrap"
_ONE_EVENT: Final = (
    "each number names one event, always, as its key opens everything sealed under it; take "
    "another number"
)


class PayloadSealer:
    """Publisher's side: it encrypts payloads and wraps their keys.

    The key of an event is derived from the master seed by the event's number. So encrypting again
    after a failure gives the same keys.

    Args:
        seed: the publisher's master seed.
        ledger: path of a file that remembers event numbers and rounds across sealers, processes and
            restarts (`ccbps.rounds.disk_ledger`), created if missing. With it, an event may be
            sealed and wrapped again unchanged.

    Example:
        >>> from ccbps import SharedSeed
        >>> from ccbps.delivery import PayloadOpener, PayloadSealer
        >>> master = SharedSeed.generate()
        >>> sealer = PayloadSealer(master)
        >>> ciphertexts = sealer.seal([b"the record"], events=[7])        # once for all subscribers
        >>> wrapped = sealer.wrap(events=[7, 7], rounds=[0, 0], pairs=["alice", "bob"])
        >>> wrapped.shape                                                 # 32 bytes per subscriber
        (2, 32)

    Hazards: without a ledger on disk, event numbers and rounds are remembered only as long as the
    sealer lives. A holder of this seed can derive every event's key, so subscribers get seeds of
    pairs.

    Raises:
        LedgerError: the file cannot be used.
    """

    def __init__(self, seed: SharedSeed, *, ledger: str | os.PathLike[str] | None = None) -> None:
        self._seed = instance("seed", seed, SharedSeed, hint="it is the publisher's master seed")
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
            payloads: payloads, one for each row.
            events: event numbers, 0 .. 2^64 - 1. One number names one event, always.
            pad_to: number of bytes. Payloads are padded to a multiple of it; 1 shows their lengths.

        Raises:
            ParameterError: a payload is not bytes, or an argument does not fit.
            RandomnessReuseError: an event number was used before, or occurs twice; with a ledger on
                disk, for another payload. Nothing is encrypted.
            LedgerError: the ledger on disk cannot be used. Nothing is encrypted.

        Returns:
            a ciphertext for each payload, `OVERHEAD_BYTES` longer than the padded payload.

        Cost: one AES-256 key schedule, one nonce and one GCM call per payload. Rows are a loop,
        because each event has its own key.
        """
        whole("pad_to", pad_to, 1)
        payloads = as_bytes("payloads", payloads)
        numbers = as_rounds(events, len(payloads), "events")
        if self._disk is None:
            self._sealed.claim(numbers)
        elif payloads:
            hashed = b"".join(blake2b(payload, digest_size=32).digest() for payload in payloads)
            content = np.frombuffer(hashed, dtype=np.uint8).reshape(-1, 32)
            self._disk[1].claim(numbers, self._seed.marks(_EVENT_KEY, numbers, None, content))
        keys = self._event_keys(numbers)
        ciphertexts = []
        for payload, key, number in zip(payloads, keys, numbers.tolist(), strict=True):
            nonce = os.urandom(NONCE_BYTES)
            head = FRONT + number.to_bytes(8, "big") + nonce
            sealed = seal(payload, key.tobytes(), head, pad_to=pad_to, nonce=nonce)
            ciphertexts.append(head + sealed)
        return ciphertexts

    def wrap(
        self, events: ArrayLike, rounds: ArrayLike, *, pairs: DictionaryColumn[str] | Sequence[str]
    ) -> Bytes:
        """Wrap each event's key for the subscriber and round of its row.

        Args:
            events: event number of each row.
            rounds: round of each row, that of its match message. Each round serves one event, once.
            pairs: pair label of each row.

        Returns:
            wrapped keys, uint8, shape (rows, 32).

        Raises:
            RandomnessReuseError: a pair's round was used before; with a ledger on disk, for another
                event. Nothing is wrapped.
            LedgerError: the ledger on disk cannot be used. Nothing is wrapped.
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
        wrapped = self._event_keys(distinct)[index]
        if len(used):
            wrapped ^= masks(0, len(used))
        return wrapped

    def _event_keys(self, numbers: Words) -> Bytes:
        if not len(numbers):
            return np.empty((0, KEY_BYTES), dtype=np.uint8)
        return self._seed.reader(_EVENT_KEY, KEY_BYTES, numbers, None)(0, len(numbers)).copy()


class PayloadOpener:
    """Subscriber's side: it unwraps keys and decrypts payloads.

    Args:
        seed: seed of the pair, or a master seed or ring.

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
        instance("seed", seed, (SharedSeed, SeedRing))
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
            ciphertexts: ciphertexts from `PayloadSealer.seal`.
            wrapped: keys from `PayloadSealer.wrap` for this subscriber, uint8, shape (rows, 32).
            rounds: rounds under which the keys were wrapped.
            pairs: pair label of each row, if the seed is a master or a ring.

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
        """Decrypt payloads as `open` does, and give a cause where a row cannot be opened.

        Returns:
            payloads, None for a row that cannot be opened; and the cause by row.

        Raises:
            DecodeError: the wrapped keys have another type or shape.
        """
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
        payloads: list[bytes | None] = []
        causes = {}
        for row, (ciphertext, key) in enumerate(zip(ciphertexts, keys, strict=True)):
            head, sealed = ciphertext[:HEAD_BYTES], ciphertext[HEAD_BYTES:]
            try:
                if not head.startswith(FRONT):
                    raise DecodeError("not a sealed payload of this version")
                payloads.append(open_sealed(sealed, key.tobytes(), head, nonce=head[NONCE_AT:]))
            except DecodeError as error:
                payloads.append(None)
                causes[row] = str(error)
        return payloads, causes
