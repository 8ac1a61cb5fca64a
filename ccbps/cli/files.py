"""``ccbps filter`` and ``ccbps match``: the records, and the pairs of messages, that match.

A match of files works as its scheme says: pairs of one subscription and round, all interests of an
event's round, or all events with all interests. Interests are in memory, as a broker has them, and
events are read in blocks.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, ClassVar, Final

import numpy as np

from ccbps.arrays import Bools, Bytes, Index, Rounds
from ccbps.cli.command import JSON, REPEATED, Command, OneOf, Option, answer
from ccbps.cli.inputs import MATCHER, SCHEMA, read_matcher, read_predicate
from ccbps.cli.record_writing import RecordWriter
from ccbps.cli.records import (
    FORMAT,
    OUT,
    Block,
    Table,
    format_of,
    message_rows,
    read_records,
    whole_numbers,
)
from ccbps.cli.rejecting import ON_ERROR, Rejects, usable
from ccbps.cli.secret_files import SHARED_KEYS, key_file
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import DecodeError, ParameterError, RandomnessReuseError
from ccbps.keys.sources import role_key
from ccbps.matching import Matcher
from ccbps.matching.contract.broker import Broker
from ccbps.matching.contract.scheme import Answers, Keying
from ccbps.predicates.attributes import Attributes

PAIRS: Final = 1 << 20
"""Pairs that are matched at a time."""


def writer_of(
    arguments: Namespace, path: str, form: str | None, schema: Attributes | None = None
) -> RecordWriter:
    """Return the writer of a command's records.

    Args:
        arguments: options of `OUT`.
        path: path of the records that were read.
        form: their format, if it was given.
        schema: types of their columns.
    """
    form = format_of(arguments.out, arguments.out_format, format_of(path, form))
    return RecordWriter(arguments.out, form, schema)


def _filter(arguments: Namespace) -> int:
    r"""Keep the records of a file that meet a predicate, in plaintext.

    Nothing is encrypted: the command shows what a matcher's broker would find. Records are written
    as they were read, with all their fields.

    The constants of a predicate are secret: where others use this machine, write @FILE.

    Example:
        echo '{"issue": "IBM", "price": 119}' | ccbps filter "price < 120" - \
            --matcher quotes.matcher
    """
    _, predicate = read_predicate(arguments)
    schema = predicate.schema
    if predicate.unbound_names:
        raise ParameterError(f":{predicate.unbound_names[0]} has no value: pass --value NAME=VALUE")
    total = kept = 0
    path, form = arguments.records, arguments.format
    with Rejects(arguments) as rejects, writer_of(arguments, path, form, schema) as writer:
        for block in read_records(path, form, schema, rejects.note):
            events, block = usable(block, schema, rejects.note)
            meets = predicate.evaluate(events)
            total, kept = total + len(block), kept + int(meets.sum())
            writer.write(block.take(meets))
    answer(
        arguments,
        f"{kept:,} of {total:,} records match{rejects}",
        aside=arguments.out == "-",
        records=total,
        matches=kept,
        rejected=rejects.count,
    )
    return 0


def _match(arguments: Namespace) -> int:
    r"""Match files of encrypted events and interests, as a broker does.

    The command reads what encode events and encode interests wrote, and writes the pairs that
    match. One-time messages belong together by subscription and round, those of a broadcast by
    round; two interests of one subscription and round are refused. With a key server, each event
    is matched with each interest. Interests are kept in memory.

    Example:
        ccbps match events.csv interests.csv --matcher quotes.matcher --key broker.key
    """
    matcher = read_matcher(arguments.matcher)
    if matcher.keying is Keying.SESSION:
        raise ParameterError(f"{type(matcher).__name__} has sessions, which only programs can hold")
    if matcher.keying is Keying.BROKERS:
        raise ParameterError(f"{type(matcher).__name__} has three brokers, which match together")
    key = None if arguments.key is None else role_key(key_file(arguments, arguments.key))
    broker = matcher.broker(key)
    kind = _AllPairs if matcher.keying is Keying.SERVER else _Rounds
    interests = (read_records(path, arguments.format) for path in arguments.interests)
    matching = kind(matcher, broker, chain.from_iterable(interests))
    with writer_of(arguments, arguments.events, arguments.format) as writer:
        writer.write(Table([], 0, {name: [] for name in matching.names}))
        for block in read_records(arguments.events, arguments.format):
            for values in matching.pairs(block):
                columns = dict(zip(matching.names, values, strict=True))
                writer.write(Table(range(len(values[0])), 0, columns))
    events, pairs, matches = matching.events, matching.compared, matching.matches
    count = len(matching.messages)
    answer(
        arguments,
        f"{matches:,} of {pairs:,} pairs match; {events:,} events, {count:,} interests",
        aside=arguments.out == "-",
        events=events,
        interests=count,
        pairs=pairs,
        matches=matches,
    )
    return 0


class _Matching:
    """Interests that events are matched with.

    Attributes:
        names: names of the columns of pairs.
        messages: interest messages, shape (interests, bytes).
        events: number of events so far.
        compared: number of pairs that were matched.
        matches: number of pairs that match.
    """

    names: ClassVar[tuple[str, str]]

    def __init__(self, matcher: Matcher, broker: Broker, interests: Iterable[Block]) -> None:
        self._matcher, self._broker = matcher, broker
        self.events = self.compared = self.matches = 0
        width = matcher.interest_bytes
        rows, rounds = [np.empty((0, width), dtype=np.uint8)], [np.empty(0, dtype=np.uint64)]
        # Numbers of the names, which are kept once each.
        labels = [np.empty(0, dtype=np.intp)]
        self._labels: dict[Any, int] = {}
        for block in interests:
            rows.append(message_rows(block.column("message"), width, "interests").copy())
            names = _coded(block, "subscription")
            numbers = [self._labels.setdefault(name, len(self._labels)) for name in names.values]
            labels.append(np.array(numbers, dtype=np.intp)[names.index])
            if matcher.keying is Keying.ROUNDS:
                rounds.append(whole_numbers(block.column("round"), "rounds"))
        self.messages = np.concatenate(rows)
        self._names: Any = np.array([*self._labels], dtype=np.object_)
        self._label = np.concatenate(labels)
        self._rounds = np.concatenate(rounds)

    def _events(self, block: Block) -> Bytes:
        self.events += len(block)
        return message_rows(block.column("message"), self._matcher.event_bytes, "events")


class _AllPairs(_Matching):
    """Interests of a matcher with a key server."""

    names = ("event", "subscription")

    def __init__(self, matcher: Matcher, broker: Broker, interests: Iterable[Block]) -> None:
        super().__init__(matcher, broker, interests)
        self._table = broker.prepare(self.messages)

    def pairs(self, block: Block) -> Iterator[list[Any]]:
        """Yield columns of the pairs that match: event and subscription."""
        messages, names = self._events(block), _coded(block, "event")
        values: Any = np.array(names.values, dtype=np.object_)
        count = len(self.messages)
        step = max(1, PAIRS // max(1, count))
        for start in range(0, len(messages) if count else 0, step):
            answers = self._broker.match_all(messages[start : start + step], self._table)
            events, interests = np.nonzero(answers)
            self.compared, self.matches = self.compared + answers.size, self.matches + len(events)
            yield [
                values[names.index[start + events]].tolist(),
                self._names[self._label[interests]].tolist(),
            ]


class _Rounds(_Matching):
    """Interests of rounds: of a subscription each or, of a broadcast, of all."""

    names = ("subscription", "round")

    def __init__(self, matcher: Matcher, broker: Broker, interests: Iterable[Block]) -> None:
        super().__init__(matcher, broker, interests)
        self._is_broadcast = matcher.answers is Answers.ROUND
        self._turns, places = np.unique(self._rounds, return_inverse=True)
        keys = self._label * len(self._turns) + places
        self._refuse_twice(keys)
        if self._is_broadcast:
            keys = places
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]

    def _refuse_twice(self, keys: Index) -> None:
        """Refuse two interests of one subscription and round.

        Raises:
            RandomnessReuseError: there are such.
        """
        order = np.argsort(keys, kind="stable")
        twice = np.flatnonzero(np.diff(keys[order]) == 0)
        if len(twice):
            row = int(order[twice[0]])
            raise RandomnessReuseError(
                f"subscription {self._names[self._label[row]]!r} has two interests of round "
                f"{self._rounds[row]}: each subscription and round has one message. Two that were "
                "encoded under one round show more than a match"
            )

    def pairs(self, block: Block) -> Iterator[list[Any]]:
        """Yield columns of the pairs that match: subscription and round."""
        messages = self._events(block)
        rounds = whole_numbers(block.column("round"), "rounds")
        low, high = self._partners(block, rounds)
        counts = high - low
        ends = np.cumsum(counts)
        start = 0
        while start < len(messages):
            # As many events as have at most so many pairs, and at least one event.
            done = int(ends[start - 1]) if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, done + PAIRS, side="right")))
            events = np.repeat(np.arange(start, stop), counts[start:stop])
            if len(events):
                firsts = np.repeat(ends[start:stop] - counts[start:stop] - done, counts[start:stop])
                places = low[events] + np.arange(len(events)) - firsts
                yield self._matched(messages, rounds, events, self._order[places])
            start = stop

    def _partners(self, block: Block, rounds: Rounds) -> tuple[Index, Index]:
        """Return the first partner of each event among the sorted interests, and the end."""
        if not len(self._turns):
            nothing = np.zeros(len(rounds), dtype=np.int64)
            return nothing, nothing
        places = np.searchsorted(self._turns, rounds)
        known: Bools = self._turns[np.minimum(places, len(self._turns) - 1)] == rounds
        labels = np.zeros(len(rounds), dtype=np.int64)
        if not self._is_broadcast:
            names = _coded(block, "subscription")
            numbers = [self._labels.get(name, -1) for name in names.values]
            labels = np.array(numbers, dtype=np.int64)[names.index]
            known &= labels >= 0
        keys = np.where(known, labels * len(self._turns) + places, -1)
        return np.searchsorted(self._keys, keys), np.searchsorted(self._keys, keys, side="right")

    def _matched(
        self, messages: Bytes, rounds: Rounds, events: Index, interests: Index
    ) -> list[Any]:
        answers = self._broker.match(messages[events], self.messages[interests])
        good = np.flatnonzero(answers)
        self.compared, self.matches = self.compared + len(answers), self.matches + len(good)
        names = self._names[self._label[interests[good]]].tolist()
        return [names, rounds[events[good]].tolist()]


def _coded(block: Block, name: str) -> DictionaryColumn[Any]:
    """Return a column of names, each distinct text once.

    Raises:
        DecodeError: a value is no text or number.
    """
    column = block.column(name)
    if not isinstance(column, list):
        import pyarrow as pa

        from ccbps.arrow import strings

        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if column.type in (pa.string(), pa.large_string()) and not column.null_count:
            return strings(column)
        column = column.to_pylist()
    if not all(isinstance(value, str | int) for value in column):
        raise DecodeError(f"{name} must be a text or a number in each row")
    places = {value: place for place, value in enumerate(dict.fromkeys(column))}
    index = np.array([places[value] for value in column], dtype=np.intp)
    return DictionaryColumn([*places], index)


FILTER: Final = Command(
    "filter",
    _filter,
    (
        Option("predicate TEXT", "condition, as written after WHERE"),
        Option("records FILE", "records; - for standard input (default)", nargs="?", default="-"),
        OneOf(SCHEMA, Option("--matcher FILE", "take this matcher's schema"), required=True),
        Option("--value NAME=VALUE", "value of a private constant :name", **REPEATED),
        FORMAT,
        *OUT,
        *ON_ERROR,
        JSON,
    ),
)

MATCH: Final = Command(
    "match",
    _match,
    (
        Option("events FILE", "file that encode events wrote; - for standard input"),
        Option("interests FILE", "files that encode interests wrote", nargs="+"),
        MATCHER,
        Option("--key FILE", "broker's key; one-time matchers have none"),
        SHARED_KEYS,
        FORMAT,
        *OUT,
        JSON,
    ),
)
