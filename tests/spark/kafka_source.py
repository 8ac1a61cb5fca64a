"""A topic of Kafka as a streaming data source, where Spark's own, which is a jar, is not at hand.

confluent_kafka is imported in the methods: its types do not survive pickling.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition


class Topic(DataSource):  # type: ignore[misc]
    """Rows of some of the columns that Spark's own source has, under the same names."""

    @classmethod
    def name(cls) -> str:
        return "kafka_topic"

    def schema(self) -> str:
        return "topic string, partition int, offset long, key binary, value binary"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return _Reader(dict(self.options))


@dataclass
class _Range(InputPartition):  # type: ignore[misc]
    partition: int
    start: int
    stop: int


class _Reader(DataSourceStreamReader):  # type: ignore[misc]
    def __init__(self, options: Mapping[str, str]) -> None:
        self._servers, self._topic = options["servers"], options["topic"]

    def _consumer(self) -> Any:
        from confluent_kafka import Consumer

        return Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "none",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )

    def initialOffset(self) -> dict[str, int]:
        return {str(partition): 0 for partition in self._partitions(self._consumer())}

    def _partitions(self, consumer: Any) -> list[int]:
        return sorted(consumer.list_topics(self._topic, timeout=60).topics[self._topic].partitions)

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
        from confluent_kafka import TopicPartition

        consumer = self._consumer()
        found = {
            str(partition): consumer.get_watermark_offsets(TopicPartition(self._topic, partition))[
                1
            ]
            for partition in self._partitions(consumer)
        }
        consumer.close()
        return found

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[_Range]:
        return [_Range(int(p), start[p], end[p]) for p in end if start[p] < end[p]]

    def read(self, partition: _Range) -> Iterator[tuple[str, int, int, bytes | None, bytes]]:
        from confluent_kafka import TopicPartition

        if not isinstance(partition, _Range):
            return
        consumer = self._consumer()
        consumer.assign([TopicPartition(self._topic, partition.partition, partition.start)])
        at = partition.start
        while at < partition.stop:
            message = consumer.poll(60)
            if message is None or message.error():
                raise RuntimeError(f"no message at {partition}: {message and message.error()}")
            at = message.offset() + 1
            yield self._topic, partition.partition, at - 1, message.key(), message.value()
        consumer.close()
