"""The header in front of every message, and what it refuses."""

from __future__ import annotations

import ast
import re
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import ccbps
from ccbps import Category, Schema, SharedSeed, UInt
from ccbps.delivery import PayloadSealer
from ccbps.errors import DecodeError
from ccbps.matching import (
    BranchingMatch,
    FormulaMatch,
    MaskedTopicMatch,
    ObliviousTopicMatch,
    TagMatch,
)
from ccbps.matching.contract.access import header_bytes
from ccbps.wire import (
    KEY_HEADER_BYTES,
    ROUND_HEADER_BYTES,
    ROUND_VERSION,
    TAG_BYTES,
    VERSION,
    Cause,
    Kind,
    check_key_headers,
    check_round_headers,
    key_header,
    raise_for,
    round_tags,
    rounds_of_two_events,
    write_round_headers,
)

Bytes = NDArray[np.uint8]
FINGERPRINT, OTHER = (sha256(name).digest() for name in (b"one", b"another"))
TAGS, OTHER_TAGS = np.random.default_rng(1).integers(0, 256, (2, 5, TAG_BYTES), dtype=np.uint8)


def headers(kind: Kind, fingerprint: bytes = FINGERPRINT, tags: Bytes = TAGS) -> Bytes:
    rows = np.empty((5, ROUND_HEADER_BYTES), dtype=np.uint8)
    write_round_headers(rows, kind, fingerprint, tags)
    return rows


# -- with rounds --------------------------------------------------------------------------------


def test_header_of_a_round_is_kind_with_version_and_the_tag_plus_a_part_of_the_fingerprint() -> (
    None
):
    assert (ROUND_HEADER_BYTES, TAG_BYTES, ROUND_VERSION) == (8, 7, 2)
    for kind, first, start in (
        (Kind.EVENT, 0x21, 0),
        (Kind.INTEREST, 0x22, 7),
        (Kind.LABELS, 0x28, 0),
        (Kind.AHEAD, 0x29, 7),
    ):
        row = headers(kind)[2].tobytes()
        part = FINGERPRINT[start : start + 7]
        assert row == bytes([first]) + bytes(a ^ b for a, b in zip(TAGS[2], part, strict=True))


def test_tags_of_headers_are_those_that_were_written() -> None:
    for kind in (Kind.EVENT, Kind.INTEREST):
        assert np.array_equal(round_tags(headers(kind), kind, FINGERPRINT), TAGS)


def test_header_leaves_the_body_alone() -> None:
    rows = np.full((5, ROUND_HEADER_BYTES + 3), 0xEE, dtype=np.uint8)
    write_round_headers(rows, Kind.EVENT, FINGERPRINT, TAGS)
    assert (rows[:, ROUND_HEADER_BYTES:] == 0xEE).all()


def test_headers_of_a_pair_and_round_are_accepted() -> None:
    causes = check_round_headers(headers(Kind.EVENT), headers(Kind.INTEREST), FINGERPRINT)
    assert causes.tolist() == [Cause.NONE] * 5
    raise_for(causes)


def test_headers_of_no_messages_are_accepted() -> None:
    nothing = headers(Kind.EVENT)[:0]
    assert check_round_headers(nothing, nothing, FINGERPRINT).shape == (0,)


@pytest.mark.parametrize("bit", range(8))
@pytest.mark.parametrize("byte", range(ROUND_HEADER_BYTES))
@pytest.mark.parametrize("side", ["event", "interest"])
def test_header_with_any_bit_flipped_is_refused_for_what_it_is(
    side: str, byte: int, bit: int
) -> None:
    events, interests = headers(Kind.EVENT), headers(Kind.INTEREST)
    (events if side == "event" else interests)[3, byte] ^= 1 << bit
    causes = check_round_headers(events, interests, FINGERPRINT)
    kind = Cause.EVENT_KIND if side == "event" else Cause.INTEREST_KIND
    assert causes.tolist() == [0, 0, 0, Cause.PAIRING if byte else kind, 0]


def test_no_other_first_byte_is_accepted_on_one_side_or_on_both() -> None:
    for first in range(256):
        events, interests = headers(Kind.EVENT), headers(Kind.INTEREST)
        events[:2, 0] = interests[1:3, 0] = first
        event = Cause.NONE if first == 0x21 else Cause.EVENT_KIND
        interest = Cause.NONE if first == 0x22 else Cause.INTEREST_KIND
        causes = [event, event or interest, interest, Cause.NONE, Cause.NONE]
        assert check_round_headers(events, interests, FINGERPRINT).tolist() == causes


def test_exchanged_sides_are_refused() -> None:
    causes = check_round_headers(headers(Kind.INTEREST), headers(Kind.EVENT), FINGERPRINT)
    assert set(causes.tolist()) == {Cause.SWAPPED}
    # Two messages of one side are refused, too.
    causes = check_round_headers(headers(Kind.INTEREST), headers(Kind.INTEREST), FINGERPRINT)
    assert set(causes.tolist()) == {Cause.EVENT_KIND}
    causes = check_round_headers(headers(Kind.EVENT), headers(Kind.EVENT), FINGERPRINT)
    assert set(causes.tolist()) == {Cause.INTEREST_KIND}


@pytest.mark.parametrize("theirs", [TAGS, OTHER_TAGS], ids=["tags of one pad", "of one seed"])
def test_messages_of_another_matcher_are_refused_on_one_side_or_on_both(theirs: Bytes) -> None:
    mine = headers(Kind.EVENT), headers(Kind.INTEREST)
    other = headers(Kind.EVENT, OTHER, theirs), headers(Kind.INTEREST, OTHER, theirs)
    assert not check_round_headers(*other, OTHER).any()
    for pair in ((other[0], mine[1]), (mine[0], other[1]), other):
        assert check_round_headers(*pair, FINGERPRINT).tolist() == [Cause.PAIRING] * 5


def test_messages_of_another_round_are_refused_row_by_row() -> None:
    events, interests = headers(Kind.EVENT), headers(Kind.INTEREST)
    interests[[1, 3]] = interests[[3, 1]]
    causes = check_round_headers(events, interests, FINGERPRINT)
    assert causes.tolist() == [0, Cause.PAIRING, 0, Cause.PAIRING, 0]


def test_labels_and_messages_ahead_are_two_sides_of_their_own() -> None:
    kinds = Kind.LABELS, Kind.AHEAD
    labels, ahead = (headers(kind) for kind in kinds)
    assert not check_round_headers(labels, ahead, FINGERPRINT, kinds).any()
    ahead[[1, 3]] = ahead[[3, 1]]
    causes = check_round_headers(labels, ahead, FINGERPRINT, kinds)
    assert causes.tolist() == [0, Cause.LABELS, 0, Cause.LABELS, 0]
    for first, second, cause in (
        (headers(Kind.EVENT), headers(Kind.AHEAD), Cause.LABELS_KIND),
        (labels, headers(Kind.INTEREST), Cause.AHEAD_KIND),
        (headers(Kind.AHEAD), labels, Cause.LABELS_KIND),
        (headers(Kind.EVENT), headers(Kind.INTEREST), Cause.LABELS_KIND),
    ):
        assert set(check_round_headers(first, second, FINGERPRINT, kinds).tolist()) == {cause}
    causes = check_round_headers(labels, headers(Kind.AHEAD), FINGERPRINT)
    assert set(causes.tolist()) == {Cause.EVENT_KIND}


def test_each_check_is_uniform_and_the_other_follows_from_it() -> None:
    tags = np.zeros((256, TAG_BYTES), dtype=np.uint8)
    tags[:, 3] = np.arange(256)
    sides = np.empty((2, 256, ROUND_HEADER_BYTES), dtype=np.uint8)
    for side, kind in zip(sides, (Kind.EVENT, Kind.INTEREST), strict=True):
        write_round_headers(side, kind, FINGERPRINT, tags)
        assert sorted(side[:, 4].tolist()) == [*range(256)]
    assert set((sides[0] ^ sides[1])[:, 4].tolist()) == {FINGERPRINT[3] ^ FINGERPRINT[10]}


def test_a_round_draws_7_bytes_more_than_its_body() -> None:
    matcher = BranchingMatch.box(Schema(a=UInt(16), b=UInt(16)))
    assert matcher.randomness_bytes == matcher.sizes.randomness + 7
    assert matcher.event_bytes == matcher.interest_bytes == header_bytes(matcher) + 260 == 268


def test_the_format_of_rounds_is_part_of_fingerprints() -> None:
    """The bytes that a round draws have other uses in another format: key streams never meet."""
    schema = Schema(a=UInt(3))
    assert BranchingMatch.box(schema).describe()["rounds"] == ROUND_VERSION
    assert "rounds" not in TagMatch(schema).describe()


@pytest.mark.parametrize("width", [9, 16])
def test_rounds_of_two_events_are_found_wherever_they_are(width: int) -> None:
    """Against a dictionary, over all messages of few bits; of any width."""
    rng = np.random.default_rng(width)
    for rows in (0, 1, 2, 5, 9) * 40:
        events = np.zeros((rows, width), dtype=np.uint8)
        events[:, 3], events[:, -1] = rng.integers(0, 3, (2, rows))
        heads = np.ascontiguousarray(events[:, :ROUND_HEADER_BYTES])
        bodies: dict[bytes, set[bytes]] = {}
        for row in events:
            bodies.setdefault(row[:ROUND_HEADER_BYTES].tobytes(), set()).add(row.tobytes())
        wanted = [len(bodies[row[:ROUND_HEADER_BYTES].tobytes()]) > 1 for row in events]
        assert rounds_of_two_events(heads, events).tolist() == wanted


# -- with a key server --------------------------------------------------------------------------


def test_header_of_a_key_is_kind_version_fingerprint_and_key() -> None:
    matcher = TagMatch(Schema(a=UInt(3)))
    assert header_bytes(matcher) == KEY_HEADER_BYTES == 16
    server = matcher.key_server()
    sent = matcher.publisher(server.publisher_key()).encode([{"a": 1}])[0, :16].tobytes()
    key = server.publisher_key()
    assert sent == bytes([1, VERSION]) + matcher.digest[:6] + key.key_id + bytes(2)


@pytest.mark.parametrize("kind", [Kind.EVENT, Kind.INTEREST])
def test_key_header_with_any_bit_flipped_is_refused_for_what_it_is(kind: Kind) -> None:
    header = key_header(kind, FINGERPRINT, b"server", 3)
    rows = np.repeat(header[None], 8 * KEY_HEADER_BYTES, axis=0)
    flips = np.arange(len(rows))
    rows[flips, flips // 8] ^= (1 << flips % 8).astype(np.uint8)
    side = kind.name
    causes = [Cause[f"{side}_KIND"]] * 2 + [Cause[f"{side}_MATCHER"]] * 6
    causes += [Cause.KEY] * 6 + [Cause.EPOCH] * 2
    assert check_key_headers(rows, header).tolist() == np.repeat(causes, 8).tolist()
    assert not check_key_headers(header[None], header).any()


# -- both ---------------------------------------------------------------------------------------


def test_refusal_names_all_rows_and_the_first_cause() -> None:
    causes = np.array([0, Cause.PAIRING, 0, Cause.EVENT_KIND], np.uint8)
    with pytest.raises(
        DecodeError, match=r"row 1: .*different matchers.*and 1 more rows"
    ) as refusal:
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
    r"_?((\w+_)?KIND|HEAD|"
    r"(MESSAGE_)?(EVENT|INTEREST|PAYLOAD|REQUEST|SESSION|SESSION_EVENT|TABLE|LABELS|AHEAD|SHARE|"
    r"(SEALED_)?FRAGMENT|GROUP_EVENT|KEY_REQUEST|KEY_ANSWER|SUBSCRIBE|PUBLISH|DELIVERY|PAYLOADS|HELLOS|GRANTS?|"
    r"AUTHORITY|FUNCTIONAL|POLICY_PAYLOAD|P3S|TREE_EVENT|ROUTABLE|CERTIFICATE|CREDENTIAL_(EVENT|REQUEST)|ROUTING|DOMAIN|"
    r"POLICY|NOTICE|PRESENTATION|PERMIT|DELEGATION|PROPOSAL|ENACTMENT))"
)


def is_kind_and_version(value: object) -> bool:
    return isinstance(value, bytes) and len(value) == 2 and all(0 < byte < 32 for byte in value)


def kinds_in(source: str) -> list[str]:
    """List what looks like a separate kind byte: a named constant, or bytes that start with one."""
    suspects = []
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
                suspects.append(f"line {node.lineno}: {names}")
        if isinstance(node, ast.ClassDef) and re.search(r"(?<!Store)Kinds?$", node.name):
            suspects.append(f"line {node.lineno}: class {node.name}")
        if isinstance(node, ast.Constant) and is_kind_and_version(node.value):
            suspects.append(f"line {node.lineno}: {node.value!r}")
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "bytes" and node.args:
            items = getattr(node.args[0], "elts", [])
            if len(items) > 1 and isinstance(items[0], ast.Constant):
                suspects.append(f"line {node.lineno}: {ast.unparse(node)}")
    return suspects


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
        "AHEAD = 9",
    ],
)
def test_a_kind_outside_the_registry_is_found(planted: str) -> None:
    assert kinds_in(planted)
    assert not kinds_in("EVENT = [{'a': 2}]\nfront = bytes([Kind.EVENT, VERSION])\nx = b'ab'")


def test_kinds_are_distinct_and_defined_here_only() -> None:
    root = Path(ccbps.__file__).parent
    modules = sorted(root.rglob("*.py"))
    assert len(modules) > 100
    suspects = {
        str(path.relative_to(root)): kinds
        for path in modules
        if (kinds := kinds_in(path.read_text("utf-8")))
    }
    assert list(suspects) == ["wire.py"], suspects
    assert all(any(f"['{kind.name}']" in line for line in suspects["wire.py"]) for kind in Kind)
    assert len({kind.value for kind in Kind}) == len(Kind.__members__)
    assert (Kind.EVENT, Kind.INTEREST) == (1, 2)
    assert all(0 < kind < 256 for kind in Kind)
    # With rounds it has half a byte.
    assert all(kind < 16 for kind in (Kind.EVENT, Kind.INTEREST, Kind.LABELS, Kind.AHEAD))


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
    deferred = FormulaMatch.box(schema).deferred(seed, SharedSeed(bytes([1] * 32)))
    labels, ahead = deferred.encode([{"symbol": "A"}], [0]), deferred.prepare([0])
    assert [rows[0, 0] & 15 for rows in (labels, ahead)] == [Kind.LABELS, Kind.AHEAD]
    got = [int(messages[0, 0]) for messages in (requests, sessions, events)]
    assert got == [Kind.REQUEST, Kind.SESSION, Kind.SESSION_EVENT]
    for wrong in (sessions[:, : requests.shape[1]], events):
        with pytest.raises(DecodeError):
            publisher.answer(wrong)
