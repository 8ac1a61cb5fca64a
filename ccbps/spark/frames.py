"""What the adapter asks of DataFrames and arguments before anything is computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ccbps.errors import ParameterError
from ccbps.keys.sources import KeySource
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import Answers, Keying

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PLAN_BYTES: Final = 32 << 20
"""Messages that travel with the plan, at most: Spark Connect fails, or hangs, at 128 MiB."""

_WHY: Final[dict[Keying | Answers, str]] = {
    Keying.ROUNDS: "its messages are each made for one pair and round, from a shared seed",
    Keying.SERVER: "its messages are made with the keys of a key server, and have no rounds",
    Keying.SESSION: "its publisher and subscribers agree on keys in sessions, before there are "
    "events; an event is for everybody",
    Answers.PAIRS: "its broker has no key, and answers for an event and an interest of one pair "
    "and round",
    Answers.ROUND: "its broker has no key, and answers for the event and the interests of one "
    "round",
    Answers.ALL: "its broker answers for every event with every interest",
    Answers.SUBSCRIBER: "no broker answers; its subscribers find out by themselves what matches",
}
_BROADCAST: Final = "from a shared seed, an event message of a round serves all subscriptions"
_DECIDES: Final[dict[Answers, str]] = {
    Answers.PAIRS: "match_pairs",
    Answers.ROUND: "match_pairs",
    Answers.ALL: "match_all_pairs",
    Answers.SUBSCRIBER: "match_own",
}
_WHOLE = ("byte", "short", "integer", "long")


def check_keep(keep: Sequence[str], always: Sequence[str], private: Sequence[str]) -> list[str]:
    """Return the columns that an encoder leaves as they are: `always`, then `keep`.

    Raises:
        ParameterError: `keep` is not a list of names, or names what is to be encoded.
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

    A decimal stored there is only some number near it, and how near depends on the number, so that
    one row would be encoded and the next refused.
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
    if not isinstance(key, KeySource):
        raise ParameterError(
            f"key must be a KeySource such as FileKey('path') or EnvKey('NAME'), got "
            f"{type(key).__name__}; a key itself must not enter a Spark plan"
        )
    return key


def parallelism(spark: SparkSession) -> int:
    """Return how many tasks the session runs at a time; 0 if unknown, as in Spark Connect."""
    return 0 if is_connect(spark) else int(spark.sparkContext.defaultParallelism)


def is_connect(of: object) -> bool:
    """Return whether a session, or a DataFrame, is one of Spark Connect."""
    return "connect" in type(of).__module__


def check_matcher(matcher: Matcher) -> None:
    """Refuse anything but a matcher."""
    if not isinstance(matcher, Matcher):
        raise ParameterError(f"matcher must be a matcher, got {type(matcher).__name__}")


def check_answers(matcher: Matcher, function: str) -> None:
    """Refuse a matcher that another of the three functions of `ccbps.spark.match` is for."""
    check_matcher(matcher)
    right = _DECIDES[matcher.answers]
    if right != function:
        raise ParameterError(
            f"{function} does not apply to {type(matcher).__name__}: {_WHY[matcher.answers]}; call "
            f"{right}"
        )


def refuse_given(matcher: Matcher, because: Keying | Answers, **arguments: object) -> None:
    """Refuse arguments that are not None, because a matcher has no use for them."""
    for name, value in arguments.items():
        if value is not None:
            broadcast = because is Keying.ROUNDS and matcher.answers is Answers.ROUND
            why = _BROADCAST if broadcast else _WHY[because]
            raise ParameterError(f"{name}= does not apply to {type(matcher).__name__}: {why}")


def check_on_error(on_error: str, *, drop: bool = False) -> bool:
    """Return whether rows that cannot be used are set aside with the reason.

    Args:
        on_error: the caller's choice.
        drop: allow "drop", too, since the result has matches only.

    Raises:
        ParameterError: there is no such choice.
    """
    choices = "'raise', 'reject' or 'drop'" if drop else "'raise' or 'reject'"
    if on_error not in ("raise", "reject") and not (drop and on_error == "drop"):
        why = "; the result has all rows, so that none is dropped" * (on_error == "drop")
        raise ParameterError(f"on_error must be {choices}, got {on_error!r}{why}")
    return on_error == "reject"


def check_partitions(partitions: int | None) -> None:
    """Refuse a number of tasks below 1; None is Spark's own choice."""
    if partitions is not None and (not isinstance(partitions, int) or partitions < 1):
        raise ParameterError(
            f"partitions must be a whole number, at least 1, or None, got {partitions!r}"
        )


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
    """Refuse a DataFrame that lacks columns, or has them of types that do not name rows exactly.

    Args:
        whole: columns that must hold whole numbers.
        text: columns that must hold strings.
        binary: columns that must hold bytes.
        boolean: columns that must hold true and false.
        rest: the other columns are used, too: they are kept.
    """
    used = [*columns, *whole, *text, *binary, *boolean]
    _require_unique(df, df.columns if rest else used, name)
    missing = [c for c in used if c not in df.columns]
    if missing:
        dropped = any(c.endswith("_message") for c in df.columns)
        raise ParameterError(
            f"column {missing[0]!r} is missing: {name} has {', '.join(df.columns)}"
            + dropped * "; encoders leave out the columns that keep=[...] does not name"
        )
    for wanted, names, kinds in (
        ("a whole number", whole, _WHOLE),
        ("a string", text, ("string",)),
        ("binary", binary, ("binary",)),
        ("a boolean", boolean, ("boolean",)),
    ):
        for c in names:
            kind = df.schema[c].dataType.typeName()
            if kind not in kinds:
                raise ParameterError(f"column {c!r} must be {wanted}, got {kind}; cast it first")


def refuse_alike(df: DataFrame, sides: Mapping[str, Iterable[str]]) -> None:
    """Refuse a result whose columns differ in case only, where Spark does not tell these apart.

    Args:
        df: of the session.
        sides: where columns are from, in words, and their names. What one side has twice, and what
            two sides have in the same case, is left to others.
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


def _require_unique(df: DataFrame, columns: Iterable[str], name: str) -> None:
    """Refuse two columns of one name: Spark could not tell which is meant."""
    if len({c.lower() for c in df.columns}) == len(df.columns):
        return
    exact = _tells_case(df)

    def fold(c: str) -> str:
        return c if exact else c.lower()

    counts = Counter(map(fold, df.columns))
    for c in columns:
        if counts[fold(c)] > 1:
            first, second, *_ = (d for d in df.columns if fold(d) == fold(c))
            raise ParameterError(
                f"{name} has {counts[fold(c)]} columns named {first!r} (and {second!r}); rename or "
                "drop one"
            )
