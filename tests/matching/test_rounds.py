"""Roles that share rounds: pairs, pads, rounds used once, and messages that do not belong together.

Subjects are matchers with one message each and with messages of several segments.
"""

from __future__ import annotations

import contextlib
import copy
import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from threading import Barrier
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from ccbps import OneTimePad, Schema, SeedRing, SharedSeed, UInt
from ccbps.algebra import A5
from ccbps.circuits import Circuit, Gate, Op
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import (
    CcbpsError,
    DecodeError,
    EventError,
    KeyMismatchError,
    PadExhaustedError,
    ParameterError,
    RandomnessReuseError,
    SamplingError,
    SerializationError,
    ShapeError,
    UnknownAttributeError,
)
from ccbps.matching import (
    BranchingMatch,
    FormulaMatch,
    FSGPMatch,
    OFSGPMatch,
    PublicFunctionMatch,
    UGPMatch,
)
from ccbps.wire import ROUND_HEADER_BYTES, Cause
from tests.reference.ishai_kushilevitz import encode_event, encode_interest
from tests.support.one_time import QUOTES, SEED, TEMPLATE, quotes
from tests.support.round_subjects import (  # noqa: F401
    Subject,
    all_subjects,
    made_subject,
    several_segments,
    some_subjects,
)

Bytes = NDArray[np.uint8]
BOX = BranchingMatch.box(QUOTES)
ROW: dict[str, list[Any]] = {"issue": ["IBM"], "price": [1], "volume": [1]}
both_roles = pytest.mark.parametrize("role", ["publisher", "subscriber"])


def rows_of(count: int) -> dict[str, list[Any]]:
    return {name: values * count for name, values in ROW.items()}


# -- interests and places -----------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 2, pytest.param(300, marks=pytest.mark.slow)])
@some_subjects
def test_interest_for_all_rows_equals_it_repeated(subject: Subject, count: int) -> None:
    text, matcher = "x > 3", subject.matcher
    predicate = matcher.schema.parse(text)
    others = ["x = 0", text, "x < 2"]
    forms: list[Any] = [
        text,
        predicate,
        [text] * count,
        [predicate] * count,
        DictionaryColumn(others, np.full(count, 1, np.intp)),
    ]
    found = [matcher.subscriber(SEED).encode(form, range(count)).tobytes() for form in forms]
    assert set(found) == {found[0]}
    assert len(found[0]) == count * matcher.interest_bytes


def test_interest_of_a_lazy_sequence_is_read_row_by_row() -> None:
    class Lazy(Sequence[Any]):
        def __len__(self) -> int:
            return 30

        def __getitem__(self, place: Any) -> Any:
            if place >= 30:
                raise IndexError
            return {"issue": "IBM", "price": float(place)}

    matcher = BranchingMatch(QUOTES, TEMPLATE)
    events = {"issue": ["IBM"] * 30, "price": [14.5] * 30, "volume": [0] * 30}
    sent = matcher.publisher(SEED).encode(events, range(30))
    found = matcher.broker().match(sent, matcher.subscriber(SEED).encode(Lazy(), range(30)))
    assert found.tolist() == [place > 14.5 for place in range(30)]


def test_interests_and_labels_that_no_row_uses_are_not_looked_at() -> None:
    none, expected = np.zeros(2, np.intp), BOX.subscriber(SEED).encode("price < 3", [0, 1])
    column = DictionaryColumn[Any](["price < 3", "no predicate at all"], none)
    assert np.array_equal(BOX.subscriber(SEED).encode(column, [0, 1]), expected)
    pairs = DictionaryColumn(["a", "b"], none)
    subscriber = BOX.subscriber(SeedRing.of(SEED, ["a"]))
    assert len(subscriber.encode("price < 3", [0, 1], pairs=pairs)) == 2


def test_interests_and_labels_may_be_arrays() -> None:
    texts, labels = ["price < 3", "price < 4"], ["a", "b", "a"]
    found = BOX.subscriber(SEED).encode(np.array(texts, dtype=object), [0, 1])
    assert np.array_equal(found, BOX.subscriber(SEED).encode(texts, [0, 1]))
    found = BOX.subscriber(SEED).encode("price < 3", range(3), pairs=pa.array(labels))
    assert np.array_equal(found, BOX.subscriber(SEED).encode("price < 3", range(3), pairs=labels))
    with pytest.raises(ParameterError, match="each row must be a str"):
        BOX.subscriber(SEED).encode("price < 3", [7, 8], pairs=pa.array(["a", None]))


def test_messages_are_written_where_the_caller_wants_them() -> None:
    events = quotes(300, 4)
    out = np.empty((300, BOX.event_bytes), np.uint8)
    assert BOX.publisher(SEED).encode(events, range(300), out=out) is out
    assert np.array_equal(out, BOX.publisher(SEED).encode(events, range(300)))
    frozen = out.copy()
    frozen.flags.writeable = False
    publisher = BOX.publisher(SEED)
    wrong: list[Any] = [out[:, :-1], out[:, ::-1], frozen, out.astype(np.int8), [1, 2]]
    for bad in wrong:
        with pytest.raises(ShapeError, match="out must be a writeable C-contiguous uint8 array"):
            publisher.encode(events, range(300), out=bad)
    publisher.encode(events, range(300), out=out)  # no round was used


# -- rounds, pairs, pads ------------------------------------------------------------------------


def test_rounds_can_be_provisioned_before_events_and_used_in_any_order() -> None:
    publisher, subscriber, events = BOX.publisher(SEED), BOX.subscriber(SEED), quotes(500, 5)
    provisioned = subscriber.encode("price < 300", range(10_000, 11_000))
    rounds = np.random.default_rng(6).permutation(1000)[:500]
    sent = publisher.encode(events, 10_000 + rounds)
    expected = QUOTES.parse("price < 300").evaluate(events)
    assert np.array_equal(BOX.broker().match(sent, provisioned[rounds]), expected)


@pytest.mark.parametrize("first", [0, 2**32 - 2, 2**64 - 4])
def test_rounds_may_be_as_large_as_64_bits(first: int) -> None:
    rounds = np.array([first + i for i in (2, 0, 3)], np.uint64)
    events = {"issue": ["IBM", "SAP", "TSM"], "price": [1, 2, 3], "volume": [0, 0, 0]}
    matcher = BranchingMatch(QUOTES, "issue <> :issue")
    sent = matcher.publisher(SEED).encode(events, rounds)
    wanted = matcher.subscriber(SEED).encode({"issue": "IBM"}, rounds)
    assert matcher.broker().match(sent, wanted).tolist() == [False, True, True]


@pytest.mark.parametrize("subject", ["OFSGP, A5, in segments"], indirect=True)
def test_rounds_of_several_segments_have_a_limit(subject: Subject) -> None:
    last = 2**64 // 3 - 1
    rounds = np.array([last, 0], np.uint64)
    sent = subject.role("publisher").encode({"x": [3, 4]}, rounds)
    wanted = subject.role("subscriber").encode("x > 3", rounds)
    assert subject.matcher.broker().match(sent, wanted).tolist() == [False, True]
    with pytest.raises(ParameterError, match=f"rounds must be below {last + 1} .* 3 pieces"):
        subject.role("publisher").encode({"x": [3]}, [last + 1])


@all_subjects
def test_publisher_serves_many_pairs_by_label(subject: Subject) -> None:
    labels, rounds = ["alice", "zoë"] * 8, [i // 2 for i in range(16)]
    xs = [x % 2**subject.matcher.schema.bits for x in range(16)]
    ring = SeedRing.of(SEED, ["alice", "zoë"])
    sent = subject.role("publisher").encode({"x": xs}, rounds, pairs=labels)
    ringed = subject.role("publisher", ring).encode({"x": xs}, rounds, pairs=labels)
    assert np.array_equal(ringed, sent)
    wanted = subject.role("subscriber", ring).encode(subject.interest, rounds, pairs=labels)
    together = subject.role("subscriber").encode(subject.interest, rounds, pairs=labels)
    assert np.array_equal(wanted, together)
    for place, label in enumerate(["alice", "zoë"]):
        alone = subject.role("subscriber", SEED.pair(label)).encode(subject.interest, range(8))
        assert np.array_equal(alone, wanted[place::2])
        found = subject.matcher.broker().match(sent[place::2], alone)
        assert found.tolist() == [subject.answer(x) for x in xs[place::2]]
    with pytest.raises(KeyMismatchError, match="'carol'"):
        subject.role("publisher", ring).encode({"x": [1]}, [9], pairs=["carol"])


def test_subscriptions_of_many_pairs_are_encoded_with_the_master_seed() -> None:
    texts, pairs = ["price < 3", "volume < 4", "price < 3"], ["a", "b", "a"]
    together = BOX.subscriber(SEED).encode(texts, [7, 7, 8], pairs=pairs)
    first = BOX.subscriber(SEED.pair("a")).encode("price < 3", [7, 8])
    assert np.array_equal(together[::2], first)
    other = BOX.subscriber(SEED.pair("b")).encode("volume < 4", [7])
    assert np.array_equal(together[1:2], other)


@all_subjects
def test_pad_serves_a_pair_from_end_to_end(subject: Subject) -> None:
    matcher, size = subject.matcher, subject.matcher.randomness_bytes
    secret = np.random.default_rng(8).integers(0, 256, 8 * size + size - 1, np.uint8).tobytes()
    publisher = subject.role("publisher", OneTimePad(secret))
    subscriber = subject.role("subscriber", OneTimePad(secret))
    for beyond in ([8], [0, 9], range(9)):
        said = f"round {max(beyond)} lies beyond the pad"
        said += "" if subject.parts > 1 else r".*rounds 0\.\.7"
        with pytest.raises(PadExhaustedError, match=said):
            subscriber.encode(subject.interest, beyond)
        with pytest.raises(PadExhaustedError, match=said):
            publisher.encode({"x": [1] * len(beyond)}, beyond)
    if hasattr(publisher, "encode_chunks"):
        with pytest.raises(PadExhaustedError):
            publisher.encode_chunks([{"x": 1}], 8)
    # A refused batch uses up no round.
    rounds = [7, 0, 3, 5, 1, 2, 4, 6]
    sent = publisher.encode({"x": range(8)}, rounds)
    wanted = subscriber.encode(subject.interest, rounds)
    assert matcher.broker().match(sent, wanted).tolist() == [subject.answer(x) for x in range(8)]


def test_pad_is_of_one_pair_and_one_matcher() -> None:
    pad = OneTimePad(bytes(10_000))
    with pytest.raises(ParameterError, match="belongs to one pair"):
        BOX.publisher(pad).encode(ROW, [0], pairs=["alice"])
    BOX.subscriber(pad).encode("price < 3", [0])
    with pytest.raises(RandomnessReuseError, match="already serves another matcher"):
        BranchingMatch(QUOTES, "price < :p").subscriber(pad).encode({"p": 3}, [5])
    schema = Schema(x=UInt(3))
    other = OneTimePad(np.random.default_rng(12).bytes(20_000))
    OFSGPMatch(schema, 1).subscriber(other).encode("TRUE", [0])
    with pytest.raises(RandomnessReuseError, match="already serves another matcher"):
        FSGPMatch(schema, 1).subscriber(other).encode("TRUE", [1])


def test_a_refused_batch_does_not_bind_a_pad() -> None:
    template, pad = BranchingMatch(QUOTES, TEMPLATE), OneTimePad(bytes(10 * BOX.randomness_bytes))
    with pytest.raises(RandomnessReuseError, match="more than once"):
        BOX.subscriber(pad).encode("price < 3", [0, 0])
    template.subscriber(pad).encode({"issue": "IBM", "price": 120}, [0])
    with pytest.raises(RandomnessReuseError, match="another matcher"):
        BOX.subscriber(pad).encode("price < 3", [0])


def test_message_is_a_header_and_the_formula_over_the_bytes_of_its_round() -> None:
    matcher = BranchingMatch.box(Schema(a=UInt(4)))
    width = matcher.randomness_bytes
    secret = np.random.default_rng(12).integers(0, 256, 3 * width, np.uint8)
    publisher, subscriber = (
        getattr(matcher, role)(OneTimePad(secret.tobytes())) for role in ("publisher", "subscriber")
    )
    body, tag = np.split(secret[2 * width :], [width - 7])
    event = np.array([[0, 1, 0, 1]], np.uint8)
    interest = np.array([[0, 0, 1, 1, 1, 0, 0, 1]], np.uint8)
    sent = publisher.encode({"a": [5]}, [2])
    wanted = subscriber.encode("a BETWEEN 3 AND 9", [2])
    for message, kind, expected in (
        (sent, 1, encode_event(matcher.program, event, body[None])),
        (wanted, 2, encode_interest(matcher.program, interest, body[None])),
    ):
        part = matcher.digest[:7] if kind == 1 else matcher.digest[7:14]
        check = bytes(a ^ b for a, b in zip(tag.tobytes(), part, strict=True))
        assert message.tobytes() == bytes([0x20 + kind]) + check + expected.tobytes()


def test_messages_of_a_round_share_a_tag_that_no_other_round_has() -> None:
    events = BOX.publisher(SEED).encode(quotes(200, 10), range(200))
    interests = BOX.subscriber(SEED).encode("price < 3", range(200))
    names = np.frombuffer(BOX.digest[:14], np.uint8).reshape(2, 7)
    tags = events[:, 1:8] ^ names[0]
    assert np.array_equal(tags, interests[:, 1:8] ^ names[1])
    assert len({tag.tobytes() for tag in tags}) == 200


def test_messages_of_different_rounds_look_unrelated() -> None:
    bodies = BOX.subscriber(SEED).encode("price < 3", range(400))[:, ROUND_HEADER_BYTES:]
    ones = np.unpackbits(bodies[:, :-1], axis=1).mean()
    assert abs(ones - 0.5) < 0.005
    assert len({body.tobytes() for body in bodies}) == 400


# -- a round is used once -----------------------------------------------------------------------


@both_roles
@some_subjects
def test_round_is_refused_the_second_time(subject: Subject, role: str) -> None:
    for first, second in product(subject.ways(role), repeat=2):
        ways = subject.ways(role)
        # Pieces use their round when they are asked for, not when they are read.
        ways[first]([4, 5])
        for rounds in ([6, 5], [5]) if second == "encode" else ([5],):
            with pytest.raises(RandomnessReuseError, match="round 5 was already used by this role"):
                ways[second](rounds)
        ways[second]([6])
        with pytest.raises(RandomnessReuseError, match="round 8 occurs more than once"):
            ways["encode"]([7, 8, 8])
        # A refused batch uses up no round.
        assert len(ways["encode"]([7, 8])) == 2


@both_roles
@some_subjects
def test_rounds_of_pairs_are_rounds_of_their_own(subject: Subject, role: str) -> None:
    encode = subject.ways(role)["encode"]
    encode([1], pairs=["b"])
    with pytest.raises(RandomnessReuseError, match="pair 'b': round 1"):
        encode([5, 1, 5], pairs=["a", "b", "c"])
    assert len(encode([5, 5, 1], pairs=["a", "c", "a"])) == 3
    assert len(encode([2, 2], pairs=["a", "b"])) == 2


@pytest.mark.parametrize(
    "events", [{**ROW, "volume": [-1]}, {**ROW, "price": ["x"]}, {"issue": ["IBM"], "price": [1]}]
)
def test_refused_event_uses_up_no_round(events: dict[str, list[Any]]) -> None:
    publisher = BOX.publisher(SEED)
    with pytest.raises(EventError):
        publisher.encode(events, [7])
    assert len(publisher.encode(ROW, [7])) == 1


@pytest.mark.parametrize(
    "interest",
    ["x <", "prise < 3", "x * 2 < 3", "hamming(x, 3) <= 2", Schema(x=UInt(6)).parse("x = 1")],
)
@some_subjects
def test_refused_predicate_uses_up_no_round(subject: Subject, interest: Any) -> None:
    subscriber = subject.role("subscriber")
    refused = [
        lambda: subscriber.encode(interest, [7]),
        lambda: subscriber.encode(["x > 3", interest], [8, 7]),
    ]
    if hasattr(subscriber, "encode_chunks"):
        refused.append(lambda: subscriber.encode_chunks(interest, 7))
    for encode in refused:
        with pytest.raises(CcbpsError):
            encode()
    assert len(subscriber.encode("x > 3", [7, 8])) == 2


def test_bad_predicate_among_many_is_refused_with_its_row() -> None:
    texts = ["price < 3", "price < 4", "prise < 5", "price < 3"]
    with pytest.raises(UnknownAttributeError, match="'prise'") as refusal:
        BOX.subscriber(SEED).encode(texts, range(4))
    assert any("row 2" in note for note in refusal.value.__notes__)


def test_threads_that_share_a_role_never_share_a_round() -> None:
    matcher, seed = BranchingMatch.box(Schema(x=UInt(8))), SharedSeed.generate()
    publisher, runs, size = matcher.publisher(seed), 40, 1500
    interests = matcher.subscriber(seed).encode("x < 100", np.arange(runs * size))
    xs, start = np.arange(runs * size) % 256, Barrier(4)

    def take_what_is_left(thread: int) -> list[int]:
        start.wait()
        won = []
        for run in np.random.default_rng(thread).permutation(runs).tolist():
            at = slice(run * size, (run + 1) * size)
            with contextlib.suppress(RandomnessReuseError):
                sent = publisher.encode({"x": xs[at]}, np.arange(at.start, at.stop))
                won.append(run)
                answers = matcher.broker().match(sent, interests[at])
                assert np.array_equal(answers, xs[at] < 100)
        return won

    with ThreadPoolExecutor(4) as pool:
        won = [run for part in pool.map(take_what_is_left, range(4)) for run in part]
    assert sorted(won) == list(range(runs))


@both_roles
@pytest.mark.parametrize(
    "subject", ["OFSGP, A5", "OFSGP, S5", "OFSGP, A5, in segments"], indirect=True
)
def test_round_without_enough_elements_gives_nothing_and_is_over(
    subject: Subject, role: str
) -> None:
    size, parts = subject.matcher.randomness_bytes, subject.parts
    secret = np.random.default_rng(11).integers(0, 256, (6, size), np.uint8)
    # The last segment of rounds 1 and 3 yields nothing.
    secret[1::2, -(size // parts) :] = 0 if subject.matcher.group is A5 else 255
    ways = subject.ways(role, OneTimePad(secret.tobytes()))
    with pytest.raises(SamplingError, match="give this round up and use another"):
        ways["encode"]([0, 1, 2])
    with pytest.raises(SamplingError):
        [*ways["pieces"]([3])[0]]
    for used in ([1], [3], [0]):
        with pytest.raises(RandomnessReuseError):
            ways["encode"](used)
    assert len(ways["encode"]([4])) == 1


# -- arguments that do not fit ------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        BranchingMatch.box,
        FormulaMatch.box,
        lambda schema: BranchingMatch(schema, "price < 3"),
        lambda schema: OFSGPMatch(schema, 2),
        lambda schema: UGPMatch(schema, 0),
        lambda schema: PublicFunctionMatch(schema, None, None),
    ],
)
def test_a_schema_that_is_none_is_refused(make: Callable[[Any], object]) -> None:
    with pytest.raises(ParameterError, match=r"schema must be a ccbps.Schema, got dict; make one"):
        make({"price": 8})


@pytest.mark.parametrize(
    ("events", "attribute", "row", "message"),
    [
        ({**rows_of(3), "volume": [0, 2**20, 0]}, "volume", 1, "out of range"),
        ({**rows_of(3), "volume": [0, 1, -1]}, "volume", 2, "out of range"),
        ({**rows_of(3), "issue": ["IBM", "IBM", "??"]}, "issue", 2, "issue"),
        ({**rows_of(3), "price": [1, None, 1]}, "price", 1, "missing"),
        ({**rows_of(3), "price": ["a", "b", "c"]}, "price", 0, "not a number|wrong type"),
        ({"issue": ["IBM"], "price": [1]}, "volume", None, "'volume' is missing"),
        ({**rows_of(3), "price": [1]}, "price", None, "has 1 values"),
        (Schema(price=UInt(4)).encode({"price": [3]}), None, None, "another schema"),
    ],
)
def test_bad_event_is_refused_with_attribute_and_row(
    events: Any, attribute: str | None, row: int | None, message: str
) -> None:
    with pytest.raises(EventError, match=message) as refusal:
        BOX.publisher(SEED).encode(events, range(3))
    assert (refusal.value.attribute, refusal.value.row) == (attribute, row)


@pytest.mark.parametrize(
    ("rounds", "message"),
    [
        ([0.0, 1.0], "whole numbers"),
        ([True, False], "whole numbers"),
        (["0", "1"], "whole numbers"),
        ([0, -1], "must not be negative"),
        ([0, 2**64], "whole numbers"),
        ([[0, 1], [2, 3]], "whole numbers"),
        (7, "whole numbers"),
        (None, "needs rounds"),
        ([0], "2 rows need 2 rounds, got 1"),
        ([0, 1, 2], "2 rows need 2 rounds, got 3"),
    ],
)
@both_roles
def test_bad_rounds_are_refused(role: str, rounds: Any, message: str) -> None:
    data = rows_of(2) if role == "publisher" else ["price < 3"] * 2
    if role == "subscriber":
        message = message.replace("2 rows need 2 rounds", "2 interests need as many rounds")
    with pytest.raises(ParameterError, match=message):
        getattr(BOX, role)(SEED).encode(data, rounds)


@pytest.mark.parametrize("pairs", [["a"], ["a", "b", "c"], "ab", "alice", 5, [[1]], [None], [1, 2]])
@both_roles
def test_pair_labels_must_be_as_many_as_rows(role: str, pairs: Any) -> None:
    data = rows_of(2) if role == "publisher" else "price < 3"
    with pytest.raises(
        ParameterError, match=r"pair labels|pairs must be 2 labels|strings|each row must be a str"
    ):
        getattr(BOX, role)(SEED).encode(data, [0, 1], pairs=pairs)


@pytest.mark.parametrize("seed", [None, bytes(32), "ccbps-seed-1:" + "00" * 32, np.zeros(32)])
@both_roles
def test_seed_must_be_a_source_of_randomness(role: str, seed: Any) -> None:
    wanted = "seed must be a SharedSeed, a SeedRing or a OneTimePad, got"
    with pytest.raises(ParameterError, match=wanted):
        getattr(BOX, role)(seed)


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.deepcopy, copy.copy])
@both_roles
@some_subjects
def test_role_with_a_seed_is_not_copied_and_does_not_show_it(
    subject: Subject, role: str, duplicate: Callable[[Any], object]
) -> None:
    holder = subject.role(role)
    with pytest.raises(SerializationError, match="must not be pickled"):
        duplicate(holder)
    assert role.capitalize() in repr(holder)
    assert SEED.export_secret().hex()[:8] not in repr(holder)


# -- messages that do not belong together -------------------------------------------------------

LENGTH = 40
BOTH = Circuit(5, (Gate(Op.AND, 3, 4),), (5,))


class Exchange:
    """Messages of `LENGTH` rounds, all of them matches; some bits are not used.

    Attributes:
        other: a matcher with messages of the same sizes.
    """

    def __init__(self, kind: str) -> None:
        self.event: dict[str, Any] = {"x": 3, "y": 3}
        self.interest: Any = BOTH
        if kind == "branching":
            self.event, self.interest = {"x": 3, "y": 3}, {"p": 7, "q": 1}
            schema = Schema(x=UInt(9), y=UInt(9))
            self.matcher: Any = BranchingMatch(schema, "x < :p AND y > :q")
            self.other: Any = BranchingMatch(schema, "x < :p AND y >= :q")
        else:
            self.matcher = OFSGPMatch(Schema(x=UInt(5)), 1, group=kind)
            self.other = OFSGPMatch(Schema(y=UInt(5)), 1, group=kind)
        self.events: Bytes = self.send(self.matcher, range(LENGTH))
        self.interests: Bytes = self.matcher.subscriber(SEED).encode(self.interest, range(LENGTH))
        self.broker = self.matcher.broker()

    def send(self, matcher: Any, rounds: Any) -> Any:
        event = {name: [self.event[name]] * len(rounds) for name in matcher.schema}
        return matcher.publisher(SEED).encode(event, rounds)


def flipped(side: str, byte: int, bit: int = 0) -> Callable[[Exchange, int], None]:
    def spoil(e: Exchange, row: int) -> None:
        getattr(e, side)[row, byte] ^= np.uint8(1 << bit)

    return spoil


def other_seed(e: Exchange, row: int) -> None:
    subscriber = e.matcher.subscriber(SharedSeed(bytes(32)))
    e.interests[row] = subscriber.encode(e.interest, [row])[0]


def other_matcher(e: Exchange, row: int) -> None:
    e.events[row] = e.send(e.other, [row])[0]


def other_round(e: Exchange, row: int) -> None:
    e.events[row] = e.events[row + 1]


def swapped(e: Exchange, row: int) -> None:
    e.events[row], e.interests[row] = e.interests[row].copy(), e.events[row].copy()


def other_end(e: Exchange, row: int) -> None:
    e.interests[row, -8:] = e.interests[row + 1, -8:]


def no_elements(e: Exchange, row: int) -> None:
    e.events[row, 20:26] = 255
    if e.matcher.group is A5:  # the first rows of all matrices zero
        e.events[row, ROUND_HEADER_BYTES:] = 0


def other_header(e: Exchange, row: int) -> None:
    """A broken header is the cause, whatever else is broken."""
    no_elements(e, row)
    e.events[row, 7] ^= 1


def padded(e: Exchange, row: int) -> None:
    for side in (e.events, e.interests):
        side[row, -1] |= 0x80


Spoiled = dict[str, tuple[Callable[[Exchange, int], None], Cause]]

COMMON: Spoiled = {
    "event kind": (flipped("events", 0, 1), Cause.EVENT_KIND),
    "interest kind": (flipped("interests", 0), Cause.INTEREST_KIND),
    "event version": (flipped("events", 0, 4), Cause.EVENT_KIND),
    "interest version": (flipped("interests", 0, 7), Cause.INTEREST_KIND),
    "event check": (flipped("events", 1), Cause.PAIRING),
    "interest check": (flipped("interests", 7, 7), Cause.PAIRING),
    "another round": (other_round, Cause.PAIRING),
    "another seed": (other_seed, Cause.PAIRING),
    "another matcher": (other_matcher, Cause.PAIRING),
}
OF_PROGRAMS: Spoiled = {
    **COMMON,
    "swapped": (swapped, Cause.SWAPPED),
    "event padding": (flipped("events", -1, 7), Cause.PADDING),
    "interest padding": (flipped("interests", -1, 7), Cause.PADDING),
    "padding of both": (padded, Cause.PADDING),
}
OF_ELEMENTS: Spoiled = {
    **COMMON,
    "no elements": (no_elements, Cause.ELEMENT),
    "no elements, other header": (other_header, Cause.PAIRING),
    "no trailer": (flipped("interests", -8, 7), Cause.PRODUCT),
    "other end": (flipped("interests", -1, 7), Cause.SEGMENT),
    "end of another round": (other_end, Cause.SEGMENT),
}
KINDS: dict[str, Spoiled] = {"branching": OF_PROGRAMS, "A5": OF_ELEMENTS, "S5": OF_ELEMENTS}
every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, spoiled in KINDS.items() for name in spoiled]
)
def test_single_rows_are_refused_for_their_cause(kind: str, name: str) -> None:
    exchange, (spoil, cause) = Exchange(kind), KINDS[kind][name]
    assert exchange.broker.match(exchange.events, exchange.interests).all()
    for row in (0, 17, LENGTH - 2):
        spoil(exchange, row)
    answers, causes = exchange.broker.examine(exchange.events, exchange.interests)
    refused = np.isin(np.arange(LENGTH), [0, 17, LENGTH - 2])
    assert causes.tolist() == np.where(refused, cause, 0).tolist()
    assert answers.tolist() == (~refused).tolist()
    with pytest.raises(DecodeError, match=f"row 0: {cause.text}") as refusal:
        exchange.broker.match(exchange.events, exchange.interests)
    assert refusal.value.rows == (0, 17, LENGTH - 2)
    assert refusal.value.causes == (cause.text,) * 3


@every_kind
def test_causes_are_told_apart_in_one_batch(kind: str) -> None:
    exchange, expected = Exchange(kind), np.zeros(LENGTH, np.uint8)
    for row, (spoil, cause) in enumerate(KINDS[kind].values()):
        spoil(exchange, 2 * row)
        expected[2 * row] = cause
    answers, causes = exchange.broker.examine(exchange.events, exchange.interests)
    assert causes.tolist() == expected.tolist()
    assert answers.tolist() == (expected == 0).tolist()


@pytest.mark.parametrize("cut", [False, True], ids=["one segment", "several segments"])
@every_kind
def test_match_reads_rows_in_any_memory_order(
    monkeypatch: pytest.MonkeyPatch, kind: str, cut: bool
) -> None:
    if cut:
        several_segments(monkeypatch)
    exchange = Exchange(kind)
    exchange.interests[5] = exchange.interests[6]
    wide = np.zeros((LENGTH, exchange.events.shape[1] + 3), np.uint8)
    wide[:, 3:] = exchange.events
    for order in (np.asfortranarray, lambda m: np.repeat(m, 2, axis=0)[::2], lambda m: m[:, :]):
        for events in (order(exchange.events), wide[:, 3:]):
            answers, causes = exchange.broker.examine(events, order(exchange.interests))
            assert np.flatnonzero(causes).tolist() == [5]
            assert np.flatnonzero(~answers).tolist() == [5]


CUTS: dict[str, tuple[Callable[[Bytes, Bytes], tuple[Any, Any]], str]] = {
    "narrow event": (lambda e, i: (e[:, :-1], i), "events must be uint8 messages of"),
    "narrow interest": (lambda e, i: (e, i[:, :-8]), "interests must be uint8 messages of"),
    "wide": (lambda e, i: (e, np.hstack([i, i[:, :1]])), "interests must be uint8 messages of"),
    "dtype": (lambda e, i: (e.astype(np.int16), i), "events must be uint8 messages of"),
    "one row": (lambda e, i: (e[0], i[0]), "events must be uint8 messages of"),
    "length": (
        lambda e, i: (e, i[:-1]), f"{LENGTH} events do not pair with {LENGTH - 1} interests"
    ),
    "bytes": (lambda e, i: ([m.tobytes() for m in e], i), "events must be uint8 messages of"),
}  # fmt: skip


@pytest.mark.parametrize("method", ["match", "examine"])
@pytest.mark.parametrize("name", CUTS)
@every_kind
def test_broker_refuses_arrays_that_are_not_messages(kind: str, name: str, method: str) -> None:
    exchange, (cut, message) = Exchange(kind), CUTS[name]
    with pytest.raises(DecodeError, match=message):
        getattr(exchange.broker, method)(*cut(exchange.events, exchange.interests))
