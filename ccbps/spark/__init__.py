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

from typing import TYPE_CHECKING

from ccbps.loading import need, on_first_use

need(
    "ccbps.spark",
    "spark",
    "On a Spark worker, it is the worker's Python that lacks it: set PYSPARK_PYTHON to the "
    "interpreter that has ccbps",
)

if TYPE_CHECKING or not on_first_use(__name__):
    from ccbps.keys.sources import EnvKey as EnvKey
    from ccbps.keys.sources import FileKey as FileKey
    from ccbps.keys.sources import KeySource as KeySource
    from ccbps.rounds.event_ledger import EventLedger as EventLedger
    from ccbps.rounds.remote_ledger import LedgerServer as LedgerServer
    from ccbps.rounds.remote_ledger import RemoteLedger as RemoteLedger
    from ccbps.shares.operators import Operator as Operator
    from ccbps.spark.all_pairs import match_all_pairs as match_all_pairs
    from ccbps.spark.anonymity import anonymize as anonymize
    from ccbps.spark.columns import clean_names as clean_names
    from ccbps.spark.content_filter import event_masks as event_masks
    from ccbps.spark.content_filter import interest_masks as interest_masks
    from ccbps.spark.delivery import deliver as deliver
    from ccbps.spark.delivery import open_payloads as open_payloads
    from ccbps.spark.delivery import seal_payloads as seal_payloads
    from ccbps.spark.delivery import wrap_keys as wrap_keys
    from ccbps.spark.encoding import encode_events as encode_events
    from ccbps.spark.encoding import encode_interests as encode_interests
    from ccbps.spark.groups import answer_key_requests as answer_key_requests
    from ccbps.spark.groups import open_from_groups as open_from_groups
    from ccbps.spark.groups import seal_for_groups as seal_for_groups
    from ccbps.spark.matching import match as match
    from ccbps.spark.matching import match_own as match_own
    from ccbps.spark.networks import simulate as simulate
    from ccbps.spark.pairs import match_pairs as match_pairs
    from ccbps.spark.shares import match_shares as match_shares
    from ccbps.spark.shares import open_shares as open_shares
    from ccbps.spark.source import register_source as register_source
    from ccbps.spark.store_matching import match_messages as match_messages
    from ccbps.spark.store_writing import write_events as write_events
    from ccbps.spark.store_writing import write_interests as write_interests
    from ccbps.spark.stores import check_messages as check_messages
    from ccbps.spark.stores import compact_messages as compact_messages
    from ccbps.spark.stores import drop_interests as drop_interests
    from ccbps.spark.stores import drop_rounds as drop_rounds
    from ccbps.spark.stores import provided_rounds as provided_rounds
    from ccbps.spark.stores import write_messages as write_messages
    from ccbps.spark.topic_filter import make_filter as make_filter
    from ccbps.spark.topic_filter import prefilter as prefilter
    from ccbps.spark.topic_filter import topic_tokens as topic_tokens
    from ccbps.spark.udf import encode_event_udf as encode_event_udf
    from ccbps.spark.udf import encode_interest_udf as encode_interest_udf
    from ccbps.spark.udf import match_udf as match_udf
    from ccbps.spark.watching import observe as observe
    from ccbps.spark.watching import progress as progress
    from ccbps.spark.watching import settings_for as settings_for
