"""Seeds that step forward by epochs and are erased: k_(e+1) = HKDF(k_e).

Whoever finds the seed of an epoch knows later epochs, but no earlier one.

Hazard: Python cannot wipe memory. An erased seed is one that no object of this package holds.
Source: Bellare and Yee, CT-RSA 2003 (forward security).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final, NoReturn, Self

from msgspec import Meta

from ccbps.errors import KeyMismatchError, ParameterError
from ccbps.keys.seeds import SharedSeed, check_label
from ccbps.records import SecretRecord, read, write
from ccbps.sharing import Share

MAX_EPOCH: Final = 10**9 - 1
Epoch = Annotated[int, Meta(ge=0, le=MAX_EPOCH)]
Seed = Annotated[bytes, Meta(min_length=SharedSeed.length, max_length=SharedSeed.length)]


class _Fields(SecretRecord, frozen=True):
    """What the text of an epoch seed holds: the seed, and those of the pairs that were named."""

    epoch: Epoch
    secret: Seed
    pairs: dict[str, Seed]


class EpochSeed(SharedSeed):
    """The seed of one epoch: the next one follows from it, and no earlier one can be found.

    Both parties of a pair hold one and step it at agreed times, for example at midnight. A
    publisher with many subscribers holds one for itself and gives "alice" the text of
    ``master.pair("alice")``: from then on the publisher's copy of her seed is stepped along with
    the master, and she steps her own. Rounds start afresh with each epoch.

    Attributes:
        epoch: how often the seed was stepped.

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
        if type(epoch) is not int or not 0 <= epoch <= MAX_EPOCH:
            raise ParameterError(f"epoch must be a whole number of 0 to {MAX_EPOCH}, got {epoch!r}")
        self.epoch = epoch
        super().__init__(secret)

    @classmethod
    def start(cls, seed: SharedSeed, labels: Iterable[str] = ()) -> Self:
        """Epoch 0 of a chain of seeds that starts with a seed. Erase that: all follow from it.

        Args:
            labels: of counterparts that have the seed of their pair with this master and start a
                chain with it, too; the seed of a pair that is named later comes from the chain and
                must be handed over.

        Raises:
            ParameterError: not a seed, or an epoch seed, which is of a chain already; one string
                instead of a list of labels, or a label is not a string that UTF-8 can hold.
        """
        if not isinstance(seed, SharedSeed):
            raise ParameterError(
                f"a chain starts with a SharedSeed, got {type(seed).__name__}; a SeedRing has "
                "start_epochs()"
            )
        if isinstance(seed, EpochSeed):
            raise ParameterError("an EpochSeed is of a chain already: step() it")
        if isinstance(labels, str):
            raise ParameterError(
                f"start takes a list of pair labels, got one string; write [{labels!r}]"
            )
        chained = cls(seed._derive(b"ratchet", b""))
        for label in labels:
            chained._pairs[label] = cls.start(seed.pair(label))
        return chained

    def to_text(self) -> str:
        """The secret in text form, with the seed of each pair that was named."""
        return super().to_text()

    def to_shares(self, k: int, n: int) -> list[Share]:
        """The secret in n shares, with its epoch and the seed of each pair that was named."""
        return super().to_shares(k, n)

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
        """The seed shared with one counterpart, at this epoch.

        The first time a label is named, its seed is derived from this one, which from then on keeps
        and steps it: save the new `to_text`. The result is a separate object, for the counterpart
        to step.

        Raises:
            ParameterError: the label is not a string that UTF-8 can hold.
        """
        if label not in self._pairs:
            self._pairs[label] = EpochSeed(self._derive(b"pair", check_label(label)), self.epoch)
        return EpochSeed(self._pairs[label].export_secret(), self.epoch)

    def step(self, to: int | None = None) -> EpochSeed:
        """The seed of the next epoch, or of epoch `to`; this one is erased.

        This object, and roles made with it, raise KeyMismatchError from now on: make roles with the
        result. Erase what `to_text` wrote in this epoch, too.

        Raises:
            KeyMismatchError: epoch `to` is over, or this object was stepped before.
            ParameterError: there is no such epoch.

        Cost: some 5 us for each epoch passed and each pair: count epochs, do not number them by
        date.
        """
        key, to = self, self._checked(to)
        while key.epoch < to:
            key = EpochSeed(key._derive(b"step", b""), key.epoch + 1)
        for label, seed in self._pairs.items():
            assert isinstance(seed, EpochSeed)
            key._pairs[label] = seed.step(to)
        del self._secret, self._pairs, self._ciphers, self._marking
        return key

    def _checked(self, to: int | None) -> int:
        """The epoch to step to, if this seed can."""
        to = self.epoch + 1 if to is None else to
        if type(to) is not int or to <= self.epoch:
            raise KeyMismatchError(
                f"epoch {to!r} does not come after {self.epoch}: seeds step forward only"
            )
        if to > MAX_EPOCH:
            raise ParameterError(f"epochs end with {MAX_EPOCH}, got {to}")
        self.export_secret()  # raises if it is erased
        return to

    def __getattr__(self, name: str) -> NoReturn:
        # What `step` has deleted.
        if name in ("_secret", "_pairs", "_ciphers", "_marking"):
            raise KeyMismatchError(
                f"the seed of epoch {self.epoch} was stepped and is erased: use what step() "
                "returned, and make new roles with it"
            )
        raise AttributeError(f"{type(self).__name__} has no {name!r}")

    def __contains__(self, label: object) -> bool:
        """Was this pair named?"""
        return label in self._pairs

    def __repr__(self) -> str:
        try:
            named = self.fingerprint()
        except KeyMismatchError:
            named = "erased"
        return f"<EpochSeed {named}, epoch {self.epoch}>"

    def _counterpart(self, label: str) -> SharedSeed:
        if label not in self._pairs:
            raise KeyMismatchError(
                f"no seed for pair {label!r} among the {len(self._pairs)} of this epoch seed; "
                "pair(label) adds one, for the counterpart to have"
            )
        return self._pairs[label]
