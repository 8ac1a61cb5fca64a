"""What do all matchers cost for the same four predicates? Bytes, and microseconds on one core.

Every scheme is asked for matchers that take the predicate; a template where it has private
constants. One-time matchers take both messages for every pair, in batches of 4,096 or as many as
fit 16 MiB. Reusable ones encode each event and each interest once; the table has 256 of each, and
the time of the broker is that of a pair among all of them. A matcher is left out where a message
would take more than 4 MiB or a step more than --limit seconds, and so are matchers with known
attacks, and those whose clients talk first.

    python benchmarks/bench_matchers.py [--limit 1] [--quick]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from report import Table, options
from timing import machine, one_core, timed
from tqdm import tqdm
from workloads import SCHEMA, random_events

from ccbps import Schema, UInt
from ccbps.errors import CcbpsError
from ccbps.matching import SCHEMES, Answers, Keying, Matcher
from ccbps.matching.contract.matcher import making
from ccbps.matching.contract.parties import Party

MOST_BYTES = 1 << 22
BATCH_BYTES = 1 << 24
ONE_TIME, REUSABLE = 1 << 12, 1 << 8


class Task(NamedTuple):
    """A predicate that matchers are asked for.

    Attributes:
        title: its name.
        schema: the events' attributes.
        text: SQL with constants.
        template: the same with private constants, and their values.
    """

    title: str
    schema: Schema
    text: str
    template: tuple[str, Mapping[str, int]] | None = None


def formula() -> str:
    """Return an OR of 16 boxes, none of which is part of another."""
    parts = [f"a BETWEEN {97 * i} AND {5000 + 131 * i} AND b > {1000 * i}" for i in range(16)]
    return " OR ".join(f"({part})" for part in parts)


TASKS = (
    Task("Equality of 64 bits", Schema(x=UInt(64)), "x = 5", ("x = :y", {"y": 5})),
    Task("Comparison of 32 bits", Schema(x=UInt(32)), "x < 5000", ("x < :y", {"y": 5000})),
    Task("Box of 16+16+20 bits", SCHEMA, "a < 900 AND b BETWEEN 5 AND 77 AND c > 1000"),
    Task("Private formula of 16 boxes", Schema(a=UInt(16), b=UInt(16)), formula()),
)


def matchers(task: Task) -> Iterator[tuple[str, Matcher, Any]]:
    """Yield matchers with their names and the interest that they take."""
    asked = [(task.text, task.text), *([task.template] if task.template else [])]
    seen = set()
    for scheme in SCHEMES:
        for text, interest in asked:
            with making(again=True):
                try:
                    found = list(scheme.propose(task.schema, task.schema.parse(text)))
                except CcbpsError:
                    continue
            for matcher in found:
                if matcher.leakage.security == "broken" or matcher.keying is Keying.SESSION:
                    continue
                if (matcher.private_names is None) != isinstance(interest, str):
                    continue
                name = repr(matcher).strip("<>").partition(" over ")[0]
                if name not in seen:
                    seen.add(name)
                    yield name, matcher, interest


def steps(matcher: Matcher, interest: Any, count: int) -> list[tuple[Callable[[], Any], int]]:
    """Return actions that encode events, encode interests and match, with what each counts."""
    events, party = random_events(matcher.schema, count), Party(matcher)
    labels = [f"subscription {number}" for number in range(count)]
    pairs = labels if matcher.answers is Answers.ROUND else None
    interests = interest if matcher.keying is Keying.ROUNDS else [interest] * count

    def encode_events(rounds: Any = None) -> Any:
        return party.publisher.encode(events, rounds or party.rounds(count))

    def encode_interests(rounds: Any = None) -> Any:
        return party.subscriber.encode(interests, rounds or party.rounds(count), pairs=pairs)

    rounds, broker = party.rounds(count), party.broker
    sent, wanted = encode_events(rounds), encode_interests(rounds)
    if matcher.keying is Keying.BROKERS:
        matching, matched = (lambda: broker.match_messages(sent[:16], wanted)), 16 * count
    elif matcher.answers is Answers.ALL:
        matching, matched = (lambda: broker.match_all(sent, wanted)), count * count
    else:
        matching, matched = (lambda: broker.match(sent, wanted)), count
    return [(encode_events, count), (encode_interests, count), (matching, matched)]


def measured(matcher: Matcher, interest: Any, limit: float) -> list[float] | None:
    """Return microseconds of the three steps, or None if they take too long."""
    size = max(matcher.event_bytes, matcher.interest_bytes)
    if size > MOST_BYTES:
        return None
    most = ONE_TIME if matcher.keying is Keying.ROUNDS else REUSABLE
    count, enough = 1, max(1, min(most, BATCH_BYTES // size))
    while True:
        actions = steps(matcher, interest, count)
        once = [timed(action) for action, _ in actions]
        if max(once) > limit:
            counts = [number for _, number in actions]
            return None if count == 1 else [1e6 * s / n for s, n in zip(once, counts, strict=True)]
        if count == enough:
            break
        count = min(enough, 8 * count)
    return [1e6 * min(timed(a) for _ in range(5)) / n for a, n in actions]


def main() -> None:
    given = options(__doc__, limit=1.0, quick="few predicates, a twentieth of a second")
    limit, tasks = (0.05, TASKS[:1]) if given.quick else (given.limit, TASKS)
    print(machine())
    columns = {
        "event bytes": ",.0f",
        "interest bytes": ",.0f",
        "encode event": ".3g",
        "encode interest": ".3g",
        "match a pair": ".3g",
    }
    for task in tasks:
        found = [*matchers(task)]
        table = Table(f"{task.title}: bytes, microseconds", columns, head="matcher", width=48)
        for name, matcher, interest in tqdm(found, desc=task.title, delay=1):
            took = measured(matcher, interest, limit)
            if took is not None:
                table.row(name, matcher.event_bytes, matcher.interest_bytes, *took)


if __name__ == "__main__":
    one_core()
    main()
