"""Delivery by policy: any holder of a key that fits can open a payload, wherever it comes from.

A batch is sealed for one policy (CpAbe), record (KpAbe, HiddenVectors) or name (Ibe). A fresh key
of 32 bytes is encrypted to it, once; the ciphertext is the *capsule*. The key of payload number i
is HMAC-SHA256(fresh key, i). Each sealed payload holds the capsule, so it can be sent and stored by
itself, by anybody: brokers and stores need no keys.

An opener opens each capsule once, and remembers the last few. So pairings are computed once per
batch, and a payload costs little more than AES-256-GCM.

Hazards: payloads show which batch they are of, and their numbers in it. A capsule shows the policy
or the record, except with Ibe and HiddenVectors. Anybody who has the public key can seal: check the
origin of a payload in another way.
"""

from __future__ import annotations

import hmac
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, ClassVar, Final

from ccbps.arrays import Randomness
from ccbps.checks import Printable, instance, whole
from ccbps.ciphers.payloads import PAD_TO, as_bytes, open_sealed, seal
from ccbps.errors import DecodeError
from ccbps.functional import PublicKey, UserKey
from ccbps.keys.secret import Confined, confined
from ccbps.records import Message, Number, write
from ccbps.wire import Kind

VERSION: Final = 1
KEY_BYTES: Final = 32
REMEMBERED: Final = 16
"""Number of capsules whose keys an opener remembers."""
_LABEL: Final = b"ccbps delivery by policy 1"
_NO_KEY: Final = "the capsule of the message does not hold a key"


class PolicyPayload(Message, frozen=True):
    """A payload sealed for a policy, as it travels.

    Attributes:
        capsule: encrypted key of the batch, which `PublicKey.read` reads.
        number: number of the payload in its batch, from 0.
        sealed: sealed payload.
    """

    front: ClassVar[bytes] = bytes([Kind.POLICY_PAYLOAD, VERSION])
    what: ClassVar[str] = "a payload sealed for a policy"
    capsule: bytes
    number: Number
    sealed: bytes


class PolicySealer(Printable):
    """Sealer of payloads for all users whose keys fit; needs no secret.

    Args:
        public: public key of the authority that makes the keys of users.

    Example:
        >>> from ccbps import Bool, Category, Schema
        >>> from ccbps.delivery import PolicyOpener, PolicySealer
        >>> from ccbps.functional import Authority, CpAbe
        >>> schema = Schema(doctor=Bool(), ward=Category(["A", "B"]))
        >>> authority = Authority.generate(CpAbe(schema))
        >>> sealer = PolicySealer(authority.public)
        >>> sealed = sealer.seal([b"119/80", b"121/79"], "doctor AND ward = 'A'")
        >>> PolicyOpener(authority.key({"doctor": True, "ward": "A"})).open(sealed)
        [b'119/80', b'121/79']
        >>> PolicyOpener(authority.key({"doctor": True, "ward": "B"})).open(sealed)
        Traceback (most recent call last):
            ...
        ccbps.errors.DecodeError: row 0: the key does not satisfy the policy of the message
    """

    def __init__(self, public: PublicKey) -> None:
        self.public = instance("public", public, PublicKey, hint="take Authority.public")

    def __repr__(self) -> str:
        return f"<PolicySealer of authority {self.public.fingerprint}>"

    @confined
    def seal(
        self,
        payloads: Sequence[bytes],
        to: Any,
        *,
        epoch: int | None = None,
        pad_to: int = PAD_TO,
        randomness: Randomness = os.urandom,
    ) -> list[bytes]:
        """Encrypt payloads, all of them for the same users.

        Args:
            payloads: payloads, one for each row.
            to: policy (CpAbe), record (KpAbe, HiddenVectors) or name (Ibe).
            epoch: epoch whose keys open the payloads; None for keys without epochs.
            pad_to: number of bytes. Payloads are padded to a multiple of it; 1 shows their lengths.
            randomness: source of uniform bytes, fresh for each batch.

        Raises:
            ParameterError: a payload is not bytes, or an argument does not fit.
            PredicateError: a policy does not parse, or nobody can satisfy it.
            EventError: a record does not fit the schema.

        Returns:
            a message for each payload, which holds all that a fitting key needs.

        Cost: one encapsulation, and an AES-256-GCM call for each payload. Rows are a loop, because
        each payload has its own key.
        """
        payloads, pad_to = as_bytes("payloads", payloads), whole("pad_to", pad_to, 1)
        key = randomness(KEY_BYTES)
        capsule = self.public.seal(key, to, epoch=epoch, pad_to=1, randomness=randomness)
        return [
            PolicyPayload(
                capsule,
                number,
                seal(payload, _own_key(key, number), _head(capsule, number), pad_to=pad_to),
            ).to_bytes()
            for number, payload in enumerate(payloads)
        ]


class PolicyOpener(Confined):
    """Opener of payloads that a user's key fits.

    Args:
        key: key of the user.

    Example:
        >>> from ccbps.delivery import PolicyOpener, PolicySealer
        >>> from ccbps.functional import Authority, Ibe
        >>> authority = Authority.generate(Ibe())
        >>> sealed = PolicySealer(authority.public).seal([b"IBM 119.50"], "bob", epoch=7)
        >>> PolicyOpener(authority.key("bob", epoch=7)).open(sealed)
        [b'IBM 119.50']
        >>> PolicyOpener(authority.key("bob", epoch=8)).examine(sealed)
        ([None], {0: 'the message is of epoch 7, and the key of epoch 8: take a key of that epoch, \
which the authority makes'})
    """

    def __init__(self, key: UserKey) -> None:
        self._key = instance("key", key, UserKey, hint="Authority.key makes it")
        self._lock = threading.Lock()
        self._opened: OrderedDict[bytes, tuple[bytes | None, str]] = OrderedDict()

    def __repr__(self) -> str:
        return f"<PolicyOpener of key {self._key.fingerprint}>"

    @confined
    def open(self, ciphertexts: Sequence[bytes]) -> list[bytes]:
        """Decrypt payloads.

        Args:
            ciphertexts: messages of `PolicySealer.seal`.

        Raises:
            DecodeError: a message is malformed or was altered, or the key does not fit it. The
                error names the row.
        """
        opened, causes = self.examine(ciphertexts)
        if causes:
            row = min(causes)
            raise DecodeError(f"row {row}: {causes[row]}", rows=(row,))
        return [payload for payload in opened if payload is not None]

    @confined
    def examine(
        self, ciphertexts: Sequence[bytes], *, workers: int = 1
    ) -> tuple[list[bytes | None], dict[int, str]]:
        """Decrypt payloads as `open` does, and give a cause where a row cannot be opened.

        Args:
            ciphertexts: messages of `PolicySealer.seal`.
            workers: number of capsules that are opened at the same time, as in
                `ccbps.functional.UserKey.examine`.

        Returns:
            payloads, None for a row that cannot be opened; and the cause by row.
        """
        parsed: dict[int, PolicyPayload] = {}
        causes: dict[int, str] = {}
        for row, ciphertext in enumerate(as_bytes("ciphertexts", ciphertexts)):
            try:
                parsed[row] = PolicyPayload.from_bytes(ciphertext)
            except DecodeError as error:
                causes[row] = str(error)
        keys = self._keys(dict.fromkeys(part.capsule for part in parsed.values()), workers)
        payloads: list[bytes | None] = [None] * len(ciphertexts)
        for row, part in parsed.items():
            key, cause = keys[part.capsule]
            if key is None:
                causes[row] = cause
                continue
            own, head = _own_key(key, part.number), _head(part.capsule, part.number)
            try:
                payloads[row] = open_sealed(part.sealed, own, head)
            except DecodeError as error:
                causes[row] = str(error)
        return payloads, dict(sorted(causes.items()))

    def _keys(
        self, capsules: dict[bytes, None], workers: int
    ) -> dict[bytes, tuple[bytes | None, str]]:
        """Return the key of each capsule, or None and the cause."""
        hashes = {capsule: sha256(capsule).digest() for capsule in capsules}  # short names
        with self._lock:
            known = {some: self._opened[at] for some, at in hashes.items() if at in self._opened}
        new = [capsule for capsule in capsules if capsule not in known]
        opened, causes = self._key.examine(new, workers=workers)
        for row, (capsule, key) in enumerate(zip(new, opened, strict=True)):
            is_key = key is not None and len(key) == KEY_BYTES
            known[capsule] = (key, "") if is_key else (None, causes.get(row, _NO_KEY))
        with self._lock:
            for capsule, answer in known.items():
                self._opened[hashes[capsule]] = answer
                self._opened.move_to_end(hashes[capsule])
            while len(self._opened) > REMEMBERED:
                self._opened.popitem(last=False)
        return known


def _own_key(key: bytes, number: int) -> bytes:
    """Derive the key of a payload, which seals nothing else."""
    return hmac.digest(key, _LABEL + number.to_bytes(8, "big"), "sha256")


def _head(capsule: bytes, number: int) -> bytes:
    """Return the bytes that a payload is bound to: all fields but the payload."""
    return write((capsule, number), PolicyPayload.front)
