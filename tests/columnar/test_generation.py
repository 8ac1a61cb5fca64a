"""Messages that are made in place are the roles' own, whatever the sizes of batches and blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ccbps import Schema, SharedSeed, UInt
from ccbps.columnar import generation
from ccbps.columnar.generation import event_blocks, interest_blocks
from ccbps.errors import EventError, ParameterError, PredicateError, RandomnessReuseError
from ccbps.keys.sources import FileKey
from ccbps.matching import BroadcastMatch, FormulaMatch

SCHEMA = Schema(a=UInt(8), b=UInt(6))
BOX = FormulaMatch.box(SCHEMA)
TEMPLATE = FormulaMatch(SCHEMA, "a < :limit")
LABELS = [f"s{number}" for number in range(7)]
Made = dict[tuple[str, int], bytes]


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> FileKey:
    path = tmp_path_factory.mktemp("keys") / "seeds"
    path.write_text(SharedSeed.generate().to_text())
    return FileKey(path)


def batches(
    rows: list[tuple[Any, ...]], kinds: list[pa.DataType], cut: int
) -> list[pa.RecordBatch]:
    columns = [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(kinds)]
    whole = pa.RecordBatch.from_arrays(columns, names=[str(n) for n in range(len(kinds))])
    return [whole.slice(low, cut) for low in range(0, len(rows), cut)]


def event_rows(chunks: list[int], rounds: list[int], cut: int = 100) -> list[pa.RecordBatch]:
    rows = [(chunk, n, 37 * n % 256, n % 64) for chunk in chunks for n in sorted(rounds)]
    return batches(rows, [pa.int32(), pa.int64(), pa.int64(), pa.int64()], cut)


def interest_rows(rows: list[tuple[Any, ...]], cut: int = 100) -> list[pa.RecordBatch]:
    return batches(rows, [pa.string(), pa.int64(), pa.string()], cut)


def collected(blocks: Iterator[list[pa.Array]]) -> Made:
    """Messages by pair and round, each of which comes once, in order within a subscription."""
    out: Made = {}
    for rounds, messages, labels in blocks:
        keys = [*zip(labels.to_pylist(), rounds.to_pylist(), strict=True)]
        assert len(keys) <= generation.PAIRS
        assert not {*keys} & {*out}
        out |= dict(zip(keys, messages.to_pylist(), strict=True))
        assert len({*keys}) == len(keys)
    return out


@pytest.mark.parametrize(("cut", "most"), [(100, 1 << 16), (3, 5), (1, 1), (7, 11)])
def test_events_of_all_subscriptions(
    key: FileKey, monkeypatch: pytest.MonkeyPatch, cut: int, most: int
) -> None:
    monkeypatch.setattr(generation, "PAIRS", most)
    rounds, other = [3, 4, 5, 9, 65_536, 65_537], [2**40]
    made = collected(event_blocks(BOX, key, event_rows([0, 1], rounds, cut), LABELS, 3))
    made |= collected(event_blocks(BOX, key, event_rows([2], rounds + other, cut), LABELS, 3))
    seed = key.load()
    wanted: Made = {}
    for place, label in enumerate(LABELS):
        own = rounds + other * (place % 3 == 2)
        records = [{"a": 37 * n % 256, "b": n % 64} for n in own]
        sent = BOX.publisher(seed).encode(records, own, pairs=[label] * len(own))
        wanted |= {(label, n): bytes(m) for n, m in zip(own, sent, strict=True)}
    assert made == wanted


@pytest.mark.parametrize(("cut", "most"), [(100, 1 << 16), (3, 5), (1, 1), (2, 11)])
def test_interests_of_a_range_of_rounds(
    key: FileKey, monkeypatch: pytest.MonkeyPatch, cut: int, most: int
) -> None:
    monkeypatch.setattr(generation, "PAIRS", most)
    monkeypatch.setattr(generation, "SPAN_BITS", 3)
    rounds = range(5, 30)
    texts = {"s0": "a >= 9", "s1": "b < 7", "s2": "a >= 9"}
    rows = [(s, n, text) for s, text in texts.items() for n in rounds[::8]]
    blocks = interest_blocks(BOX, key, interest_rows(rows, cut), 30, double_quoted_strings=False)
    numbers = [n for _ in texts for n in rounds]
    labels = [label for label in texts for _ in rounds]
    wanted = BOX.subscriber(key.load()).encode([texts[s] for s in labels], numbers, pairs=labels)
    keys = zip(labels, numbers, strict=True)
    assert collected(blocks) == dict(zip(keys, map(bytes, wanted), strict=True))


def test_interests_of_private_constants_and_of_a_broadcast(key: FileKey) -> None:
    rows = batches([("s0", 0, 9), ("s1", 0, 40)], [pa.string(), pa.int64(), pa.int64()], 9)
    made = collected(interest_blocks(TEMPLATE, key, rows, 4, double_quoted_strings=False))
    own = TEMPLATE.subscriber(key.load()).encode({"limit": 40}, [3], pairs=["s1"])
    assert len(made) == 8 and made["s1", 3] == bytes(own[0])
    box = BroadcastMatch.box(SCHEMA)
    blocks = interest_blocks(
        box, key, interest_rows([("s0", 0, "a < 9")]), 4, double_quoted_strings=False
    )
    asked = collected(blocks)
    sent = box.publisher(key.load()).encode([{"a": 3, "b": 1}], [2])
    interest = np.frombuffer(asked["s0", 2], dtype=np.uint8)
    assert box.broker().match(sent, interest.reshape(1, -1)).all()


def test_rows_that_cannot_be_encoded_are_named(key: FileKey) -> None:
    def events(*rows: tuple[Any, ...]) -> list[pa.RecordBatch]:
        return batches([*rows], [pa.int32(), pa.int64(), pa.int64(), pa.int64()], 1)

    def ask(*rows: tuple[Any, ...]) -> None:
        some = interest_rows([*rows], 1)
        collected(interest_blocks(BOX, key, some, 9, double_quoted_strings=False))

    for rows, kind, problem in (
        ([(0, 1, 2, 3), (0, 1, 2, 4)], RandomnessReuseError, "round=1 occurs more than once"),
        ([(0, None, 2, 3)], ParameterError, "a round is NULL"),
        ([(0, -1, 2, 3)], ParameterError, "round=-1 is negative"),
        ([(0, 1, 2, 3), (0, 4, 300, 3)], EventError, "round=4: .*'a'"),
    ):
        with pytest.raises(kind, match=problem):
            collected(event_blocks(BOX, key, events(*rows), LABELS, 1))
    for rows, kind, problem in (
        ([("s0", 0, "a < 3"), ("s0", 0, "a < 4")], RandomnessReuseError, "'s0' occurs more than"),
        ([("s0", 0, None)], ParameterError, "the predicate is NULL"),
        ([(None, 0, "a < 3")], ParameterError, "the subscription is NULL"),
        ([("s1", 0, "a < 3"), ("s2", 0, "cost < 77")], PredicateError, "subscription='s2': "),
    ):
        with pytest.raises(kind, match=problem) as refused:
            ask(*rows)
        assert "77" not in str(refused.value)
