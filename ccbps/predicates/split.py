"""Routable and secret attributes: those that brokers read, and those that travel sealed.

A `Split` divides the attributes of a schema into two schemas. Brokers match records of the routable
one in the clear. From a predicate over all attributes follows a *weaker* one over the routable
attributes: it is TRUE for every record for which the original is TRUE, and perhaps for more.

The weaker predicate is derived from the expression tree. A condition on a secret attribute becomes
TRUE under an even number of NOTs, and FALSE under an odd one. AND, OR and ``at_least`` are monotone
in their parts, both in where they are TRUE and in where they are FALSE, so no record is lost. The
constants TRUE and FALSE are then simplified away.

Leak: brokers read the routable attributes of every event, and the routable part of every predicate,
constants included. They do not read conditions on secret attributes, but the form of the routable
part may show that there are some. A routable attribute that depends on a secret one reveals it.
Source: [Survey] sections 4.4 and 8.1 (Yuen et al.; Srivatsa and Liu).
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from ccbps.arrays import Bools
from ccbps.checks import Printable, instance
from ccbps.errors import DecodeError, EventError, ParameterError, UnsupportedPredicateError
from ccbps.predicates.attributes import Events
from ccbps.predicates.bound import bound_predicate
from ccbps.predicates.codes import at_most
from ccbps.predicates.expression import (
    AtLeast,
    Condition,
    Expression,
    Not,
    Operand,
    Private,
    Truth,
)
from ccbps.predicates.schema import Predicate, Schema
from ccbps.predicates.temporal import Instant

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_WORD_BYTES: Final = 8
_TRUTHS: Final = {True: "TRUE", False: "FALSE", None: "NULL"}


class Split(Printable):
    """The routable and the secret attributes of a schema; `Schema.split` makes it.

    Args:
        schema: all attributes.
        routable: names of those that brokers read.

    Example:
        >>> from ccbps import Category, Schema, UInt
        >>> schema = Schema(issue=Category(["AAPL", "IBM"]), price=UInt(8))
        >>> split = schema.split(routable=["issue"])
        >>> print(split.weaken("issue = 'IBM' AND price < 120").text)
        "issue" = 'IBM'
        >>> print(split.weaken("issue = 'IBM' OR price < 120").text)
        TRUE
        >>> routable, secret = split.divide([{"issue": "IBM", "price": 119}])
        >>> routable, secret
        (<Events: 1 over issue>, <Events: 1 over price>)
        >>> schema.parse("price < 120").evaluate(split.join(routable, secret))
        array([ True])

    Attributes:
        schema: all attributes.
        routable: schema of the attributes that brokers read.
        secret: schema of the others.
    """

    def __init__(self, schema: Schema, routable: Iterable[str]) -> None:
        self.schema = instance("schema", schema, Schema)
        hint = "write for example ['issue']"
        names = [*instance("routable", routable, Iterable, hint=hint)]
        if isinstance(routable, str) or not set(names) < set(schema.names) or not names:
            raise ParameterError(
                f"routable names some of the attributes {', '.join(schema.names)}, at least one "
                f"and not all: {hint}"
            )
        self.routable = Schema({name: schema[name] for name in schema if name in names})
        self.secret = Schema({name: schema[name] for name in schema if name not in names})

    def __repr__(self) -> str:
        names = ", ".join
        return f"<Split: {names(self.routable)} routable, {names(self.secret)} secret>"

    def weaken(self, predicate: str | Predicate) -> Predicate:
        """Return a predicate over the routable attributes that loses no event.

        Private constants on routable attributes stay bound placeholders.

        Args:
            predicate: SQL text or a predicate of the whole schema.

        Raises:
            PredicateError: the predicate does not parse, or compares with a time outside of the
                years 1 to 9999.
        """
        bound = bound_predicate(self.schema, predicate, "a predicate")
        text = _text(_weakened(bound.expression, self.routable, True), bound.text)
        weak = self.routable.parse(text)
        values = bound.bound_values
        kept = {name: values[name] for name in weak.private_names}
        return weak.bind(**kept) if kept else weak

    def divide(self, records: Any) -> tuple[Events, Events]:
        """Encode records; return their routable and their secret attributes.

        Args:
            records: `Events` of the whole schema, or anything `Schema.encode` takes.

        Raises:
            EventError: a record does not fit the schema.
        """
        events = self.schema.encode(records)
        routable, secret = (
            Events(part, events.count, {name: events.codes[name] for name in part})
            for part in (self.routable, self.secret)
        )
        return routable, secret

    def join(self, routable: Events, secret: Events) -> Events:
        """Return the records of both parts, for a predicate of the whole schema.

        Raises:
            EventError: the parts are of other schemas, or differ in their number of records.
        """
        if (routable.schema, secret.schema) != (self.routable, self.secret):
            raise EventError("join takes events of split.routable and of split.secret")
        if routable.count != secret.count:
            raise EventError(
                f"{routable.count} routable parts need as many secret parts: {secret.count}"
            )
        codes = {**routable.codes, **secret.codes}
        return Events(self.schema, routable.count, {name: codes[name] for name in self.schema})


# -- predicates ------------------------------------------------------------------------------------


def _weakened(node: Expression, routable: Schema, truth: bool) -> Expression:
    """Return a tree that has this truth value wherever the node has it."""
    if isinstance(node, Condition):
        return node if node.attribute in routable else Truth(truth, node.position)
    if isinstance(node, Truth):
        return node
    if isinstance(node, Not):
        part = _weakened(node.part, routable, not truth)
        if isinstance(part, Truth):
            return Truth(None if part.value is None else not part.value, node.position)
        return Not(part, node.position)
    parts = [_weakened(part, routable, truth) for part in node.parts]
    always = sum(isinstance(part, Truth) and part.value is True for part in parts)
    kept = tuple(part for part in parts if not isinstance(part, Truth) or part.value is None)
    count = node.count - always
    if count <= 0 or count > len(kept):
        return Truth(count <= 0, node.position)
    return kept[0] if len(kept) == 1 else AtLeast(count, kept, node.position)


def _text(node: Expression, source: str) -> str:
    """Write a tree as SQL; `source` is the text that it was read from, for errors."""
    if isinstance(node, Truth):
        return _TRUTHS[node.value]
    if isinstance(node, Not):
        return f"NOT ({_text(node.part, source)})"
    if isinstance(node, AtLeast):
        parts = [_text(part, source) for part in node.parts]
        if node.count not in (1, len(parts)):
            return f"at_least({node.count}, {', '.join(parts)})"
        joined = " AND " if node.count == len(parts) else " OR "
        return joined.join(f"({part})" for part in parts)
    # In quotes, since a name may be a word of SQL.
    name, values = f'"{node.attribute}"', [_constant(some, source) for some in node.operands]
    if node.operator == "in":
        return f"{name} IN ({', '.join(values)})"
    if node.operator == "between":
        return f"{name} BETWEEN {values[0]} AND {values[1]}"
    if node.operator == "null":
        return f"{name} IS NULL"
    if node.operator == "hamming":
        return f"hamming({name}, {values[0]}) <= {node.limit}"
    return f"{name} {node.operator.upper()} {values[0]}"


def _constant(operand: Operand, source: str) -> str:
    """Write a constant or a placeholder as SQL."""
    if isinstance(operand, Private):
        return f":{operand.name}"
    value = operand.value
    if value is None or isinstance(value, bool):
        return _TRUTHS[value]
    if isinstance(value, str):
        quoted = value.replace("'", "''")
        return f"'{quoted}'"
    if isinstance(value, Instant):
        whole = int(value.seconds // 1)
        digits = f"{int((value.seconds - whole) * 10**18):018}".rstrip("0")
        try:
            moment = _EPOCH + datetime.timedelta(seconds=whole)
        except OverflowError:
            raise UnsupportedPredicateError(
                "a time outside of the years 1 to 9999 has no text",
                text=source,
                position=operand.position,
            ) from None
        return f"TIMESTAMP '{moment.replace(tzinfo=None).isoformat()}{'.' * bool(digits)}{digits}'"
    return f"{value:f}" if isinstance(value, decimal.Decimal) else str(value)


# -- bytes of codes --------------------------------------------------------------------------------


def code_bytes(events: Events) -> list[bytes]:
    """Return the codes of each record, 8 bytes for each word of each code."""
    words = np.concatenate([events.codes[name] for name in events.schema])
    width, content = _WORD_BYTES * len(words), words.T.astype(">u8").tobytes()
    return [content[row * width : (row + 1) * width] for row in range(events.count)]


def from_code_bytes(schema: Schema, rows: list[bytes]) -> Events:
    """Read the rows that `code_bytes` wrote.

    Raises:
        DecodeError: a row has another length, or a code that no value has.
    """
    limbs = [schema[name].limbs for name in schema]
    width = _WORD_BYTES * sum(limbs)
    wrong = tuple(at for at, row in enumerate(rows) if len(row) != width)
    if not wrong:
        words = np.frombuffer(b"".join(rows), dtype=">u8").reshape(-1, sum(limbs)).T
        parts = np.split(words.astype(np.uint64), np.cumsum(limbs)[:-1])
        codes = dict(zip(schema, parts, strict=True))
        sound: Bools = np.ones(len(rows), dtype=np.bool_)
        for name, code in codes.items():
            sound &= at_most(code, schema[name].size - 1)
        if sound.all():
            return Events(schema, len(rows), codes)
        wrong = tuple(np.flatnonzero(~sound).tolist())
    raise DecodeError(f"row {wrong[0]}: not codes of this schema", rows=wrong)
