"""Messages that others sent, looked at before they are written to a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from ccbps.errors import ParameterError
from ccbps.matching.contract.matcher import Matcher
from ccbps.spark.columns import AGAIN, NUMBER_REPEATED, REPEATED, column
from ccbps.spark.repeated import mark_repeated
from ccbps.spark.store_tables import message_columns
from ccbps.store.index import StoreKind, message_width
from ccbps.wire import Cause, Kind, round_kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_CAUSES: Final = {
    "event": (Kind.EVENT, Cause.EVENT_WIDTH, Cause.EVENT_KIND),
    "interest": (Kind.INTEREST, Cause.INTEREST_WIDTH, Cause.INTEREST_KIND),
}


def check_messages(
    df: DataFrame,
    matcher: Matcher,
    *,
    kind: StoreKind,
    message: str | None = None,
    subscription: str | None = None,
    round: str = "round",
) -> DataFrame:
    """Say which rows are no messages: adds a string column "rejected", NULL where nothing is wrong.

    `write_messages` refuses all rows if one is malformed, and a stream that writes them would fail
    again each time it starts. Write those that are well formed, and keep the others elsewhere.
    Whether the two messages of a pair belong together is seen when they are matched.

    Example:
        .. code-block:: python

            def write(messages, number):
                told = cs.check_messages(messages, matcher, kind="event").persist()
                good, bad = told.where("rejected IS NULL"), told.where("rejected IS NOT NULL")
                cs.write_messages(good, "/data/quotes", matcher, kind="event", mode="append",
                                  batch=("quotes", number))
                bad.write.mode("append").parquet("/data/rejected")
                told.unpersist()

    Args:
        df: as for `write_messages`; not a stream, since rows that occur twice are looked for: call
            it in ``foreachBatch``.
        matcher: whose messages these should be; public.
        kind: "event" or "interest": which side's messages these should be.
        message: see `write_messages`, also for `subscription` and `round`.

    Returns:
        all columns of `df`, and the reason: a NULL, a negative round, a message of another width,
        side or version, or that the pair and round occurs more than once, with several messages
        (all such rows: nobody knows which of them is right; of one message that came twice,
        `write_messages` keeps one). Computed by Spark alone, in one shuffle.

    Raises:
        ParameterError: a column is missing or of the wrong type, or `subscription` does not apply;
            `df` is a stream, or has a column "rejected".
    """
    message, labels = message_columns(df, matcher, kind, message, subscription, round)
    if "rejected" in {name.lower() for name in df.columns}:
        raise ParameterError(
            "there is a column 'rejected' already; drop it, and the rows that it rejects"
        )
    side, other_width, other_kind = _CAUSES[kind]
    ids, content = [*labels, round], column(message)
    again = REPEATED if labels else NUMBER_REPEATED
    width = F.octet_length(content) == message_width(matcher, kind)
    begun = F.substring(content, 1, 1) == F.lit(bytes([round_kind(side)]))
    wrong = {
        **{f"column {name!r} is NULL": column(name).isNull() for name in (*ids, message)},
        f"column {round!r} is negative": column(round) < 0,
        other_width.text: ~width,
        other_kind.text: ~begun,
        again: column(AGAIN),
    }
    why = F.coalesce(*[F.when(condition, F.lit(text)) for text, condition in wrong.items()])
    # What is no message does not count, or anybody could have a good one set aside.
    marked = mark_repeated(df, ids, again, F.when(width & begun, content))
    return marked.select(*map(column, df.columns), why.alias("rejected"))
