"""Events of sessions on Arrow columns: what is set aside or named, and what a subscriber reads."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ccbps import Category, Schema, UInt
from ccbps.columnar.encoding import event_messages
from ccbps.columnar.sessions import Opening
from ccbps.errors import DecodeError, EventError, KeyMismatchError, RandomnessReuseError
from ccbps.keys.role_key import RoleKey
from ccbps.keys.sources import FileKey
from ccbps.matching import ObliviousTopicMatch
from tests.support.topic_strategies import introduce

NAMES = ["AAPL", "GOOG", "IBM", "MSFT"]
SCHEMA = Schema(issue=Category(NAMES), price=UInt(12))
MATCHER = ObliviousTopicMatch(SCHEMA, ["issue"], payload_bytes=16, group="toy64")
TOPICS = [f"issue = '{name}'" for name in NAMES]
WISHES = ["issue = 'IBM'", "issue = 'AAPL'", "issue = 'IBM'"]
Roles = dict[str, FileKey]


def save(path: Path, key: RoleKey) -> FileKey:
    path.write_text(key.to_text())
    return FileKey(path)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Roles:
    """Roles after the handshake; "early" is the publisher's key before bob asked; "narrow" and
    "counted" are of publishers of three topics, and of one that used a number."""
    folder = tmp_path_factory.mktemp("keys")
    publisher = MATCHER.new_publisher(TOPICS)
    alice, bob = MATCHER.new_subscriber(), MATCHER.new_subscriber()
    introduce(publisher, alice, bob)
    alice.accept(publisher.answer(alice.encode(WISHES)))
    found = {"early": publisher.key}
    bob.accept(publisher.answer(bob.encode("issue = 'GOOG'")))
    counted = MATCHER.new_publisher(TOPICS)
    counted.encode([{"issue": "IBM", "price": 1}], [100], payloads=[b""])
    narrow = MATCHER.new_publisher(TOPICS[:3])
    roles = {"publisher": publisher, "alice": alice, "bob": bob}
    roles |= {"counted": counted, "narrow": narrow}
    found |= {name: role.key for name, role in roles.items()}
    return {name: save(folder / name, key) for name, key in found.items()}


def columns(count: int = 8) -> dict[str, list[Any]]:
    return {
        "number": [200 - i for i in range(count)],
        "payload": [b"event %d" % i for i in range(count)],
        "issue": [NAMES[i % 4] for i in range(count)],
        "price": list(range(count)),
    }


def sent(key: FileKey, reject: bool = False, **changed: list[Any]) -> pa.Array:
    chosen = columns() | changed
    arrays = [pa.array(chosen["number"], pa.int64()), pa.array(chosen["payload"], pa.binary())]
    arrays += [pa.array(chosen["issue"]), pa.array(chosen["price"])]
    row = pa.StructArray.from_arrays(arrays, names=list("abcd"))
    return event_messages(MATCHER, key, row, ["number"], payload=True, reject=reject)


def opened(key: FileKey, messages: pa.Array, on_error: str = "raise") -> list[tuple[Any, ...]]:
    names = ("event", "interest", "payload", *["rejected"] * (on_error == "reject"))
    opening = Opening(MATCHER, key, "m", ("event",), names, on_error)
    batch = pa.record_batch({"event": pa.array(range(len(messages))), "m": messages})
    rows = [tuple(r.values()) for b in opening.matches(iter([batch])) for r in b.to_pylist()]
    return sorted(rows, key=lambda row: (row[0], row[1] is None, row[1]))


def wanted(wishes: list[str], rows: list[int]) -> list[tuple[Any, ...]]:
    issues = columns()["issue"]
    return sorted(
        (row, place, b"event %d" % row)
        for place, text in enumerate(wishes)
        for row in rows
        if issues[row] in text
    )


def test_messages_are_the_roles_own_each_time(keys: Roles) -> None:
    found = sent(keys["publisher"])
    assert found == sent(keys["publisher"])
    key = keys["publisher"].load()
    assert isinstance(key, RoleKey)
    all_ = columns()
    records = pa.table({name: all_[name] for name in SCHEMA})
    own = MATCHER.publisher(key).encode(records, all_["number"], payloads=all_["payload"])
    assert found.to_pylist() == [row.tobytes() for row in own]
    assert opened(keys["alice"], found) == wanted(WISHES, list(range(8)))
    assert opened(keys["bob"], found) == wanted(["issue = 'GOOG'"], list(range(8)))


def test_messages_of_different_widths_and_publishers_are_opened_together(
    keys: Roles, tmp_path: Path
) -> None:
    key = keys["alice"].load()
    assert isinstance(key, RoleKey)
    alice, other = MATCHER.subscriber(key), MATCHER.new_publisher(TOPICS[3:])
    more = [MATCHER.new_subscriber() for _ in range(2)]
    introduce(other, alice, *more)
    requests = alice.encode(["issue = 'MSFT'"])
    other.answer(np.vstack([one.encode(TOPICS) for one in more]))
    assert alice.accept(other.answer(requests)) == 1
    late, early = (sent(keys[name]).to_pylist() for name in ("publisher", "early"))
    aside = sent(save(tmp_path / "other", other.key), reject=True)
    strange = aside.field("message").to_pylist()
    mixed = pa.array([s or (late, early)[i % 2][i] for i, s in enumerate(strange)], pa.binary())
    assert len({len(m) for m in mixed.to_pylist()}) == 3
    found = opened(save(tmp_path / "both", alice.key), mixed)
    assert found == wanted([*WISHES, "issue = 'MSFT'"], list(range(8)))
    # Bob has no session with the other publisher, and none of the time before he asked.
    with pytest.raises(DecodeError, match="of a publisher whose sessions were not accepted"):
        opened(keys["bob"], mixed)
    assert opened(keys["bob"], mixed, "drop") == []
    assert opened(keys["bob"], sent(keys["publisher"])) == wanted(["issue = 'GOOG'"], [1, 5])


def test_what_a_publisher_cannot_send_is_set_aside_or_named(keys: Roles) -> None:
    bad = columns()
    bad["price"][1], bad["payload"][2], bad["number"][4], bad["payload"][5] = (
        5000,
        b"x" * 17,
        None,
        None,
    )
    messages, reasons = sent(keys["narrow"], reject=True, **bad).flatten()
    gone = [1, 2, 3, 4, 5, 7]  # 3 and 7 are of another's topics
    assert [row for row, m in enumerate(messages.to_pylist()) if m is None] == gone
    told = dict(enumerate(reasons.to_pylist()))
    assert "price" in told.pop(1)
    assert told.pop(2) == "the payload is longer than payload_bytes=16"
    assert told.pop(3) == told.pop(7) == "none of the publisher's topics"
    assert told.pop(4) == "column 'number' is NULL"
    assert told.pop(5) == "the payload is NULL"
    assert set(told.values()) == {None}
    alone = {name: [values[0], values[6]] for name, values in columns().items()}
    assert [messages[0], messages[6]] == list(sent(keys["narrow"], **alone))
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"price": [0] * 7 + [5000]}, "publisher", "^number=193: attribute 'price'"),
        ({"payload": [b""] * 7 + [b"x" * 17]}, "publisher", "^number=193: the payload is longer"),
        ({}, "narrow", "^number=197: none of the publisher's topics"),
    ]
    for changed, key, problem in cases:
        with pytest.raises(EventError, match=problem) as failure:
            sent(keys[key], **changed)
        assert "5000" not in str(failure.value)
    with pytest.raises(RandomnessReuseError, match=r"may have been used.* from 101 on"):
        sent(keys["counted"], number=list(range(8)))


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda m: b"short", "events have .* bytes and a multiple of 32, got 5"),
        (lambda m: bytes(len(m)), "no event of this version and matcher"),
        (lambda m: m[:40] + bytes(8) + m[48:], "payload"),
    ],
)
def test_malformed_events_are_named_or_match_nothing(
    keys: Roles, change: Callable[[bytes], bytes], cause: str
) -> None:
    messages = sent(keys["publisher"]).to_pylist()
    messages[2], messages[4] = change(messages[2]), None  # of IBM, and of AAPL
    bad = pa.array(messages, pa.binary())
    with pytest.raises(DecodeError, match=f"^event=2: .*{cause}.*; .* on_error='reject'"):
        opened(keys["alice"], bad)
    rows = [row for row in range(8) if row not in (2, 4)]
    kept = opened(keys["alice"], bad, "drop")
    assert kept == wanted(WISHES, rows)
    told = opened(keys["alice"], bad, "reject")
    ((event, *others, why),) = (row for row in told if row[3] is not None)
    assert (event, others) == (2, [None, None])
    assert re.search(cause, why)
    assert [row[:3] for row in told if row[3] is None] == kept


def test_keys_of_another_role_are_refused(keys: Roles) -> None:
    with pytest.raises(KeyMismatchError, match="the key of a subscriber, wanted a publisher's"):
        sent(keys["alice"])
    with pytest.raises(KeyMismatchError, match="the key of a publisher, wanted a subscriber's"):
        opened(keys["publisher"], sent(keys["publisher"]))
