"""Roles on Arrow columns, as Spark's workers run them: NULLs, what is set aside, what is named."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ccbps import Category, Decimal, EpochSeed, Int, Schema, SeedRing, SharedSeed, UInt
from ccbps.columnar import all_pairs
from ccbps.columnar.all_pairs import AllPairs, _unpacked, blocks
from ccbps.columnar.encoding import event_messages, interest_messages
from ccbps.columnar.pairs import RoundEvents, examine_rows, with_repeated
from ccbps.errors import (
    DecodeError,
    EventError,
    KeyMismatchError,
    ParameterError,
    PredicateError,
    ShapeError,
)
from ccbps.filters import ContentFilter, FilterKey
from ccbps.keys import sources
from ccbps.keys.sources import FileKey, master
from ccbps.matching import BroadcastMatch, FormulaMatch, KeywordMatch, TagMatch
from ccbps.matching.broken import AdditiveMaskMatch
from ccbps.matching.contract.matcher import Matcher
from ccbps.wire import Cause

SCHEMA = Schema(
    issue=Category(["AAPL", "GOOG", "IBM"]),
    price=Decimal(0, "655.35", step="0.01"),
    volume=UInt(20, nullable=True),
)
BOX = FormulaMatch.box(SCHEMA)
BROADCAST = BroadcastMatch.box(SCHEMA)
MASKS = AdditiveMaskMatch(SCHEMA)
IDS = ["subscription", "round"]
SERVER = MASKS.key_server()
Roles = dict[str, FileKey]
Sides = tuple[pa.Array, pa.Array, pa.Array, list[tuple[object, ...]]]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Roles:
    """Seeds, and the three parties' role keys, in files."""
    folder, found = tmp_path_factory.mktemp("keys"), {}
    for name, text in {
        "seeds": SharedSeed.generate().to_text(),
        "other seeds": SharedSeed.generate().to_text(),
        "publisher": SERVER.publisher_key().to_text(),
        "subscriber": SERVER.subscriber_key("alice").to_text(),
        "broker": SERVER.broker_key().to_text(),
        "another broker": MASKS.key_server().broker_key().to_text(),
    }.items():
        (folder / name).write_text(text)
        found[name] = FileKey(folder / name)
    return found


def rows(*columns: object) -> pa.StructArray:
    """Columns as Spark hands them over: one, whose fields are found by position."""
    arrays = [c if isinstance(c, pa.Array) else pa.array(c) for c in columns]
    return pa.StructArray.from_arrays(arrays, names=[str(i) for i in range(len(arrays))])


def quotes(count: int = 6) -> list[object]:
    return [
        [["IBM", "AAPL", "GOOG"][i % 3] for i in range(count)],
        [100.25 * i % 650 for i in range(count)],
        pa.array([None if i == 1 else 10**5 * i for i in range(count)], pa.int64()),
    ]


def events_of(matcher: Matcher, keys: Roles, *columns: object, reject: bool = False) -> pa.Array:
    ids, key = (IDS, "seeds") if matcher is BOX else ([], "publisher")
    return event_messages(matcher, keys[key], rows(*columns), ids, reject=reject)


def interests_of(matcher: Matcher, keys: Roles, *columns: object, reject: bool = False) -> pa.Array:
    ids, key = (IDS, "seeds") if matcher is BOX else (IDS[:1], "subscriber")
    return interest_messages(matcher, keys[key], rows(*columns), ids, reject=reject)


def test_messages_of_rounds_are_the_roles_own_whatever_the_order(keys: Roles) -> None:
    labels, rounds = ["b", "a", None, "b", "a", "a"], pa.array([7, 3, 1, 2, None, 2])
    found = events_of(BOX, keys, labels, rounds, *quotes()).to_pylist()
    assert [message is None for message in found] == [False, False, True, False, True, False]
    seed = keys["seeds"].load()
    for place in (0, 1, 3, 5):
        columns = zip(SCHEMA, quotes(), strict=True)
        record = {n: c[place].as_py() if n == "volume" else c[place] for n, c in columns}  # type: ignore[index]
        number = rounds[place].as_py()
        own = BOX.publisher(seed).encode([record], [number], pairs=[str(labels[place])])
        assert found[place] == own.tobytes()
    texts = ["price < 3", "volume IS NULL", "price < 3", None, "price < 3", "price > 9"]
    wanted = interests_of(BOX, keys, labels, rounds, texts).to_pylist()
    assert [message is None for message in wanted] == [False, False, True, True, True, False]
    for place in (0, 1, 5):
        own = BOX.subscriber(seed).encode(
            texts[place], [rounds[place].as_py()], pairs=[labels[place]]
        )
        assert wanted[place] == own.tobytes()
    # Made again, they are the same; and pairs and rounds that were used are used again.
    assert events_of(BOX, keys, labels, rounds, *quotes()).to_pylist() == found


@pytest.mark.parametrize("matcher", [BOX, MASKS], ids=["rounds", "server"])
def test_answers_row_by_row_equal_the_plaintext(matcher: Matcher, keys: Roles) -> None:
    count = 9
    text = "issue = 'IBM' AND price < 500"
    public = (["s"] * count, list(range(count)))
    events = events_of(matcher, keys, *(public if matcher is BOX else ()), *quotes(count))
    chosen = public if matcher is BOX else public[:1]
    interests = interests_of(matcher, keys, *chosen, [text] * count)
    broker = None if matcher is BOX else keys["broker"]
    table = pa.table(dict(zip(SCHEMA, quotes(count), strict=True)))
    answers, valid, causes = examine_rows(matcher, broker, events, interests)
    assert answers.tolist() == SCHEMA.parse(text).evaluate(table).tolist()
    assert valid.all()
    assert not causes.any()
    # NULL is no answer and no fault; another width is a fault of its own row.
    mixed = pa.array([None, b"short", *events.to_pylist()[2:]], pa.binary())
    found, valid, causes = examine_rows(matcher, broker, mixed, interests)
    assert valid.tolist() == [False] + [True] * (count - 1)
    assert causes.tolist() == [Cause.NONE, Cause.EVENT_WIDTH] + [Cause.NONE] * (count - 2)
    assert found[2:].tolist() == answers[2:].tolist()
    short = pa.array([None, *interests.to_pylist()[1:-1], b"x"], pa.binary())
    assert examine_rows(matcher, broker, events, short)[2].tolist() == [
        *[Cause.NONE] * (count - 1),
        Cause.INTEREST_WIDTH,
    ]


def test_messages_under_another_seed_are_refused(keys: Roles) -> None:
    row = rows(["s"], [1], ["IBM"], [1.0], [1])
    events = event_messages(BOX, keys["other seeds"], row, IDS)
    interests = interests_of(BOX, keys, ["s"], [1], ["price < 3"])
    assert examine_rows(BOX, None, events, interests)[2].tolist() == [Cause.PAIRING]


BAD = [
    ["IBM", "IBM", "GOOG", "GOOG", "SECRET", "AAPL"],
    pa.array([1.0, 31415.25, 2.345678, None, 5.0, 6.0]),
    [1, 2, 3, 4, 5, 6],
]


@pytest.mark.parametrize("matcher", [BOX, MASKS], ids=["rounds", "server"])
def test_records_that_cannot_be_encoded_are_set_aside(matcher: Matcher, keys: Roles) -> None:
    labels = pa.array(["s"] * 5 + [None])
    public = (labels, list(range(6))) if matcher is BOX else ()
    found = events_of(matcher, keys, *public, *BAD, reject=True)
    messages, reasons = (part.to_pylist() for part in found.flatten())
    assert reasons[0] is None
    assert reasons[5] == (None if matcher is MASKS else "column 'subscription' is NULL")
    assert "attribute 'price': out of range; expected a number 0..655.35" in reasons[1]
    assert "attribute 'price': not a multiple of step" in reasons[2]
    assert "attribute 'price': the value is missing" in reasons[3]
    assert "attribute 'issue'" in reasons[4]
    assert not any(value in "".join(filter(None, reasons)) for value in ("31415", "345", "SECRET"))
    sent = [True, False, False, False, False, matcher is MASKS]
    assert [message is not None for message in messages] == sent
    whole = (labels.slice(0, 1), [0]) if matcher is BOX else ()
    alone = events_of(matcher, keys, *whole, *(column[:1] for column in BAD))
    assert messages[0] == alone[0].as_py()
    named = r"subscription='s', round=\d: " if matcher is BOX else ""
    with pytest.raises(EventError, match=f"^{named}attribute '") as failure:
        events_of(matcher, keys, *public, *BAD)
    assert not any(value in str(failure.value) for value in ("31415", "345", "SECRET"))
    # Nothing that a row could help.
    with pytest.raises(EventError, match="wrong type"):
        events_of(matcher, keys, *public, [5] * 6, *BAD[1:], reject=True)


def test_only_what_is_public_must_not_be_negative(tmp_path: Path) -> None:
    seed = SharedSeed.generate()
    matcher = FormulaMatch(Schema(t=Int(16)), "t >= :low")
    (tmp_path / "key").write_text(seed.to_text())
    row = rows(["s", "s"], [1, -2], [-5, 5])
    made = interest_messages(matcher, FileKey(tmp_path / "key"), row, IDS, reject=True)
    messages, reasons = (part.to_pylist() for part in made.flatten())
    assert messages[0] == matcher.subscriber(seed).encode([{"low": -5}], [1], pairs=["s"]).tobytes()
    assert reasons == [None, "column 'round' is negative"]


def test_pairs_that_a_key_does_not_know_are_set_aside(tmp_path: Path) -> None:
    """But not those of a broadcast, where a label is only a name."""
    seed = EpochSeed.start(SharedSeed.generate(), ["s"]).step()
    row = rows(["s", "zz"], [1, 1], ["price < 3"] * 2)
    for name, key in (("epoch", seed), ("ring", SeedRing({"s": seed.pair("s")}))):
        (tmp_path / name).write_text(key.to_text())
        made = interest_messages(BOX, FileKey(tmp_path / name), row, IDS, reject=True)
        messages, reasons = (part.to_pylist() for part in made.flatten())
        assert [message is not None for message in messages] == [True, False]
        why = "column 'subscription' is of a pair for which the key has no seed"
        assert reasons == [None, why]
    made = interest_messages(BROADCAST, FileKey(tmp_path / "epoch"), row, IDS, reject=True)
    assert made.field("rejected").to_pylist() == [None, None]


@pytest.mark.parametrize("matcher", [BOX, MASKS], ids=["rounds", "server"])
def test_predicates_that_cannot_be_encoded_are_set_aside(matcher: Matcher, keys: Roles) -> None:
    texts = ["price < 3", "pryce < 31415", None, "price < 'SECRET'", "issue = 'IBM' OR price < 5"]
    labels, numbers = [f"s{i % 5}" for i in range(10)], [1 - i // 5 for i in range(10)]
    public = (labels, numbers) if matcher is BOX else (labels,)
    found = interests_of(matcher, keys, *public, texts * 2, reject=True)
    messages, reasons = (part.to_pylist() for part in found.flatten())
    for place, name in enumerate(labels):
        assert (messages[place] is None) == (name != "s0")
        assert (reasons[place] is None) == (name == "s0")
        assert (reasons[place] == "the predicate is NULL") == (name == "s2")
        assert not any(word in (reasons[place] or "") for word in ("pryce", "31415", "SECRET"))
    assert "unknown attribute" in reasons[6]
    good = (["s0", "s0"], [1, 0]) if matcher is BOX else (["s0", "s0"],)
    own = interests_of(matcher, keys, *good, ["price < 3"] * 2).to_pylist()
    assert [messages[0], messages[5]] == own
    named = r"s\d', round=\d" if matcher is BOX else r"s1'"
    with pytest.raises(PredicateError, match=rf"^subscription='{named}: "):
        interests_of(matcher, keys, *public, texts * 2)


@pytest.mark.parametrize(
    ("predicate", "reason"),
    [
        ("pryce < 31415", "the closest is 'price'"),
        ("issue = IBMSECRET", "unknown attribute; the schema has issue, price, volume"),
        ('issue = "IBMSECRET"', "strings are written in single quotes"),
        ("issue IN (IBMSECRET, 'IBM')", "unknown attribute"),
        ("IBMSECRET(price) < 3", "an operator or function is not supported"),
        ("price IN (SELECT price FROM IBMSECRET(7))", "not (one condition|supported)"),
        ("price |> IBMSECRET", "not one condition in SQL"),
        ("price IN (SELECT 1 |> IBMSECRET)", "not one condition in SQL"),
        ("price < :IBMSECRET", "private constants"),
    ],
)
def test_words_of_a_bad_predicate_stay_private(keys: Roles, predicate: str, reason: str) -> None:
    # In an order that is not that of rounds.
    columns = (["s1", "s0", "s0"], [2, 9, 3], ["price < 3", predicate, "price < 3"])
    with pytest.raises(PredicateError, match=reason) as failure:
        interests_of(BOX, keys, *columns)
    assert str(failure.value).startswith("subscription='s0', round=9: ")
    assert not any(word in str(failure.value) for word in ("IBMSECRET", "31415", "pryce"))


def test_private_constants_come_from_columns(keys: Roles) -> None:
    template = FormulaMatch(SCHEMA, "price BETWEEN :low AND :high")
    columns = (["a", "b", "a"], [1, 1, 2], [1.0, 2.5, 1.0], [9.5, 9.5, None])
    found = interest_messages(template, keys["seeds"], rows(*columns), IDS).to_pylist()
    subscriber = template.subscriber(keys["seeds"].load())
    values = [{"low": 1.0, "high": 9.5}, {"low": 2.5, "high": 9.5}]
    own = subscriber.encode(values, [1, 1], pairs=["a", "b"])
    assert found == [own[0].tobytes(), own[1].tobytes(), None]
    wrong = rows(["a"], [1], ["SECRET"], [3.0])
    with pytest.raises(PredicateError, match=r"^subscription='a', round=1: ") as failure:
        interest_messages(template, keys["seeds"], wrong, IDS)
    assert "SECRET" not in str(failure.value)
    aside = interest_messages(template, keys["seeds"], wrong, IDS, reject=True)[0].as_py()
    assert aside["message"] is None
    assert "private constant" in aside["rejected"]
    assert "SECRET" not in aside["rejected"]


def test_empty_batches(keys: Roles) -> None:
    none = (pa.array([], pa.string()), pa.array([], pa.int64()))
    quotes_ = (none[0], pa.array([], pa.float64()), none[1])
    for reject in (False, True):
        assert len(events_of(BOX, keys, *none, *quotes_, reject=reject)) == 0
        assert len(interests_of(BOX, keys, *none, none[0], reject=reject)) == 0
        assert len(events_of(MASKS, keys, *quotes_, reject=reject)) == 0
        assert len(interests_of(MASKS, keys, none[0], none[0], reject=reject)) == 0


def test_too_many_wide_messages_are_refused_before_they_are_made(
    keys: Roles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(MASKS), "event_bytes", property(lambda self: 1 << 30))
    with pytest.raises(ShapeError, match=r"spark\.sql\.execution\.arrow\.maxRecordsPerBatch"):
        events_of(MASKS, keys, *quotes())


def test_keys_of_another_kind_role_or_master_are_refused(keys: Roles) -> None:
    row = rows(*quotes())
    with pytest.raises(KeyMismatchError, match="holds seeds"):
        event_messages(MASKS, keys["seeds"], row, [])
    with pytest.raises(KeyMismatchError, match="the key of a subscriber, wanted a publisher's"):
        event_messages(MASKS, keys["subscriber"], row, [])
    with pytest.raises(KeyMismatchError, match="this needs seeds"):
        event_messages(BOX, keys["publisher"], rows(["s"] * 6, range(6), *quotes()), IDS)
    events, labels = events_of(MASKS, keys, *quotes()), pa.array(["s"])
    interests = interests_of(MASKS, keys, labels, ["price < 3"])
    for name, error, problem in (
        ("seeds", KeyMismatchError, "holds seeds"),
        ("publisher", KeyMismatchError, "the key of a publisher, wanted a broker's"),
        ("another broker", DecodeError, "made under another master key"),
    ):
        with pytest.raises(error, match=problem):
            matches(broker(keys, name), labels, interests, events)


# -- all pairs ------------------------------------------------------------------------------------


def broker(keys: Roles, name: str = "broker", on_error: str = "raise") -> AllPairs:
    return AllPairs(MASKS, keys[name], "subscription", "m", ("event",), on_error)


def batch_of(events: pa.Array) -> pa.RecordBatch:
    return pa.record_batch({"event": pa.array(range(len(events))), "m": events})


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def matches(
    broker: AllPairs, labels: pa.Array, interests: pa.Array, events: pa.Array
) -> list[tuple[object, ...]]:
    served = broker.interests(labels, interests)
    return sorted(rows_of(broker.matches(*served, [batch_of(events)])))


TEXTS = ["issue = 'IBM'", "price < 300 AND issue = 'AAPL'", "price BETWEEN 5 AND 400"]


@pytest.fixture(scope="module")
def sides(keys: Roles) -> Sides:
    """Labels and messages of interests, messages of events, and what matches."""
    labels = pa.array([f"s{i}" for i in range(len(TEXTS))])
    table = pa.table(dict(zip(SCHEMA, quotes(7), strict=True)))
    wanted: list[tuple[object, ...]] = sorted(
        (f"s{i}", int(n))
        for i, text in enumerate(TEXTS)
        for n in np.flatnonzero(SCHEMA.parse(text).evaluate(table))
    )
    events = events_of(MASKS, keys, *quotes(7))
    return labels, interests_of(MASKS, keys, labels, TEXTS), events, wanted


def test_all_pairs_a_few_events_at_a_time(
    sides: Sides, keys: Roles, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels, interests, events, wanted = sides
    assert matches(pickle.loads(pickle.dumps(broker(keys))), labels, interests, events) == wanted
    monkeypatch.setattr(all_pairs, "MATCH_CELLS", len(TEXTS))
    whole = broker(keys)
    parts = list(whole.matches(*whole.interests(labels, interests), [batch_of(events)]))
    assert len(parts) == 7
    assert sorted(rows_of(parts)) == wanted


def test_all_pairs_in_blocks(sides: Sides, keys: Roles) -> None:
    labels, interests, events, wanted = sides
    wishes = pa.record_batch({"subscription": labels, "m": interests})
    packed = [list(blocks([side], side.nbytes // 2)) for side in (batch_of(events), wishes)]
    assert [len(parts) > 1 for parts in packed] == [True, True]
    crossed = [
        pa.record_batch({"block": e.column(0), "interests": i.column(0)})
        for e in packed[0]
        for i in packed[1]
    ]
    assert sorted(rows_of(broker(keys).block_matches(crossed))) == wanted


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda m: b"short", "the {} message has the wrong number of bytes"),
        (lambda m: bytes(len(m)), "are not an {} message of this version"),
        (lambda m: m[:16] + b"\xff" * (len(m) - 16), "the message was altered on its way"),
    ],
)
def test_malformed_messages_are_named_or_match_nothing(
    sides: Sides, keys: Roles, change: Callable[[bytes], bytes], problem: str
) -> None:
    labels, interests, events, wanted = sides
    wrong = [change(m) if i == 1 else m for i, m in enumerate(interests.to_pylist())]
    bad = pa.array(wrong, pa.binary())
    with pytest.raises(DecodeError, match="^subscription='s1': .*" + problem.format("interest")):
        matches(broker(keys), labels, bad, events)
    kept = matches(broker(keys, on_error="drop"), labels, bad, events)
    assert kept == [pair for pair in wanted if pair[0] != "s1"]
    rejecting = broker(keys, on_error="reject")
    refused = rejecting.rejected([pa.record_batch({"subscription": labels, "m": bad})])
    ((label, why),) = rows_of(refused)
    assert label == "s1" and problem.format("interest").removeprefix("are ") in str(why)
    wrong = [change(m) if i == 3 else m for i, m in enumerate(events.to_pylist())]
    bad = pa.array([*wrong[:4], None, *wrong[5:]], pa.binary())
    with pytest.raises(DecodeError, match="^event=3: .*" + problem.format("event")):
        matches(broker(keys), labels, interests, bad)
    kept = matches(broker(keys, on_error="drop"), labels, interests, bad)
    assert kept == [pair for pair in wanted if pair[1] not in (3, 4)]
    served = rejecting.interests(labels, interests)
    rows = rows_of(rejecting.matches(*served, [batch_of(bad)]))
    ((nobody, event, why),) = (row for row in rows if row[2] is not None)
    assert (nobody, event) == (None, 3) and problem.format("event").removeprefix("are ") in str(why)
    assert sorted(row[:2] for row in rows if row[2] is None) == kept


def test_messages_of_a_revoked_user_match_nothing_and_are_no_fault(tmp_path: Path) -> None:
    matcher = KeywordMatch(Schema(word=Category(["a", "b"])), group="toy64")
    server = matcher.key_server()
    sent = matcher.publisher(server.publisher_key("feed")).encode([{"word": "a"}] * 2)
    users = [matcher.subscriber(server.subscriber_key(name)) for name in ("alice", "bob")]
    rows = np.concatenate([user.encode("word = 'a'") for user in users])
    server.revoke("subscriber", "alice")
    (tmp_path / "broker").write_text(server.broker_key().to_text())
    key = FileKey(tmp_path / "broker")
    events, interests = (pa.array(list(map(bytes, side))) for side in (sent, rows))
    answers, valid, causes = examine_rows(matcher, key, events, interests)
    assert (answers.tolist(), valid.all(), causes.any()) == ([False, True], True, False)
    for on_error in ("raise", "reject"):
        every = AllPairs(matcher, key, "subscription", "m", ("event",), on_error)
        labels = pa.array(["alice", "bob"])
        assert [row[:2] for row in matches(every, labels, interests, events)] == [
            ("bob", 0),
            ("bob", 1),
        ]
        (refused,) = every.rejected([pa.record_batch({"subscription": labels, "m": interests})])
        assert refused.num_rows == 0


def test_messages_are_binary_columns(keys: Roles) -> None:
    interests = interests_of(BOX, keys, ["s"], [1], ["price < 3"])
    with pytest.raises(ParameterError, match="messages must be a binary column, got int64"):
        examine_rows(BOX, None, pa.array([5]), interests)


def test_subscribers_use_a_ring_of_their_own_seeds(keys: Roles, tmp_path: Path) -> None:
    columns = (["a", "b", "a"], [1, 1, 2], ["price < 3"] * 3)
    seed, ring = keys["seeds"].load(), FileKey(tmp_path / "ring")
    assert isinstance(seed, SharedSeed)
    (tmp_path / "ring").write_text(SeedRing.of(seed, ["a", "b"]).to_text())
    found = interest_messages(BOX, ring, rows(*columns), IDS)
    assert found == interests_of(BOX, keys, *columns)
    (tmp_path / "ring").write_text(SeedRing.of(seed, ["a"]).to_text())
    with pytest.raises(KeyMismatchError, match="no seed for pair 'b'"):
        interest_messages(BOX, ring, rows(*columns), IDS)
    with pytest.raises(KeyMismatchError, match="needs the master seed"):
        master(ring)


def test_epochs_match_while_both_sides_are_in_the_same(tmp_path: Path) -> None:
    epochs, ring = EpochSeed.generate(), None
    publisher, subscriber = FileKey(tmp_path / "publisher"), FileKey(tmp_path / "subscriber")
    event, wish = rows(["s"], [1], ["IBM"], [1.0], [1]), rows(["s"], [1], ["price < 3"])
    for _ in range(2):
        ring = SeedRing.of(epochs, ["s"]) if ring is None else ring.step()
        (tmp_path / "publisher").write_text(epochs.to_text())
        (tmp_path / "subscriber").write_text(ring.to_text())
        assert len({id(publisher.load()), id(publisher.load())}) == 1
        # The last epoch's seed is no longer there.
        assert sum(str(tmp_path / "publisher") in place for place in sources._parsed) == 1
        events = event_messages(BOX, publisher, event, IDS)
        interests = interest_messages(BOX, subscriber, wish, IDS)
        assert examine_rows(BOX, None, events, interests)[0].tolist() == [True]
        epochs = epochs.step()
    (tmp_path / "publisher").write_text(epochs.to_text())  # the subscribers are an epoch behind
    events = event_messages(BOX, publisher, event, IDS)
    assert examine_rows(BOX, None, events, interests)[2].tolist() == [Cause.PAIRING]


def test_a_replaced_key_file_is_read_for_the_next_batch(tmp_path: Path) -> None:
    key, messages = FileKey(tmp_path / "seed"), set()
    for _ in range(2):
        (tmp_path / "seed").write_text(SharedSeed.generate().to_text())
        row = rows(["s"], [1], ["IBM"], [1.0], [1])
        messages.add(event_messages(BOX, key, row, IDS)[0].as_py())
    assert len(messages) == 2


# -- one event for all interests of its round -----------------------------------------------------


@pytest.mark.parametrize("columns", [1, 2, 5])
def test_rounds_are_found_by_all_their_names(columns: int) -> None:
    rng = np.random.default_rng(columns)
    named = np.unique(rng.integers(0, 6, (40, columns)), axis=0)
    rng.shuffle(named)
    ours, missing = named[:-1], named[-1:]
    asked = rng.integers(0, len(named), 300)

    def arrays(rows: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> tuple[pa.Array, ...]:
        return tuple(
            pa.array([f"n{value}" for value in column]) if i % 2 else pa.array(column)
            for i, column in enumerate(rows.T)
        )

    messages = pa.array([bytes([i]) for i in range(len(ours))], pa.binary())
    events = pickle.loads(pickle.dumps(RoundEvents(BROADCAST, arrays(ours), messages)))
    found = events.rows(arrays(named[asked]))
    assert found.tolist() == [-1 if one == len(ours) else one for one in asked]
    assert (found < 0).any() and events.rows(arrays(missing)).tolist() == [-1]
    nothing = RoundEvents(BROADCAST, arrays(ours[:0]), messages[:0])
    assert nothing.rows(arrays(ours)).tolist() == [-1] * len(ours)


def test_interests_of_any_order_meet_the_events_of_their_rounds() -> None:
    count, each = 5, 20
    records = [{"issue": "IBM", "price": 10 * n, "volume": None} for n in range(count)]
    seed = SharedSeed.generate()
    numbers = np.arange(count)[::-1]
    messages = BROADCAST.publisher(seed).encode(records, numbers)
    events = RoundEvents(BROADCAST, (pa.array(numbers),), pa.array(list(map(bytes, messages))))
    rounds = np.random.default_rng(3).permutation(np.repeat(np.arange(count), each))
    names = [f"s{i}" for i in range(count * each)]
    sent = BROADCAST.subscriber(seed).encode(["price < 25"] * len(names), rounds, pairs=names)
    interests = pa.array([None if i == 7 else bytes(row) for i, row in enumerate(sent)])
    answers, valid, causes = events.examine(interests, [pa.array(rounds)])
    expected = 10 * (count - 1 - rounds) < 25
    assert valid.tolist() == [i != 7 for i in range(len(names))] and not causes.any()
    assert answers[valid].tolist() == expected[valid].tolist()
    # One that is not of the round it is said to be of.
    wrong = rounds.copy()
    wrong[3] = (wrong[3] + 1) % count
    answers, _, causes = events.examine(interests, [pa.array(wrong)])
    assert np.flatnonzero(causes).tolist() == [3] and not answers[3]
    wrong[3] = count
    with pytest.raises(ParameterError, match="the events changed while they were matched"):
        events.examine(interests, [pa.array(wrong)])


@given(
    cuts=st.lists(st.lists(st.sampled_from(["a", "b", None]), max_size=6), max_size=5),
    size=st.sampled_from([1, 30, 10**6]),
)
def test_blocks_hold_neighbours_of_one_topic(cuts: list[list[str | None]], size: int) -> None:
    schema = pa.schema([("number", pa.int64()), ("topic", pa.string())])
    numbers = iter(range(1000))
    batches = [
        pa.record_batch([pa.array([next(numbers) for _ in cut]), pa.array(cut)], schema=schema)
        if cut
        else pa.RecordBatch.from_pylist([], schema)
        for cut in cuts
    ]
    made = [batch.to_pylist()[0] for batch in blocks(batches, size, "topic")]
    rows = [(one["topic"], _unpacked(pa.scalar(one["block"])).to_pylist()) for one in made]
    assert [row for _, some in rows for row in some] == [
        row for batch in batches for row in batch.to_pylist()
    ]
    assert all(row["topic"] == topic for topic, some in rows for row in some)
    if size > 1000:  # as few as there can be
        assert all(a != b for (a, _), (b, _) in pairwise(rows))


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", "aa"]), st.integers(0, 3)), max_size=30),
    st.lists(st.integers(0, 30), max_size=8),
)
@example([("a", 1)] * 2 + [("b", 1)], [1])
@example([("a", 1), ("b", 1), ("b", 2)], [1])
def test_rows_with_the_ids_of_others_are_marked_across_batches(
    ids: list[tuple[str, int]], cuts: list[int]
) -> None:
    ids.sort()
    label = pa.array([label for label, _ in ids], pa.string())
    number = pa.array([number for _, number in ids], pa.int64())
    place = pa.array(range(len(ids)), pa.int64())
    ends = [0, *sorted(min(cut, len(ids)) for cut in cuts), len(ids)]
    batches = [
        tuple(column[start:end] for column in (place, label, number))
        for start, end in pairwise(ends)
    ]
    seen, marks = [], []
    for batch, repeated in with_repeated(batches, 1):
        seen += batch[0].to_pylist()
        marks += repeated.tolist()
        assert len(repeated) == len(batch[0])
    assert seen == place.to_pylist()
    assert marks == [ids.count(one) > 1 for one in ids]


def test_only_pairs_whose_masks_fit_are_tested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = Schema(issue=Category(["AAPL", "GOOG", "IBM"]), price=UInt(8))
    matcher, contents = TagMatch(schema), ContentFilter(schema, FilterKey(bytes(16)), levels=7)
    server, rng = matcher.key_server(), np.random.default_rng(4)
    key = tmp_path / "broker"
    key.write_text(server.broker_key().to_text())
    names = ["AAPL", "GOOG", "IBM"]
    records = {"issue": rng.choice(names, 200).tolist(), "price": rng.integers(0, 256, 200)}
    texts = [
        f"issue = '{names[n % 3]}' AND price BETWEEN {low} AND {low + 10}"
        for n, low in enumerate(rng.integers(0, 245, 40).tolist())
    ]
    sent = matcher.publisher(server.publisher_key()).encode(records)
    asked = matcher.subscriber(server.subscriber_key("alice")).encode(texts)
    tested, match_rows = list[int](), TagMatch.match_rows

    def counting(own: TagMatch, role_key: Any, events: Any, interests: Any) -> Any:
        tested.append(len(events))
        return match_rows(own, role_key, events, interests)

    monkeypatch.setattr(TagMatch, "match_rows", counting)
    found = []
    for mask in (None, "mask"):
        work = AllPairs(matcher, FileKey(key), "subscription", "event", ("id",), "raise", mask)
        masks = pa.array([row.tobytes() for row in contents.interests(texts)])
        served = work.interests(
            pa.array(texts), pa.array([row.tobytes() for row in asked]), masks if mask else None
        )
        batch = pa.record_batch(
            {
                "id": pa.array(range(200)),
                "event": pa.array([row.tobytes() for row in sent]),
                "mask": pa.array([row.tobytes() for row in contents.events(records)]),
            }
        )
        rows = pa.Table.from_batches(work.matches(*served, [batch])).to_pylist()
        found.append(sorted((row["subscription"], row["id"]) for row in rows))
    assert found[0] == found[1] != []
    assert len(found[0]) <= sum(tested) < 200 * 40 / 10
