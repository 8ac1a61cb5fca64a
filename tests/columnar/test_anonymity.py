"""Rows of Arrow batches made k-anonymous, piece by piece."""

from __future__ import annotations

import itertools
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccbps import Decimal, Schema, Text, UInt
from ccbps.anonymity import Anonymizer, Distinct
from ccbps.columnar.anonymity import anonymous_rows
from ccbps.errors import EventError

SCHEMA = Schema(age=UInt(6), name=Text(2, nullable=True), price=Decimal(0, 9, "0.5"))


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.integers(0, 63), st.none() | st.sampled_from(["", "a", "b"]), st.integers(0, 18)
            ),
            max_size=9,
        ),
        max_size=8,
    ),
    st.integers(1, 3),
    st.integers(0, 9),
    st.booleans(),
)
def test_batches_of_any_size(
    groups: list[list[tuple[int, str | None, int]]], k: int, more: int, diverse: bool
) -> None:
    rows = [row for group in groups for row in group]
    types = [("id", pa.int64()), ("age", pa.int8()), ("name", pa.string()), ("price", pa.float64())]
    table = pa.table(
        [
            pa.array(range(len(rows)), pa.int64()),
            pa.array([a for a, _, _ in rows], pa.int8()),
            pa.array([n for _, n, _ in rows], pa.string()),
            pa.array([p / 2 for _, _, p in rows], pa.float64()),
        ],
        schema=pa.schema(types),
    )
    edges = np.cumsum([0, *map(len, groups)])
    batches = [
        batch
        for start, stop in itertools.pairwise(edges)
        for batch in (table.slice(start, stop - start).to_batches())
    ]
    rule = Distinct(2) if diverse else None
    anonymizer = Anonymizer(SCHEMA, k, sensitive=["price"], diversity=rule)
    out = [
        row
        for batch in anonymous_rows(anonymizer, ["id"], k + more, batches)
        for row in batch.to_pylist()
    ]
    classes = defaultdict(list)
    for row in out:
        age, name, price = rows[row["id"]]
        assert row["age_low"] <= age <= row["age_high"]
        order = [None, "", "a", "b"]
        assert order.index(row["name_low"]) <= order.index(name) <= order.index(row["name_high"])
        assert row["price"] == price / 2
        key = (row["age_low"], row["age_high"], row["name_low"], row["name_high"])
        classes[key].append(price)
    assert len({row["id"] for row in out}) == len(out)
    for prices in classes.values():
        assert len(prices) >= k
        assert not diverse or len(set(prices)) >= 2
    if not diverse:
        assert len(out) == (len(rows) if len(rows) >= k else 0)


def test_a_value_that_does_not_fit() -> None:
    batch = pa.record_batch({"age": [1, 64], "name": ["a", "b"], "price": [1.0, 2.0]})
    with pytest.raises(EventError, match="'age', row 1: out of range"):
        list(anonymous_rows(Anonymizer(SCHEMA, 1), [], 10, [batch]))
