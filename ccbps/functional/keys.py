"""Keys and messages of functional encryption, for all schemes.

An *authority* has a master key. It publishes a public key, and gives each user a key for a record,
a policy or an identity. Anybody encrypts under the public key to a policy, a record or an identity;
exactly the users whose keys fit can decrypt.

Each scheme (`ccbps.functional.scheme`) gives a key encapsulation over a pairing: points, and an
element of GT that a fitting key computes from them. `PublicKey` and `UserKey` build encryption on
it::

    seed: 32 random bytes                     coins = SHAKE-256(seed, authority, epoch, target)
    points, t = encapsulate(target; coins)    mask = seed XOR HMAC(t, points)
    key = HMAC(seed, all public parts)        payload: AES-256-GCM, bound to all public parts

Where the opener knows the target, it computes the points again from the seed and compares (Fujisaki
and Okamoto): a message that was not made this way, or that was altered in any place, does not open.
The error does not tell which point was altered, or whether it was the mask or the payload. Coins of
hidden vectors are fresh: if they followed from the seed, which every opener has, openers could test
records.

*Revocation* is by epochs. A key of epoch e opens messages of epoch e only. The authority gives keys
of the next epoch to users who are not revoked.

Hazards: the authority can make every key, so it reads everything. Nothing here is constant time.
Messages show who can read them, except where a scheme says otherwise. Sources: [FO99].
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, cached_property
from hashlib import sha256, shake_256
from itertools import count
from typing import Annotated, Any, ClassVar, Final, Self

from msgspec import Meta
from msgspec.structs import replace

from ccbps.algebra.pairing import Pairing, Point, Target
from ccbps.arrays import Randomness
from ccbps.checks import Printable, instance, octets, whole
from ccbps.ciphers.payloads import PAD_TO, as_bytes, open_sealed, seal
from ccbps.errors import DecodeError, KeyMismatchError, ParameterError
from ccbps.functional.cp_abe import CpAbe
from ccbps.functional.hidden_vectors import HiddenVectors
from ccbps.functional.identity import Ibe
from ccbps.functional.kp_abe import KpAbe
from ccbps.functional.scheme import Draw, FunctionalScheme, Points
from ccbps.functional.workers import share
from ccbps.keys.secret import Confined, confined
from ccbps.keys.text_form import TextKey
from ccbps.predicates import Schema
from ccbps.records import Message, Number, SecretRecord, read, write
from ccbps.wire import Kind

VERSION: Final = 1
SEED_BYTES: Final = 32
NAME_BYTES: Final = 16
"""Length of an authority's name, a hash of its public key."""
SCHEMES: Final[dict[str, type[FunctionalScheme]]] = {
    scheme.name: scheme for scheme in (CpAbe, HiddenVectors, Ibe, KpAbe)
}
ALTERED: Final = "not a message for this key, or one that was altered"
_REFUSED: Final = "not of this scheme and version, or altered"
_LABEL: Final = b"ccbps functional encryption 1"


class _Public(Message, frozen=True):
    """The fields of a public key."""

    front: ClassVar[bytes] = bytes([Kind.AUTHORITY, VERSION])
    what: ClassVar[str] = "a public key of functional encryption"
    scheme: str
    pairing: str
    schema: str
    points: bytes
    targets: bytes


class _Sealed(Message, frozen=True):
    """A message: an encapsulated key, and a payload under it or none.

    Attributes:
        authority: name of the authority.
        epoch: number of the epoch; None for messages without.
        label: public part of the target, encoded.
        points: encoded points.
        mask: masked seed.
        payload: sealed payload.
    """

    front: ClassVar[bytes] = bytes([Kind.FUNCTIONAL, VERSION])
    what: ClassVar[str] = "a message of functional encryption"
    authority: Annotated[bytes, Meta(min_length=NAME_BYTES, max_length=NAME_BYTES)]
    epoch: Number | None
    label: bytes
    points: bytes
    mask: Annotated[bytes, Meta(min_length=SEED_BYTES, max_length=SEED_BYTES)]
    payload: bytes = b""

    @property
    def head(self) -> bytes:
        """Bytes that key and payload are bound to: all fields but the payload."""
        return write((self.authority, self.epoch, self.label, self.points, self.mask), self.front)


class PublicKey(Printable):
    """The public key of an authority: anybody who has it can encrypt.

    Example:
        >>> from ccbps.functional import Authority, Ibe, PublicKey
        >>> authority = Authority.generate(Ibe())
        >>> published = authority.public.to_bytes()
        >>> sealed = PublicKey.from_bytes(published).seal(b"119.50", "bob", epoch=7)
        >>> authority.key("bob", epoch=7).open(sealed)
        b'119.50'

    Attributes:
        scheme: the scheme, with its schema and pairing.
        points: elements of G1 and G2.
        targets: elements of GT.
    """

    def __init__(self, scheme: FunctionalScheme, points: Points, targets: Sequence[Target]) -> None:
        self.scheme, self.points, self.targets = scheme, points, targets

    def __repr__(self) -> str:
        return f"<PublicKey {self.fingerprint} of {self.scheme!r}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PublicKey) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_bytes, (self.to_bytes(),)

    @property
    def fingerprint(self) -> str:
        """16 hex digits that name the authority."""
        return self.name.hex()[:16]

    @cached_property
    def name(self) -> bytes:
        """Name of the authority in messages, `NAME_BYTES`."""
        return sha256(_LABEL + self.to_bytes()).digest()[:NAME_BYTES]

    def to_bytes(self) -> bytes:
        """Return the public key as bytes, for everybody."""
        scheme, group = self.scheme, self.scheme.group
        schema = scheme.schema.to_json() if scheme.schema else ""
        targets = b"".join(map(group.encode_target, self.targets))
        points = encoded(group, self.points)
        return _Public(scheme.name, group.name, schema, points, targets).to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read a public key from the bytes of `to_bytes`.

        Args:
            data: the bytes. Anybody may have made them: compare `fingerprint` with the one that the
                authority publishes.

        Raises:
            DecodeError: the bytes are not a public key.
            ImportError: the pairing's libraries are not installed.
        """
        fields = _Public.from_bytes(data)
        scheme = _scheme(fields.scheme, fields.pairing, fields.schema)
        group, (ones, twos, threes) = scheme.group, scheme.public_shape()
        size = group.target_bytes
        if len(fields.targets) != threes * size:
            raise DecodeError(_REFUSED)
        targets = [
            group.decode_target(fields.targets[at : at + size])
            for at in range(0, threes * size, size)
        ]
        return cls(scheme, decoded(group, fields.points, (ones, twos)), targets)

    # -- encryption -----------------------------------------------------------------------------

    @confined
    def seal(
        self,
        payload: bytes,
        to: Any,
        *,
        epoch: int | None = None,
        pad_to: int = PAD_TO,
        randomness: Randomness = os.urandom,
    ) -> bytes:
        """Encrypt a payload to all users whose keys fit.

        Args:
            payload: any bytes.
            to: policy, record or identity, as the scheme says.
            epoch: epoch whose keys open the message; None for keys without epochs.
            pad_to: number of bytes. The payload is padded to a multiple of it; 1 shows its length.
            randomness: source of uniform bytes.

        Raises:
            ParameterError: an argument does not fit.
            PredicateError: a policy does not parse, is too large, or no record satisfies it.
            EventError: a record does not fit the schema.
        """
        payload, pad_to, epoch = octets("payload", payload), _pad_to(pad_to), _epoch(epoch)
        target = self.scheme.target(to, epoch)
        return self._sealed(payload, target, epoch, pad_to, randomness)

    @confined
    def seal_many(
        self,
        payloads: Sequence[bytes],
        to: Sequence[Any],
        *,
        epoch: int | None = None,
        pad_to: int = PAD_TO,
        workers: int = 1,
    ) -> list[bytes]:
        """Encrypt payloads as `seal` does, each to a target of its own.

        Args:
            payloads: the payloads.
            to: policy, record or identity for each of them.
            epoch: epoch whose keys open the messages; None for keys without epochs.
            pad_to: number of bytes. Payloads are padded to a multiple of it; 1 shows their lengths.
            workers: number of payloads that are encrypted at the same time, as in
                `UserKey.examine`.

        Raises:
            NetworkError: a process ended before its work was done.
            CcbpsError: an argument does not fit, as in `seal`. Nothing is encrypted.
        """
        payloads, pad_to, epoch = as_bytes("payloads", payloads), _pad_to(pad_to), _epoch(epoch)
        if isinstance(to, str | bytes) or len(to) != len(payloads):
            given = type(to).__name__ if isinstance(to, str | bytes) else len(to)
            raise ParameterError(
                f"to must be a list of as many targets as payloads, {len(payloads)}, got {given}"
            )
        rows = [
            (payload, self.scheme.target(target, epoch), epoch, pad_to)
            for payload, target in zip(payloads, to, strict=True)
        ]
        return share(
            rows,
            self._sealed_row,
            workers=whole("workers", workers, 1),
            parallel=False,  # sealing is powers, and threads may share products only
            remade=_sealer,
            key=self.to_bytes,
        )

    def _sealed_row(self, row: tuple[bytes, Any, int | None, int]) -> bytes:
        return self._sealed(*row, os.urandom)

    def _sealed(
        self, payload: bytes, target: Any, epoch: int | None, pad_to: int, randomness: Randomness
    ) -> bytes:
        seed = _seed(randomness)
        message = self._from_seed(target, epoch, seed, randomness)
        sealed = seal(payload, _key(b"payload", seed, message), message.head, pad_to=pad_to)
        return replace(message, payload=sealed).to_bytes()

    @confined
    def encapsulate(
        self, to: Any, *, epoch: int | None = None, randomness: Randomness = os.urandom
    ) -> tuple[bytes, bytes]:
        """Return a message, and the key of 32 bytes that `UserKey.decapsulate` gets from it.

        Arguments and errors are those of `seal`.
        """
        epoch, seed = _epoch(epoch), _seed(randomness)
        target = self.scheme.target(to, epoch)
        message = self._from_seed(target, epoch, seed, randomness)
        # An empty sealed payload shows whether a key fits.
        sealed = seal(b"", _key(b"payload", seed, message), message.head, pad_to=1)
        key = _key(b"encapsulated", seed, message)
        return replace(message, payload=sealed).to_bytes(), key

    def read(self, message: bytes) -> Any:
        """Read the target of a message, as far as the message shows it.

        Args:
            message: message of `seal` or `encapsulate`. Its form and its points are checked; only a
                key can check mask and payload.

        Returns:
            a `ccbps.functional.trees.Tree` (CpAbe), a tuple of words (KpAbe), or None.

        Raises:
            KeyMismatchError: the message is of another authority.
            DecodeError: it is no message.
        """
        parsed, scheme = _Sealed.from_bytes(message), self.scheme
        self._require_own(parsed)
        label = read(scheme.label_type, parsed.label, refusal=_REFUSED)
        decoded(scheme.group, parsed.points, scheme.message_shape(label))
        return label

    def _require_own(self, message: _Sealed) -> None:
        """Refuse a message of another authority."""
        if message.authority != self.name:
            raise KeyMismatchError(
                f"the message is of authority {message.authority.hex()[:16]}, and the key of "
                f"{self.fingerprint}"
            )

    def _from_seed(
        self, target: Any, epoch: int | None, seed: bytes, randomness: Randomness = os.urandom
    ) -> _Sealed:
        """Return a message with a seed, without payload. In checked schemes, it follows from it."""
        scheme = self.scheme
        start = seed if scheme.checked else _seed(randomness)
        data, shared = self._encapsulated(target, epoch, start)
        mask = _masked(scheme.group, shared(), data, seed)
        return _Sealed(self.name, epoch, write(scheme.label(target)), data, mask)

    def _encapsulated(
        self, target: Any, epoch: int | None, start: bytes
    ) -> tuple[bytes, Callable[[], Target]]:
        """Return the encoded points that follow from a start, and a function for the element."""
        scheme = self.scheme
        draw = coins(scheme.group, start, write((self.name, epoch, target)))
        points, shared = scheme.encapsulate(self.points, self.targets, target, draw)
        return encoded(scheme.group, points), shared

    def _follows(self, message: _Sealed, target: Any, seed: bytes) -> bool:
        """Return whether the points of a message follow from its seed, as those of `seal` do.

        The mask needs no comparison, so the element of GT is not computed again. The seed came from
        the mask and the element that the key computed. If all points are those of the seed, every
        fitting key computes the sender's element, so the mask is the sender's, too. An altered mask
        gives another seed, from which other points follow.
        """
        points, _ = self._encapsulated(target, message.epoch, seed)
        return hmac.compare_digest(points, message.points)


def _sealer(public: bytes) -> Callable[[tuple[bytes, Any, int | None, int]], bytes]:
    """Return the method of a public key that encrypts a payload, in a worker process."""
    return PublicKey.from_bytes(public)._sealed_row


class UserKey(Confined, TextKey):
    """A user's key: it opens the messages that it fits. `Authority.key` makes it.

    Example:
        >>> from ccbps.functional import Authority, Ibe, UserKey
        >>> authority = Authority.generate(Ibe())
        >>> handed_over = authority.key("bob").to_text()
        >>> key = UserKey.from_text(handed_over)
        >>> key.examine([authority.public.seal(b"119.50", name) for name in ("bob", "eve")])
        ([b'119.50', None], {1: 'not a message for this key, or one that was altered'})

    Attributes:
        public: public key of the authority.
        epoch: epoch of the messages that the key opens; None for messages without.
    """

    kind = "policy key"
    text_kind = "policy-key"
    __slots__ = ("_holdings", "_points", "epoch", "public")

    def __init__(self, public: PublicKey, epoch: int | None, holdings: Any, points: Points) -> None:
        self.public, self.epoch = public, epoch
        self._holdings, self._points = holdings, points

    def __repr__(self) -> str:
        epoch = "" if self.epoch is None else f" of epoch {self.epoch}"
        return f"<UserKey {self.fingerprint}{epoch} of authority {self.public.fingerprint}>"

    @property
    def fingerprint(self) -> str:
        """16 hex digits that name the key and say nothing else about it."""
        return sha256(_LABEL + b"\0fingerprint\0" + self._to_bytes()).hexdigest()[:16]

    @confined
    def open(self, message: bytes) -> bytes:
        """Decrypt a payload.

        Raises:
            KeyMismatchError: the message is of another authority or epoch, or the key does not fit
                what the message shows.
            DecodeError: it is no message, was altered, or is for others in a scheme whose messages
                do not show their target.
        """
        return self._opened(_Sealed.from_bytes(message))[0]

    @confined
    def decapsulate(self, message: bytes) -> bytes:
        """Return the key of 32 bytes that `PublicKey.encapsulate` gave; errors are as in `open`."""
        parsed = _Sealed.from_bytes(message)
        return _key(b"encapsulated", self._opened(parsed)[1], parsed)

    @confined
    def examine(
        self, messages: Sequence[bytes], *, workers: int = 1
    ) -> tuple[list[bytes | None], dict[int, str]]:
        """Decrypt payloads as `open` does, and give a cause where a message cannot be opened.

        Args:
            messages: the messages.
            workers: number of messages that are opened at the same time: by threads where the
                library lets them run at once, and by processes if that takes long. Processes load
                the program's main module, which must start under ``if __name__ == "__main__":``.

        Returns:
            payloads, None for a message that cannot be opened; and the cause by row.

        Raises:
            NetworkError: a process ended before its work was done.
        """
        examined = share(
            as_bytes("messages", messages),
            self._examined,
            workers=whole("workers", workers, 1),
            parallel=self.public.scheme.group.parallel,
            remade=_examiner,
            key=self._to_bytes,
        )
        causes = {row: cause for row, (_, cause) in enumerate(examined) if cause}
        return [payload for payload, _ in examined], causes

    def _examined(self, message: bytes) -> tuple[bytes | None, str]:
        """Return the payload of a message or None, and the cause if there is none."""
        try:
            return self.open(message), ""
        except (DecodeError, KeyMismatchError) as error:
            return None, str(error)

    def _opened(self, message: _Sealed) -> tuple[bytes, bytes]:
        """Return the payload and the seed of a message."""
        public, scheme, group = self.public, self.public.scheme, self.public.scheme.group
        public._require_own(message)
        if message.epoch != self.epoch:
            raise KeyMismatchError(
                f"the message is of epoch {message.epoch}, and the key of epoch {self.epoch}: take "
                "a key of that epoch, which the authority makes"
            )
        label = read(scheme.label_type, message.label, refusal=_REFUSED)
        points = sent(group, message.points, scheme.message_shape(label))
        target = scheme.target_of(label, self._holdings)
        for find in scheme.find(self._holdings, self._points, label, points):
            with suppress(DecodeError):  # of points, too: an error would tell which one was used
                seed = _masked(group, find(), message.points, message.mask)
                if not scheme.checked or public._follows(message, target, seed):
                    key = _key(b"payload", seed, message)
                    return open_sealed(message.payload, key, message.head), seed
        raise DecodeError(ALTERED)

    def _to_bytes(self) -> bytes:
        points = encoded(self.public.scheme.group, self._points)
        held = write(self._holdings)
        return write(_UserFields(self.public.to_bytes(), self.epoch, held, points))

    @classmethod
    def _from_bytes(cls, secret: bytes) -> Self:
        fields = read(_UserFields, secret, refusal=_REFUSED)
        public = PublicKey.from_bytes(fields.public)
        scheme = public.scheme
        holdings = read(scheme.holdings_type, fields.holdings, refusal=_REFUSED)
        points = decoded(scheme.group, fields.points, scheme.key_shape(holdings))
        return cls(public, fields.epoch, holdings, points)


def _examiner(secret: bytes) -> Callable[[bytes], tuple[bytes | None, str]]:
    """Return the method of a key that examines a message, in a worker process."""
    return UserKey._from_bytes(secret)._examined


class _UserFields(SecretRecord, frozen=True):
    """The fields of a `UserKey`."""

    public: bytes
    epoch: Number | None
    holdings: bytes
    points: bytes


class Authority(Confined, TextKey):
    """The master key of an authority: it makes the keys of users.

    Example:
        >>> from ccbps.functional import Authority, Ibe, PublicKey
        >>> authority = Authority.generate(Ibe())
        >>> Authority.from_text(authority.to_text()).public == authority.public
        True
        >>> PublicKey.from_bytes(authority.public.to_bytes()) == authority.public
        True

    Attributes:
        scheme: the scheme.
        public: public key, for everybody.
    """

    kind = "authority's key"
    text_kind = "authority-key"
    __slots__ = ("_master", "_seed", "public", "scheme")

    def __init__(self, scheme: FunctionalScheme, seed: bytes) -> None:
        self.scheme = instance("scheme", scheme, FunctionalScheme)
        self._seed = octets("seed", seed, SEED_BYTES)
        # Of scheme, pairing and schema, too: a seed that is used again gives another master key.
        draw = coins(scheme.group, self._to_bytes(), b"master key")
        self._master, points, targets = scheme.setup(draw)
        self.public = PublicKey(scheme, points, targets)

    @classmethod
    @confined
    def generate(cls, scheme: FunctionalScheme, *, randomness: Randomness = os.urandom) -> Self:
        """Make an authority with a fresh master key.

        Args:
            scheme: `CpAbe`, `KpAbe`, `HiddenVectors` or `Ibe`.
            randomness: source of 32 uniform bytes, from which the master key follows.
        """
        return cls(scheme, randomness(SEED_BYTES))

    def __repr__(self) -> str:
        return f"<Authority {self.public.fingerprint} of {self.scheme!r}>"

    @confined
    def key(
        self, of: Any, *, epoch: int | None = None, randomness: Randomness = os.urandom
    ) -> UserKey:
        """Make a user's key.

        Args:
            of: record, policy or identity, as the scheme says.
            epoch: epoch of the messages that the key opens; None for messages without.
            randomness: source of uniform bytes. It must be fresh for each key: keys of different
                users with the same randomness work together.

        Raises:
            ParameterError: an argument does not fit.
            PredicateError: a policy does not parse, is too large, or no record satisfies it.
            EventError: a record does not fit the schema.
        """
        epoch, seed = _epoch(epoch), _seed(randomness)
        holdings = self.scheme.holdings(of, epoch)
        draw = coins(self.scheme.group, seed, b"user key")
        points = self.scheme.make_key(self._master, holdings, draw)
        return UserKey(self.public, epoch, holdings, points)

    def _to_bytes(self) -> bytes:
        scheme = self.scheme
        schema = scheme.schema.to_json() if scheme.schema else ""
        return write(_AuthorityFields(scheme.name, scheme.group.name, schema, self._seed))

    @classmethod
    def _from_bytes(cls, secret: bytes) -> Self:
        fields = read(_AuthorityFields, secret, refusal=_REFUSED)
        return cls(_scheme(fields.scheme, fields.pairing, fields.schema), fields.seed)


class _AuthorityFields(SecretRecord, frozen=True):
    """The fields of an `Authority`."""

    scheme: str
    pairing: str
    schema: str
    seed: Annotated[bytes, Meta(min_length=SEED_BYTES, max_length=SEED_BYTES)]


# -- bytes -----------------------------------------------------------------------------------------


def _scheme(name: str, group: str, schema: str) -> FunctionalScheme:
    """Return a scheme by its name, pairing and schema.

    Raises:
        DecodeError: there is no such scheme.
    """
    with suppress(ParameterError, KeyError):
        if name in SCHEMES and bool(schema) == (SCHEMES[name] is not Ibe):
            read_schema = Schema.from_json(schema) if schema else None
            return SCHEMES[name].made_from(read_schema, group)
    raise DecodeError(_REFUSED)


def _epoch(epoch: int | None) -> int | None:
    """Check an epoch."""
    return None if epoch is None else whole("epoch", epoch, 0, (1 << 63) - 1)


def _pad_to(pad_to: int) -> int:
    """Check a number of bytes to pad to."""
    return whole("pad_to", pad_to, 1)


def _seed(randomness: Randomness) -> bytes:
    """Draw a seed."""
    return octets("bytes of randomness", randomness(SEED_BYTES), SEED_BYTES)


def encoded(group: Pairing, points: Points) -> bytes:
    """Return the bytes of points."""
    return b"".join(map(group.encode, (*points[0], *points[1])))


def decoded(group: Pairing, data: bytes, shape: tuple[int, int]) -> Points:
    """Read so many elements of G1 and G2, and check that each lies in its group.

    Raises:
        DecodeError: the bytes are not so many elements.
    """
    ones, twos = sent(group, data, shape)
    return list(ones), list(twos)


def sent(group: Pairing, data: bytes, shape: tuple[int, int]) -> Points:
    """Return elements of G1 and G2 that are read, as by `decoded`, when they are first used.

    Raises:
        DecodeError: the bytes are too many or too few.
    """
    (ones, twos), one, two = shape, group.g1_bytes, group.g2_bytes
    cut = ones * one
    if len(data) != cut + twos * two:
        raise DecodeError(_REFUSED)
    return (
        _Elements([data[at : at + one] for at in range(0, cut, one)], group.decode_g1),
        _Elements([data[at : at + two] for at in range(cut, len(data), two)], group.decode_g2),
    )


class _Elements(Sequence[Point]):
    """Elements of one group, checked at first use: a key uses few, and a check takes long."""

    def __init__(self, parts: list[bytes], decode: Callable[[bytes], Point]) -> None:
        self._parts = parts
        self._at = cache(lambda at: decode(parts[at]))

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, at: Any) -> Any:
        return self._at(at)


def coins(group: Pairing, seed: bytes, bound: bytes) -> Draw:
    """Return a source of exponents that follow from a seed and public bytes."""
    start, calls = _LABEL + b"\0coins\0" + seed + bound, count()

    def draw(number: int) -> list[int]:
        content = start + next(calls).to_bytes(8)
        return group.exponents(number, shake_256(content).digest)

    return draw


def _masked(group: Pairing, shared: Target, points: bytes, seed: bytes) -> bytes:
    """Mask or unmask a seed by an element of GT."""
    mask = hmac.digest(group.encode_target(shared), _LABEL + b"\0mask\0" + points, "sha256")
    return (int.from_bytes(mask) ^ int.from_bytes(seed)).to_bytes(SEED_BYTES)


def _key(use: bytes, seed: bytes, message: _Sealed) -> bytes:
    """Derive a key of a message, for one use."""
    return hmac.digest(seed, _LABEL + b"\0key\0" + use + b"\0" + message.head, "sha256")
