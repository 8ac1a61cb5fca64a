"""Shared one-time randomness from seeds (AES-256-CTR): of pairs, of many pairs, of epochs.

A *round* numbers one use of a pair's shared randomness: one event and one interest. A source
hands out a fixed number of bytes for each round, the same to both parties. A role's ledger ensures
that the role asks for each round only once (`ccbps.keys.rounds`, `ccbps.keys.ledger`).

- `SharedSeed`: 32 bytes. HKDF-SHA256 turns it into one AES-256 key for each purpose (a matcher's
  fingerprint) and pair label; round r reads blocks r*n .. r*n + n - 1 of the CTR key stream, where
  n is the number of 16-byte blocks a round needs. So any round can be reached directly, and a run
  of consecutive rounds costs one pass of the cipher. Security is computational.
- `SeedRing`: the seeds of some pairs, for a party that must not have the master they come from.
- `EpochSeed`: k_(e+1) = HKDF(k_e). Whoever finds it knows later epochs, but no earlier one.
- `ccbps.keys.pad.OneTimePad`: true random bytes instead of a seed. Security is perfect.

Hazard: Python cannot wipe memory. An erased seed is one that no object of this package holds.
Sources: RFC 5869 (HKDF), NIST SP 800-38A (CTR); Bellare and Yee, CT-RSA 2003 (forward security).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Final, NoReturn, Protocol, Self, runtime_checkable

import numpy as np
from cryptography.hazmat.primitives.ciphers import algorithms
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from ccbps.arrays import Bytes, Rounds
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import KeyMismatchError, ParameterError, SerializationError
from ccbps.keys.ledger import NAME_BYTES, Marks
from ccbps.keys.secret import SecretBytes
from ccbps.keys.stream import BLOCK, KeyStream, row_tags

__all__ = [
    "EpochSeed",
    "Pairs",
    "RandomnessReader",
    "RandomnessSource",
    "SeedRing",
    "SharedSeed",
    "parse_seeds",
]


_SEED_TEXT: Final = re.compile(r"ccbps-(?:seed-1|epoch-seed-1:([0-9]{1,9})):([0-9a-fA-F]{64})")
_NOT_A_SEED: Final = (
    "not a seed: expected 'ccbps-seed-1:' or 'ccbps-epoch-seed-1:<epoch>:' and 64 hex digits"
)
KEPT_PAIRS: Final = 1 << 16
"""Derived seeds of pairs that are kept at a time."""
MAX_EPOCH: Final = 10**9 - 1

Pairs = DictionaryColumn[str]
"""A pair label for each row of a batch."""


class RandomnessReader(Protocol):
    """Hands out the randomness of a batch in order: rows start .. stop - 1, each once."""

    def __call__(self, start: int, stop: int) -> Bytes:
        """Shape (stop - start, width), uint8, rows contiguous; valid until the next call."""


@runtime_checkable
class RandomnessSource(Protocol):
    """What roles take as ``seed``: a `SharedSeed`, a `SeedRing` or a `OneTimePad`."""

    def reader(
        self, purpose: bytes, width: int, rounds: Rounds, pairs: Pairs | None
    ) -> RandomnessReader:
        """A reader of `width` bytes for each of the rounds, for one purpose.

        Args:
            purpose: what the bytes are for; different purposes never share bytes.
            width: bytes per round.
            rounds: uint64, shape (batch,).
            pairs: labels of the pairs the rows belong to, or None: the source is a pair's own.
        """

    def marks(self, purpose: bytes, rounds: Rounds, pairs: Pairs | None, content: Bytes) -> Marks:
        """What a ledger on disk keeps of the rounds: names and tags that tell nothing without
        the source.

        Args:
            purpose, rounds, pairs: as for `reader`; a purpose has content of one width.
            content: what each row encodes, uint8, shape (batch, width).
        """


class SharedSeed(SecretBytes):
    """A 32-byte seed that a publisher and a subscriber share.

    A publisher with many subscribers keeps one master seed and gives subscriber "alice" the seed
    ``master.pair("alice")``; no subscriber can derive another's.

    Example:
        >>> from ccbps import SharedSeed
        >>> master = SharedSeed.generate()
        >>> text = master.to_text()                      # for a key file that nobody else may read
        >>> text[:13], len(text)
        ('ccbps-seed-1:', 77)
        >>> SharedSeed.from_text(text) == master
        True
        >>> master.pair("alice") == master.pair("bob")   # each subscriber gets its own
        False
    """

    kind = "seed"
    length = 32
    __slots__ = ("_ciphers", "_marking", "_pairs")

    def __init__(self, secret: bytes) -> None:
        super().__init__(secret)
        # What was derived before: HKDF takes longer than a message.
        self._pairs: dict[str, SharedSeed] = {}
        self._ciphers: dict[bytes, algorithms.AES256] = {}
        self._marking: dict[bytes, tuple[bytes, algorithms.AES256]] = {}

    @classmethod
    def generate(cls) -> Self:
        """A fresh seed from the operating system."""
        return cls(os.urandom(32))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse what `to_text` wrote.

        Raises:
            KeyMismatchError: it is not a seed in text form (the text is not shown).
        """
        match = _SEED_TEXT.fullmatch(text.strip() if isinstance(text, str) else "")
        text = ""  # locals of a frame that raises may be logged
        if not match or match[1] is not None:
            match = None
            raise KeyMismatchError(f"{_NOT_A_SEED} (SharedSeed.to_text())")
        return cls(bytes.fromhex(match[2]))

    def to_text(self) -> str:
        """The secret in text form, for a key file or an environment variable."""
        return self._line()

    def _line(self) -> str:
        return f"ccbps-seed-1:{self.export_secret().hex()}"

    def pair(self, label: str) -> SharedSeed:
        """The seed shared with one counterpart.

        Raises:
            ParameterError: the label is not a string that UTF-8 can hold.
        """
        seed = self._pairs.get(label)
        if seed is None:
            if not isinstance(label, str) or not _is_utf8(label):
                raise ParameterError(
                    f"a pair label must be a string that UTF-8 can hold, got {label!r}"
                )
            seed = SharedSeed(self._derive(b"pair", label.encode()))
            if len(self._pairs) >= KEPT_PAIRS:
                self._pairs.clear()
            self._pairs[label] = seed
        return seed

    def ring(self, labels: Iterable[str]) -> SeedRing:
        """The seeds of some pairs, for a counterpart that must not hold this master.

        Raises:
            ParameterError: one string instead of a list of labels, or no label at all.
        """
        if isinstance(labels, str):
            raise ParameterError(
                f"ring takes a list of pair labels, got one string; write ring([{labels!r}])"
            )
        return SeedRing({label: self.pair(label) for label in labels})

    def ratchet(self, labels: Iterable[str] = ()) -> EpochSeed:
        """Epoch 0 of a chain of seeds that starts here. Erase this one: all follow from it.

        Args:
            labels: of counterparts that have this master's pair seeds and ratchet them, too; the
                seed of a pair that is named later comes from the chain and must be handed over.

        Raises:
            ParameterError: one string instead of a list of labels, or a label is not a line of
                text.
        """
        if isinstance(labels, str):
            raise ParameterError(
                f"ratchet takes a list of pair labels, got one string; write ratchet([{labels!r}])"
            )
        seed = EpochSeed(self._derive(b"ratchet", b""))
        for label in labels:
            _check_label(label)
            seed._pairs[label] = self.pair(label).ratchet()
        return seed

    def reader(
        self, purpose: bytes, width: int, rounds: Rounds, pairs: Pairs | None = None
    ) -> RandomnessReader:
        """See `RandomnessSource.reader`."""
        seeds, index = self._seeds(pairs)
        return KeyStream([seed._cipher(purpose) for seed in seeds], index, rounds, width)

    def marks(self, purpose: bytes, rounds: Rounds, pairs: Pairs | None, content: Bytes) -> Marks:
        """See `RandomnessSource.marks`."""
        return _marks(*self._seeds(pairs), purpose, rounds, content)

    def _seeds(self, pairs: Pairs | None) -> tuple[list[SharedSeed], NDArray[np.intp] | None]:
        """The seeds that rows use, and which of them each one does."""
        if pairs is None:
            return [self], None
        pairs = pairs.used()
        return [self._counterpart(label) for label in pairs.values], pairs.index

    def _counterpart(self, label: str) -> SharedSeed:
        return self.pair(label)

    def _cipher(self, purpose: bytes) -> algorithms.AES256:
        if purpose not in self._ciphers:
            self._ciphers[purpose] = algorithms.AES256(self._derive(b"stream", purpose))
        return self._ciphers[purpose]

    def _mark(self, purpose: bytes) -> tuple[bytes, algorithms.AES256]:
        """The name of this seed's stream in a ledger, 16 bytes, and the key of its tags."""
        if purpose not in self._marking:
            derived = self._derive(b"ledger", purpose, 32 + NAME_BYTES)
            self._marking[purpose] = derived[32:], algorithms.AES256(derived[:32])
        return self._marking[purpose]

    def _derive(self, use: bytes, info: bytes, length: int = 32) -> bytes:
        context = b"ccbps 1 " + use + b"\0" + len(info).to_bytes(8, "big") + info
        return HKDF(SHA256(), length, salt=None, info=context).derive(self._secret)


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
    __slots__ = ("epoch",)

    def __init__(self, secret: bytes, epoch: int = 0) -> None:
        if type(epoch) is not int or not 0 <= epoch <= MAX_EPOCH:
            raise ParameterError(f"epoch must be a whole number of 0 to {MAX_EPOCH}, got {epoch!r}")
        self.epoch = epoch
        super().__init__(secret)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse what `to_text` wrote.

        Raises:
            KeyMismatchError: it is not the text of an epoch seed (the text is not shown).
        """
        lines = [text if isinstance(text, str) else ""]
        text = ""  # locals of a frame that raises may be logged
        seed = parse_seeds(lines.pop())
        if not isinstance(seed, cls):
            raise KeyMismatchError("not an epoch seed with its pairs' seeds (EpochSeed.to_text())")
        return seed

    def to_text(self) -> str:
        """The secret in text form: a line for itself and, with its label, one for each pair."""
        pairs = "".join(f"\n{seed._line()} {label}" for label, seed in self._pairs.items())
        return self._line() + pairs

    def _line(self) -> str:
        return f"ccbps-epoch-seed-1:{self.epoch}:{self.export_secret().hex()}"

    def pair(self, label: str) -> EpochSeed:
        """The seed shared with one counterpart, at this epoch.

        The first time a label is named, its seed is derived from this one, which from then on keeps
        and steps it: save the new `to_text`. The result is a separate object, for the counterpart
        to step.

        Raises:
            ParameterError: the label is not a line of text.
        """
        if label not in self._pairs:
            _check_label(label)
            seed = EpochSeed(self._derive(b"pair", label.encode()), self.epoch)
            self._pairs[label] = seed
        return EpochSeed(self._pairs[label].export_secret(), self.epoch)

    def ratchet(self, labels: Iterable[str] = ()) -> NoReturn:
        """Refused: an EpochSeed is a ratchet already."""
        raise ParameterError("an EpochSeed is a ratchet already: step() it")

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


class SeedRing:
    """The seeds of several pairs, by label, and nothing they could be derived from.

    For a party that subscribes under several labels, or that serves several subscribers: no other
    pair's seed can be found from it. Every row names its pair.

    Example:
        >>> from ccbps import SharedSeed
        >>> master = SharedSeed.generate()
        >>> ring = master.ring(["alice", "bob"])
        >>> ring
        <SeedRing of 2 pairs>
        >>> ring.pair("bob") == master.pair("bob")
        True
        >>> ring.pair("carol")
        Traceback (most recent call last):
            ...
        ccbps.errors.KeyMismatchError: no seed for pair 'carol' among the 2 of this ring
    """

    __slots__ = ("_epoch", "_seeds")

    def __init__(self, seeds: Mapping[str, SharedSeed]) -> None:
        if not isinstance(seeds, Mapping) or not all(
            isinstance(seed, SharedSeed) for seed in seeds.values()
        ):
            raise ParameterError(
                "a ring is made from a mapping of pair labels to seeds; "
                "master.ring(labels) makes it"
            )
        if not seeds:
            raise ParameterError("a ring needs the seed of at least one pair")
        owners: dict[SharedSeed, str] = {}
        for label, seed in seeds.items():
            _check_label(label)
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

    def __len__(self) -> int:
        return len(self._seeds)

    def __repr__(self) -> str:
        return f"<SeedRing of {len(self)} pairs>"

    def __reduce__(self) -> NoReturn:
        raise SerializationError(
            "a SeedRing must not be pickled or copied: hand out a KeySource (FileKey, EnvKey) "
            "instead, or call to_text() on purpose"
        )

    def to_text(self) -> str:
        """The secrets in text form: a line for each pair, its seed and its label."""
        return "".join(f"{seed._line()} {label}\n" for label, seed in self._seeds.items())

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
        seeds, index = self._of(pairs)
        return KeyStream([seed._cipher(purpose) for seed in seeds], index, rounds, width)

    def marks(self, purpose: bytes, rounds: Rounds, pairs: Pairs | None, content: Bytes) -> Marks:
        """See `RandomnessSource.marks`."""
        return _marks(*self._of(pairs), purpose, rounds, content)

    def _of(self, pairs: Pairs | None) -> tuple[list[SharedSeed], NDArray[np.intp]]:
        if pairs is None:
            raise ParameterError("a SeedRing holds many pairs' seeds: name each row's pair")
        pairs = pairs.used()
        return [self.pair(label) for label in pairs.values], pairs.index

    @property
    def epoch(self) -> int | None:
        """The epoch of a ring of epoch seeds; None for other seeds."""
        return self._epoch

    def ratchet(self) -> SeedRing:
        """A ring of each seed's epoch 0 (`SharedSeed.ratchet`)."""
        return SeedRing({label: seed.ratchet() for label, seed in self._seeds.items()})

    def step(self, to: int | None = None) -> SeedRing:
        """A ring of the next epoch's seeds, or of epoch `to`; those of this ring are erased.

        Raises:
            KeyMismatchError: these are not epoch seeds, epoch `to` is over, or they were stepped
                before.
        """
        seeds = {k: seed for k, seed in self._seeds.items() if isinstance(seed, EpochSeed)}
        if len(seeds) < len(self):
            raise KeyMismatchError("this ring's seeds have no epochs: ratchet() starts them")
        # All of them before the first: where one cannot be stepped, none is erased.
        for seed in seeds.values():
            seed._checked(to)
        return SeedRing({label: seed.step(to) for label, seed in seeds.items()})


def _marks(
    seeds: list[SharedSeed],
    index: NDArray[np.intp] | None,
    purpose: bytes,
    rounds: Rounds,
    content: Bytes,
) -> Marks:
    # The round is tagged, too, so that equal contents of two rounds have different tags.
    rows = np.zeros((len(rounds), -(-(8 + content.shape[1]) // BLOCK) * BLOCK), dtype=np.uint8)
    rows[:, :8] = rounds.astype(">u8").view(np.uint8).reshape(-1, 8)
    rows[:, 8 : 8 + content.shape[1]] = content
    marking = [seed._mark(purpose) for seed in seeds]
    tags = row_tags([cipher for _, cipher in marking], index, rows)
    return Marks([name for name, _ in marking], index, tags)


def parse_seeds(text: str) -> SharedSeed | SeedRing:
    """Read what `to_text` of a `SharedSeed`, `EpochSeed` or `SeedRing` wrote: one seed, with or
    without its pairs' seeds, or labelled seeds.

    Raises:
        KeyMismatchError: it is none of these (the text is not shown).
    """
    # Locals of a frame that raises may be logged, so those with secrets are dropped first.
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line.strip()]
    text = ""
    seeds: dict[str, SharedSeed] = {}
    problem = ""
    for number, line in enumerate(lines, 1):
        label = line[1].strip() if len(line) == 2 else ""
        match = _SEED_TEXT.fullmatch(line[0])
        if not match:
            problem = f"line {number}: {_NOT_A_SEED}"
        elif _SEED_TEXT.search(label):
            # Of lines that were joined, in an environment variable for example.
            problem = f"line {number}: a seed within the label; write one seed and label per line"
        elif label in seeds:
            problem = f"line {number}: a second seed for pair {label!r}"
        elif match[1] is None:
            seeds[label] = SharedSeed(bytes.fromhex(match[2]))
        else:
            seeds[label] = EpochSeed(bytes.fromhex(match[2]), int(match[1]))
        if problem:
            break
    lines, line, match, label = [], [], None, ""
    own = seeds.pop("", None)
    if not problem and seeds:
        try:
            ring = SeedRing(seeds)
        except ParameterError as error:
            problem = str(error)
        else:
            if own is None:
                return ring
            if own in seeds.values():
                problem = "a pair has the seed without a label: their rounds would be the same"
            elif isinstance(own, EpochSeed) and own.epoch == ring.epoch:
                own._pairs.update(seeds)
                return own
            else:
                problem = "a seed without a label stands alone, or before pairs' seeds of its epoch"
    if own is not None and not problem:
        return own
    raise KeyMismatchError(
        problem
        or "not seeds: expected one line 'ccbps-seed-1:<64 hex digits>' (SharedSeed.to_text()), "
        "or a label after the seed on every line (SeedRing.to_text())"
    )


def _check_label(label: str) -> None:
    """A label of a text form: one line of text."""
    if (
        not isinstance(label, str)
        or not _is_utf8(label)
        or label != label.strip()
        or (len(label.splitlines()) != 1)
    ):
        raise ParameterError(
            f"a pair label must be a line of text without space around it, got {label!r}"
        )


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
