"""The examples in the docstrings of `ccbps.spark`, one after the other as the API page has them."""

from __future__ import annotations

import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from ccbps import SharedSeed
from ccbps import spark as cs
from ccbps.delivery import GroupSealer, Naive, SubscriberRing
from ccbps.filters import FilterKey
from tests.support.spark_session import issued, save
from tests.support.topic_strategies import introduce

PAGES = [
    Path(__file__).parents[2] / "docs" / "api" / f"{name}.md"
    for name in ("spark", "spark_stores", "spark_delivery")
]
BLOCK = re.compile(r"\.\. code-block:: python\n\n((?: {8}.*\n|\n)+)")


def example(name: str) -> str:
    blocks = BLOCK.findall(f"{inspect.getdoc(getattr(cs, name))}\n\n")
    assert blocks, name
    # Of a second one, some are only to be read.
    return "\n".join(map(textwrap.dedent, blocks[: 2 if name == "encode_events" else 1]))


@pytest.mark.slow
@pytest.mark.spark
def test_examples_run_in_the_order_of_the_page(spark: SparkSession, tmp_path: Path) -> None:
    page = "\n".join(path.read_text("utf-8") for path in PAGES)
    names = re.findall(r"autofunction:: ccbps\.spark\.(\w+)", page)
    world: dict[str, Any] = {"spark": spark}

    def run(code: str) -> None:
        for place in ("/run/secrets", "/data"):
            code = code.replace(place, str(tmp_path))
        exec(code, world)

    setting = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert setting is not None
    run(setting[1])
    for role, file in issued(world["tags"], tmp_path).items():
        Path(file.path).rename(tmp_path / f"{role}-role")
    save(tmp_path / "publisher", SharedSeed.generate())
    publisher, alice = (
        world["topics"].new_publisher(["issue = 'IBM'", "issue = 'AAPL'"]),
        world["topics"].new_subscriber(),
    )
    introduce(publisher, alice)
    alice.accept(publisher.answer(alice.encode("issue = 'IBM'")))
    sealer = GroupSealer(Naive(3))
    ring = SubscriberRing.of([sealer.join(number) for number in range(3)])
    for name, key in {
        "publisher-topics": publisher.key,
        "alice-topics": alice.key,
        "delivery-state": sealer.state,
        "delivery-keys": ring,
        "topics-key": FilterKey.generate(),
    }.items():
        save(tmp_path / name, key)

    def rows(name: str, *columns: str) -> list[tuple[Any, ...]]:
        frame: DataFrame = world[name]
        return sorted(tuple(row) for row in frame.select(*columns).collect())

    for name in names:
        run(example(name))
        if name == "match_messages":  # before the stores change
            assert rows("answers", "round", "matched") == [(0, True), (1, False)]
            assert rows("answered", "round") == [(0,)]

    assert rows("cheap", "subscription", "round") == [("alice", 0), ("alice", 1)]
    assert rows("encoded", "round") == [(0,), (1,)]
    assert rows("hopeful", "round") == [(0,), (1,)]
    assert rows("matches", "round", "matched") == [(0, True), (1, False)]
    allotted = rows("allotted", "subscription", "round", "id")
    assert {(label, number) for label, _, number in allotted} == {
        (label, number) for label in ("alice", "bob") for number in (0, 1)
    }
    assert {turn for _, turn, _ in allotted} == {0, 1}
    assert (world["gone"], rows("kept", "round")) == (2, [])
    assert rows("found", "subscription") == [("alice",)]
    assert rows("read", "round", "interest") == [(0, 0), (1, 0)]
    assert rows("hits", "round", "hit") == [(0, True), (1, False)]
    assert rows("blocked", "subscription") == [("alice",)]
    assert rows("mine", "round", "interest") == [(0, 0), (1, 0)]
    assert rows("opened", "subscription", "payload") == [("alice", b"up")]
    assert rows("received", "event", "subscriber", "payload") == [
        (0, 0, b"up"),
        (0, 1, b"up"),
        (1, 1, b"down"),
    ]
    assert rows("missing", "event") == rows("late", "event") == []
