"""Matching in DataFrames: a thin layer from columns to columns over the same kernels.

Data come as Arrow columns and leave as Arrow columns, and there are no rows in Python. NULL stays
NULL. The functions use only DataFrame methods and `pyspark.sql.functions`, so they work under
classic sessions and Spark Connect.

`encode_events`, `encode_interests` and `match` serve every scheme. The columns that a row needs,
and those of the result, follow from `matcher.keying` and `matcher.answers`. `match` chooses one of
`match_pairs`, `match_all_pairs` and `match_own`, which have more options. A `KeySource` names a
key: it holds the place of the key (an environment variable, a file) and never the key itself.
`match_udf`, `encode_event_udf` and `encode_interest_udf` make functions of columns, for `select`
and SQL.

The package needs ``pip install 'ccbps[spark]'`` and Java 17 or later.
"""

try:
    import pyarrow  # noqa: F401
    import pyspark  # noqa: F401
except ModuleNotFoundError as error:
    raise ImportError(
        f"ccbps.spark needs {error.name}: pip install 'ccbps[spark]'. On a Spark worker, it is the "
        "worker's Python that lacks it: set PYSPARK_PYTHON to the interpreter that has ccbps"
    ) from error

from ccbps.keys.sources import EnvKey, FileKey, KeySource
from ccbps.rounds.event_ledger import EventLedger
from ccbps.rounds.remote_ledger import LedgerServer, RemoteLedger
from ccbps.spark.all_pairs import match_all_pairs
from ccbps.spark.columns import clean_names
from ccbps.spark.delivery import deliver, open_payloads, seal_payloads, wrap_keys
from ccbps.spark.encoding import encode_events, encode_interests
from ccbps.spark.groups import answer_key_requests, open_from_groups, seal_for_groups
from ccbps.spark.matching import match, match_own
from ccbps.spark.networks import simulate
from ccbps.spark.pairs import match_pairs
from ccbps.spark.source import register_source
from ccbps.spark.store_matching import match_messages
from ccbps.spark.store_writing import write_events, write_interests
from ccbps.spark.stores import (
    check_messages,
    compact_messages,
    drop_rounds,
    provided_rounds,
    write_messages,
)
from ccbps.spark.topic_filter import make_filter, prefilter, topic_tokens
from ccbps.spark.udf import encode_event_udf, encode_interest_udf, match_udf
from ccbps.spark.watching import observe, progress, settings_for

__all__ = [
    "EnvKey",
    "EventLedger",
    "FileKey",
    "KeySource",
    "LedgerServer",
    "RemoteLedger",
    "answer_key_requests",
    "check_messages",
    "clean_names",
    "compact_messages",
    "deliver",
    "drop_rounds",
    "encode_event_udf",
    "encode_events",
    "encode_interest_udf",
    "encode_interests",
    "make_filter",
    "match",
    "match_all_pairs",
    "match_messages",
    "match_own",
    "match_pairs",
    "match_udf",
    "observe",
    "open_from_groups",
    "open_payloads",
    "prefilter",
    "progress",
    "provided_rounds",
    "register_source",
    "seal_for_groups",
    "seal_payloads",
    "settings_for",
    "simulate",
    "topic_tokens",
    "wrap_keys",
    "write_events",
    "write_interests",
    "write_messages",
]
