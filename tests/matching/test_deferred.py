"""Deferred events: the completed message is the ordinary one, and nobody else makes labels."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ccbps import Category, EpochSeed, OneTimePad, Schema, SeedRing, SharedSeed, UInt
from ccbps.errors import (
    DecodeError,
    EventError,
    KeyMismatchError,
    ParameterError,
    RandomnessReuseError,
    SerializationError,
    ShapeError,
)
from ccbps.leakage import FROM_ANSWERS
from ccbps.matching import BroadcastMatch, DeferredPublisher, FormulaMatch
from ccbps.predicates import Events
from ccbps.wire import ROUND_HEADER_BYTES, Cause, Kind
from tests.support.kernels import both_kernels, each_kernel  # noqa: F401
from tests.support.one_time import SYMBOLS

Bytes = NDArray[np.uint8]

OWN, MASTER = SharedSeed(bytes(range(32))), SharedSeed(bytes(range(32, 64)))
QUOTES = Schema(issue=Category(SYMBOLS), price=UInt(10), volume=UInt(12))
HEAD = ROUND_HEADER_BYTES
BATCHES = [0, 1, 65, 4097]

MATCHERS: dict[str, tuple[FormulaMatch, Any]] = {
    "box": (FormulaMatch.box(QUOTES), "price < 600 AND volume > 900"),
    "template": (
        FormulaMatch(QUOTES, "issue = :i OR price < :p AND volume NOT BETWEEN 5 AND 900"),
        {"i": "SAP", "p": 500},
    ),
    "public template": (FormulaMatch(QUOTES, "issue IN ('SAP', 'IBM') OR price < 100"), {}),
    "hidden": (FormulaMatch.hidden(QUOTES, leaves=2, leaf="interval"), "price < 99 OR volume > 99"),
}
BOX = MATCHERS["box"][0]


def some_events(count: int, seed: int = 1) -> Events:
    rng = np.random.default_rng(seed)
    return QUOTES.encode(
        {
            "issue": rng.choice(SYMBOLS, count).tolist(),
            "price": rng.integers(0, 1 << 10, count),
            "volume": rng.integers(0, 1 << 12, count),
        }
    )


def changed(rows: Bytes, row: int, byte: int, flip: int = 1) -> Bytes:
    rows = rows.copy()
    rows[row, byte] ^= flip
    return rows


# -- the ordinary messages ----------------------------------------------------------------------


@both_kernels
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", MATCHERS)
def test_completed_messages_are_those_of_the_publisher(name: str, batch: int) -> None:
    matcher, interest = MATCHERS[name]
    events, rounds = some_events(batch), np.arange(7, 7 + batch, dtype=np.uint64)
    deferred = matcher.deferred(OWN, MASTER)
    ahead = deferred.prepare(rounds)
    labels = deferred.encode(events, rounds)
    assert (labels.shape, ahead.shape) == (
        (batch, deferred.label_bytes),
        (batch, deferred.ahead_bytes),
    )
    completed = matcher.complete(labels, ahead)
    assert np.array_equal(completed, matcher.publisher(MASTER).encode(events, rounds))
    interests = matcher.subscriber(MASTER).encode(interest, rounds)
    found = matcher.broker().match(completed, interests)
    expected = matcher.meaning(interest, events)
    assert np.array_equal(found, expected)
    assert batch < 65 or 0 < expected.sum() < batch


@pytest.mark.parametrize("name", MATCHERS)
def test_one_round_of_events_serves_many_subscriptions(name: str) -> None:
    """Labels once; message i is for pair i % 3 and event i // 3."""
    matcher, _ = MATCHERS[name]
    names, events = ["ann", "bob", "cy"], some_events(20)
    pairs = names * 20
    rounds = np.repeat(np.arange(20), 3)
    deferred = matcher.deferred(OWN, MASTER)
    ahead = deferred.prepare(rounds, pairs=pairs)
    labels = deferred.encode(events, range(20))
    which = np.arange(60) // 3
    ordinary = matcher.publisher(MASTER).encode(events.take(which), rounds, pairs=pairs)
    assert np.array_equal(matcher.complete(labels[which], ahead), ordinary)
    # One event's labels are for all rows.
    assert np.array_equal(matcher.complete(labels[4:5], ahead[12:15]), ordinary[12:15])
    assert matcher.complete(labels[:1], ahead[:0]).shape == (0, matcher.event_bytes)


def test_rounds_of_pairs_and_of_events_may_be_numbered_apart() -> None:
    """Two subscriptions of one pair have rounds of their own."""
    deferred = BOX.deferred(OWN, MASTER)
    ahead = deferred.prepare([10, 11, 12, 13], event_rounds=[0, 0, 1, 1])
    events = some_events(2)
    labels = deferred.encode(events, [0, 1])[[0, 0, 1, 1]]
    ordinary = BOX.publisher(MASTER).encode(events.take(np.array([0, 0, 1, 1])), [10, 11, 12, 13])
    assert np.array_equal(BOX.complete(labels, ahead), ordinary)


SOURCES: dict[str, Callable[[], tuple[Any, Any, list[str] | None]]] = {
    "one pair's seed": lambda: (MASTER.pair("ann"), MASTER.pair("ann"), None),
    "a ring": lambda: (SeedRing.of(MASTER, ["ann", "bob"]), MASTER.pair("ann"), ["ann"] * 3),
    "epochs": lambda: (EpochSeed(bytes(32), 3), EpochSeed(bytes(32), 3), None),
    "a one-time pad": lambda: (OneTimePad(bytes(range(250)) * 9), OneTimePad(bytes(range(250)) * 9),
                               None),
}  # fmt: skip


@pytest.mark.parametrize("name", SOURCES)
def test_pairs_share_any_source_of_randomness(name: str) -> None:
    mine, theirs, pairs = SOURCES[name]()
    deferred, events = BOX.deferred(OWN, mine), some_events(3)
    ahead = deferred.prepare(range(3), pairs=pairs)
    completed = BOX.complete(deferred.encode(events, range(3)), ahead)
    assert np.array_equal(completed, BOX.publisher(theirs).encode(events, range(3)))


def test_messages_are_written_to_where_one_says() -> None:
    deferred = BOX.deferred(OWN, MASTER)
    ahead = np.empty((2, deferred.ahead_bytes), np.uint8)
    labels = np.empty((2, deferred.label_bytes), np.uint8)
    assert deferred.prepare([0, 1], out=ahead) is ahead
    assert deferred.encode(some_events(2), [0, 1], out=labels) is labels
    ordinary = BOX.publisher(MASTER).encode(some_events(2), [0, 1])
    assert np.array_equal(BOX.complete(labels, ahead), ordinary)
    for wrong in (ahead[:, 1:], labels):
        with pytest.raises(ShapeError, match="out must"):
            deferred.prepare([2, 3], out=wrong)
    assert deferred.prepare([2, 3]).shape == (2, deferred.ahead_bytes)


def test_the_nonce_is_fresh_and_nothing_else_is_drawn() -> None:
    asked = []

    def randomness(count: int) -> bytes:
        asked.append(count)
        return bytes(count)

    first, second = (BOX.deferred(OWN, MASTER, randomness=randomness).prepare([0, 1, 2])
                     for _ in range(2))  # fmt: skip
    assert (sum(asked), np.array_equal(first, second)) == (2 * 3 * 12, True)
    other = BOX.deferred(OWN, MASTER).prepare([0, 1, 2])
    assert len({row.tobytes() for row in other[:, 2 * HEAD : 2 * HEAD + 12]}) == 3
    # A nonce changes every pad, and no header.
    assert np.array_equal(other[:, : 2 * HEAD], first[:, : 2 * HEAD])
    assert (other[:, 2 * HEAD + 12 :] != first[:, 2 * HEAD + 12 :]).mean() > 0.5


# -- sizes and kinds ----------------------------------------------------------------------------


def test_sizes_of_the_stock_box() -> None:
    matcher = FormulaMatch.box(Schema(issue=UInt(16), price=UInt(16), volume=UInt(20)))
    deferred = matcher.deferred(OWN, MASTER)
    assert deferred.label_bytes == HEAD + 16 * 52 == 840
    # Two headers, a nonce, 577 slots and 1209 rows.
    assert deferred.ahead_bytes == 2 * HEAD + 12 + -(-(577 + 1209) // 8) == 252


def test_conditions_that_the_publisher_computes_are_bits_of_their_own() -> None:
    """And bits that the formula does not need have no label."""
    issues = FormulaMatch(QUOTES, "issue = :i").deferred(OWN, MASTER)
    assert issues.label_bytes == HEAD + 16 * QUOTES["issue"].bits
    both = FormulaMatch(QUOTES, "issue = :i AND volume IN (5, 77, 900)").deferred(OWN, MASTER)
    assert both.label_bytes == issues.label_bytes + 16


def test_kinds_stand_in_front() -> None:
    deferred = BOX.deferred(OWN, MASTER)
    labels, ahead = deferred.encode(some_events(2), [0, 1]), deferred.prepare([0, 1])
    assert set(labels[:, 0]) == {Kind.LABELS | 2 << 4}
    assert set(ahead[:, 0]) == {Kind.AHEAD | 2 << 4}
    assert set(ahead[:, HEAD]) == {Kind.EVENT | 2 << 4}


def test_labels_follow_from_the_own_seed_as_stated() -> None:
    """What another implementation needs: how a round's labels and tag come out of the seed."""
    name = sha256(b"ccbps deferred 2\0" + BOX.digest).digest()
    events, bits = some_events(3), QUOTES.bits
    drawn = OWN.reader(name, 32 * bits + 7, np.array([5, 9, 2], np.uint64), None)(0, 3)
    deferred = BOX.deferred(OWN, MASTER)
    labels, ahead = deferred.encode(events, [5, 9, 2]), deferred.prepare([5, 9, 2])
    assert np.array_equal(labels[:, 1:HEAD], drawn[:, 32 * bits :] ^ np.frombuffer(name[:7], "u1"))
    assert np.array_equal(ahead[:, 1:HEAD], drawn[:, 32 * bits :] ^ np.frombuffer(name[7:14], "u1"))
    sent = BOX._form.event_rows(events).view(np.uint8)
    values = np.unpackbits(sent, axis=1, bitorder="little")[:, :bits]
    pairs = drawn[:, : 32 * bits].reshape(3, bits, 2, 16)
    for row, bit in np.ndindex(3, bits):
        wanted = pairs[row, bit, values[row, bit]].copy()
        wanted[0] = wanted[0] & 0xFE | pairs[row, bit, 0, 0] & 1 ^ values[row, bit]
        assert labels[row, HEAD + 16 * bit :][:16].tolist() == wanted.tolist()


# -- what is refused ----------------------------------------------------------------------------


@pytest.fixture
def parts() -> tuple[Bytes, Bytes]:
    deferred = BOX.deferred(OWN, MASTER)
    return deferred.encode(some_events(4), range(4)), deferred.prepare(range(4))


def refused(labels: Bytes, ahead: Bytes, matcher: FormulaMatch = BOX) -> dict[int, str]:
    with pytest.raises(DecodeError) as refusal:
        matcher.complete(labels, ahead)
    return dict(zip(refusal.value.rows, refusal.value.causes, strict=True))


def test_parts_of_different_rounds_are_refused(parts: tuple[Bytes, Bytes]) -> None:
    labels, ahead = parts
    assert refused(labels[[0, 2, 1, 3]], ahead) == dict.fromkeys([1, 2], Cause.LABELS.text)
    assert refused(labels[:1], ahead) == dict.fromkeys([1, 2, 3], Cause.LABELS.text)


def test_parts_of_different_seeds_are_refused(parts: tuple[Bytes, Bytes]) -> None:
    labels, ahead = parts
    other = BOX.deferred(SharedSeed(bytes(32)), MASTER)
    wanted = dict.fromkeys(range(4), Cause.LABELS.text)
    assert refused(other.encode(some_events(4), range(4)), ahead) == wanted
    assert refused(labels, other.prepare(range(4))) == wanted


def test_parts_of_different_matchers_are_refused(parts: tuple[Bytes, Bytes]) -> None:
    """Even of one with the same formula and sizes: only a name is another."""
    named = Schema(issue=Category(SYMBOLS), price=UInt(10), amount=UInt(12))
    matcher = FormulaMatch.box(named)
    deferred = matcher.deferred(OWN, MASTER)
    events = [{"issue": "SAP", "price": 1, "amount": 2}] * 4
    labels, ahead = deferred.encode(events, range(4)), deferred.prepare(range(4))
    wanted = dict.fromkeys(range(4), Cause.LABELS.text)
    assert refused(labels, parts[1]) == wanted
    assert refused(parts[0], ahead) == wanted
    assert refused(labels, ahead) == wanted
    assert refused(*parts, matcher=matcher) == wanted
    assert matcher.complete(labels, ahead).shape == (4, matcher.event_bytes)


def test_exchanged_and_other_messages_are_refused(parts: tuple[Bytes, Bytes]) -> None:
    labels, ahead = parts
    events = BOX.publisher(MASTER).encode(some_events(4), range(4))
    interests = BOX.subscriber(MASTER).encode("price < 3", range(4))
    for pair in ((ahead, labels), (events, ahead), (labels, interests), (labels, labels)):
        with pytest.raises(DecodeError, match="must be a uint8 array of shape"):
            BOX.complete(*pair)
    with pytest.raises(DecodeError, match="do not fit"):
        BOX.complete(labels[:3], ahead)
    for wrong in (labels.astype(np.int64), labels[0], labels.tolist()):
        with pytest.raises(DecodeError, match="labels must be a uint8 array"):
            BOX.complete(wrong, ahead)  # type: ignore[arg-type]
    # Behind another kind, or another version.
    for flip in (Kind.LABELS ^ Kind.EVENT, Kind.LABELS ^ Kind.AHEAD, 0x10):
        assert refused(changed(labels, 2, 0, flip), ahead) == {2: Cause.LABELS_KIND.text}
        assert refused(labels, changed(ahead, 1, 0, flip)) == {1: Cause.AHEAD_KIND.text}
    # The broker takes neither in an event's or an interest's place.
    for pair in ((labels, interests), (ahead, interests), (events, ahead), (events, labels)):
        with pytest.raises(DecodeError):
            BOX.broker().match(*pair)


def test_a_header_with_any_bit_flipped_is_refused(parts: tuple[Bytes, Bytes]) -> None:
    labels, ahead = parts
    for byte in range(1, HEAD):
        for bit in (1, 128):
            assert refused(changed(labels, 0, byte, bit), ahead) == {0: Cause.LABELS.text}
            assert refused(labels, changed(ahead, 3, byte, bit)) == {3: Cause.LABELS.text}


def test_bits_behind_the_last_row_are_refused(parts: tuple[Bytes, Bytes]) -> None:
    labels, ahead = parts
    unused = -BOX._ahead.slots.body_bits % 8
    assert unused
    for bit in range(8 - unused, 8):
        assert refused(labels, changed(ahead, 1, -1, 1 << bit)) == {1: Cause.PADDING.text}
    BOX.complete(labels, changed(ahead, 1, -1, 1 << 7 - unused))


def test_the_pairs_header_goes_with_the_message(parts: tuple[Bytes, Bytes]) -> None:
    """A completed message is of its pair and round, as an ordinary one."""
    labels, ahead = parts
    completed, broker = BOX.complete(labels, ahead), BOX.broker()
    interests = BOX.subscriber(MASTER).encode("price < 3", range(8))
    assert broker.examine(completed, interests[:4])[1].tolist() == [Cause.NONE] * 4
    assert broker.examine(completed, interests[4:])[1].tolist() == [Cause.PAIRING] * 4
    other = BOX.subscriber(MASTER.pair("ann")).encode("price < 3", range(4))
    assert broker.examine(completed, other)[1].tolist() == [Cause.PAIRING] * 4
    bent = BOX.complete(labels, changed(ahead, 1, HEAD, Kind.EVENT ^ Kind.INTEREST))
    causes = broker.examine(bent, interests[:4])[1].tolist()
    assert causes == [Cause.NONE, Cause.EVENT_KIND, Cause.NONE, Cause.NONE]


# -- nobody else makes labels -------------------------------------------------------------------


def test_a_subscriber_makes_no_labels(parts: tuple[Bytes, Bytes]) -> None:
    """Who has the pairs' seed alone makes labels of another seed; even behind the right header
    they complete to another message."""
    labels, ahead = parts
    events = some_events(4)
    forger = BOX.deferred(SharedSeed(bytes(32)), MASTER)
    forged = forger.encode(events, range(4))
    assert refused(forged, ahead) == dict.fromkeys(range(4), Cause.LABELS.text)
    forged[:, :HEAD] = labels[:, :HEAD]
    ordinary = BOX.publisher(MASTER).encode(events, range(4))
    wrong = BOX.complete(forged, ahead) ^ ordinary
    share = np.unpackbits(wrong[:, HEAD:], axis=1).mean()
    assert 0.35 < share < 0.65


def test_labels_do_not_depend_on_pairs_or_on_the_seed_shared_with_them() -> None:
    first = BOX.deferred(OWN, MASTER).encode(some_events(4), range(4))
    second = BOX.deferred(OWN, OneTimePad(bytes(2000))).encode(some_events(4), range(4))
    assert np.array_equal(first, second)


def test_labels_of_equal_events_differ_by_round_and_those_of_two_events_look_alike() -> None:
    same = [{"issue": "SAP", "price": 7, "volume": 9}] * 400
    labels = BOX.deferred(OWN, MASTER).encode(same, range(400))[:, HEAD:]
    heads = labels[:, ::16]
    assert len({row.tobytes() for row in labels.reshape(-1, 16)}) == labels.size // 16
    # Select bits are as often one as zero, whatever the bit.
    assert (abs((heads & 1).mean(axis=0) - 0.5) < 0.13).all()


@pytest.mark.parametrize(
    "own", [bytes(32), "seed", None, OneTimePad(bytes(99)), SeedRing.of(MASTER, ["ann"])], ids=repr
)
def test_the_own_seed_is_a_shared_seed(own: Any) -> None:
    with pytest.raises(ParameterError, match="own_seed must be a SharedSeed, got"):
        BOX.deferred(own, MASTER)


def test_the_own_seed_is_not_the_pairs() -> None:
    with pytest.raises(ParameterError, match="publisher's alone"):
        BOX.deferred(MASTER, SharedSeed(MASTER.export_secret()))
    with pytest.raises(ParameterError, match="seed must be"):
        BOX.deferred(OWN, bytes(32))  # type: ignore[arg-type]


# -- rounds are used once -----------------------------------------------------------------------


def test_labels_of_a_round_serve_one_event() -> None:
    deferred = BOX.deferred(OWN, MASTER)
    deferred.encode(some_events(3), [0, 1, 2])
    with pytest.raises(RandomnessReuseError, match=r"round 2 was already used .* serve one event"):
        deferred.encode(some_events(2), [3, 2])
    with pytest.raises(RandomnessReuseError, match="round 5 occurs more than once"):
        deferred.encode(some_events(2), [5, 5])
    deferred.encode(some_events(2), [3, 5])


def test_a_pairs_round_is_prepared_once() -> None:
    deferred = BOX.deferred(OWN, MASTER)
    deferred.prepare([0, 0], pairs=["ann", "bob"])
    with pytest.raises(RandomnessReuseError, match="pair 'bob': round 0 was already used"):
        deferred.prepare([1, 0], pairs=["bob", "bob"], event_rounds=[5, 6])
    deferred.prepare([1, 0], pairs=["bob", "cy"], event_rounds=[5, 6])
    # Rounds of events are not those of pairs.
    deferred.encode(some_events(1), [0])


def test_roles_over_one_pad_share_its_rounds() -> None:
    pad = OneTimePad.generate(9 * BOX.randomness_bytes)
    BOX.publisher(pad).encode(some_events(2), [0, 1])
    deferred = BOX.deferred(OWN, pad)
    with pytest.raises(RandomnessReuseError, match="round 1 was already used"):
        deferred.prepare([1, 2])
    deferred.prepare([2, 3])
    with pytest.raises(RandomnessReuseError, match="round 3 was already used"):
        BOX.publisher(pad).encode(some_events(2), [3, 4])


def test_a_ledger_remembers_rounds_of_both_seeds(tmp_path: Path) -> None:
    ledger = tmp_path / "rounds"
    deferred = BOX.deferred(OWN, MASTER, ledger=ledger)
    events = some_events(4)
    ahead = deferred.prepare([0, 1], pairs=["ann", "bob"])
    labels = deferred.encode(events.take(np.array([0, 1])), [0, 1])
    again = BOX.deferred(OWN, MASTER, ledger=ledger)
    # After a crash the same may be made once more: labels byte for byte, messages under a new
    # nonce.
    assert np.array_equal(again.encode(events.take(np.array([0, 1])), [0, 1]), labels)
    twice = again.prepare([0, 1], pairs=["ann", "bob"])
    assert not np.array_equal(twice, ahead)
    assert np.array_equal(BOX.complete(labels, twice), BOX.complete(labels, ahead))
    with pytest.raises(RandomnessReuseError, match="round 1 was used for something else"):
        again.encode(events.take(np.array([3])), [1])
    with pytest.raises(RandomnessReuseError, match="pair 'bob': round 1 was used for something"):
        again.prepare([1], pairs=["bob"], event_rounds=[2])
    # For another publisher's seed, too, and for the ordinary publisher; and the other way round.
    other = BOX.deferred(SharedSeed(bytes(32)), MASTER, ledger=ledger)
    publisher = BOX.publisher(MASTER, ledger=ledger)
    with pytest.raises(RandomnessReuseError, match="something else"):
        other.prepare([1], pairs=["bob"])
    with pytest.raises(RandomnessReuseError, match="something else"):
        publisher.encode(events.take(np.array([1])), [1], pairs=["bob"])
    publisher.encode(events.take(np.array([1])), [2], pairs=["bob"])
    with pytest.raises(RandomnessReuseError, match="something else"):
        again.prepare([2], pairs=["bob"])
    again.encode(events.take(np.array([2])), [2])


def test_nothing_is_claimed_by_what_is_refused() -> None:
    deferred = BOX.deferred(OWN, MASTER)
    for wrong in (
        lambda: deferred.prepare([0, 1], pairs=["ann"]),
        lambda: deferred.prepare([0, 1], event_rounds=[0]),
        lambda: deferred.prepare([0, -1]),
        lambda: deferred.prepare([0.5]),
        lambda: deferred.encode(some_events(2), [0]),
        lambda: deferred.encode(some_events(1), None),  # type: ignore[arg-type]
    ):
        with pytest.raises(ParameterError):
            wrong()
    with pytest.raises(EventError):
        deferred.encode([{"issue": "NONE", "price": 1, "volume": 1}], [0])
    with pytest.raises(KeyMismatchError):
        BOX.deferred(OWN, SeedRing.of(MASTER, ["ann"])).prepare([0], pairs=["bob"])
    deferred.prepare([0, 1])
    deferred.encode(some_events(2), [0, 1])


# -- the role -----------------------------------------------------------------------------------


def test_the_role_holds_secrets() -> None:
    deferred = BOX.deferred(OWN, MASTER)
    assert isinstance(deferred, DeferredPublisher)
    assert repr(deferred) == "<DeferredPublisher of <FormulaMatch box over issue, price, volume>>"
    for leave in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(SerializationError, match="must not be pickled or copied"):
            leave(deferred)  # type: ignore[operator]
    # The matcher stays public, with what it has computed for the role.
    assert pickle.loads(pickle.dumps(BOX)) == BOX


@pytest.mark.parametrize("name", MATCHERS)
def test_the_card_says_what_colluding_parties_read(name: str) -> None:
    matcher, _ = MATCHERS[name]
    mine, card = matcher.leakage, matcher.deferred(OWN, MASTER).leakage
    assert (mine.security, card.security) == ("perfect", "computational")
    assert card.scheme == "FormulaMatch, deferred events"
    assert (card.hides, card.protects, card.learns[:2]) == (
        mine.hides,
        mine.protects,
        mine.learns[:2],
    )
    assert "AES-128" in card.assumption
    assert any("a subscriber" in one and "no other events" in one for one in card.hazards)
    assert card.attacks == FROM_ANSWERS
    assert card.reuse == "one-time"


def test_the_broadcast_matcher_takes_a_group_seed_instead() -> None:
    assert not hasattr(BroadcastMatch.box(QUOTES), "deferred")
