"""The seeds of some pairs, for a party that must not have the master they come from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bytes, Rounds
from ccbps.errors import KeyMismatchError, ParameterError
from ccbps.keys.epochs import Epoch, EpochSeed, Seed
from ccbps.keys.randomness import Marks, Pairs, RandomnessReader
from ccbps.keys.secret import Confined
from ccbps.keys.seeds import SharedSeed, check_label, marks_of, reader_of
from ccbps.keys.text_form import TextKey
from ccbps.records import SecretRecord, read, write


class _Fields(SecretRecord, frozen=True):
    """What the text of a ring holds: the epoch, if its seeds have one, and seeds by label."""

    epoch: Epoch | None
    seeds: dict[str, Seed]


class SeedRing(Confined, TextKey):
    """The seeds of several pairs, by label, and nothing they could be derived from.

    For a party that subscribes under several labels, or that serves several subscribers: no other
    pair's seed can be found from it. Every row names its pair.

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
        if not isinstance(seeds, Mapping) or not all(
            isinstance(seed, SharedSeed) for seed in seeds.values()
        ):
            raise ParameterError(
                "a ring is made from a mapping of pair labels to seeds; "
                "SeedRing.of(master, labels) makes it"
            )
        if not seeds:
            raise ParameterError("a ring needs the seed of at least one pair")
        owners: dict[SharedSeed, str] = {}
        for label, seed in seeds.items():
            check_label(label)
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

    @classmethod
    def of(cls, master: SharedSeed, labels: Iterable[str]) -> Self:
        """The seeds of some pairs, for a counterpart that must not hold their master.

        Raises:
            ParameterError: one string instead of a list of labels, or no label at all.
        """
        if isinstance(labels, str):
            raise ParameterError(
                f"a ring takes a list of pair labels, got one string; write [{labels!r}]"
            )
        return cls({label: master.pair(label) for label in labels})

    def __len__(self) -> int:
        return len(self._seeds)

    def __contains__(self, label: object) -> bool:
        return label in self._seeds

    def __repr__(self) -> str:
        return f"<SeedRing of {len(self)} pairs>"

    def _to_bytes(self) -> bytes:
        seeds = {label: seed.export_secret() for label, seed in self._seeds.items()}
        return write(_Fields(self._epoch, seeds))

    @classmethod
    def _from_bytes(cls, secret: bytes) -> Self:
        fields = read(_Fields, secret, refusal="not a ring of seeds")
        if (epoch := fields.epoch) is None:
            return cls({label: SharedSeed(seed) for label, seed in fields.seeds.items()})
        return cls({label: EpochSeed(seed, epoch) for label, seed in fields.seeds.items()})

    def pair(self, label: str) -> SharedSeed:
        """The seed of one pair.

        Raises:
            KeyMismatchError: the ring has none for it.
        """
        if label not in self._seeds:
            raise KeyMismatchError(f"no seed for pair {label!r} among the {len(self)} of this ring")
        return self._seeds[label]

    def reader(
        self, purpose: bytes, width: int, rounds: Rounds, pairs: Pairs | None = None
    ) -> RandomnessReader:
        """See `RandomnessSource.reader`."""
        return reader_of(*self._of(pairs), purpose, width, rounds)

    def marks(self, purpose: bytes, rounds: Rounds, pairs: Pairs | None, content: Bytes) -> Marks:
        """See `RandomnessSource.marks`."""
        return marks_of(*self._of(pairs), purpose, rounds, content)

    def _of(self, pairs: Pairs | None) -> tuple[list[SharedSeed], NDArray[np.intp]]:
        if pairs is None:
            raise ParameterError("a SeedRing holds many pairs' seeds: name each row's pair")
        pairs = pairs.used()
        return [self.pair(label) for label in pairs.values], pairs.index

    @property
    def epoch(self) -> int | None:
        """The epoch of a ring of epoch seeds; None for other seeds."""
        return self._epoch

    def start_epochs(self) -> SeedRing:
        """A ring of each seed's epoch 0 (`EpochSeed.start`)."""
        return SeedRing({label: EpochSeed.start(seed) for label, seed in self._seeds.items()})

    def step(self, to: int | None = None) -> SeedRing:
        """A ring of the next epoch's seeds, or of epoch `to`; those of this ring are erased.

        Raises:
            KeyMismatchError: these are not epoch seeds, epoch `to` is over, or they were stepped
                before.
        """
        seeds = {k: seed for k, seed in self._seeds.items() if isinstance(seed, EpochSeed)}
        if len(seeds) < len(self):
            raise KeyMismatchError("this ring's seeds have no epochs: start_epochs() starts them")
        # All of them before the first: where one cannot be stepped, none is erased.
        for seed in seeds.values():
            seed._checked(to)
        return SeedRing({label: seed.step(to) for label, seed in seeds.items()})
