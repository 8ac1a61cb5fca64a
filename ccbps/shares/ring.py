"""A ring of three brokers: each sends to the one before it, and receives from the one behind it.

Two neighbours greet each other, which agrees on the masks of a connection, and then evaluate unit
after unit. A unit begins with its position: its number, and a digest of its inputs. Brokers at
different positions disconnect with an error. So do brokers with different parameters, and the
neighbours of one that began anew. Nothing is answered then, and the work is done again on new
connections, with new masks.
"""

from __future__ import annotations

import hmac
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from queue import SimpleQueue
from typing import Annotated, Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec
import numpy as np

from ccbps.arrays import Bools, Bytes, Randomness, Words
from ccbps.checks import octets, whole
from ccbps.ciphers.row_mac import RowMac
from ccbps.errors import DecodeError, NetworkError, PeerError
from ccbps.keys.plain_key import PARTIES
from ccbps.keys.secret import Closable
from ccbps.records import Message, Number
from ccbps.shares.masks import FRESH_BYTES, MaskStreams, mask_key
from ccbps.shares.replicated import Masks, Shares, Steps

T = TypeVar("T", bound=Message)
R = TypeVar("R")
Exchange: TypeAlias = Generator[bytes, bytes, R]
"""Exchange with the neighbours: it yields bytes for the broker below, and is sent as many bytes of
the broker above."""

DIGEST_BYTES: Final = 32
DEPTH: Final = 3
"""Units that are evaluated at a time, at all three brokers."""
SMALL_BYTES: Final = 1 << 13
"""Bytes of a message that is handed to the kernel without a thread of its own."""
_MOST: Final = 1 << 10
"""Largest number of bytes of a greeting or a position."""
Digest = Annotated[bytes, msgspec.Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
Fresh = Annotated[bytes, msgspec.Meta(min_length=FRESH_BYTES, max_length=FRESH_BYTES)]


class Greeting(Message, frozen=True):
    """First message of a broker to a neighbour.

    Attributes:
        party: number of the broker.
        context: digest of the public parameters and the epoch.
        worker: number of the pair of workers that the connection serves.
        attempt: number of the attempt at the work.
        fresh: random bytes for the neighbours' mask key.
    """

    front = b"\x01TG"
    what = "broker's greeting"

    party: Annotated[int, msgspec.Meta(ge=0, lt=PARTIES)]
    context: Digest
    worker: Number
    attempt: Number
    fresh: Fresh


class Position(Message, frozen=True):
    """Place of a broker before it evaluates a unit.

    Attributes:
        unit: number of the unit.
        digest: digest of events and interests, and of their lanes, without their shares.
    """

    front = b"\x01TP"
    what = "broker's position"

    unit: Number
    digest: Digest


class Work(NamedTuple):
    """A unit of work.

    Attributes:
        unit: number of the unit.
        digest: digest of the public inputs, 32 bytes, the same at all three brokers.
        begin: function that begins the evaluation with masks, as `Evaluation.steps`, or an
            exchange.
    """

    unit: int
    digest: bytes
    begin: Callable[[Masks], Steps | Exchange[Any]]


class Link(Protocol):
    """A connection to one neighbour: a `ccbps.network.Channel`, or one within a process."""

    def send(self, *parts: Any) -> None:
        """Send one frame."""

    def receive(self, most: int) -> bytearray:
        """Receive one frame of at most `most` bytes."""

    def close(self) -> None:
        """End the connection, for the neighbour too."""


class LocalLink:
    """One end of a connection between two threads of this process."""

    def __init__(self) -> None:
        self._arrived: SimpleQueue[bytearray | None] = SimpleQueue()
        self._other: LocalLink | None = None

    @classmethod
    def pair(cls) -> tuple[LocalLink, LocalLink]:
        """Make both ends of a connection."""
        first, second = cls(), cls()
        first._other, second._other = second, first
        return first, second

    def send(self, *parts: Any) -> None:
        """Send one frame.

        Raises:
            NetworkError: the connection ended.
        """
        if self._other is None:
            raise NetworkError("the connection ended")
        self._other._arrived.put(bytearray(b"".join(parts)))

    def receive(self, most: int) -> bytearray:
        """Receive one frame.

        Raises:
            NetworkError: the connection ended.
            PeerError: the frame has more than `most` bytes.
        """
        frame = self._arrived.get()
        if frame is None:
            raise NetworkError("the connection ended")
        if len(frame) > most:
            raise PeerError(f"a frame of {len(frame)} bytes came, at most {most} were expected")
        return frame

    def close(self) -> None:
        """End the connection."""
        if self._other is not None:
            self._other._arrived.put(None)
        self._arrived.put(None)
        self._other = None


def local_links() -> list[tuple[LocalLink, LocalLink]]:
    """Return each broker's links to the one below and from the one above, within this process."""
    pairs = [LocalLink.pair() for _ in range(PARTIES)]  # of broker i and broker i - 1
    return [(pairs[i][0], pairs[(i + 1) % PARTIES][1]) for i in range(PARTIES)]


class Ring(Closable):
    """Connections of one broker to its two neighbours, with their masks.

    Attributes:
        sent_bytes: bytes of units, without their positions, that were handed to the connection.

    Args:
        party: number of this broker.
        lower: connection to broker ``party - 1``.
        upper: connection from broker ``party + 1``.
        context: digest of the public parameters and the epoch, 32 bytes.
        worker: number of the pair of workers.
        attempt: number of the attempt.
        randomness: source of random bytes.

    Raises:
        PeerError: a neighbour is another broker, or has other parameters.
        NetworkError: a connection broke.
    """

    def __init__(
        self,
        party: int,
        lower: Link,
        upper: Link,
        context: bytes,
        *,
        worker: int = 0,
        attempt: int = 0,
        randomness: Randomness = os.urandom,
    ) -> None:
        self._party = whole("party", party, 0, PARTIES - 1)
        self._lower, self._upper, self.sent_bytes = lower, upper, 0
        context = octets("context", context, DIGEST_BYTES)
        own = [Greeting(party, context, worker, attempt, randomness(FRESH_BYTES)) for _ in range(2)]
        # Small enough for the kernels' buffers, so no broker waits for another.
        lower.send(own[0].to_bytes())
        above = self._greeting(upper, (party + 1) % PARTIES, own[1])
        upper.send(own[1].to_bytes())
        below = self._greeting(lower, (party - 1) % PARTIES, own[0])
        fresh = (below.fresh, own[0].fresh), (own[1].fresh, above.fresh)
        self._masks = MaskStreams(*(mask_key(*pair, worker, attempt) for pair in fresh))
        self._tag_keys = [mask_key(*pair, worker, attempt, "tags") for pair in fresh]
        self._randomness = randomness
        self._sending: Future[None] = Future()
        self._sending.set_result(None)
        self._sender = ThreadPoolExecutor(1, thread_name_prefix=f"ccbps broker {party}")

    def close(self) -> None:
        """End both connections."""
        self._lower.close()
        self._upper.close()
        self._sender.shutdown()

    def evaluate(self, unit: int, digest: bytes, begin: Callable[[Masks], Steps]) -> Shares:
        """Evaluate a unit together with both neighbours; see `evaluate_all`."""
        done: Shares
        (done,) = self.evaluate_all([Work(unit, digest, begin)])
        return done

    def evaluate_all(self, units: Iterable[Work]) -> Iterator[Any]:
        """Evaluate units together with both neighbours, some of them at a time.

        While the sums of a unit are on their way, others are computed. All three brokers take the
        same turns.

        Args:
            units: units of work, with numbers that rise, and are greater than all before them.

        Yields:
            result of each unit, in order.

        Raises:
            PeerError: a neighbour is at another position, or sends a frame that does not fit.
            NetworkError: a connection broke. After any error the ring is closed: connect anew.
        """
        with self._closed_after_errors():
            turns: deque[Generator[None, None, Any]] = deque()
            coming = iter(units)
            while True:
                while len(turns) < DEPTH and (unit := next(coming, None)) is not None:
                    turns.append(self._turns(unit))
                    next(turns[-1])
                if not turns:
                    return
                turn = turns.popleft()
                try:
                    next(turn)
                    turns.append(turn)
                except StopIteration as stop:
                    yield stop.value

    def _turns(self, work: Work) -> Generator[None, None, Any]:
        """Evaluate a unit. Another one has its turn whenever this one waits for a neighbour."""
        position = Position(work.unit, work.digest)
        sending = self._send(position.to_bytes())
        yield
        other = self._read(Position, self._upper)
        if other != position:
            raise PeerError(
                f"broker {(self._party + 1) % PARTIES} stands at unit {other.unit}, this one at "
                f"{work.unit}, or they hold other events or interests: connect anew"
            )
        steps: Generator[Any, Any, Any] = work.begin(self._masks.unit(work.unit))
        own = next(steps)
        while True:
            sending.result()
            content = _octets(own)
            size = len(content)
            self.sent_bytes += size
            sending = self._send(content)
            yield
            arrived = self._upper.receive(size)
            _require_size(arrived, size)
            try:
                own = steps.send(_arrived(arrived, own))
            except StopIteration as stop:
                sending.result()
                return stop.value

    def differing(self, first: Bytes, second: Bytes, refused: Bools | None = None) -> Bools:
        """Find the rows of which two brokers hold different shares; see `comparison`.

        Raises:
            PeerError: a neighbour has another number of rows.
            NetworkError: a connection broke.
        """

        def drawn() -> Exchange[Bools]:
            coin = yield from self.draw()
            return (yield from self.comparison(coin, first, second, refused))

        return self._alone(drawn())

    def comparison(
        self, coin: bytes, first: Bytes, second: Bytes, refused: Bools | None = None
    ) -> Exchange[Bools]:
        """Find the rows of which two brokers hold different shares, shape (count,).

        A client that hands two brokers different shares turns answers into bits of other clients'
        inputs. So the brokers compare their common shares before they use them: this broker its
        first share with the broker below, and its second share with the broker above. They send
        tags under a key that only the two have; a digest of a share would leak it to the third.

        Whoever knows the key of tags can make different rows with equal tags, and one of the two
        brokers may give it to a client. So each comparison has keys of its own, which also derive
        from the coin: nobody knows them before all three brokers have the rows.

        Args:
            coin: random bytes that the brokers drew together when they had the rows, 32 bytes.
            first: heads and first shares, packed, shape (count, bytes).
            second: heads and second shares, packed, of the same shape.
            refused: rows that this broker refuses by itself, shape (count,), which all three then
                count as different; None for none.
        """
        below, above = (RowMac(hmac.digest(key, coin, "sha256")) for key in self._tag_keys)
        own = below.tags(first)
        arrived = yield own.tobytes()
        theirs = np.frombuffer(arrived, dtype=np.uint8).reshape(own.shape)
        differ = (theirs != above.tags(second)).any(axis=1)
        wrong = np.packbits(differ if refused is None else differ | refused)
        # Each broker tells both others, by way of the one below.
        for _ in range(PARTIES - 1):
            arrived = yield wrong.tobytes()
            wrong = wrong | np.frombuffer(arrived, dtype=np.uint8)
        return np.unpackbits(wrong, count=len(first)).view(np.bool_)

    def differing_shares(self, heads: Bytes, shares: tuple[Bytes, Bytes], refused: Bools) -> Bools:
        """Find the messages that two brokers hold differently, shape (count,); see `differing`.

        Args:
            heads: heads of the messages, shape (count, bytes).
            shares: this broker's shares of their bits, 0 and 1, each of shape (count, bits).
            refused: messages that this broker refuses by itself, shape (count,).

        Raises:
            PeerError: a neighbour has another number of messages.
            NetworkError: a connection broke.
        """
        first, second = (
            np.concatenate([heads, np.packbits(share, axis=1)], axis=1) for share in shares
        )
        return self.differing(first, second, refused)

    def coin(self) -> bytes:
        """Draw 32 bytes together with the other two brokers, which all three know."""
        return self._alone(self.draw())

    def draw(self) -> Exchange[bytes]:
        """Draw 32 bytes, as `coin` does."""
        drawn = [self._randomness(FRESH_BYTES)]
        for _ in range(PARTIES - 1):
            drawn.append((yield drawn[-1]))
        return sha256(b"".join(self._by_party(drawn))).digest()

    def exchange(self, content: bytes, most: int) -> list[bytes]:
        """Send contents to both other brokers, and return those of brokers 0, 1 and 2.

        Args:
            content: content that the others may know.
            most: greatest length of another broker's content, bytes.

        Raises:
            PeerError: a neighbour sends more.
            NetworkError: a connection broke.
        """
        with self._closed_after_errors():
            told = [content]
            for _ in range(PARTIES - 1):
                sending = self._send(told[-1])
                told.append(bytes(self._upper.receive(most)))
                sending.result()
            return self._by_party(told)

    def _by_party(self, told: list[bytes]) -> list[bytes]:
        """Put the contents of this broker and the two above it in the order of brokers 0, 1, 2."""
        first = -self._party % PARTIES  # place of broker 0's content
        return told[first:] + told[:first]

    def _alone(self, exchange: Exchange[R]) -> R:
        """Run an exchange that belongs to no unit."""
        with self._closed_after_errors():
            content = next(exchange)
            while True:
                arrived = self._both(content, len(content))
                try:
                    content = exchange.send(bytes(arrived))
                except StopIteration as stop:
                    done: R = stop.value
                    return done

    @contextmanager
    def _closed_after_errors(self) -> Iterator[None]:
        """Close the ring after any error: its brokers may stand at different places."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _send(self, content: bytes | memoryview) -> Future[None]:
        """Send to the broker below while this thread goes on."""
        if len(content) <= SMALL_BYTES and self._sending.done():
            # The kernels' buffers hold it, so no broker waits for another.
            self._lower.send(content)
            return self._sending
        try:
            self._sending = self._sender.submit(self._lower.send, content)
        except RuntimeError:
            raise NetworkError("the ring is closed: connect anew") from None
        return self._sending

    def _both(self, content: bytes | memoryview, size: int) -> bytearray:
        """Send to the broker below while receiving as many bytes from the one above."""
        sending = self._send(content)
        arrived = self._upper.receive(size)
        sending.result()
        _require_size(arrived, size)
        return arrived

    def _greeting(self, channel: Link, party: int, own: Greeting) -> Greeting:
        """Receive the greeting of a neighbour, and check that it fits this broker's."""
        greeting = self._read(Greeting, channel)
        if greeting.party != party:
            raise PeerError(f"broker {party} was expected, got broker {greeting.party}")
        agreed = own.context, own.worker, own.attempt
        if (greeting.context, greeting.worker, greeting.attempt) != agreed:
            raise PeerError(
                f"broker {party} has other public parameters, or another epoch, job, worker or "
                "attempt"
            )
        return greeting

    def _read(self, kind: type[T], channel: Link) -> T:
        try:
            return kind.from_bytes(bytes(channel.receive(_MOST)))
        except DecodeError as error:
            raise PeerError(f"a neighbour does not follow the protocol: {error}") from None


def _require_size(arrived: bytes | bytearray, size: int) -> None:
    if len(arrived) != size:
        raise PeerError(f"{size} bytes were expected from a broker, got {len(arrived)}")


def side_by_side(exchanges: Sequence[Exchange[Any]]) -> Exchange[list[Any]]:
    """Run several exchanges at once, in the same frames, and return their results."""
    results: list[Any] = [None] * len(exchanges)
    content = {place: next(exchange) for place, exchange in enumerate(exchanges)}
    while content:
        arrived, start = (yield b"".join(content.values())), 0
        following = {}
        for place, own in content.items():
            piece, start = arrived[start : start + len(own)], start + len(own)
            try:
                following[place] = exchanges[place].send(piece)
            except StopIteration as stop:
                results[place] = stop.value
        content = following
    return results


def in_bytes(steps: Steps) -> Exchange[Shares]:
    """Run the evaluation of a unit as an exchange."""
    sums = next(steps)
    while True:
        arrived = yield _octets(sums).tobytes()
        try:
            sums = steps.send(_arrived(arrived, sums))
        except StopIteration as stop:
            done: Shares = stop.value
            return done


def _octets(content: Words | bytes) -> memoryview:
    if isinstance(content, bytes):
        return memoryview(content)
    return np.ascontiguousarray(content, dtype="<u8").reshape(-1).view(np.uint8).data


def _arrived(frame: bytes | bytearray, own: Words | bytes) -> Any:
    """Return the content of a frame, in the form in which this broker sent its own."""
    if isinstance(own, bytes):
        return bytes(frame)
    return np.frombuffer(frame, dtype="<u8").reshape(own.shape).astype(np.uint64, copy=False)
