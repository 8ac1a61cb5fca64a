"""One-time pads: shared randomness from true random bytes.

Round r reads bytes r*w .. r*w + w - 1, where w is the number of bytes that a round of the matcher
takes. Security is perfect as long as each side uses each byte only once. So all publishers over one
pad object share one ledger of rounds, and all subscribers another.

Hazard: two objects made from the same bytes know nothing of each other; nor do two processes,
unless their roles share a ledger on disk (`ccbps.rounds.disk_ledger`).
"""

from __future__ import annotations

import os
from threading import Lock
from typing import Self

import numpy as np

from ccbps.arrays import Bytes, Rounds
from ccbps.checks import whole
from ccbps.errors import (
    PadExhaustedError,
    ParameterError,
    RandomnessReuseError,
)
from ccbps.keys.randomness import TAG_BYTES, Marks, Pairs, RandomnessReader, name_of
from ccbps.keys.secret import SecretBytes
from ccbps.keys.used_rounds import RoundLedger


class OneTimePad(SecretBytes):
    """True random bytes that two parties hold copies of, read by position.

    Round r is bytes ``r * width .. (r + 1) * width - 1``, with the width of the matcher that uses
    the pad. A pad serves one matcher, and uses each round once per side: a role refuses a round
    that another role of its side has used over the same object. A role that asks for bytes beyond
    the end raises `PadExhaustedError`.

    Example:
        >>> from ccbps import OneTimePad, Schema, UInt
        >>> from ccbps.matching import FormulaMatch
        >>> matcher = FormulaMatch.box(Schema(price=UInt(16)))
        >>> pad = OneTimePad.generate(1000 * matcher.randomness_bytes)      # for 1,000 rounds
        >>> events = matcher.publisher(pad).encode([{"price": 119}], rounds=[0])
        >>> copy = OneTimePad(pad.export_secret())                          # the subscriber's
        >>> interests = matcher.subscriber(copy).encode("price < 120", rounds=[0])
        >>> matcher.broker().match(events, interests)
        array([ True])
    """

    kind = "one-time pad"
    __slots__ = ("_array", "_bound", "_ledgers", "_lock")

    def __init__(self, secret: bytes) -> None:
        super().__init__(secret)
        self._array = np.frombuffer(self._secret, dtype=np.uint8)
        self._bound: tuple[bytes, int] | None = None
        # Here, and not with the first role: a fork in between would not be noticed.
        holder = "a role of this one-time pad"
        self._ledgers = {side: RoundLedger(holder=holder) for side in ("publisher", "subscriber")}
        self._lock = Lock()

    @classmethod
    def generate(cls, length: int) -> Self:
        """Draw `length` bytes from the operating system's generator."""
        return cls(os.urandom(whole("length", length, 0, unit="bytes")))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Read the bytes of a file.

        Raises:
            ParameterError: the file cannot be read.
        """
        from pathlib import Path  # here, since few seeds are pads

        try:
            return cls(Path(path).read_bytes())
        except OSError as error:
            raise ParameterError(f"pad file {path} cannot be read: {error.strerror}") from None

    def __len__(self) -> int:
        return len(self._secret)

    @property
    def fingerprint(self) -> str:
        """Nothing: any hash of a pad would tell something about it.

        Raises:
            AttributeError: always.
        """
        raise AttributeError("a one-time pad has no fingerprint: it would leak part of the pad")

    def __repr__(self) -> str:
        return f"<OneTimePad of {len(self)} bytes>"

    def __hash__(self) -> int:
        return hash((self.kind, len(self)))

    def ledger(self, side: str) -> RoundLedger:
        """Return the rounds that roles of one side have used over this object."""
        return self._ledgers[side]

    def owner(self, digest: bytes) -> Marks:
        """Return marks, in the form of one round's, that tell a ledger the pad's matcher."""
        tags = np.frombuffer(name_of(digest), dtype=np.uint8).reshape(1, TAG_BYTES)
        return Marks([name_of(b"one-time pad")], None, tags)

    def marks(self, purpose: bytes, rounds: Rounds, pairs: Pairs | None, content: Bytes) -> Marks:
        """Return marks of rounds only.

        Hiding a tag of the content would take bytes of the pad. So there is no tag, and no round
        may be used twice. A pad has no name either: a ledger serves one pad.
        """
        tags = np.zeros((len(rounds), TAG_BYTES), dtype=np.uint8)
        return Marks([name_of(purpose)], None, tags, bound=False)

    def reader(
        self, purpose: bytes, width: int, rounds: Rounds, pairs: Pairs | None = None
    ) -> RandomnessReader:
        """Return a reader of `width` bytes for each of the rounds, shape (batch,).

        Raises:
            ParameterError: there are pair labels.
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
            # Bound when bytes are handed out: rounds may still be refused before that.
            self._bind(purpose, width, for_good=True)
            rows: Bytes = table[rounds[start:stop].astype(np.intp)]
            return rows

        return read

    def _bind(self, purpose: bytes, width: int, *, for_good: bool) -> None:
        """Refuse a second purpose. With `for_good`, bind the pad to this one."""
        with self._lock:
            if self._bound not in (None, (purpose, width)):
                raise RandomnessReuseError(
                    "this one-time pad already serves another matcher; its bytes would be used "
                    "twice"
                )
            if for_good:
                self._bound = purpose, width
