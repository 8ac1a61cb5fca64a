"""Checks of DataFrames and arguments, before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame

from ccbps.checks import choice, instance, whole
from ccbps.errors import ParameterError
from ccbps.keys.sources import KeySource
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import Answers, Keying

PLAN_BYTES: Final = 32 << 20
"""Largest size of the messages that travel with a plan (bytes). Spark Connect fails, or hangs, at
128 MiB."""
WHOLE: Final = ("byte", "short", "integer", "long")
"""Spark's types of whole numbers."""

_REASONS: Final[dict[Keying | Answers, str]] = {
    Keying.ROUNDS: "its messages are each made for one pair and round, from a shared seed",
    Keying.SERVER: "its messages are made with the keys of a key server, and have no rounds",
    Keying.BROKERS: "its messages are made with a client's key, and have no rounds",
    Keying.SESSION: "its publisher and subscribers agree on keys in sessions, before there are "
    "events; an event is for everybody",
    Answers.PAIRS: "its broker has no key, and answers for an event and an interest of one pair "
    "and round",
    Answers.ROUND: "its broker has no key, and answers for the event and the interests of one "
    "round",
    Answers.ALL: "its broker answers for every event with every interest",
    Answers.TOGETHER: "its three brokers answer together, each with a part of the messages",
    Answers.SUBSCRIBER: "no broker answers; its subscribers find out by themselves what matches",
}

_FUNCTIONS: Final[dict[Answers, str]] = {
    Answers.PAIRS: "match_pairs",
    Answers.ROUND: "match_pairs",
    Answers.ALL: "match_all_pairs",
    Answers.TOGETHER: "match_shares",
    Answers.SUBSCRIBER: "match_own",
}


def check_keep(keep: Sequence[str], always: Sequence[str], private: Sequence[str]) -> list[str]:
    """Return the columns that an encoder leaves as they are: `always`, then `keep`.

    Raises:
        ParameterError: `keep` is not a list of names, or names a column that is to be encoded.
    """
    if isinstance(keep, str) or not all(isinstance(name, str) for name in keep):
        raise ParameterError(f"keep must be a list of column names, got {keep!r}")
    for name in keep:
        if name in private:
            raise ParameterError(
                f"keep names {name!r}, which is encoded because the broker must not see it; leave "
                "it out, or copy it to a column of another name if it is public"
            )
    return list(dict.fromkeys([*always, *keep]))


def refuse_floats(df: DataFrame, columns: Iterable[str]) -> None:
    """Refuse columns of FLOAT.

    A decimal that is stored as FLOAT becomes a number near it. How near depends on the number, so
    one row would be encoded and the next one refused.
    """
    for name in columns:
        if df.schema[name].dataType.typeName() == "float":
            raise ParameterError(
                f"column {name!r} is FLOAT, whose 24 bits hold neither most decimals nor all whole "
                "numbers; cast it to the decimals it stands for, such as "
                f"F.col({name!r}).cast('decimal(12,2)')"
            )


def check_key(key: object) -> KeySource:
    """Return a key source; refuse a key itself."""
    hint = "pass FileKey('path') or EnvKey('NAME'), since a key must not enter a Spark plan"
    return instance("key", key, KeySource, hint=hint)


def check_matcher(matcher: object) -> None:
    """Refuse anything but a matcher."""
    instance("matcher", matcher, Matcher)


def check_answers(matcher: Matcher, function: str) -> None:
    """Refuse a matcher that needs another function to match."""
    check_matcher(matcher)
    right = _FUNCTIONS[matcher.answers]
    if right != function:
        raise ParameterError(
            f"{function} does not apply to {type(matcher).__name__}: {_REASONS[matcher.answers]}; "
            f"call {right}"
        )


def refuse_given(matcher: Matcher, because: Keying | Answers | str, **arguments: object) -> None:
    """Refuse arguments that are not None, since a matcher of this kind has no use for them."""
    for name, value in arguments.items():
        if value is not None:
            reason = because if isinstance(because, str) else _REASONS[because]
            if because is Keying.ROUNDS and matcher.answers is Answers.ROUND:
                reason = "from a shared seed, an event message of a round serves all subscriptions"
            raise ParameterError(f"{name}= does not apply to {type(matcher).__name__}: {reason}")


def refuse_quoting(matcher: Matcher, double_quoted_strings: bool) -> None:
    """Refuse double-quoted strings where interests are no SQL."""
    if matcher.private_names is not None:
        why = "its interests are values of private constants, and no SQL"
        refuse_given(matcher, why, double_quoted_strings=double_quoted_strings or None)


def check_on_error(on_error: str, *, drop: bool = False) -> bool:
    """Return whether rows that cannot be used are set aside with a reason.

    Args:
        on_error: the caller's choice.
        drop: True to allow "drop", too, for results whose rows are matches.

    Raises:
        ParameterError: `on_error` is no such choice.
    """
    options = ("raise", "reject", "drop") if drop else ("raise", "reject")
    hint = "the result has all rows, so that none is dropped" if on_error == "drop" else ""
    return choice("on_error", on_error, options, hint=hint) == "reject"


def refuse_rejected(names: Iterable[str]) -> None:
    """Refuse a column "rejected", since the result gets one."""
    if "rejected" in {name.lower() for name in names}:
        raise ParameterError(
            "there is a column 'rejected' already, and the result gets one; drop it, and the rows "
            "that it rejects"
        )


def check_partitions(partitions: int | None) -> int | None:
    """Return a number of tasks, at least 1; or None, which leaves the choice to Spark."""
    return None if partitions is None else whole("partitions", partitions, 1)


def is_connect(client: object) -> bool:
    """Return whether a session, or a DataFrame, belongs to Spark Connect."""
    return "connect" in type(client).__module__


def require(
    df: DataFrame,
    columns: Sequence[str],
    *,
    whole: Sequence[str] = (),
    text: Sequence[str] = (),
    binary: Sequence[str] = (),
    boolean: Sequence[str] = (),
    name: str = "the DataFrame",
    rest: bool = True,
) -> None:
    """Refuse a DataFrame that lacks columns, or has columns of unsuitable types.

    Args:
        df: the DataFrame.
        columns: names of columns of any type.
        whole: names of columns of whole numbers.
        text: names of columns of strings.
        binary: names of columns of bytes.
        boolean: names of columns of true and false.
        name: name of the DataFrame in errors.
        rest: check the names of all other columns, too, since they are kept.
    """
    used = [*columns, *whole, *text, *binary, *boolean]
    if len({c.lower() for c in df.columns}) < len(df.columns):
        # Spark could not tell which one of several columns is meant.
        fold = str if _tells_case(df) else str.lower
        for c in df.columns if rest else used:
            same = [other for other in df.columns if fold(other) == fold(c)]
            if len(same) > 1:
                raise ParameterError(
                    f"{name} has {len(same)} columns named {same[0]!r} (and {same[1]!r}); rename "
                    "or drop one"
                )
    missing = [c for c in used if c not in df.columns]
    if missing:
        dropped = any(c.endswith("_message") for c in df.columns)
        raise ParameterError(
            f"column {missing[0]!r} is missing: {name} has {', '.join(df.columns)}"
            + dropped * "; encoders leave out the columns that keep=[...] does not name"
        )
    for wanted, names, kinds in (
        ("a whole number", whole, WHOLE),
        ("a string", text, ("string",)),
        ("binary", binary, ("binary",)),
        ("a boolean", boolean, ("boolean",)),
    ):
        for c in names:
            kind = df.schema[c].dataType.typeName()
            if kind not in kinds:
                raise ParameterError(f"column {c!r} must be {wanted}, got {kind}; cast it first")


def refuse_alike(df: DataFrame, sides: Mapping[str, Iterable[str]]) -> None:
    """Refuse column names that differ in case only, unless Spark tells these apart.

    Names of one side are not compared with each other, and equal names are allowed.

    Args:
        df: a DataFrame of the session.
        sides: origin of the columns, in words, and their names.
    """
    seen: dict[str, tuple[str, str]] = {}
    for side, names in sides.items():
        for name in names:
            other, place = seen.setdefault(name.lower(), (name, side))
            if other != name and place != side and not _tells_case(df):
                raise ParameterError(
                    f"column {other!r} of {place} and column {name!r} of {side} differ in case "
                    "only, which Spark does not tell apart; rename one"
                )


def _tells_case(df: DataFrame) -> bool:
    """Return whether names that differ in case are two names in this session."""
    return bool(df.sparkSession.conf.get("spark.sql.caseSensitive").lower() == "true")
