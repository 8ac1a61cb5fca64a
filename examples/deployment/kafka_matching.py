"""Match events of Kafka with a table of interests, in Spark. An event's key is its topic's token.

spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:VERSION kafka_matching.py SERVERS
"""

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ccbps import spark as cs
from ccbps.matching import Matcher, from_json


def to_records(
    quotes: DataFrame, matcher: Matcher, publisher: cs.KeySource, topics: cs.KeySource
) -> DataFrame:
    """Encode quotes as records of Kafka. This is the publisher's job."""
    named = quotes.withColumn("token", cs.topic_tokens("issue", topics))
    sent = cs.encode_events(named, matcher, publisher, keep=["token"])
    return sent.select(F.col("token").alias("key"), F.col("event_message").alias("value"))


def match_records(
    records: DataFrame, interests: DataFrame, matcher: Matcher, broker: cs.KeySource
) -> DataFrame:
    """Match records of Kafka with interests of the same token. This is the broker's job.

    Args:
        records: columns of Spark's source for Kafka, a stream or a table.
        interests: columns subscription, interest_message and token.
        matcher: the matcher; public.
        broker: source of the broker's key.
    """
    events = records.select(
        F.concat_ws("-", "topic", "partition", "offset").alias("place"),
        F.col("key").alias("token"),
        F.col("value").alias("event_message"),
    )
    # Whoever may write to the log may write malformed events, which must not end the job.
    return cs.match_all_pairs(
        events, interests, matcher, broker, topic="token", on_error="drop"
    ).select("place", "subscription")


if __name__ == "__main__":
    session = SparkSession.builder.appName("matching").getOrCreate()
    log = session.readStream.format("kafka").option("kafka.bootstrap.servers", sys.argv[1])
    matches = match_records(
        log.option("subscribe", "events").load(),
        session.read.parquet("/data/interests"),
        from_json(Path("/etc/ccbps/quotes.matcher").read_text("utf-8")),
        cs.FileKey("/run/secrets/broker.key"),
    )
    rows = matches.select(F.col("place").alias("key"), F.col("subscription").alias("value"))
    sink = rows.writeStream.format("kafka").option("kafka.bootstrap.servers", sys.argv[1])
    sink = sink.option("topic", "matches").option("checkpointLocation", "/data/checkpoint")
    sink.start().awaitTermination()
