"""Seeds of 32 bytes, from which pairs' shared randomness is derived; epoch seeds; rings of seeds.

HKDF-SHA256 turns a seed into one AES-256 key for each purpose (a matcher's fingerprint) and pair
label. Round r reads blocks r*n .. r*n + n - 1 of the CTR key stream, where n is the number of
16-byte blocks that a round needs. So any round can be reached directly, and a run of consecutive
rounds costs one pass of the cipher. Security is computational.

An `EpochSeed` steps forward by epochs and is erased: k_(e+1) = HKDF(k_e). The seed of an epoch
gives the seeds of later epochs, but of no earlier one. A `SeedRing` holds the seeds of some pairs,
for a party that must not have their master seed.

Hazard: Python cannot wipe memory. An erased seed is one that no object of this package holds.
Sources: RFC 5869 (HKDF), NIST SP 800-38A (CTR), Bellare and Yee, CT-RSA 2003 (forward security).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Final, NoReturn, Self

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from ccbps import primitives
from ccbps.arrays import Bytes, Rounds
from ccbps.checks import instance, whole
from ccbps.errors import KeyMismatchError, ParameterError
from ccbps.keys.plain_key import DrawnKey, LedgerKey
from ccbps.keys.randomness import NAME_BYTES, Marks, Pairs, RandomnessReader
from ccbps.keys.secret import Confined, confined
from ccbps.keys.stream import BLOCK, KeyStream, StreamKey, row_tags
from ccbps.keys.text_form import TextKey
from ccbps.records import SecretRecord, read, write

if TYPE_CHECKING:
    from ccbps.sharing import Share

MAX_EPOCH: Final = 10**9 - 1
KEPT_PAIRS: Final = 1 << 16
"""Derived seeds of pairs that are kept at a time."""


class _Seeds:
    """Base of the sources of randomness that hold one or more seeds."""

    __slots__ = ()

    def reader(
        self, purpose: bytes, width: int, rounds: Rounds, pairs: Pairs | None = None
    ) -> RandomnessReader:
        seeds, index = self._seeds_of(pairs)
        return KeyStream([seed._stream(purpose) for seed in seeds], index, rounds, width)

    def marks(self, purpose: bytes, rounds: Rounds, pairs: Pairs | None, content: Bytes) -> Marks:
        # The round is tagged, too, so that equal contents of two rounds have different tags.
        width = 8 + content.shape[1]
        rows = np.zeros((len(rounds), -(-width // BLOCK) * BLOCK), dtype=np.uint8)
        rows[:, :8] = rounds.astype(">u8").view(np.uint8).reshape(-1, 8)
        rows[:, 8:width] = content
        seeds, index = self._seeds_of(pairs)
        marking = [seed._mark(purpose) for seed in seeds]
        tags = row_tags([cipher for _, cipher in marking], index, rows)
        return Marks([name for name, _ in marking], index, tags)

    def _seeds_of(self, pairs: Pairs | None) -> tuple[list[SharedSeed], NDArray[np.intp] | None]:
        """Return the seeds in use, and the place of each row's seed; None for the only seed."""
        raise NotImplementedError


class SharedSeed(_Seeds, DrawnKey):
    """A 32-byte seed that a publisher and a subscriber share.

    A publisher with many subscribers keeps one master seed and gives subscriber "alice" the seed
    ``master.pair("alice")``. No subscriber can derive another's.

    Hazard: a seed has one direction. Two parties who both publish under one seed and matcher use
    each round twice, and the broker sees where their events differ. A ledger on disk refuses the
    party that stands on both sides. For both directions, or for several publishers of one
    broadcast, take a seed for each publisher: ``seed.pair("ann publishes")``.

    Example:
        >>> from ccbps import SharedSeed
        >>> master = SharedSeed.generate()
        >>> text = master.to_text()                      # for a key file that nobody else may read
        >>> text[:13], len(text)
        ('ccbps-seed-3:', 93)
        >>> SharedSeed.from_text(text) == master
        True
        >>> master.pair("alice") == master.pair("bob")   # each subscriber gets its own
        False
    """

    kind = "seed"
    length = 32
    text_kind = "seed"
    __slots__ = ("_marking", "_pairs", "_streams")

    def __init__(self, secret: bytes) -> None:
        super().__init__(secret)
        # Keys derived before: HKDF takes longer than a message.
        self._pairs: dict[str, SharedSeed] = {}
        self._streams: dict[bytes, StreamKey] = {}
        self._marking: dict[bytes, tuple[bytes, primitives.AES256]] = {}

    @confined
    def to_shares(self, k: int, n: int) -> list[Share]:
        """Split the secret into n shares: any k give it back, and fewer say nothing about it.

        Shares bring a seed to a counterpart through parties of whom fewer than k work together.
        Each one carries ``share.to_bytes()``. A share is 60 bytes.

        Raises:
            ParameterError: not ``1 <= k <= n <= 255``.

        Example:
            >>> from ccbps import SharedSeed
            >>> from ccbps.sharing import Share
            >>> seed = SharedSeed.generate()
            >>> sent = [share.to_bytes() for share in seed.to_shares(3, 5)]
            >>> came = [Share.from_bytes(message) for message in (sent[4], sent[0], sent[2])]
            >>> SharedSeed.from_shares(came) == seed
            True
        """
        from ccbps.keys.share_form import split_key  # loads gmpy2

        return split_key(self.text_kind, self._to_bytes(), k, n)

    @classmethod
    @confined
    def from_shares(cls, shares: Iterable[Share]) -> Self:
        """Recover the seed that `to_shares` split.

        A seed carries a check, so nobody who altered fewer than k shares can make this return
        another seed. If k of the shares are genuine, the others may be altered, duplicates or
        shares of other secrets.

        Args:
            shares: k shares or more, in any order.

        Raises:
            DecodeError: the shares do not give back a seed of this class: there are too few, too
                many of them are altered, or 10,000 choices of k shares did not find the seed.
            ParameterError: one of `shares` is not a share.
        """
        from ccbps.keys.share_form import join_key

        return cls._from_bytes(join_key(cls.text_kind, shares))

    def pair(self, label: str) -> SharedSeed:
        """Return the seed shared with one counterpart.

        Raises:
            ParameterError: the label is not a string that UTF-8 can hold.
        """
        seed = self._pairs.get(label)
        if seed is None:
            seed = SharedSeed(self._derive(b"pair", _utf8(label)))
            if len(self._pairs) >= KEPT_PAIRS:
                self._pairs.clear()
            self._pairs[label] = seed
        return seed

    def naming_key(self, purpose: bytes) -> bytes:
        """Return 16 secret bytes for names in a file that others may read."""
        return self._derive(b"names", purpose, NAME_BYTES)

    def ledger_key(self) -> LedgerKey:
        """Return the key under which this publisher's workers know a `LedgerServer`.

        An `EpochSeed` has another ledger key in each epoch.
        """
        return LedgerKey(self._derive(b"ledger server", b"", LedgerKey.length))

    def _seeds_of(self, pairs: Pairs | None) -> tuple[list[SharedSeed], NDArray[np.intp] | None]:
        if pairs is None:
            return [self], None
        pairs = pairs.used()
        return [self._counterpart(label) for label in pairs.values], pairs.index

    def _counterpart(self, label: str) -> SharedSeed:
        return self.pair(label)

    def _stream(self, purpose: bytes) -> StreamKey:
        if purpose not in self._streams:
            self._streams[purpose] = StreamKey(self._derive(b"stream", purpose))
        return self._streams[purpose]

    def _mark(self, purpose: bytes) -> tuple[bytes, primitives.AES256]:
        """Return the name of this seed's stream in a ledger, 16 bytes, and the key of its tags."""
        if purpose not in self._marking:
            derived = self._derive(b"ledger", purpose, 32 + NAME_BYTES)
            self._marking[purpose] = derived[32:], primitives.AES256(derived[:32])
        return self._marking[purpose]

    def _derive(self, use: bytes, info: bytes, length: int = 32) -> bytes:
        context = b"ccbps 1 " + use + b"\0" + len(info).to_bytes(8, "big") + info
        return primitives.HKDF(primitives.SHA256(), length, salt=None, info=context).derive(
            self._secret
        )


def _utf8(label: str) -> bytes:
    """Return a pair label as UTF-8.

    Raises:
        ParameterError: the label is not a string that UTF-8 can hold.
    """
    if isinstance(label, str):
        with contextlib.suppress(UnicodeEncodeError):
            return label.encode()
    raise ParameterError(f"a pair label must be a string that UTF-8 can hold, got {label!r}")


def _listed(labels: Iterable[str]) -> Iterable[str]:
    """Return labels of pairs, and refuse a single string with a ParameterError."""
    if isinstance(labels, str):
        raise ParameterError(f"labels must be a list, got one string; write [{labels!r}]")
    return labels


Epoch = Annotated[int, Meta(ge=0, le=MAX_EPOCH)]
Seed = Annotated[bytes, Meta(min_length=SharedSeed.length, max_length=SharedSeed.length)]


class _EpochFields(SecretRecord, frozen=True):
    """The fields of an epoch seed's text: the seed, and the seeds of the named pairs."""

    epoch: Epoch
    secret: Seed
    pairs: dict[str, Seed]


class EpochSeed(SharedSeed):
    """The seed of one epoch: it gives the next epoch's seed, and no earlier epoch's.

    Both parties of a pair hold such a seed and step it at agreed times, for example at midnight. A
    publisher with many subscribers holds a master epoch seed and gives "alice" the text of
    ``master.pair("alice")``. From then on the publisher's copy of her seed is stepped along with
    the master, and she steps her own. Rounds start afresh with each epoch. The text and the shares
    of an epoch seed hold the seed of each pair that was named.

    Attributes:
        epoch: number of steps since the start of the chain.

    Example:
        >>> from ccbps import EpochSeed
        >>> master = EpochSeed.generate()
        >>> alice = EpochSeed.from_text(master.pair("alice").to_text())     # hers, sent once
        >>> master, alice = master.step(), alice.step()                     # each for itself
        >>> master.pair("alice") == alice
        True
        >>> alice.epoch
        1
    """

    kind = "epoch seed"
    text_kind = "epoch-seed"
    __slots__ = ("epoch",)

    def __init__(self, secret: bytes, epoch: int = 0) -> None:
        self.epoch = whole("epoch", epoch, 0, MAX_EPOCH)
        super().__init__(secret)

    @classmethod
    def start(cls, seed: SharedSeed, labels: Iterable[str] = ()) -> Self:
        """Start a chain with a seed, at epoch 0. Erase that seed: all others follow from it.

        Args:
            seed: first secret of the chain.
            labels: counterparts that already have the seed of their pair with this master, and also
                start a chain with it. The seed of a pair that is named later is derived from the
                chain, and must be handed over.

        Raises:
            ParameterError: `seed` is not a seed, or already of a chain; `labels` is one string, or
                one of them is not a string that UTF-8 can hold.
        """
        instance("seed", seed, SharedSeed, hint="a SeedRing has start_epochs()")
        if isinstance(seed, EpochSeed):
            raise ParameterError("an EpochSeed is of a chain already: step() it")
        chained = cls(seed._derive(b"ratchet", b""))
        for label in _listed(labels):
            chained._pairs[label] = cls.start(seed.pair(label))
        return chained

    def _to_bytes(self) -> bytes:
        pairs = {label: seed.export_secret() for label, seed in self._pairs.items()}
        return write(_EpochFields(self.epoch, self.export_secret(), pairs))

    @classmethod
    def _from_bytes(cls, secret: bytes) -> Self:
        fields = read(_EpochFields, secret, refusal="not an epoch seed")
        own = cls(fields.secret, fields.epoch)
        own._pairs.update((k, EpochSeed(seed, own.epoch)) for k, seed in fields.pairs.items())
        return own

    def pair(self, label: str) -> EpochSeed:
        """Return the seed shared with one counterpart, at this epoch.

        The first time that a label is named, its seed is derived from this one, which keeps and
        steps it from then on: save the new `to_text`. The result is a separate object, for the
        counterpart to step.

        Raises:
            ParameterError: the label is not a string that UTF-8 can hold.
        """
        if label not in self._pairs:
            self._pairs[label] = EpochSeed(self._derive(b"pair", _utf8(label)), self.epoch)
        return EpochSeed(self._pairs[label].export_secret(), self.epoch)

    def step(self, to: int | None = None) -> EpochSeed:
        """Return the seed of the next epoch, or of epoch `to`, and erase this one.

        This object, and roles made with it, raise KeyMismatchError from now on: make roles with the
        result. Erase the texts of this epoch, too.

        Raises:
            KeyMismatchError: epoch `to` is over, or this object was already stepped.
            ParameterError: there is no such epoch.

        Cost: some 5 us for each epoch passed and each pair: count epochs, do not number them by
        date.
        """
        key, to = self, self.next_epoch(to)
        while key.epoch < to:
            key = EpochSeed(key._derive(b"step", b""), key.epoch + 1)
        for label, seed in self._pairs.items():
            assert isinstance(seed, EpochSeed)
            key._pairs[label] = seed.step(to)
        del self._secret, self._pairs, self._streams, self._marking
        return key

    def next_epoch(self, to: int | None) -> int:
        """Return the epoch to step to, `to` or the next, and raise the errors of `step`."""
        to = self.epoch + 1 if to is None else to
        if type(to) is not int or to <= self.epoch:
            raise KeyMismatchError(
                f"epoch {to!r} does not come after {self.epoch}: seeds step forward only"
            )
        self.export_secret()  # raises if it is erased
        return whole("epoch", to, 0, MAX_EPOCH)

    def __getattr__(self, name: str) -> NoReturn:
        # `step` has deleted these attributes.
        if name in ("_secret", "_pairs", "_streams", "_marking"):
            raise KeyMismatchError(
                f"the seed of epoch {self.epoch} was stepped and is erased: use what step() "
                "returned, and make new roles with it"
            )
        raise AttributeError(f"{type(self).__name__} has no {name!r}")

    def __contains__(self, label: object) -> bool:
        return label in self._pairs

    def __repr__(self) -> str:
        try:
            name = self.fingerprint
        except KeyMismatchError:
            name = "erased"
        return f"<EpochSeed {name}, epoch {self.epoch}>"

    def _counterpart(self, label: str) -> SharedSeed:
        if label not in self._pairs:
            raise KeyMismatchError(
                f"no seed for pair {label!r} among the {len(self._pairs)} of this epoch seed; "
                "pair(label) adds one, for the counterpart to have"
            )
        return self._pairs[label]


class _RingFields(SecretRecord, frozen=True):
    """The fields of a ring's text: the epoch, if its seeds have one, and seeds by label."""

    epoch: Epoch | None
    seeds: dict[str, Seed]


class SeedRing(_Seeds, Confined, TextKey):
    """The seeds of several pairs, by label, without the master that they were derived from.

    It is for a party that subscribes under several labels, or that serves several subscribers. No
    other pair's seed can be derived from it. Encoding with it takes a pair label for every row.

    Attributes:
        epoch: epoch of a ring of epoch seeds; None for other seeds.

    Example:
        >>> from ccbps import SeedRing, SharedSeed
        >>> master = SharedSeed.generate()
        >>> ring = SeedRing.of(master, ["alice", "bob"])
        >>> ring
        <SeedRing of 2 pairs>
        >>> ring.pair("bob") == master.pair("bob")
        True
        >>> ring.pair("carol")
        Traceback (most recent call last):
            ...
        ccbps.errors.KeyMismatchError: no seed for pair 'carol' among the 2 of this ring
    """

    text_kind = "seed-ring"
    __slots__ = ("_epoch", "_seeds")

    def __init__(self, seeds: Mapping[str, SharedSeed]) -> None:
        hint = "SeedRing.of(master, labels) makes a ring"
        if not instance("seeds", seeds, Mapping, hint=hint):
            raise ParameterError("a ring needs the seed of at least one pair")
        owners: dict[SharedSeed, str] = {}
        for label, seed in seeds.items():
            _utf8(label)
            instance("each value of seeds", seed, SharedSeed, hint=hint)
            if owners.setdefault(seed, label) != label:
                raise ParameterError(
                    f"pairs {owners[seed]!r} and {label!r} have the same seed, so their rounds "
                    "would use the same randomness: give each its own seed, master.pair(label)"
                )
        epochs = {getattr(seed, "epoch", None) for seed in seeds.values()}
        if len(epochs) > 1:
            raise ParameterError("all seeds of a ring must be of one epoch, or of none")
        self._epoch: int | None = epochs.pop()
        self._seeds = dict(seeds)

    @property
    def epoch(self) -> int | None:
        """Epoch of all seeds; None if they do not step forward."""
        return self._epoch

    @classmethod
    def of(cls, master: SharedSeed, labels: Iterable[str]) -> Self:
        """Return the seeds of some pairs, for a counterpart that must not hold their master.

        Raises:
            ParameterError: `labels` is one string, or empty.
        """
        return cls({label: master.pair(label) for label in _listed(labels)})

    def __len__(self) -> int:
        return len(self._seeds)

    def __contains__(self, label: object) -> bool:
        return label in self._seeds

    def __repr__(self) -> str:
        return f"<SeedRing of {len(self)} pairs>"

    def _to_bytes(self) -> bytes:
        seeds = {label: seed.export_secret() for label, seed in self._seeds.items()}
        return write(_RingFields(self.epoch, seeds))

    @classmethod
    def _from_bytes(cls, secret: bytes) -> Self:
        fields = read(_RingFields, secret, refusal="not a ring of seeds")
        if (epoch := fields.epoch) is None:
            return cls({label: SharedSeed(seed) for label, seed in fields.seeds.items()})
        return cls({label: EpochSeed(seed, epoch) for label, seed in fields.seeds.items()})

    def pair(self, label: str) -> SharedSeed:
        """Return the seed of one pair.

        Raises:
            KeyMismatchError: the ring has none for it.
        """
        if label not in self._seeds:
            raise KeyMismatchError(f"no seed for pair {label!r} among the {len(self)} of this ring")
        return self._seeds[label]

    def _seeds_of(self, pairs: Pairs | None) -> tuple[list[SharedSeed], NDArray[np.intp] | None]:
        if pairs is None:
            raise ParameterError("a SeedRing holds many pairs' seeds: name each row's pair")
        pairs = pairs.used()
        return [self.pair(label) for label in pairs.values], pairs.index

    def start_epochs(self) -> SeedRing:
        """Return a ring of each seed's epoch 0 (`EpochSeed.start`)."""
        return SeedRing({label: EpochSeed.start(seed) for label, seed in self._seeds.items()})

    def step(self, to: int | None = None) -> SeedRing:
        """Return a ring of the next epoch's seeds, or of epoch `to`, and erase those of this ring.

        Raises:
            KeyMismatchError: the seeds are not epoch seeds, epoch `to` is over, or they were
                already stepped.
        """
        seeds = {k: seed for k, seed in self._seeds.items() if isinstance(seed, EpochSeed)}
        if len(seeds) < len(self):
            raise KeyMismatchError("this ring's seeds have no epochs: start_epochs() starts them")
        # Check all before the first step: where one cannot be stepped, none is erased.
        for seed in seeds.values():
            seed.next_epoch(to)
        return SeedRing({label: seed.step(to) for label, seed in seeds.items()})
