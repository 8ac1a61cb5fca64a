"""What the tests of Spark share: keys by name, DataFrames, streams, settings and their results."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from ccbps import spark as cs
from ccbps.matching.contract.matcher import Matcher

MODE = os.environ.get("CCBPS_TEST_SPARK", "classic")
KEY = cs.EnvKey("CCBPS_TEST_SEED")
# For so little data, Java's second compiler and its parallel collector take longer than they save.
# Without that compiler the code cache is small: Spark fills it, and then compiles again and again.
# Where memory runs out, Spark may wait for ever for a thread that has died.
JAVA_OPTIONS = (
    "-XX:+ExitOnOutOfMemoryError -XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    "-XX:ReservedCodeCacheSize=256m -XX:MetaspaceSize=256m"
)
ROOT = Path(__file__).parents[2]
Keys = dict[str, cs.FileKey]
Pairs = dict[tuple[str, int], Any]


def contents(*folders: Path) -> Iterator[tuple[Path, bytes]]:
    """All files of folders, from which a program may remove some, and folders, at any time."""
    for folder in folders:
        # Path.rglob raises an error where a folder goes while it is looked through.
        for place, _, names in os.walk(folder):
            for path in filter(Path.is_file, map(Path(place).joinpath, names)):
                with contextlib.suppress(FileNotFoundError):
                    yield path, path.read_bytes()


@dataclass(frozen=True)
class Places:
    """Folders Spark writes to of its own accord."""

    event_log: Path
    local: Path

    def contents(self) -> Iterator[tuple[Path, bytes]]:
        """What stands in them now; Spark may remove a file at any time."""
        return contents(self.event_log, self.local)

    def check_hidden(self, needles: list[bytes], text: str = "") -> None:
        """No needle is in a text, or in a file; and there are files."""
        assert not any(needle in text.encode() for needle in needles)
        files = list(self.contents())
        if MODE == "classic":
            assert any(path.is_relative_to(self.event_log) for path, _ in files)
        for path, content in files:
            assert not any(needle in content for needle in needles), path.name


def save(path: Path, key: Any) -> cs.FileKey:
    path.write_text(key.to_text())
    return cs.FileKey(path)


def issued(matcher: Matcher, folder: Path) -> Keys:
    """The three parties' keys, in files that the workers can read."""
    server = matcher.key_server()
    return {
        "publisher": save(folder / "publisher", server.publisher_key()),
        "subscriber": save(folder / "subscriber", server.subscriber_key("alice")),
        "broker": save(folder / "broker", server.broker_key()),
    }


def wishes(spark: SparkSession, predicates: Mapping[str, str | None]) -> DataFrame:
    """Predicates of subscriptions."""
    return spark.createDataFrame(
        list(predicates.items()), "subscription string, predicate string"
    ).coalesce(1)


def damaged(
    df: DataFrame, name: str, where: Mapping[str, bytes | bytearray | Column | None]
) -> DataFrame:
    """Messages replaced where SQL conditions hold."""
    message = F.col(name)
    for condition, content in where.items():
        content = content if isinstance(content, Column) else F.lit(content)
        message = F.when(F.expr(condition), content).otherwise(message)
    return df.withColumn(name, message)


def stored(df: DataFrame, path: Path) -> DataFrame:
    """The same rows, computed once."""
    df.write.parquet(str(path))
    return df.sparkSession.read.parquet(str(path))


def rows_by(df: DataFrame, *names: str) -> dict[Any, Any]:
    """The rows, each of which has other values of some columns, by these values."""
    rows = df.collect()
    out = {tuple(row[name] for name in names): row for row in rows}
    assert len(out) == len(rows)
    return {key[0]: row for key, row in out.items()} if len(names) == 1 else out


def answers(df: DataFrame) -> Pairs:
    return {pair: row["matched"] for pair, row in rows_by(df, "subscription", "round").items()}


def reasons(df: DataFrame, *names: str) -> dict[Any, str]:
    """Why rows are set aside, by the columns that name them."""
    rejected = df.select(*names, "rejected").where("rejected IS NOT NULL")
    return {name: row["rejected"] for name, row in rows_by(rejected, *names).items()}


def drained(
    df: DataFrame, folder: Path, each: Callable[[DataFrame, int], None] | None = None
) -> StreamingQuery:
    """A stream's query, which has written all that is there to `out`, or given it to a function."""
    writer = df.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    if each is None:
        writer = writer.format("parquet").option("path", str(folder / "out"))
    else:
        writer = writer.foreachBatch(each)
    query: StreamingQuery = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def streamed(df: DataFrame, folder: Path) -> DataFrame:
    """What a stream gives, in all its micro-batches."""
    drained(df, folder)
    return df.sparkSession.read.schema(df.schema).parquet(str(folder / "out"))


@contextlib.contextmanager
def changed(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Other settings of a session, for a while."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)


def explained(df: DataFrame) -> str:
    """A plan as it is printed before it is run."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        df.explain()
    return out.getvalue()
