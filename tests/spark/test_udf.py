"""Functions of columns: the page runs, its messages are the encoders' own, and no key is in a plan.

What batches of other matchers give is tested without Spark, in `tests/columnar/test_functions.py`.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ccbps import SharedSeed
from ccbps import spark as cs
from tests.support.spark_session import KEY, ROOT, rows_by

pytestmark = pytest.mark.spark

PAGE = ROOT / "docs" / "spark_functions.md"


@pytest.fixture(scope="module")
def world(spark: SparkSession, seed: SharedSeed) -> dict[str, Any]:
    """What the page defines, with a key that the workers have."""
    out: dict[str, Any] = {"spark": spark}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
        exec(code.replace('cs.FileKey("/run/secrets/publisher")', f"cs.EnvKey({KEY.name!r})"), out)
    return out


@pytest.mark.slow
def test_the_page_finds_what_it_says(world: dict[str, Any]) -> None:
    found = {tuple(row) for row in world["matches"].collect()}
    assert found == {("alice", 0), ("bob", 1)}
    assert dict(map(tuple, world["counted"].collect())) == {"alice": 1, "bob": 1}
    hits = rows_by(world["cheap"].select("subscription", "round", "hit"), "subscription", "round")
    assert {pair for pair, row in hits.items() if row["hit"]} == found
    assert len(hits) == 3


def test_messages_are_those_of_the_encoders(world: dict[str, Any]) -> None:
    """And of a struct in another order, with more fields."""
    quotes, matcher, key = world["quotes"], world["matcher"], world["key"]
    own = cs.encode_events(quotes, matcher, key)
    wide = world["encode_event"]("subscription", "round", F.struct("price", "round", "issue"))
    made = quotes.select("subscription", "round", wide.alias("event_message"))
    assert rows_by(made, "subscription", "round") == rows_by(
        own.select(made.columns), "subscription", "round"
    )


def test_rows_that_cannot_be_encoded_have_reasons(world: dict[str, Any]) -> None:
    encode = cs.encode_event_udf(world["matcher"], world["key"], on_error="reject")
    price = F.when(F.col("round") == 0, 300).otherwise(F.col("price")).alias("price")
    made = encode("subscription", "round", F.struct("issue", price))
    made = world["quotes"].select("subscription", "round", made.alias("m"))
    rows = rows_by(made.select("subscription", "round", "m.*"), "subscription", "round")
    (bad,) = (row for row in rows.values() if row["rejected"])
    assert (bad["round"], bad["message"]) == (0, None)
    assert "price" in bad["rejected"] and "300" not in bad["rejected"]


def test_no_key_is_in_a_plan(
    world: dict[str, Any], seed: SharedSeed, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("events", "interests", "matches", "sent"):
        world[name].explain(extended=True)
    told = capsys.readouterr().out
    assert "encode" in told and KEY.name not in told
    assert seed.to_text().partition(":")[2][:40] not in told
