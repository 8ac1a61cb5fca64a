"""Shared one-time randomness: from a seed (AES-256-CTR) or from a pad of true random bytes.

A *round* numbers one use of a pair's shared randomness: one event and one interest. A source
hands out a fixed number of bytes for each round, the same to both parties. That a role asks for a
round once only is the care of its `ccbps.rounds.RoundLedger`.

- `SharedSeed`: 32 bytes. HKDF-SHA256 turns it into one AES-256 key for each purpose (a matcher's
  fingerprint) and pair label; round r reads blocks r*n .. r*n + n - 1 of the CTR key stream, where
  n is the number of 16-byte blocks a round needs. So any round can be reached directly, and a run
  of consecutive rounds costs one pass of the cipher. Security is computational.
- `OneTimePad`: true random bytes, round r reads bytes r*w .. r*w + w - 1. Security is perfect.

Sources: RFC 5869 (HKDF), NIST SP 800-38A (CTR).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from threading import Lock
from typing import Final, NoReturn, Protocol, Self, runtime_checkable

import numpy as np
from cryptography.hazmat.primitives.ciphers import algorithms
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from ccbps.dictionary import DictionaryColumn
from ccbps.errors import (
    KeyMismatchError,
    PadExhaustedError,
    ParameterError,
    RandomnessReuseError,
    SerializationError,
)
from ccbps.key_stream import KeyStream
from ccbps.keys import SecretBytes

__all__ = [
    "OneTimePad",
    "Pairs",
    "RandomnessReader",
    "RandomnessSource",
    "SeedRing",
    "SharedSeed",
    "parse_seeds",
]

Bytes = NDArray[np.uint8]
Rounds = NDArray[np.uint64]

_SEED_TEXT: Final = re.compile(r"ccbps-seed-1:([0-9a-fA-F]{64})")
_NOT_A_SEED: Final = "not a seed: expected 'ccbps-seed-1:' and 64 hex digits"
KEPT_PAIRS: Final = 1 << 16
"""Pairs' seeds kept at a time once derived."""

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
            width: bytes a round.
            rounds: uint64, shape (batch,).
            pairs: labels of the pairs the rows belong to, or None: the source is a pair's own.
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
    __slots__ = ("_ciphers", "_pairs")

    def __init__(self, secret: bytes) -> None:
        super().__init__(secret)
        # What was derived before: HKDF takes longer than a message.
        self._pairs: dict[str, SharedSeed] = {}
        self._ciphers: dict[bytes, algorithms.AES256] = {}

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
        if not match:
            raise KeyMismatchError(f"{_NOT_A_SEED} (SharedSeed.to_text())")
        return cls(bytes.fromhex(match[1]))

    def to_text(self) -> str:
        """The secret in text form, for a key file or an environment variable."""
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
        """The seeds of some pairs, for a counterpart that must not hold this master."""
        return SeedRing({label: self.pair(label) for label in labels})

    def reader(
        self, purpose: bytes, width: int, rounds: Rounds, pairs: Pairs | None = None
    ) -> RandomnessReader:
        """See `RandomnessSource.reader`."""
        pairs = None if pairs is None else pairs.used()
        seeds = [self] if pairs is None else map(self.pair, pairs.values)
        ciphers = [seed._cipher(purpose) for seed in seeds]
        return KeyStream(ciphers, None if pairs is None else pairs.index, rounds, width)

    def _cipher(self, purpose: bytes) -> algorithms.AES256:
        if purpose not in self._ciphers:
            self._ciphers[purpose] = algorithms.AES256(self._derive(b"stream", purpose))
        return self._ciphers[purpose]

    def _derive(self, use: bytes, info: bytes) -> bytes:
        context = b"ccbps 1 " + use + b"\0" + len(info).to_bytes(8, "big") + info
        return HKDF(SHA256(), 32, salt=None, info=context).derive(self._secret)


class SeedRing:
    """The seeds of several pairs, by label, and nothing they could be derived from.

    What a party holds that subscribes under several labels, or that serves several subscribers:
    no other pair's seed can be found from it. Rows always name their pair.

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

    __slots__ = ("_seeds",)

    def __init__(self, seeds: Mapping[str, SharedSeed]) -> None:
        if not seeds:
            raise ParameterError("a ring needs the seed of at least one pair")
        for label in seeds:
            if label != label.strip() or len(label.splitlines()) != 1:
                raise ParameterError(
                    f"a pair label must be a line of text without space around it, got {label!r}"
                )
        self._seeds = dict(seeds)

    def __len__(self) -> int:
        return len(self._seeds)

    def __repr__(self) -> str:
        return f"<SeedRing of {len(self)} pairs>"

    def __reduce__(self) -> NoReturn:
        raise SerializationError(
            "a SeedRing must not be pickled or copied: hand out a KeySource (EnvKey, FileKey) "
            "instead, or call to_text() on purpose"
        )

    def to_text(self) -> str:
        """The secrets in text form: a line for each pair, its seed and its label."""
        return "".join(f"{seed.to_text()} {label}\n" for label, seed in self._seeds.items())

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
        if pairs is None:
            raise ParameterError("a SeedRing holds many pairs' seeds: name each row's pair")
        pairs = pairs.used()
        ciphers = [self.pair(label)._cipher(purpose) for label in pairs.values]
        return KeyStream(ciphers, pairs.index, rounds, width)


def parse_seeds(text: str) -> SharedSeed | SeedRing:
    """Read what `SharedSeed.to_text` or `SeedRing.to_text` wrote: one seed, or labelled ones.

    Raises:
        KeyMismatchError: it is neither (the text is not shown).
    """
    # Locals of a frame that raises may be logged, so those with secrets are dropped before.
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line.strip()]
    text = ""
    seeds: dict[str, SharedSeed] = {}
    problem = ""
    if not lines or (len(lines) > 1 and any(len(line) == 1 for line in lines)):
        problem = (
            "not seeds: expected one line 'ccbps-seed-1:<64 hex digits>' (SharedSeed.to_text()), "
            "or a label behind the seed on every line (SeedRing.to_text())"
        )
    for number, line in enumerate(lines if not problem else (), 1):
        label = line[1].strip() if len(line) == 2 else ""
        if not _SEED_TEXT.fullmatch(line[0]):
            problem = f"line {number}: {_NOT_A_SEED}"
        elif label in seeds:
            problem = f"line {number}: a second seed for pair {label!r}"
        else:
            seeds[label] = SharedSeed.from_text(line[0])
    if problem:
        lines, line = [], []
        raise KeyMismatchError(problem)
    return seeds[""] if "" in seeds else SeedRing(seeds)


class OneTimePad(SecretBytes):
    """True random bytes that two parties hold copies of, read by position: round r is bytes
    ``r * width .. (r + 1) * width - 1``, with the width of the matcher that uses it.

    A pad serves one matcher. A role that asks for bytes beyond its end raises `PadExhaustedError`.

    Example:
        >>> from ccbps import OneTimePad, Schema, UInt
        >>> from ccbps.matching import BranchingMatch
        >>> matcher = BranchingMatch.box(Schema(price=UInt(16)))
        >>> pad = OneTimePad.generate(1000 * matcher.randomness_bytes)      # for 1,000 rounds
        >>> events = matcher.publisher(pad).encode([{"price": 119}], rounds=[0])
        >>> copy = OneTimePad(pad.export_secret())                          # the subscriber's
        >>> interests = matcher.subscriber(copy).encode("price < 120", rounds=[0])
        >>> matcher.broker().match(events, interests)
        array([ True])
    """

    kind = "one-time pad"
    __slots__ = ("_array", "_bound", "_lock")

    def __init__(self, secret: bytes) -> None:
        super().__init__(secret)
        self._array = np.frombuffer(self._secret, dtype=np.uint8)
        self._bound: tuple[bytes, int] | None = None
        self._lock = Lock()

    @classmethod
    def generate(cls, length: int) -> Self:
        """`length` bytes from the operating system's generator."""
        if length < 0:
            raise ParameterError(f"length must not be negative, got {length}")
        return cls(os.urandom(length))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """The bytes of a file.

        Raises:
            ParameterError: it cannot be read.
        """
        try:
            return cls(Path(path).read_bytes())
        except OSError as error:
            raise ParameterError(f"pad file {path} cannot be read: {error.strerror}") from None

    def __len__(self) -> int:
        return len(self._array)

    def fingerprint(self) -> str:
        """Refused: any hash of a pad would tell something about it.

        Raises:
            SerializationError: always.
        """
        raise SerializationError("a one-time pad has no fingerprint: it would leak part of the pad")

    def __repr__(self) -> str:
        return f"<OneTimePad of {len(self)} bytes>"

    def __hash__(self) -> int:
        return hash((self.kind, len(self)))

    def reader(
        self, purpose: bytes, width: int, rounds: Rounds, pairs: Pairs | None = None
    ) -> RandomnessReader:
        """See `RandomnessSource.reader`.

        Raises:
            RandomnessReuseError: the pad already serves another purpose.
            PadExhaustedError: a round lies beyond the end of the pad.
        """
        if pairs is not None:
            raise ParameterError("a one-time pad belongs to one pair: it takes no pair labels")
        self._bind(purpose, width, for_good=False)
        available = len(self._array) // width
        if len(rounds) and int(rounds.max()) >= available:
            raise PadExhaustedError(
                f"round {int(rounds.max())} lies beyond the pad: {len(self._array)} bytes last for "
                f"rounds 0..{available - 1} of {width} bytes"
                if available
                else f"the pad has {len(self._array)} bytes, one round needs {width}"
            )
        table = self._array[: available * width].reshape(available, width)

        def read(start: int, stop: int) -> Bytes:
            # Bound when bytes are handed out: rounds may still be refused before.
            self._bind(purpose, width, for_good=True)
            rows: Bytes = table[rounds[start:stop].astype(np.intp)]
            return rows

        return read

    def _bind(self, purpose: bytes, width: int, *, for_good: bool) -> None:
        """Refuse a second purpose; with `for_good`, there is one from now on."""
        with self._lock:
            if self._bound not in (None, (purpose, width)):
                raise RandomnessReuseError(
                    "this one-time pad already serves another matcher; its bytes would be used "
                    "twice"
                )
            if for_good:
                self._bound = purpose, width


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
