"""The secrets that a role may use: a seed, round by round, or a key that a key server gave out.

Everything that depends on `Keying` is here: headers, one-time randomness, keys, authentication.
Each message begins with a header of `ccbps.wire`, which names the round by a tag, or the key by its
id and epoch. Messages made with a key end with 8 bytes of `ccbps.ciphers.row_mac` over all
the rest: publishers share a MAC key with their brokers, and subscribers another. So a message that
was altered in transit, or made by somebody without the key of its side, is refused.

Hazard: messages of rounds have no MAC, as their broker has no secret. Whoever alters them in
transit changes answers, unless the scheme finds them malformed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from ccbps.arrays import Bytes, Randomness, Rounds
from ccbps.ciphers.row_mac import RowMac
from ccbps.dictionary import DictionaryColumn, pair_column
from ccbps.errors import (
    DecodeError,
    KeyMismatchError,
    PadExhaustedError,
    ParameterError,
    RandomnessReuseError,
)
from ccbps.keys.pad import OneTimePad
from ccbps.keys.plain_key import ClientKey
from ccbps.keys.randomness import Marks, Pairs, RandomnessReader, RandomnessSource
from ccbps.keys.role_key import KeyUpdate, Role, RoleKey, hex_bytes
from ccbps.keys.seeds import SeedRing
from ccbps.keys.used_rounds import RoundLedger
from ccbps.matching.contract.scheme import (
    Answers,
    Draw,
    Keying,
    Scheme,
    ServerScheme,
    Side,
    TableScheme,
)
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
Labels: TypeAlias = Pairs | Sequence[str] | None
"""A pair label for each message, where a seed is a master of many pairs."""
Content: TypeAlias = Callable[[], Bytes]
"""Function that names the content of each row for a ledger: uint8, (count, a fixed width)."""

MAC_BYTES: Final = 8
_BOTH: Final[tuple[Side, ...]] = ("event", "interest")
SIDES: Final[Mapping[Role, tuple[Kind, ...]]] = {
    "publisher": (Kind.EVENT,),
    "subscriber": (Kind.INTEREST,),
    "broker": (Kind.EVENT, Kind.INTEREST),
}
"""Messages that a role makes, or checks."""
_ONE_MATCHER: Final = (
    "a ledger serves one pad, and a pad one matcher, as its bytes would be used twice: take "
    "another pad, and another ledger, for this matcher"
)
_ONE_SIDE: Final = (
    "the ledger {ledger} knows this party as the {known} under this {noun} and matcher, and now it "
    "would be the {role}. If both parties publish under one {noun}, each round is used twice. Take "
    "a {noun} for each direction{advice}. A party that really stands on both sides keeps a ledger "
    "for each"
)
_ONCE: Final[Rounds] = np.zeros(1, dtype=np.uint64)
_DIRECTIONS: Final = ": seed.pair('ann publishes') and seed.pair('bob publishes')"


def check_key(scheme: Scheme, key: RoleKey, role: Role) -> None:
    """Refuse all but the keys of a role and matcher.

    Raises:
        KeyMismatchError: `key` is of another role or matcher, a key update, or no key.
    """
    if not isinstance(key, RoleKey):
        hint = "; matcher.key_server() gives it" if scheme.keying is Keying.SERVER else ""
        raise KeyMismatchError(f"a {role} needs a RoleKey, got {type(key).__name__}{hint}")
    if isinstance(key, KeyUpdate):
        raise KeyMismatchError("this is a key update, which Broker.update takes; wanted a key")
    if key.matcher != scheme.digest:
        raise KeyMismatchError(f"this key belongs to another matcher than {scheme!r}")
    if key.role != role:
        raise KeyMismatchError(f"this is the key of a {key.role}, wanted a {role}'s")


def check_data(check: Callable[[], object]) -> None:
    """Run a check of key data, whose errors may show secrets, and raise one that shows none.

    Raises:
        KeyMismatchError: the check raised an error.
    """
    with suppress(LookupError, TypeError, ValueError, ArithmeticError):
        check()
        return
    del check
    raise KeyMismatchError(
        "the key's content is not that of such a key of this matcher: take the one that the key "
        "server gave out"
    )


def header_bytes(scheme: Scheme) -> int:
    """Return the bytes of the header of a message."""
    if scheme.keying is Keying.BROKERS:
        from ccbps.shares.clients import HEAD_BYTES  # here, since few schemes have three brokers

        return HEAD_BYTES
    return ROUND_HEADER_BYTES if scheme.keying is Keying.ROUNDS else KEY_HEADER_BYTES


def layout_of(scheme: Scheme) -> Mapping[Side, tuple[int, slice]]:
    """Return the bytes of a message of each side, and the place of its body."""
    kept: Mapping[Side, tuple[int, slice]] | None = vars(scheme).get("_message_layout")
    if kept is None:
        start, mac = header_bytes(scheme), MAC_BYTES if scheme.keying is Keying.SERVER else 0
        ends = {side: start + int(getattr(scheme.sizes, side)) for side in _BOTH}
        kept = vars(scheme)["_message_layout"] = {
            side: (end + mac, slice(start, end)) for side, end in ends.items()
        }
    return kept


def message_bytes(scheme: Scheme, side: Side) -> int:
    """Return the bytes of a message of one side: header, body, and MAC if there is one."""
    return layout_of(scheme)[side][0]


def bodies_of(scheme: Scheme, messages: Bytes, side: Side) -> Bytes:
    """Return a view of the bodies of messages of one side."""
    return messages[:, layout_of(scheme)[side][1]]


def require_width(scheme: Scheme, messages: Bytes, side: Side) -> None:
    """Refuse anything but an array of messages of one side.

    Raises:
        DecodeError: `messages` is no such array.
    """
    array, width = np.asarray(messages), layout_of(scheme)[side][0]
    if array is not messages or array.dtype != np.uint8 or array.shape[1:] != (width,):
        other: Side = "interest" if side == "event" else "event"
        swapped = array.shape[1:] == (message_bytes(scheme, other),)
        hint = f"; {other}s are of that width: are the two swapped?" if swapped else ""
        raise DecodeError(
            f"{side}s must be uint8 messages of {width} bytes, an array of shape "
            f"(batch, {width}); got {type(messages).__name__} of {array.dtype} {array.shape}{hint}"
        )


def round_bytes(scheme: Scheme) -> int:
    """Return the bytes of shared randomness that one round uses."""
    sizes = scheme.sizes
    return sizes.pieces * (sizes.randomness + TAG_BYTES) if scheme.keying is Keying.ROUNDS else 0


class Access:
    """Secrets of one role: none, as a broker of rounds needs none.

    Attributes:
        key: key data for the scheme; empty where there is a seed.
        epoch: epoch of the key; 0 where there is a seed.
        names: the matcher's digest, the key's id and its epoch.
        layout: bytes of a message, and place of its body, by side.
    """

    def __init__(self, scheme: Scheme, key_id: bytes = b"", epoch: int = 0) -> None:
        self._scheme, self.epoch = scheme, epoch
        self.names = scheme.digest, key_id, epoch
        self.key: dict[str, Any] = {}
        self.layout = layout_of(scheme)

    def open(
        self, rounds: Rounds | None, count: int, pairs: Labels, content: Content, messages: Bytes
    ) -> Draw:
        """Return randomness for messages. Write their headers, now or when randomness is drawn.

        Args:
            rounds: one for each message, from `as_rounds`, where the scheme has rounds; they count
                as used.
            count: number of messages.
            pairs: labels of the pairs.
            content: content of each row.
            messages: array of the messages, shape (count, bytes).
        """
        raise ParameterError("a broker encodes nothing")

    def authenticate(self, messages: Bytes) -> None:
        """Write the MACs of messages, all of one side, of which there is at least one."""


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
        self._broadcast = scheme.answers is Answers.ROUND
        if isinstance(seed, SeedRing) and self._broadcast:
            raise ParameterError(
                f"all parties of {type(scheme).__name__} have one seed, and a SeedRing holds one "
                "for each pair: give the SharedSeed of all"
            )
        super().__init__(scheme)
        self._seed, self._fresh, self._kind = seed, randomness, SIDES[role][0]
        self._role = role
        # Pairs whose other side is not in the ledger on disk; None where the seed is a pair's own.
        self._one_sided: set[str | None] = set()
        self._disk = self._owner = None
        if ledger is not None:
            from ccbps.rounds.disk_ledger import DiskLedger  # here, since few roles have one

            self._disk = DiskLedger(ledger)
            if isinstance(seed, OneTimePad):
                self._owner = DiskLedger(ledger, "one-time pad", _ONE_MATCHER)
        self._ledger = seed.ledger(role) if isinstance(seed, OneTimePad) else RoundLedger()

    def open(
        self, rounds: Rounds | None, count: int, pairs: Labels, content: Content, messages: Bytes
    ) -> Draw:
        if rounds is None:
            raise ParameterError(
                f"{type(self._scheme).__name__} needs rounds: a number for each message, used once"
            )
        reader = self._claim(rounds, count, pairs, content)
        sizes, digest, kind = self._scheme.sizes, self._scheme.digest, self._kind
        pieces = sizes.pieces

        def shared(start: int, stop: int, piece: int = 0) -> Bytes:
            if pieces == 1:
                rows = reader(start, stop)
            else:
                place = start * pieces + piece
                rows = reader(place, place + 1)
                if stop - start > 1:
                    rows = np.repeat(rows, stop - start, axis=0)  # the reader uses its place again
                    for row in range(1, stop - start):
                        rows[row] = reader(place + row * pieces, place + row * pieces + 1)
            if piece == 0:
                tag = rows[:, sizes.randomness :]
                write_round_headers(messages[start:stop], kind, digest, tag)
            return rows[:, : sizes.randomness]

        def tags(start: int, stop: int) -> Bytes:
            return round_tags(messages[start:stop], kind, digest)

        return Draw(self._fresh, shared, tags, lambda start, stop: rounds[start:stop])

    def _claim(
        self, numbers: Rounds, count: int, pairs: Labels, content: Content
    ) -> RandomnessReader:
        """Return the reader of some rounds' randomness, which are used from now on."""
        column = pair_column(pairs, count)
        if self._broadcast and column is not None and self._kind == Kind.EVENT:
            raise ParameterError(
                f"an event of {type(self._scheme).__name__} is for all subscriptions of its "
                "round: leave out pairs"
            )
        # A reader that cannot serve all rounds raises before any of them is claimed.
        reader = self._reader(numbers, None if self._broadcast else column)
        if not count:
            return reader
        if self._disk is None:
            self._ledger.claim(numbers, column)
            return reader
        if isinstance(self._seed, OneTimePad):
            # Roles over the same pad may not have a ledger on disk.
            self._ledger.check(numbers, inherited=True)
            if self._owner is not None:
                # A round's bytes depend on the matcher, so equal numbers say nothing of reuse.
                owner = self._seed.owner(self._scheme.digest)
                self._owner.claim(np.zeros(1, dtype=np.uint64), owner)
                self._owner = None
        # Parties of a broadcast have one seed, and labels tell them apart on one side only.
        self._refuse_other_side(None if self._broadcast else column)
        marks = self._seed.marks(self._purpose(self._role), numbers, column, content())
        claimed = numbers
        if self._broadcast and marks.bound:
            marks, claimed = _with_side(marks, self._side(self._role)), np.append(numbers, _ONCE)
        self._disk.claim(claimed, marks, column)
        if isinstance(self._seed, OneTimePad) and not self._ledger.forked:
            self._ledger.claim(numbers)
        return reader

    def _purpose(self, role: RoleName) -> bytes:
        """Return the purpose by which a ledger on disk knows a role's rounds."""
        return role.encode() + b" " + self._scheme.digest

    def _side(self, role: RoleName) -> Marks:
        """Return marks, in the form of one round's, that tell a ledger a broadcast's side."""
        nothing = np.zeros((1, 0), dtype=np.uint8)
        return self._seed.marks(b"side " + self._purpose(role), _ONCE, None, nothing)

    def _refuse_other_side(self, column: Pairs | None) -> None:
        """Raise RandomnessReuseError if the ledger on disk has rounds of the other role.

        Each pair is looked up once.
        """
        assert self._disk is not None
        labels: Sequence[str | None] = [None] if column is None else column.used().values
        new = [label for label in labels if label not in self._one_sided]
        if not new:
            return
        known: RoleName = "publisher" if self._kind == Kind.INTEREST else "subscriber"
        if self._broadcast and not isinstance(self._seed, OneTimePad):
            other = self._side(known)
        else:
            names = [label for label in new if label is not None]
            pairs = DictionaryColumn(names, np.arange(len(names))) if names else None
            once = np.zeros(len(new), dtype=np.uint64)
            nothing = np.zeros((len(new), 0), dtype=np.uint8)
            other = self._seed.marks(self._purpose(known), once, pairs, nothing)
        held = self._disk.holds(other.names)
        if any(held):
            label = new[held.index(True)]
            pad = isinstance(self._seed, OneTimePad)
            noun, advice = ("pad", "") if pad else ("seed", _DIRECTIONS)
            text = _ONE_SIDE.format(
                ledger=self._disk.path, known=known, role=self._role, noun=noun, advice=advice
            )
            raise RandomnessReuseError(text if label is None else f"pair {label!r}: {text}")
        self._one_sided.update(new)

    def _reader(self, rounds: Rounds, pairs: Pairs | None) -> RandomnessReader:
        """Return a reader of a row for each piece: round r has rows r * pieces and following.

        The tag stands behind the scheme's randomness, which kernels read in words of 8 bytes.
        """
        sizes, digest = self._scheme.sizes, self._scheme.digest
        width, pieces = sizes.randomness + TAG_BYTES, sizes.pieces
        if pieces == 1:
            return self._seed.reader(digest, width, rounds, pairs)
        most = int(rounds.max(initial=0))
        if most >= (1 << 64) // pieces:
            raise ParameterError(
                f"rounds must be below {(1 << 64) // pieces} for messages of {pieces} "
                f"pieces, got {most}"
            )
        parts = np.arange(pieces, dtype=np.uint64)
        rows = (rounds[:, None] * np.uint64(pieces) + parts).reshape(-1)
        if pairs is not None:
            pairs = DictionaryColumn(pairs.values, np.repeat(pairs.index, pieces))
        try:
            return self._seed.reader(digest, width, rows, pairs)
        except PadExhaustedError:
            raise PadExhaustedError(
                f"round {most} lies beyond the pad: a round takes {round_bytes(self._scheme)} bytes"
            ) from None


class KeyAccess(Access):
    """A key that a key server gave out.

    Attributes:
        interest_bytes: bytes of an interest message.
    """

    def __init__(
        self, scheme: Scheme, role: RoleName, key: RoleKey, randomness: Randomness
    ) -> None:
        check_key(scheme, key, role)
        assert isinstance(scheme, ServerScheme)
        super().__init__(scheme, key.key_id, key.epoch)
        self.key, self._fresh, self._sides = key.export_secret_data(), randomness, SIDES[role]
        self.interest_bytes = message_bytes(scheme, "interest")
        self._macs: dict[Kind, RowMac] = {}
        with suppress(LookupError, TypeError, ValueError):
            for side in self._sides:
                # No secret in a local variable: tracebacks may show those.
                self._macs[side] = RowMac(
                    hex_bytes(self.key["macs"][side.name]), tag_bytes=MAC_BYTES
                )
        self.key.pop("macs", None)
        if len(self._macs) < len(self._sides):
            raise KeyMismatchError(
                "this key lacks MAC keys; take the one that the key server gives"
            )
        check_data(partial(scheme.check_key_data, role, self.key))

    def contents(self, interests: Bytes) -> Any:
        """Return the scheme's form of well-formed interest messages."""
        assert isinstance(self._scheme, TableScheme)
        return self._scheme.table(self.key, bodies_of(self._scheme, interests, "interest"))

    def header(self, kind: Kind) -> Bytes:
        """Return the header of every message of this key."""
        return key_header(kind, *self.names)

    def open(
        self, rounds: Rounds | None, count: int, pairs: Labels, content: Content, messages: Bytes
    ) -> Draw:
        _refuse_rounds(self._scheme, rounds, pairs)
        if len(self._sides) != 1:
            raise ParameterError("a broker encodes nothing: take another role's key")
        messages[:, :KEY_HEADER_BYTES] = self.header(self._sides[0])
        return Draw(self._fresh)

    def authenticate(self, messages: Bytes) -> None:
        mac = self._macs[Kind(int(messages[0, 0]))]
        messages[:, -MAC_BYTES:] = mac.tags(messages[:, :-MAC_BYTES])

    def examine(self, messages: Bytes, side: Side) -> Bytes:
        """Return the `Cause` for refusing each message; 0 for the others.

        Raises:
            DecodeError: `messages` do not have the width of messages of this side.
        """
        require_width(self._scheme, messages, side)
        kind = Kind[side.upper()]

        def genuine(rows: Bytes) -> Bytes:
            good = self._macs[kind].check(rows[:, :-MAC_BYTES], rows[:, -MAC_BYTES:])
            return np.where(good, Cause.NONE, Cause.ALTERED).astype(np.uint8)

        def well_formed(rows: Bytes) -> Bytes:
            return self._scheme.check(self.key, side, rows[:, KEY_HEADER_BYTES:-MAC_BYTES])

        causes = check_key_headers(messages[:, :KEY_HEADER_BYTES], self.header(kind))
        # Bodies are checked only where the MAC is right.
        for check in (genuine, well_formed):
            good = np.flatnonzero(causes == Cause.NONE)
            if not len(good):
                break
            if len(good) == len(messages):
                causes = check(messages)
            else:
                causes[good] = check(messages[good])
        return causes


class SharesAccess(Access):
    """Keys that a client agrees on with three brokers.

    Attributes:
        client: the client.
    """

    def __init__(
        self,
        scheme: Scheme,
        role: RoleName,
        brokers: Sequence[bytes] | ClientKey,
        randomness: Randomness,
    ) -> None:
        from ccbps.shares.clients import Client

        super().__init__(scheme)
        if isinstance(brokers, ClientKey):
            keys = brokers.source(scheme.digest)
            self.client = Client(brokers.brokers, scheme.digest, keys, randomness)
        else:
            self.client = Client(brokers, scheme.digest, randomness)
        self._fresh = randomness
        self._side: Side = "event" if role == "publisher" else "interest"

    def open(
        self, rounds: Rounds | None, count: int, pairs: Labels, content: Content, messages: Bytes
    ) -> Draw:
        _refuse_rounds(self._scheme, rounds, pairs)
        heads = self.client.heads(self._side, count)
        messages[:, : heads.shape[1]] = heads
        size = int(getattr(self._scheme.sizes, self._side))

        def shared(start: int, stop: int, piece: int = 0) -> Bytes:
            return self.client.mask(self._side, heads[start:stop], size)

        def payload_keys(start: int, stop: int) -> Bytes:
            return self.client.payload_keys(heads[start:stop])

        return Draw(self._fresh, shared, payload_keys=payload_keys)

    def seal(self, messages: Bytes) -> Bytes:
        """Seal messages of this role that pass through broker 0."""
        require_width(self._scheme, messages, self._side)
        return self.client.seal(self._side, messages)


def _refuse_rounds(scheme: Scheme, rounds: Rounds | None, pairs: Labels) -> None:
    if rounds is not None or pairs is not None:
        raise ParameterError(
            f"{type(scheme).__name__} has neither rounds nor pairs: its messages are made with the "
            "key alone"
        )


def _with_side(marks: Marks, side: Marks) -> Marks:
    """Append a row for the side to the marks of a batch."""
    index = np.zeros(len(marks.tags), np.intp) if marks.index is None else marks.index
    return Marks(
        [*marks.names, *side.names],
        np.append(index, len(marks.names)),
        np.concatenate([marks.tags, side.tags]),
    )


def access(
    scheme: Scheme,
    role: RoleName,
    key: Any,
    ledger: str | os.PathLike[str] | None = None,
    randomness: Randomness = os.urandom,
) -> Access:
    """Return the secrets of a role of this scheme, from its seed or key.

    Raises:
        KeyMismatchError: the key is not of this matcher and role.
        ParameterError: there is no seed or key; or there is a ledger, and no rounds.
    """
    if scheme.keying is not Keying.ROUNDS:
        if ledger is not None:
            raise ParameterError(f"{type(scheme).__name__} has no rounds, and so no ledger of them")
        if scheme.keying is Keying.BROKERS:
            return SharesAccess(scheme, role, key, randomness)
        return KeyAccess(scheme, role, key, randomness)
    if role != "broker":
        return RoundAccess(scheme, role, key, ledger, randomness)
    if key is not None:
        raise KeyMismatchError(f"a broker of {type(scheme).__name__} takes no key")
    return Access(scheme)
