"""Matching: messages in, answers out, at the party that learns the answers.

`match` chooses a function by the matcher's answers. The functions themselves have more options:

====================  =================  ===================================  ==================
`matcher.answers`     function           decides                              a row of the result
====================  =================  ===================================  ==================
`Answers.PAIRS`       `match_pairs`      messages of one pair and round       each pair
`Answers.ROUND`       `match_pairs`      messages of one round                each pair
`Answers.ALL`         `match_all_pairs`  every event with every interest      each match
`Answers.SUBSCRIBER`  `match_own`        every event, for its own interests   each match
====================  =================  ===================================  ==================

With `match_own`, every event message goes to everybody, and a subscriber's job finds those that it
can open. Requests and sessions are few. The roles exchange them once, on the driver, and their
`key` holds the result, which the workers read.

Hazard: a number that two events share shows whether they are alike, and opens the payload of one to
anyone who knows the other's. `ccbps.spark.encode_events` says who must keep numbers unique.
"""

from __future__ import annotations

from typing import Literal

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from ccbps.columnar.sessions import Opening, payload_bytes
from ccbps.errors import ParameterError
from ccbps.keys.sources import KeySource
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import Answers
from ccbps.spark.all_pairs import match_all_pairs
from ccbps.spark.columns import map_batches
from ccbps.spark.frames import (
    check_answers,
    check_key,
    check_matcher,
    check_on_error,
    refuse_alike,
    refuse_given,
    require,
)
from ccbps.spark.pairs import match_pairs


def match(
    events: DataFrame,
    interests: DataFrame | None,
    matcher: Matcher,
    key: KeySource | None = None,
    *,
    mask: str | None = None,
    on_error: Literal["raise", "reject", "drop"] = "raise",
) -> DataFrame:
    """Match event messages with interest messages by the function for this matcher's answers.

    That function is `match_pairs`, `match_all_pairs` or `match_own`, with the columns' default
    names. Call it directly where you need its other options.

    Example:
        Pairs of a round each; every event with every interest; a subscriber's own:

        .. code-block:: python

            matches = cs.match(events, interests, matcher)
            # subscription, round, matched: true in round 0, false in round 1
            found = cs.match(sent, kept, tags, cs.FileKey("/run/secrets/broker-role"))
            # subscription, once for each event that it matches
            read = cs.match(numbered, None, topics, cs.FileKey("/run/secrets/alice-topics"))
            # round, interest: one row for each event and interest that match

        An event for all interests of its round, in a matcher such as `BroadcastMatch`:

        .. code-block:: python

            answers = cs.match(one_each_round, interests, broadcast)
            # round, subscription, matched

    Args:
        events: event messages, with the columns that the function needs.
        interests: interest messages, likewise; None where the subscriber learns the answers, since
            its key holds its interests.
        matcher: the matcher; public.
        key: source of the broker's or the subscriber's `RoleKey` for the workers; None with rounds.
        mask: binary column of both DataFrames with masks of a content pre-filter, as
            `match_all_pairs` takes it: only pairs that pass are tested. None to test all pairs.
            Other functions take no masks, which would show the broker facts that their matchers
            hide.
        on_error: treatment of malformed messages; see the function. "drop" is for results whose
            rows are matches.

    Returns:
        The result of the function.

    Raises:
        ParameterError: `interests`, `key` or `mask` does not apply to this matcher, or is missing.
            The function raises other errors, too.
    """
    check_matcher(matcher)
    if matcher.answers is not Answers.ALL:
        why = "masks of contents show which events and subscriptions are alike, and it hides that"
        refuse_given(matcher, why, mask=mask)
    if matcher.answers is Answers.SUBSCRIBER:
        refuse_given(matcher, matcher.answers, interests=interests)
        return match_own(events, matcher, check_key(key), on_error=on_error)
    if interests is None:
        raise ParameterError(
            f"interests=None is for matchers whose subscribers find out what matches; "
            f"{type(matcher).__name__} has a broker answer"
        )
    if matcher.answers is Answers.TOGETHER:
        check_answers(matcher, "match")
    if matcher.answers is Answers.ALL:
        return match_all_pairs(
            events, interests, matcher, check_key(key), mask=mask, on_error=on_error
        )
    refuse_given(matcher, matcher.answers, key=key)
    return match_pairs(events, interests, matcher, on_error=on_error)  # type: ignore[arg-type]


def match_own(
    events: DataFrame,
    matcher: Matcher,
    key: KeySource,
    *,
    event: str = "event_message",
    on_error: Literal["raise", "reject", "drop"] = "raise",
) -> DataFrame:
    """Find the events that match a subscriber's own interests, which its key holds.

    Example:
        .. code-block:: python

            alice = cs.FileKey("/run/secrets/alice-topics")
            mine = cs.match_own(numbered, topics, alice, on_error="drop")
            # round, interest: one row for each event and interest that match

    Args:
        events: event messages. Other columns are kept.
        matcher: the matcher; public. Its subscribers learn the answers (`Answers.SUBSCRIBER`).
        key: source of the subscriber's `RoleKey` for the workers.
        event: binary column of `events`.
        on_error: "raise" fails the job at the first malformed message, and names its row. "drop"
            lets it match nothing. "reject" gives it a row with the cause in a string column
            "rejected", and NULL for `interest`.

    Returns:
        A row for each match: the columns of `events` without the message; `interest`, long, the
        interest's place among those that the subscriber encoded; where the matcher has payloads,
        the binary `payload`; and, with "reject", "rejected". A message that is NULL matches
        nothing.

    Raises:
        ParameterError: a column is missing, of the wrong type, or has the name of a result; or the
            matcher is of another kind.
        DecodeError: (as the cause of Spark's error, when the result is computed) with "raise", a
            message is malformed.
    """
    check_answers(matcher, "match_own")
    check_key(key)
    kept = tuple(name for name in events.columns if name != event)
    refuse_alike(events, {"events": kept, "the result": ["interest", "payload", "rejected"]})
    reject = check_on_error(on_error, drop=True)
    require(events, [], binary=[event], name="events")
    results = {"interest": "long"}
    if payload_bytes(matcher):
        results["payload"] = "binary"
    if reject:
        results["rejected"] = "string"
    schema = StructType([field for field in events.schema.fields if field.name in kept])
    for name, kind in results.items():
        if name in kept:
            raise ParameterError(f"column {name!r} would be there twice; rename it")
        schema.add(name, kind)
    opening = Opening(matcher, key, event, kept, tuple(schema.names), on_error)
    return map_batches(events, opening.matches, schema)
