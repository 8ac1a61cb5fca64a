"""Encoders: attributes or predicates in, messages out.

What a row needs besides follows from the matcher's keying:

=================  ======================  ======================  =============================
`matcher.keying`   an event's row          an interest's row       the key source holds
=================  ======================  ======================  =============================
`Keying.ROUNDS`    subscription and round  subscription and round  seeds
`Keying.SERVER`    nothing                 subscription            a key of the key server's
`Keying.SESSION`   a number, as round      (roles make requests)   the publisher role's key
=================  ======================  ======================  =============================

With rounds, a subscription is the label of the pair whose seed is used, and a (subscription,
round) may be used by one event and one predicate, once each. A broadcast's events are for all
subscriptions, and have a round alone; with sessions, a number is used by one event. Duplicates
within a DataFrame are found, and none is encoded; rounds and numbers used by earlier jobs are
the caller's to remember (a sequence number that never goes back will do), and the input must be
stable: number rows once, in a table.

Of the other columns, only those that `keep` names stay, in the clear: nothing else in a DataFrame
travels to the broker unasked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from ccbps.columnar.encoding import event_messages, interest_messages
from ccbps.columnar.sessions import payload_bytes
from ccbps.errors import ParameterError
from ccbps.keys.sources import KeySource
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import Answers, Keying
from ccbps.rounds.event_ledger import EventLedger
from ccbps.rounds.remote_ledger import RemoteLedger
from ccbps.spark.addressing import (
    address,
    ahead,
    check_ahead,
    refuse_alone,
    refuse_unstable,
    with_refused,
)
from ccbps.spark.columns import NUMBER_REPEATED, REPEATED
from ccbps.spark.frames import (
    check_keep,
    check_key,
    check_matcher,
    check_on_error,
    refuse_floats,
    refuse_given,
    require,
)
from ccbps.spark.repeated import check_once, encode_rows, mark_repeated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ONCE = "each pair and round encodes one event and one predicate, once"
_ONE_EVENT = "each number is for one event, once"


def encode_events(
    df: DataFrame,
    matcher: Matcher,
    key: KeySource,
    *,
    subscription: str | None = None,
    round: str | None = None,
    payload: str | None = None,
    ledger: EventLedger | RemoteLedger | None = None,
    labels: Sequence[str] | None = None,
    event: str | None = None,
    keep: Sequence[str] = (),
    output: str = "event_message",
    on_error: Literal["raise", "reject"] = "raise",
) -> DataFrame:
    """Encode events: one row for each; with rounds, unless they are broadcast, for each recipient.

    Example:
        With rounds, with a key server, and with sessions:

        .. code-block:: python

            events = cs.encode_events(quotes, matcher, key)
            # subscription, round, event_message
            sent = cs.encode_events(quotes, tags, cs.FileKey("/run/secrets/publisher-role"))
            # event_message
            numbered = cs.encode_events(quotes, topics, cs.FileKey("/run/secrets/publisher-topics"))
            # round, event_message

        With rounds that a ledger allots, to events that have ids:

        .. code-block:: python

            ledger = cs.EventLedger("/data/quotes.ledger", rounds=1_000_000)
            named = quotes.selectExpr("round AS id", *schema)
            allotted = cs.encode_events(
                named, matcher, key, ledger=ledger, labels=["alice", "bob"], event="id", keep=["id"]
            )
            # subscription, round, id, event_message

    Args:
        df: has the schema's attributes, and the columns that the arguments name.
        matcher: public.
        key: where the workers find the publisher's master seed; or, without rounds, its `RoleKey`.
        subscription: with rounds only, and no broadcast, string column with the label of the pair;
            None for "subscription". With a ledger, a new column.
        round: column with the round, a whole number, or with sessions the event's number, which is
            public; None for "round". Without either it does not apply. With a ledger, a new column.
        ledger: with rounds only: allots a round to each event, and remembers it with a digest of
            the event, so that a task, a job or a stream that runs again writes the same messages.
            All workers must reach its file; or, of a `RemoteLedger`, the server that has it.
        labels: with a ledger, and no broadcast: the subscriptions that events are encoded for.
        event: with a ledger, column that names each event once and for all, a whole number or a
            string; None for "event". Errors show it.
        payload: with sessions whose matcher has `payload_bytes` only, and then always: binary
            column, values of at most that many bytes. Elsewhere see `seal_payloads`.
        keep: other columns to leave as they are, in the clear, for the broker to see.
        output: name of the message column.
        on_error: "raise" fails the job at the first row that cannot be encoded: a record that does
            not fit the schema or, with sessions, is of none of the publisher's topics or has a
            payload that is too long; "reject" gives it NULL and the reason, which shows no value,
            in a string column "rejected", and so to rows with a NULL, a negative number or a pair
            for which the key has no seed, and to all rows of a (subscription, round) or a number
            that occurs several times.

    Returns:
        `subscription` and `round` where they apply, what `keep` names and a binary message column,
        NULL where one of subscription, round and payload is; with "reject", also "rejected" (NULL
        where nothing is wrong).

    Raises:
        ParameterError: a column is missing, of the wrong type, or used twice; an argument does not
            apply to this matcher; `keep` names an attribute or the payload; or, when the result is
            computed, a number is negative.
        RandomnessReuseError: with "raise" and no ledger, a (subscription, round) or a number occurs
            twice (runs one job to find out); or, when the result is computed, an event's id was
            used for other content, or a number may have been used before the role's key was saved.
        LedgerError: the ledger cannot be used; or, when the result is computed, rounds run out.
        KeyMismatchError (when the result is computed): a ledger's server has not the key of the
            seed.
        EventError (when the result is computed): with "raise", a row cannot be encoded; names it
            by subscription and round.
    """
    reject = check_on_error(on_error)
    check_key(key)
    check_matcher(matcher)
    ids = _event_ids(matcher, subscription, round)
    payloads = _payloads(matcher, payload)
    attributes = list(matcher.schema)
    _require_apart(matcher, ids, [*attributes, *payloads])
    refuse_floats(df, [name for name in attributes if name in df.columns])
    if ledger is None:
        refuse_alone(labels=labels, event=event)
        kept = check_keep(keep, ids, [*attributes, *payloads])
        whole, text = ids[-1:], ids[:-1]
        require(df, [*attributes, *kept], whole=whole, text=text, binary=payloads, rest=False)
        for name in ids:
            refuse_unstable(df, name, "round" if name in whole else "subscription")
    else:
        df, kept = address(df, matcher, key, ids, ledger, labels, event, keep, reject)

    def encode(row: pa.Array) -> pa.Array:
        return event_messages(
            matcher, key, row, ids, payload=bool(payloads), once=ledger is None, reject=reject
        )

    result = encode_rows(
        df,
        encode,
        [*ids, *payloads, *attributes],
        kept,
        output,
        reject=reject,
        once=ids if ledger is None else (),
        what=_ONCE if ids[1:] else _ONE_EVENT,
        repeated=REPEATED if ids[1:] else NUMBER_REPEATED,
    )
    return result if ledger is None or not reject else with_refused(result)


def encode_interests(
    df: DataFrame,
    matcher: Matcher,
    key: KeySource,
    *,
    subscription: str = "subscription",
    round: str | None = None,
    rounds: range | None = None,
    partitions: int | None = None,
    predicate: str | None = None,
    constants: Mapping[str, str] | None = None,
    double_quoted_strings: bool = False,
    keep: Sequence[str] = (),
    output: str = "interest_message",
    on_error: Literal["raise", "reject"] = "raise",
) -> DataFrame:
    """Encode subscriptions: one row for each; with rounds, for each subscription and round.

    Requests of matchers with sessions are made by the subscriber role itself, which remembers their
    secrets.

    Example:
        With rounds, and with a key server:

        .. code-block:: python

            interests = cs.encode_interests(wanted, matcher, key)
            # subscription, round, interest_message
            wishes = wanted.select("subscription", "predicate").distinct()
            ahead = cs.encode_interests(wishes, matcher, key, rounds=range(5000, 6000))
            # the same columns, a thousand rows for each subscription
            kept = cs.encode_interests(
                wishes, tags, cs.FileKey("/run/secrets/subscriber-role")
            )
            # subscription, interest_message

    Args:
        df: has the columns that the arguments name.
        matcher: public.
        key: where the workers find the subscribers' seeds (or the master they come from); or,
            without rounds, a subscriber's `RoleKey`.
        subscription: string column that names the subscription; with rounds, the label of the pair.
            It is public, and is kept.
        round: with rounds only, column with the round, a whole number; None for "round". With
            `rounds`, a new column.
        rounds: with rounds only: encode each row for all of these, which no job before has encoded
            for. Each subscription has one row then.
        partitions: with `rounds`, tasks that these are spread over; None leaves them in those of
            the rows, which is one task where there is one subscription.
        predicate: column with SQL text, where an interest is a predicate; None for "predicate".
        constants: where the matcher has `private_names`, the column of each; by default, columns of
            the same names.
        double_quoted_strings: in predicates, what is in double quotes is a string, as in Spark, and
            names are quoted with backticks only; see `Schema.parse`.
        keep: other columns to leave as they are, in the clear, for the broker to see.
        output: name of the message column.
        on_error: "raise" fails the job at the first row that cannot be encoded; "reject" gives it
            NULL and the reason, which shows no value, in a string column "rejected", and so to rows
            with a NULL, a negative round or a pair for which the key has no seed, and to all rows
            of a (subscription, round) that occurs several times.

    Returns:
        `subscription`, `round` where it applies, what `keep` names and a binary message column,
        NULL where one of subscription, round, predicate and constants is; with "reject", also
        "rejected" (NULL where nothing is wrong).

    Raises:
        ParameterError: a column is missing, of the wrong type, or used twice; an argument does not
            apply to this matcher; `keep` names a column of the predicate; or `round` comes from
            rand(), monotonically_increasing_id() or the like, which change when a task runs again.
        RandomnessReuseError: with "raise", a (subscription, round) occurs twice. Runs one job to
            find out.
        PredicateError (when the result is computed): with "raise", a predicate cannot be used;
            names its subscription and round, and shows no name or constant of the predicate but the
            schema's own names.
    """
    reject = check_on_error(on_error)
    check_key(key)
    check_matcher(matcher)
    if matcher.keying is Keying.SESSION:
        raise ParameterError(
            f"{type(matcher).__name__} has sessions: a subscriber role encodes its requests "
            "itself, on the driver, and remembers their secrets; its key is for match"
        )
    if matcher.keying is Keying.ROUNDS:
        whole = ["round" if round is None else round]
    else:
        refuse_given(matcher, matcher.keying, round=round, rounds=rounds)
        whole = []
    check_ahead(rounds, partitions)
    ids, private = [subscription, *whole], _sources(matcher, predicate, constants)
    if double_quoted_strings and matcher.private_names is not None:
        raise ParameterError(
            f"double_quoted_strings= does not apply to {type(matcher).__name__}: its interests are "
            "values of private constants, and no SQL"
        )
    _require_apart(matcher, ids, private)
    kept = check_keep(keep, ids, private)
    # Where interests are predicates, they are text; constants are of any type.
    texts = [subscription] + private * (matcher.private_names is None)
    there = [name for name in kept if rounds is None or name not in whole]
    known = whole if rounds is None else []
    require(df, [*private, *there], whole=known, text=texts, rest=False)
    refuse_floats(df, private)
    rows, once = df, [name for name in ids if rounds is None or name not in whole]
    if whole:
        for name in once:
            refuse_unstable(df, name, "round" if name in known else "subscription")
    if whole and reject:
        df = mark_repeated(df, once, _ONCE)
    if rounds is not None:
        df = ahead(df, [*there, *private], whole[0], rounds, partitions)

    def encode(row: pa.Array) -> pa.Array:
        return interest_messages(
            matcher, key, row, ids, double_quoted_strings=double_quoted_strings, reject=reject
        )

    result = encode_rows(df, encode, [*ids, *private], kept, output, reject=reject)
    if whole and not reject:
        check_once(rows, once, _ONCE)
    return result


def _event_ids(matcher: Matcher, subscription: str | None, round: str | None) -> list[str]:
    """Return the columns that name an event's row: text but the last, which is a whole number."""
    number = "round" if round is None else round
    if matcher.answers is Answers.PAIRS:
        return ["subscription" if subscription is None else subscription, number]
    refuse_given(matcher, matcher.keying, subscription=subscription)
    if matcher.keying is not Keying.SERVER:
        return [number]
    refuse_given(matcher, matcher.keying, round=round)
    return []


def _payloads(matcher: Matcher, payload: str | None) -> list[str]:
    """Return the column of payloads, or none."""
    if matcher.keying is not Keying.SESSION:
        refuse_given(matcher, matcher.keying, payload=payload)
        return []
    most = payload_bytes(matcher)
    if (payload is None) == bool(most):
        wanted = "a binary column of payloads" if most else "None"
        raise ParameterError(
            f"payload must be {wanted}, as the matcher has payload_bytes={most}; got {payload!r}"
        )
    return [] if payload is None else [payload]


def _sources(
    matcher: Matcher, predicate: str | None, constants: Mapping[str, str] | None
) -> list[str]:
    """Return the columns that an interest is made of."""
    names, of = matcher.private_names, type(matcher).__name__
    if names is None:
        if constants is not None:
            raise ParameterError(
                f"constants= does not apply to {of}: its interests are predicates, without private "
                "constants"
            )
        return ["predicate" if predicate is None else predicate]
    if predicate is not None:
        raise ParameterError(
            f"predicate= does not apply to {of}: an interest is values of its private constants, "
            f"{', '.join(names) or 'none'}; name their columns in constants="
        )
    unknown = set(constants or {}) - set(names)
    if unknown:
        raise ParameterError(
            f"constants names {min(unknown)!r}; the matcher's private constants are "
            f"{', '.join(names) or 'none'}"
        )
    return [(constants or {}).get(name, name) for name in names]


def _require_apart(matcher: Matcher, ids: Sequence[str], private: Iterable[str]) -> None:
    """Refuse a public column that is also to be encoded."""
    alone = len(ids) == 1 and matcher.keying is not Keying.SERVER
    for argument, name in zip(("subscription", "round")[alone:], ids, strict=False):
        if name in private:
            raise ParameterError(
                f"{argument}={name!r} is also a column to be encoded; use another column for "
                f"{argument}="
            )
