"""Seeds that step forward by epochs and are erased: k_(e+1) = HKDF(k_e).

The seed of an epoch gives the seeds of later epochs, but of no earlier one.

Hazard: Python cannot wipe memory. An erased seed is one that no object of this package holds.
Source: Bellare and Yee, CT-RSA 2003 (forward security).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final, NoReturn, Self

from msgspec import Meta

from ccbps.checks import instance, whole
from ccbps.errors import KeyMismatchError, ParameterError
from ccbps.keys.seeds import SharedSeed, as_labels, check_label
from ccbps.records import SecretRecord, read, write

MAX_EPOCH: Final = 10**9 - 1
Epoch = Annotated[int, Meta(ge=0, le=MAX_EPOCH)]
Seed = Annotated[bytes, Meta(min_length=SharedSeed.length, max_length=SharedSeed.length)]


class _Fields(SecretRecord, frozen=True):
    """The fields of an epoch seed's text: the seed, and the seeds of the named pairs."""

    epoch: Epoch
    secret: Seed
    pairs: dict[str, Seed]


class EpochSeed(SharedSeed):
    """The seed of one epoch: the next one follows from it, and no earlier one can be found.

    Both parties of a pair hold one and step it at agreed times, for example at midnight. A
    publisher with many subscribers holds one for itself and gives "alice" the text of
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
            labels: counterparts that have the seed of their pair with this master and start a chain
                with it, too. The seed of a pair that is named later comes from the chain and must
                be handed over.

        Raises:
            ParameterError: the seed is none, or is of a chain already; labels are one string, or
                one of them is not a string that UTF-8 can hold.
        """
        instance("seed", seed, SharedSeed, hint="a SeedRing has start_epochs()")
        if isinstance(seed, EpochSeed):
            raise ParameterError("an EpochSeed is of a chain already: step() it")
        chained = cls(seed._derive(b"ratchet", b""))
        for label in as_labels(labels):
            chained._pairs[label] = cls.start(seed.pair(label))
        return chained

    def _to_bytes(self) -> bytes:
        pairs = {label: seed.export_secret() for label, seed in self._pairs.items()}
        return write(_Fields(self.epoch, self.export_secret(), pairs))

    @classmethod
    def _from_bytes(cls, secret: bytes) -> Self:
        fields = read(_Fields, secret, refusal="not an epoch seed")
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
            self._pairs[label] = EpochSeed(self._derive(b"pair", check_label(label)), self.epoch)
        return EpochSeed(self._pairs[label].export_secret(), self.epoch)

    def step(self, to: int | None = None) -> EpochSeed:
        """Return the seed of the next epoch, or of epoch `to`, and erase this one.

        This object, and roles made with it, raise KeyMismatchError from now on: make roles with the
        result. Erase the texts of this epoch, too.

        Raises:
            KeyMismatchError: epoch `to` is over, or this object was stepped before.
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
        del self._secret, self._pairs, self._ciphers, self._marking
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
        # `step` has deleted these.
        if name in ("_secret", "_pairs", "_ciphers", "_marking"):
            raise KeyMismatchError(
                f"the seed of epoch {self.epoch} was stepped and is erased: use what step() "
                "returned, and make new roles with it"
            )
        raise AttributeError(f"{type(self).__name__} has no {name!r}")

    def __contains__(self, label: object) -> bool:
        return label in self._pairs

    def __repr__(self) -> str:
        try:
            name = self.fingerprint()
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
