"""The header in front of every message, and what it refuses."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import ccbps
from ccbps import Category, Schema, SharedSeed
from ccbps.delivery import PayloadSealer
from ccbps.errors import DecodeError
from ccbps.matching import MaskedTopicMatch, ObliviousTopicMatch
from ccbps.wire import HEADER_BYTES, TAG_BYTES, Cause, Kind, check_headers, raise_for, write_header

Bytes = NDArray[np.uint8]
FINGERPRINT = bytes(range(0x50, 0x70))
TAGS = np.random.default_rng(1).integers(0, 256, (5, TAG_BYTES), dtype=np.uint8)


def headers(kind: Kind, fingerprint: bytes = FINGERPRINT) -> Bytes:
    rows = np.empty((5, HEADER_BYTES), dtype=np.uint8)
    write_header(rows, kind, fingerprint, TAGS)
    return rows


def test_header_is_kind_version_fingerprint_and_tag() -> None:
    assert (HEADER_BYTES, TAG_BYTES) == (16, 8)
    for kind, first in ((Kind.EVENT, 1), (Kind.INTEREST, 2)):
        row = headers(kind)[2].tobytes()
        assert row == bytes([first, 1]) + FINGERPRINT[:6] + TAGS[2].tobytes()


def test_header_leaves_the_body_alone() -> None:
    rows = np.full((5, HEADER_BYTES + 3), 0xEE, dtype=np.uint8)
    write_header(rows, Kind.EVENT, FINGERPRINT, TAGS)
    assert (rows[:, HEADER_BYTES:] == 0xEE).all()


def test_headers_of_a_pair_and_round_are_accepted() -> None:
    causes = check_headers(headers(Kind.EVENT), headers(Kind.INTEREST), FINGERPRINT)
    assert causes.tolist() == [Cause.NONE] * 5
    raise_for(causes)


def test_headers_of_no_messages_are_accepted() -> None:
    nothing = headers(Kind.EVENT)[:0]
    assert check_headers(nothing, nothing, FINGERPRINT).shape == (0,)


@pytest.mark.parametrize("bit", range(8))
@pytest.mark.parametrize("byte", range(HEADER_BYTES))
@pytest.mark.parametrize("side", ["event", "interest"])
def test_header_with_any_bit_flipped_is_refused_for_what_it_is(
    side: str, byte: int, bit: int
) -> None:
    events, interests = headers(Kind.EVENT), headers(Kind.INTEREST)
    (events if side == "event" else interests)[3, byte] ^= 1 << bit
    causes = check_headers(events, interests, FINGERPRINT)
    kind = Cause.EVENT_KIND if side == "event" else Cause.INTEREST_KIND
    matcher = Cause.EVENT_MATCHER if side == "event" else Cause.INTEREST_MATCHER
    expected = kind if byte < 2 else matcher if byte < 8 else Cause.PAIRING
    assert causes.tolist() == [0, 0, 0, expected, 0]


def test_swapped_messages_are_refused() -> None:
    causes = check_headers(headers(Kind.INTEREST), headers(Kind.EVENT), FINGERPRINT)
    assert set(causes.tolist()) == {Cause.EVENT_KIND}


def test_messages_of_another_matcher_are_refused() -> None:
    other = bytes(32)
    causes = check_headers(headers(Kind.EVENT, other), headers(Kind.INTEREST), FINGERPRINT)
    assert set(causes.tolist()) == {Cause.EVENT_MATCHER}
    causes = check_headers(headers(Kind.EVENT), headers(Kind.INTEREST, other), FINGERPRINT)
    assert set(causes.tolist()) == {Cause.INTEREST_MATCHER}


def test_messages_paired_wrongly_are_refused_row_by_row() -> None:
    events, interests = headers(Kind.EVENT), headers(Kind.INTEREST)
    interests[[1, 3]] = interests[[3, 1]]
    causes = check_headers(events, interests, FINGERPRINT)
    assert causes.tolist() == [0, Cause.PAIRING, 0, Cause.PAIRING, 0]


def test_refusal_names_all_rows_and_the_first_cause() -> None:
    causes = np.array([0, Cause.PAIRING, 0, Cause.EVENT_KIND], np.uint8)
    with pytest.raises(DecodeError, match=r"row 1: .*different pairs.*and 1 more rows") as refusal:
        raise_for(causes)
    assert refusal.value.rows == (1, 3)
    assert refusal.value.causes == (Cause.PAIRING.text, Cause.EVENT_KIND.text)


def test_causes_have_a_text_each() -> None:
    texts = [cause.text for cause in Cause if cause]
    assert len(set(texts)) == len(Cause) - 1
    assert all(texts)
    assert Cause.NONE.text == ""


# -- one registry of kinds ----------------------------------------------------------------------

NAMES = re.compile(
    r"_?((\w+_)?KIND|HEAD|(MESSAGE_)?(EVENT|INTEREST|PAYLOAD|REQUEST|SESSION|SESSION_EVENT|TABLE))"
)


def is_kind_and_version(value: object) -> bool:
    return isinstance(value, bytes) and len(value) == 2 and all(0 < byte < 32 for byte in value)


def kinds_in(source: str) -> list[str]:
    """What looks like a kind byte of its own: a named constant, or bytes that start with one."""
    found = []
    for node in ast.walk(ast.parse(source)):
        value, names = None, []
        if isinstance(node, ast.Assign):
            targets = [e for t in node.targets for e in (t.elts if hasattr(t, "elts") else [t])]
            names, value = [t.id for t in targets if isinstance(t, ast.Name)], node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names, value = [node.target.id], node.value
        if value is not None and any(map(NAMES.fullmatch, names)):
            parts = value.elts if isinstance(value, ast.Tuple) else [value]
            if any(isinstance(p, ast.Constant) and type(p.value) in (int, bytes) for p in parts):
                found.append(f"line {node.lineno}: {names}")
        if isinstance(node, ast.ClassDef) and re.search(r"(?<!Store)Kinds?$", node.name):
            found.append(f"line {node.lineno}: class {node.name}")
        if isinstance(node, ast.Constant) and is_kind_and_version(node.value):
            found.append(f"line {node.lineno}: {node.value!r}")
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "bytes" and node.args:
            items = getattr(node.args[0], "elts", [])
            if len(items) > 1 and isinstance(items[0], ast.Constant):
                found.append(f"line {node.lineno}: {ast.unparse(node)}")
    return found


@pytest.mark.parametrize(
    "planted",
    [
        "EVENT, REQUEST, SESSION = 1, 2, 3",
        "REQUEST = 2",
        "SESSION: int = 3",
        'HEAD: Final = b"\\x03\\x01"',
        'head = b"\\x03\\x01"',
        "front = bytes([3, VERSION])",
        "class MessageKind(IntEnum):\n    A = 1",
        "EVENT_KIND = 7",
    ],
)
def test_a_kind_outside_the_registry_is_found(planted: str) -> None:
    assert kinds_in(planted)
    assert not kinds_in("EVENT = [{'a': 2}]\nfront = bytes([Kind.EVENT, VERSION])\nx = b'ab'")


def test_kinds_are_distinct_and_defined_here_only() -> None:
    root = Path(ccbps.__file__).parent
    modules = sorted(root.rglob("*.py"))
    assert len(modules) > 100
    found = {
        str(path.relative_to(root)): kinds
        for path in modules
        if (kinds := kinds_in(path.read_text("utf-8")))
    }
    assert list(found) == ["wire.py"], found
    assert all(any(f"['{kind.name}']" in line for line in found["wire.py"]) for kind in Kind)
    assert len({kind.value for kind in Kind}) == len(Kind.__members__)
    assert (Kind.EVENT, Kind.INTEREST) == (1, 2)
    assert all(0 < kind < 256 for kind in Kind)


def test_messages_of_every_kind_start_with_theirs() -> None:
    seed = SharedSeed(bytes(32))
    assert PayloadSealer(seed).seal([b"x"], [0])[0][0] == Kind.PAYLOAD
    schema = Schema(symbol=Category(["A", "B"]))
    matcher = ObliviousTopicMatch(schema, ["symbol"], group="toy64")
    publisher, subscriber = matcher.new_publisher(["symbol = 'A'"]), matcher.new_subscriber()
    publisher.admit(subscriber.identity)
    subscriber.trust(publisher.identity)
    requests = subscriber.encode("symbol = 'A'")
    sessions = publisher.answer(requests)
    events = publisher.encode([{"symbol": "A"}])
    topics = MaskedTopicMatch(schema)
    broker = topics.broker(topics.key_server().broker_key())
    table = broker.prepare(np.empty((0, topics.interest_bytes), np.uint8))
    assert table.to_bytes()[0] == Kind.TABLE
    got = [int(messages[0, 0]) for messages in (requests, sessions, events)]
    assert got == [Kind.REQUEST, Kind.SESSION, Kind.SESSION_EVENT]
    for wrong in (sessions[:, : requests.shape[1]], events):
        with pytest.raises(DecodeError):
            publisher.answer(wrong)
