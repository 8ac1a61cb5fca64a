"""Orders of broker 0 to the other two, and their replies.

Orders are idempotent: a repeated order does only the work that was not yet done. So broker 0
repeats an order after any failure of a broker or a connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec
import numpy as np

from ccbps.arrays import Bools, Bytes, Index, slices
from ccbps.errors import DecodeError
from ccbps.records import Message, Number

Verb = Literal[
    "about",
    "reset",
    "prune",
    "join",
    "greet",
    "forget",
    "examine",
    "grant",
    "missing",
    "store",
    "verify",
    "put",
    "remove",
    "drop",
    "digests",
    "match",
]
SESSION_BYTES: Final = 16
MOST_BYTES: Final = 1 << 28
"""Largest number of bytes of an order."""
MOST_ROWS: Final = 1 << 12
"""Largest number of messages of an order."""
MOST_VERIFIED: Final = 1 << 16
"""Largest number of verified interests, not put yet, that a broker keeps: the latest ones."""
_NOTHING: Final = np.zeros((0, 0), dtype=np.uint8)


class Order(Message, frozen=True):
    """An order to one broker.

    ===========  ==================================================================
    verb         what the broker does
    ===========  ==================================================================
    ``about``    says which session it is in
    ``reset``    forgets all tables and clients; broker 0 names them anew
    ``prune``    deletes from its file what was not named since then
    ``join``     connects its workers with those of the other two
    ``greet``    takes clients' hellos, the rows, and marks those that are refused
    ``forget``   forgets clients, whose names are the rows
    ``examine``  marks the grants, the rows, that are refused
    ``grant``    takes grants, the rows, in place of earlier ones, and writes their heads to
                 its file
    ``verify``   marks the interests, the rows, that are refused, and writes the others to
                 its file
    ``missing``  marks the interests that it has no message of; heads are the rows
    ``store``    writes messages of interests, the rows, to its file
    ``put``      puts interests of its file into lanes of a table; heads are the rows
    ``remove``   removes interests from lanes and from its file; heads are the rows
    ``drop``     forgets a table
    ``digests``  says digests of its clients and of the tables
    ``match``    matches events, the rows, with all tables of the order
    ===========  ==================================================================

    Attributes:
        verb: the verb.
        tables: numbers of tables.
        attempt: number of the attempt to join.
        rows: messages, heads, names or hellos, shape (count, bytes).
        lanes: lanes of the rows as 64-bit numbers, little-endian.
        verified: True to put interests that were all verified over these connections, and not put
            since then. They are not compared again.
    """

    front: ClassVar[bytes] = b"\x01TO"
    what: ClassVar[str] = "an order of broker 0"
    verb: Verb
    tables: tuple[Number, ...] = ()
    attempt: Number = 0
    rows: Bytes = _NOTHING
    lanes: bytes = b""
    verified: bool = False

    @property
    def table(self) -> int:
        """Number of the one table."""
        if len(self.tables) != 1:
            raise DecodeError(f"{self.verb} is for one table, got {len(self.tables)}")
        return self.tables[0]

    @property
    def chosen(self) -> Index:
        """Lanes of the rows, shape (count,)."""
        return np.frombuffer(self.lanes, dtype="<i8").astype(np.int64)


class Reply(Message, frozen=True):
    """Answer to an order.

    Attributes:
        session: random bytes that the broker drew when it started.
        marks: marks of the rows, packed: those missing, or refused.
        digests: digests of the clients and of each table, one after another.
        unkept: reason why the broker cannot write the rows to its file, and so refuses all of them;
            empty for none.
        error: text of an error; empty for none.
        again: True if the order may succeed on new connections.
        anew: True if the order may succeed once all brokers have got their tables anew.
    """

    front: ClassVar[bytes] = b"\x01TR"
    what: ClassVar[str] = "a reply of a broker"
    session: Annotated[bytes, msgspec.Meta(min_length=SESSION_BYTES, max_length=SESSION_BYTES)]
    marks: bytes = b""
    digests: bytes = b""
    unkept: str = ""
    error: str = ""
    again: bool = False
    anew: bool = False

    def marked(self, count: int) -> Bools:
        """Return the marks of `count` rows, shape (count,)."""
        packed = np.frombuffer(self.marks, np.uint8)
        return np.unpackbits(packed, count=count).view(np.bool_)


def lane_bytes(chosen: Any) -> bytes:
    """Return lanes in the form of `Order.lanes`."""
    return np.asarray(chosen, dtype="<i8").tobytes()


def pieces(count: int) -> Iterator[slice]:
    """Yield slices of rows, each for one order."""
    return slices(count, MOST_ROWS)


def as_rows(content: Sequence[bytes]) -> Bytes:
    """Return texts of equal length as rows, shape (count, bytes)."""
    if not content:
        return _NOTHING
    return np.frombuffer(bytearray(b"".join(content)), np.uint8).reshape(len(content), -1)
