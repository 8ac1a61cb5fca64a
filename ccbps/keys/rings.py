"""The seeds of some pairs, for a party that must not have the master that they come from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bytes, Rounds
from ccbps.checks import instance
from ccbps.errors import KeyMismatchError, ParameterError
from ccbps.keys.epochs import Epoch, EpochSeed, Seed
from ccbps.keys.randomness import Marks, Pairs, RandomnessReader
from ccbps.keys.secret import Confined
from ccbps.keys.seeds import SharedSeed, as_labels, check_label, marks_of, reader_of
from ccbps.keys.text_form import TextKey
from ccbps.records import SecretRecord, read, write


class _Fields(SecretRecord, frozen=True):
    """The fields of a ring's text: the epoch, if its seeds have one, and seeds by label."""

    epoch: Epoch | None
    seeds: dict[str, Seed]


class SeedRing(Confined, TextKey):
    """The seeds of several pairs, by label, without the master that they were derived from.

    It is for a party that subscribes under several labels, or that serves several subscribers. No
    other pair's seed can be found from it. Every row names its pair.

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
    __slots__ = ("_seeds", "epoch")

    def __init__(self, seeds: Mapping[str, SharedSeed]) -> None:
        hint = "SeedRing.of(master, labels) makes a ring"
        if not instance("seeds", seeds, Mapping, hint=hint):
            raise ParameterError("a ring needs the seed of at least one pair")
        owners: dict[SharedSeed, str] = {}
        for label, seed in seeds.items():
            check_label(label)
            instance("each value of seeds", seed, SharedSeed, hint=hint)
            if owners.setdefault(seed, label) != label:
                raise ParameterError(
                    f"pairs {owners[seed]!r} and {label!r} have the same seed, so their rounds "
                    "would use the same randomness: give each its own seed, master.pair(label)"
                )
        epochs = {getattr(seed, "epoch", None) for seed in seeds.values()}
        if len(epochs) > 1:
            raise ParameterError("all seeds of a ring must be of one epoch, or of none")
        self.epoch: int | None = epochs.pop()
        self._seeds = dict(seeds)

    @classmethod
    def of(cls, master: SharedSeed, labels: Iterable[str]) -> Self:
        """Return the seeds of some pairs, for a counterpart that must not hold their master.

        Raises:
            ParameterError: labels are one string, or none.
        """
        return cls({label: master.pair(label) for label in as_labels(labels)})

    def __len__(self) -> int:
        return len(self._seeds)

    def __contains__(self, label: object) -> bool:
        return label in self._seeds

    def __repr__(self) -> str:
        return f"<SeedRing of {len(self)} pairs>"

    def _to_bytes(self) -> bytes:
        seeds = {label: seed.export_secret() for label, seed in self._seeds.items()}
        return write(_Fields(self.epoch, seeds))

    @classmethod
    def _from_bytes(cls, secret: bytes) -> Self:
        fields = read(_Fields, secret, refusal="not a ring of seeds")
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

    def reader(
        self, purpose: bytes, width: int, rounds: Rounds, pairs: Pairs | None = None
    ) -> RandomnessReader:
        return reader_of(*self._seeds_of(pairs), purpose, width, rounds)

    def marks(self, purpose: bytes, rounds: Rounds, pairs: Pairs | None, content: Bytes) -> Marks:
        return marks_of(*self._seeds_of(pairs), purpose, rounds, content)

    def _seeds_of(self, pairs: Pairs | None) -> tuple[list[SharedSeed], NDArray[np.intp]]:
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
            KeyMismatchError: these are not epoch seeds, epoch `to` is over, or they were stepped
                before.
        """
        seeds = {k: seed for k, seed in self._seeds.items() if isinstance(seed, EpochSeed)}
        if len(seeds) < len(self):
            raise KeyMismatchError("this ring's seeds have no epochs: start_epochs() starts them")
        # All of them before the first: where one cannot be stepped, none is erased.
        for seed in seeds.values():
            seed.next_epoch(to)
        return SeedRing({label: seed.step(to) for label, seed in seeds.items()})
