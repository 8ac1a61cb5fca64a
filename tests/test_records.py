"""Records: what is written comes back, and anything else is one error that shows nothing."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Meta, msgpack

from ccbps.arrays import Bytes
from ccbps.errors import DecodeError, KeyMismatchError, ParameterError, SerializationError
from ccbps.records import Message, Number, Record, SecretRecord, read, write
from tests.support.effort import examples
from tests.support.tracebacks import locals_outside


class Everything(Message, frozen=True):
    front: ClassVar[bytes] = b"\x07\x01"
    what: ClassVar[str] = "everything"
    number: Number
    short: Annotated[bytes, Meta(min_length=2, max_length=4)]
    names: tuple[str, ...]
    by_name: Mapping[str, bytes]
    rows: Bytes
    maybe: Number | None = None
    sure: bool = False


class Secret(SecretRecord, frozen=True):
    key: bytes
    number: int


NUMBERS = st.integers(0, 2**63 - 1)
ROWS = st.tuples(st.integers(0, 3), st.integers(1, 3)).map(lambda s: np.ones(s, dtype=np.uint8))
RECORDS = st.builds(
    Everything,
    NUMBERS,
    st.binary(min_size=2, max_size=4),
    st.lists(st.text(max_size=3), max_size=3).map(tuple),
    st.dictionaries(st.text(max_size=3), st.binary(max_size=3), max_size=3),
    ROWS,
    NUMBERS | st.none(),
    st.booleans(),
)
SAMPLE = Everything(300, b"abc", ("é", ""), {"b": b"1", "a": b"2"}, np.zeros((2, 3), np.uint8))
FIELDS: list[Any] = [300, b"abc", ["é", ""], {"b": b"1", "a": b"2"}, [3, bytes(6)], None, False]


def refused(message: Any) -> None:
    with pytest.raises(DecodeError) as caught:
        Everything.from_bytes(message)
    assert str(caught.value) == "not everything of this version, or cut off"
    assert caught.value.__context__ is None


@given(RECORDS)
def test_a_record_comes_back(record: Everything) -> None:
    message = record.to_bytes()
    for same in (message, bytearray(message), memoryview(message)):
        again = Everything.from_bytes(same)  # type: ignore[arg-type]
        assert again.to_bytes() == message
        assert again.rows.tolist() == record.rows.tolist()
        assert (again.number, again.by_name) == (record.number, record.by_name)


def test_equal_records_have_equal_bytes() -> None:
    other = Everything(300, b"abc", ("é", ""), {"a": b"2", "b": b"1"}, np.zeros((2, 3), np.uint8))
    assert other.to_bytes() == SAMPLE.to_bytes() == write(FIELDS, Everything.front)


@given(RECORDS, st.integers(0, 10**9), st.binary(min_size=1, max_size=4))
@settings(max_examples=examples(200))
def test_what_was_altered_is_refused_or_is_what_it_says(
    record: Everything, at: int, tail: bytes
) -> None:
    message = record.to_bytes()
    bent = bytearray(message)
    bent[at % len(message)] ^= 1 + at % 255
    for other in (bytes(bent), message[: at % len(message)], message + tail, tail + message):
        try:
            found = Everything.from_bytes(other)
        except DecodeError:
            continue
        assert found.to_bytes() == other


@given(st.binary(max_size=80))
@settings(max_examples=examples(500))
def test_any_bytes_are_refused_or_are_what_they_say(data: bytes) -> None:
    for message in (data, Everything.front + data, Everything.front + b"\x97" + data):
        try:
            found = Everything.from_bytes(message)
        except DecodeError:
            continue
        assert found.to_bytes() == message


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, -1), (0, 1 << 63), (0, (1 << 64) - 1), (0, 300.0), (0, "300"), (0, True), (0, None),
        (1, b"a"), (1, b"abcde"), (1, "abc"), (2, "é"), (2, [b"e"]), (2, None),
        (3, {"a": "b"}), (3, [["a", b"b"]]), (4, [4, bytes(6)]), (4, [0, bytes(6)]),
        (4, [-1, bytes(6)]), (4, bytes(6)), (4, [3, bytes(6), 0]), (5, "x"), (6, 0), (6, None),
    ],
    ids=repr,
)  # fmt: skip
def test_each_field_has_its_type_and_bounds(place: int, value: Any) -> None:
    assert Everything.from_bytes(write(FIELDS, Everything.front)).number == 300
    refused(write([*FIELDS[:place], value, *FIELDS[place + 1 :]], Everything.front))


def test_fields_are_as_many_as_declared() -> None:
    for fields in ([*FIELDS, None], FIELDS[:4], [], {}, dict(enumerate("ab")), None, 1, "x"):
        refused(Everything.front + msgpack.encode(fields))
    # What is left out at the end could be, and would be a second spelling.
    refused(write(FIELDS[:6], Everything.front))


def test_a_record_has_one_spelling() -> None:
    whole = SAMPLE.to_bytes()
    assert whole[2:6] == b"\x97\xcd\x01\x2c"
    refused(whole[:3] + b"\xce\0\0\x01\x2c" + whole[6:])  # a long form of 300
    refused(whole[:2] + b"\xdc\0\x07" + whole[3:])  # a long form of the list's length
    swapped = {"a": b"2", "b": b"1"}
    for order in (["b", "a"], ["a", "b", "b"], ["a", "a"]):
        pairs = b"".join(msgpack.encode(name) + msgpack.encode(swapped[name]) for name in order)
        fields = [msgpack.encode(field) for field in FIELDS]
        fields[3] = bytes([0x80 | len(order)]) + pairs
        refused(Everything.front + b"\x97" + b"".join(fields))


@pytest.mark.parametrize(
    "tail",
    [b"\x91" * 200_000, b"\x81\xa1a" * 200_000, b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff",
     b"\xc6\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\xc9\xff\xff\xff\xff\0", b"\xa1\xff"],
    ids=lambda tail: tail[:5].hex(),
)  # fmt: skip
def test_deep_and_made_up_lengths_take_nothing(tail: bytes) -> None:
    refused(Everything.front + tail)
    for place in range(7):
        front = b"".join(map(msgpack.encode, FIELDS[:place]))
        refused(Everything.front + b"\x97" + front + tail)
    for kind in (Any, list, dict[str, Any]):
        with pytest.raises(DecodeError, match=r"^no$"):
            read(kind, tail, refusal="no")  # type: ignore[arg-type]


@pytest.mark.parametrize("message", [None, "text", 5, [], {}, b"", b"\x07", SAMPLE])
def test_what_is_no_message_is_refused(message: Any) -> None:
    refused(message)


def test_a_check_finds_accidents() -> None:
    message = write(FIELDS, b"front", check=8)
    assert read(list, message, b"front", refusal="no", check=8) == FIELDS
    for at in range(len(message)):
        bent = message[:at] + bytes([message[at] ^ 1]) + message[at + 1 :]
        for wrong in (bent, message[:at]):
            with pytest.raises(KeyMismatchError, match=r"^damaged$"):
                read(list, wrong, b"front", refusal=KeyMismatchError("damaged"), check=8)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"number": -1}, "number must be int >= 0"),
        ({"number": "1"}, "number must be int, got str"),
        ({"short": "abc"}, "short must be bytes, got str"),
        ({"short": b"a"}, "short must be bytes of length >= 2"),
        ({"names": ("a", 1)}, "names must be str, got int"),
        ({"by_name": {1: b""}}, "by_name must be str, got int"),
        ({"by_name": {"a": "YQ=="}}, "by_name must be bytes, got str"),
        ({"rows": np.zeros(3, np.uint8)}, r"rows must be a uint8 array of shape \(rows, bytes\)"),
        ({"rows": np.zeros((3, 3))}, r"rows must be a uint8 array of shape \(rows, bytes\)"),
        ({"maybe": b""}, r"maybe must be int \| null, got bytes"),
    ],
)
def test_a_record_is_checked_when_it_is_made(changes: dict[str, Any], problem: str) -> None:
    fields = {name: getattr(SAMPLE, name) for name in SAMPLE.__struct_fields__}
    with pytest.raises(ParameterError, match=problem):
        Everything(**(fields | changes))


def test_what_has_no_bytes_is_not_written() -> None:
    for value in (1 << 64, object(), "\ud800", [np.float64], {1: {object()}}):
        with pytest.raises(ParameterError, match="cannot be written") as caught:
            write(value)
        assert caught.value.__context__ is None


def test_secrets_do_not_show_and_are_not_pickled() -> None:
    secret = Secret(b"a long secret", 7)
    for show in (repr, str, "{}".format, ascii):
        assert show(secret) == "<Secret>"
    for take in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(SerializationError, match="a Secret holds a secret"):
            take(secret)
    for wrong in (write(secret) + b"\0", write([b"a long secret", "seven"])):
        with pytest.raises(DecodeError, match=r"^no$") as caught:
            read(Secret, wrong, refusal="no")
        shown = locals_outside(__file__, caught.value)
        assert shown and "a long" not in shown
    with pytest.raises(ParameterError, match=r"^number must be int, got str$") as no:
        Secret(b"a long secret", "a long secret")  # type: ignore[arg-type]
    shown = locals_outside(__file__, no.value)
    assert shown and "a long" not in shown


def test_records_are_declared_with_what_msgspec_knows() -> None:
    """A wrong declaration would refuse everything."""
    kinds, waiting = set(), [Record]
    while waiting:
        kind = waiting.pop()
        kinds.add(kind)
        waiting += kind.__subclasses__()
    assert len(kinds) > 4
    for kind in kinds:
        msgpack.Decoder(kind)
