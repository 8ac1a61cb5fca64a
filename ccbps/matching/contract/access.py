"""What a role may use: a seed, round by round, or a key that a key server gave out.

Here is everything that depends on `Keying`: headers, one-time randomness, keys, authentication.
Each message begins with a header of `ccbps.wire`, which names the round by a tag, or the key by its
id and epoch. Messages made with a key end with 8 bytes of `ccbps.ciphers.row_mac` over all
the rest: publishers share a MAC key with their brokers, and subscribers another. So a message that
is altered on its way, or made by somebody who has no key of that side, is refused.

Hazard: messages of rounds have no MAC, as their broker has no secret. Whoever alters them on the
way changes answers, where the scheme does not find them malformed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import ArrayLike

from ccbps.arrays import Bytes, Randomness, Rounds
from ccbps.ciphers.row_mac import RowMac
from ccbps.dictionary import DictionaryColumn, pair_column
from ccbps.errors import KeyMismatchError, PadExhaustedError, ParameterError
from ccbps.keys.pad import OneTimePad
from ccbps.keys.randomness import Pairs, RandomnessReader, RandomnessSource
from ccbps.keys.role_key import KeyUpdate, Role, RoleKey
from ccbps.keys.seeds import SeedRing
from ccbps.keys.used_rounds import RoundLedger, as_rounds
from ccbps.matching.contract.bodies import Draw
from ccbps.matching.contract.kinds import Answers, Keying, Side
from ccbps.matching.contract.scheme import Scheme
from ccbps.rounds.disk_ledger import DiskLedger
from ccbps.wire import (
    KEY_HEADER_BYTES,
    ROUND_HEADER_BYTES,
    TAG_BYTES,
    Cause,
    Kind,
    check_key_headers,
    key_header,
    round_tags,
    write_round_headers,
)

RoleName = Literal["publisher", "subscriber", "broker"]
MAC_BYTES: Final = 8
SIDES: Final[Mapping[str, Kind]] = {"publisher": Kind.EVENT, "subscriber": Kind.INTEREST}


def check_key(scheme: Scheme, key: RoleKey, role: Role) -> None:
    """Raise KeyMismatchError unless this is a key of that role and matcher."""
    if not isinstance(key, RoleKey):
        where = "; matcher.key_server() gives it" if scheme.keying is Keying.SERVER else ""
        raise KeyMismatchError(f"a {role} needs a RoleKey, got {type(key).__name__}{where}")
    if isinstance(key, KeyUpdate):
        raise KeyMismatchError("this is a key update, which Broker.update takes; wanted a key")
    if key.matcher != scheme.fingerprint:
        raise KeyMismatchError(f"this key belongs to another matcher than {scheme!r}")
    if key.role != role:
        raise KeyMismatchError(f"this is the key of a {key.role}, wanted a {role}'s")


def header_bytes(scheme: Scheme) -> int:
    """Bytes of the header of a message."""
    return ROUND_HEADER_BYTES if scheme.keying is Keying.ROUNDS else KEY_HEADER_BYTES


def message_bytes(scheme: Scheme, side: Side) -> int:
    """Bytes of a message of one side: header, body, and what the roles put behind it."""
    body = scheme.sizes.event if side == "event" else scheme.sizes.interest
    return header_bytes(scheme) + body + (MAC_BYTES if scheme.keying is Keying.SERVER else 0)


def round_bytes(scheme: Scheme) -> int:
    """Bytes of shared randomness that one round uses."""
    sizes = scheme.sizes
    return sizes.pieces * (sizes.randomness + TAG_BYTES) if scheme.keying is Keying.ROUNDS else 0


class Access:
    """What one role may use: by itself nothing, as a broker of rounds needs nothing.

    Attributes:
        key: key data for the scheme; empty where there is a seed.
        epoch: of the key; 0 where there is a seed.
    """

    def __init__(self) -> None:
        self.key: dict[str, Any] = {}
        self.epoch = 0

    def open(
        self,
        rounds: ArrayLike | None,
        count: int,
        pairs: Pairs | Sequence[str] | None,
        content: Callable[[], Bytes],
        messages: Bytes,
    ) -> Draw:
        """Randomness for messages to be written, whose headers are written, now or as it is drawn.

        Args:
            rounds: one for each message, where the scheme has rounds; they count as used.
            count: of messages.
            pairs: labels, where a seed is a master of many pairs.
            content: what each row encodes, uint8, shape (count, a fixed width); for a ledger.
            messages: shape (count, bytes).
        """
        raise ParameterError("a broker encodes nothing")

    def authenticate(self, messages: Bytes) -> None:
        """Write what stands behind the bodies of finished messages, if there is anything."""


class RoundAccess(Access):
    """A shared seed, and rounds that are never used again."""

    def __init__(
        self,
        scheme: Scheme,
        role: RoleName,
        seed: RandomnessSource,
        ledger: str | os.PathLike[str] | None,
        randomness: Randomness,
    ) -> None:
        if not isinstance(seed, RandomnessSource):
            raise ParameterError(
                f"seed must be a SharedSeed, a SeedRing or a OneTimePad, got {type(seed).__name__}"
            )
        if isinstance(seed, SeedRing) and scheme.answers is Answers.ROUND:
            raise ParameterError(
                f"all parties of {type(scheme).__name__} have one seed, and a SeedRing holds one "
                "for each pair: give the SharedSeed of all"
            )
        super().__init__()
        self._scheme, self._seed, self._fresh, self._kind = scheme, seed, randomness, SIDES[role]
        self._purpose = role.encode() + b" " + scheme.fingerprint
        self._disk = None if ledger is None else DiskLedger(ledger)
        self._owner = None
        if ledger is not None and isinstance(seed, OneTimePad):
            self._owner = DiskLedger(ledger, "one-time pad", _ONE_MATCHER)
        self._ledger = seed.ledger(role) if isinstance(seed, OneTimePad) else RoundLedger()

    def open(
        self,
        rounds: ArrayLike | None,
        count: int,
        pairs: Pairs | Sequence[str] | None,
        content: Callable[[], Bytes],
        messages: Bytes,
    ) -> Draw:
        """See `Access`."""
        if rounds is None:
            raise ParameterError(
                f"{type(self._scheme).__name__} needs rounds: a number for each message, used once"
            )
        reader = self._claim(rounds, count, pairs, content)
        sizes, fingerprint, kind = self._scheme.sizes, self._scheme.fingerprint, self._kind
        pieces = sizes.pieces

        def shared(start: int, stop: int, piece: int = 0) -> Bytes:
            if pieces == 1:
                rows = reader(start, stop)
            elif stop - start == 1:
                rows = reader(start * pieces + piece, start * pieces + piece + 1)
            else:
                places = range(start * pieces + piece, stop * pieces, pieces)
                rows = np.concatenate([reader(place, place + 1) for place in places])
            if piece == 0:
                tag = rows[:, sizes.randomness :]
                write_round_headers(messages[start:stop], kind, fingerprint, tag)
            return rows[:, : sizes.randomness]

        def tags(start: int, stop: int) -> Bytes:
            return round_tags(messages[start:stop], kind, fingerprint)

        return Draw(self._fresh, shared, tags)

    def _claim(
        self,
        rounds: ArrayLike,
        count: int,
        pairs: Pairs | Sequence[str] | None,
        content: Callable[[], Bytes],
    ) -> RandomnessReader:
        """The reader of some rounds' randomness, which are used from now on."""
        numbers = as_rounds(rounds, count)
        column = pair_column(pairs, count)
        # A reader that cannot serve all rounds raises before any of them is claimed.
        if self._scheme.answers is Answers.ROUND:
            if column is not None and self._kind == Kind.EVENT:
                raise ParameterError(
                    f"an event of {type(self._scheme).__name__} is for all subscriptions of its "
                    "round: leave out pairs"
                )
            reader = self._reader(numbers, None)
        else:
            reader = self._reader(numbers, column)
        if not count:
            return reader
        if self._disk is None:
            self._ledger.claim(numbers, column)
            return reader
        # Roles over the same pad may not have a ledger on disk.
        if isinstance(self._seed, OneTimePad):
            self._ledger.check(numbers, inherited=True)
        if self._owner is not None and isinstance(self._seed, OneTimePad):
            # Rounds of two matchers are not the same bytes, so that their numbers say nothing.
            owner = self._seed.owner(self._scheme.fingerprint)
            self._owner.claim(np.zeros(1, dtype=np.uint64), owner)
            self._owner = None
        marks = self._seed.marks(self._purpose, numbers, column, content())
        self._disk.claim(numbers, marks, column)
        if isinstance(self._seed, OneTimePad) and not self._ledger.forked:
            self._ledger.claim(numbers)
        return reader

    def _reader(self, rounds: Rounds, pairs: Pairs | None) -> RandomnessReader:
        """A row of randomness for each piece: round r has rows r * pieces and following.

        The tag stands behind what the scheme draws, which kernels read in words of 8 bytes.
        """
        sizes, fingerprint = self._scheme.sizes, self._scheme.fingerprint
        width, pieces = sizes.randomness + TAG_BYTES, sizes.pieces
        if pieces == 1:
            return self._seed.reader(fingerprint, width, rounds, pairs)
        if len(rounds) and int(rounds.max()) >= (1 << 64) // pieces:
            raise ParameterError(
                f"rounds must be below {(1 << 64) // pieces} for messages of {pieces} "
                f"pieces, got {int(rounds.max())}"
            )
        parts = np.arange(pieces, dtype=np.uint64)
        rows = (rounds[:, None] * np.uint64(pieces) + parts).reshape(-1)
        if pairs is not None:
            pairs = DictionaryColumn(pairs.values, np.repeat(pairs.index, pieces))
        try:
            return self._seed.reader(fingerprint, width, rows, pairs)
        except PadExhaustedError:
            raise PadExhaustedError(
                f"round {int(rounds.max())} lies beyond the pad: a round takes "
                f"{round_bytes(self._scheme)} bytes"
            ) from None


_ONE_MATCHER: Final = (
    "a ledger serves one pad, and a pad one matcher, as its bytes would be used twice: take "
    "another pad, and another ledger, for this matcher"
)


class KeyAccess(Access):
    """A key that a key server gave out."""

    def __init__(
        self, scheme: Scheme, role: RoleName, key: RoleKey, randomness: Randomness
    ) -> None:
        check_key(scheme, key, role)
        self.key, self.epoch, self.key_id = key.export_secret_data(), key.epoch, key.key_id
        self._scheme, self._fresh, self._kind = scheme, randomness, SIDES.get(role)
        # By side: the one that this role writes, or, a broker, both.
        sides = _BOTH if self._kind is None else (self._kind,)
        self._macs = _macs_of(self.key.pop("macs", None), sides)

    def header(self, kind: Kind) -> Bytes:
        """What begins every message of this key."""
        return key_header(kind, self._scheme.fingerprint, self.key_id, self.epoch)

    def open(
        self,
        rounds: ArrayLike | None,
        count: int,
        pairs: Pairs | Sequence[str] | None,
        content: Callable[[], Bytes],
        messages: Bytes,
    ) -> Draw:
        """See `Access`."""
        if rounds is not None or pairs is not None:
            raise ParameterError(
                f"{type(self._scheme).__name__} has neither rounds nor pairs: its messages are "
                "made with the key alone"
            )
        assert self._kind is not None
        messages[:, :KEY_HEADER_BYTES] = self.header(self._kind)
        return Draw(self._fresh, _nothing_shared, lambda start, stop: messages[start:stop, :0])

    def authenticate(self, messages: Bytes) -> None:
        """Write the MACs of messages, all of one side, of which there is at least one."""
        mac = self._macs[Kind(int(messages[0, 0]))]
        messages[:, -MAC_BYTES:] = mac.tags(messages[:, :-MAC_BYTES])

    def examine(self, messages: Bytes, side: Side) -> Bytes:
        """The `Cause` for refusing each message, of the right width; 0 where there is none."""
        kind = Kind.EVENT if side == "event" else Kind.INTEREST
        causes = check_key_headers(messages[:, :KEY_HEADER_BYTES], self.header(kind))
        if not len(messages):
            return causes
        if not causes.any():
            return self._genuine(messages, side, kind)
        good = np.flatnonzero(causes == 0)
        if len(good):
            causes[good] = self._genuine(messages[good], side, kind)
        return causes

    def _genuine(self, messages: Bytes, side: Side, kind: Kind) -> Bytes:
        """Causes of messages whose headers are right. Bodies that nobody vouches for are not even
        looked at."""
        genuine = self._macs[kind].check(messages[:, :-MAC_BYTES], messages[:, -MAC_BYTES:])
        if genuine.all():
            return self._scheme.check(self.key, side, messages[:, KEY_HEADER_BYTES:-MAC_BYTES])
        causes = np.full(len(messages), Cause.ALTERED, dtype=np.uint8)
        if genuine.any():
            bodies = messages[genuine, KEY_HEADER_BYTES:-MAC_BYTES]
            causes[genuine] = self._scheme.check(self.key, side, bodies)
        return causes


_BOTH: Final = (Kind.EVENT, Kind.INTEREST)


def _macs_of(secrets: Any, sides: Sequence[Kind]) -> dict[Kind, RowMac]:
    """The MACs of some sides, by their secrets in hexadecimal."""
    found: dict[Kind, RowMac] = {}
    with suppress(LookupError, TypeError, ValueError):
        for side in sides:
            found[side] = RowMac(bytes.fromhex(secrets[side.name]), tag_bytes=MAC_BYTES)
    secrets = None
    if len(found) < len(sides):
        raise KeyMismatchError("this key lacks MAC keys; take the one that the key server gives")
    return found


def _nothing_shared(start: int, stop: int, piece: int = 0) -> Bytes:
    raise ParameterError("a scheme with a key server shares no randomness of rounds")


def access(
    scheme: Scheme,
    role: RoleName,
    key: Any,
    ledger: str | os.PathLike[str] | None = None,
    randomness: Randomness = os.urandom,
) -> Access:
    """What a role of this scheme may use, by its seed or key.

    Raises:
        KeyMismatchError: it is not the key of this matcher and role.
        ParameterError: it is not a seed or key at all; or there is a ledger and no rounds.
    """
    if scheme.keying is Keying.ROUNDS and role == "broker":
        if key is not None:
            raise KeyMismatchError(f"a broker of {type(scheme).__name__} takes no key")
        return Access()
    if scheme.keying is Keying.ROUNDS:
        return RoundAccess(scheme, role, key, ledger, randomness)
    if ledger is not None:
        raise ParameterError(f"{type(scheme).__name__} has no rounds, and so no ledger of them")
    return KeyAccess(scheme, role, key, randomness)
