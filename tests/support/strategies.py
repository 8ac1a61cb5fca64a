"""Hypothesis strategies: schemas, records and predicates, valid by construction.

A predicate is drawn as a small tree of `Node` and rendered twice: as text for `Schema.parse`, with
some constants turned into ``:name`` placeholders, and as a WHERE clause for SQLite over the stored
values of `stored`. Both renderings come from the tree, neither from the library.

Values and constants are drawn around the edges of every domain, inside and outside.
"""

from __future__ import annotations

import datetime
import decimal
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from hypothesis import strategies as st

from ccbps.predicates import (
    AttributeType,
    Bool,
    Category,
    Decimal,
    Int,
    Keyword,
    Schema,
    Text,
    Timestamp,
    UInt,
)

# Blank, case, the quote, letters whose UTF-8 takes 2 to 4 bytes and sorts unlike UTF-16.
ALPHABET = ["a", "b", "A", " ", "'", "é", "\uff5e", "\U0001f600"]
WORDS = st.text(st.sampled_from(ALPHABET), max_size=4)
NAMES = ("price", "volume", "issue", "note")
# Hypothesis takes longer to examine a new strategy than to draw from one that it knows.
kept = lru_cache(maxsize=512)
EPOCH = datetime.datetime(1970, 1, 1)
DIGITS = {"day": 0, "s": 0, "ms": 3, "us": 6, "ns": 9}


@dataclass(frozen=True)
class Moment:
    """A point in time for tests: whole seconds, and decimals of a second as digits."""

    seconds: int
    decimals: str = ""

    def iso(self) -> str:
        when = EPOCH + datetime.timedelta(seconds=self.seconds)
        if self.seconds % 86_400 == 0 and not self.decimals:
            return when.strftime("%Y-%m-%d")
        return when.strftime("%Y-%m-%dT%H:%M:%S") + (f".{self.decimals}" if self.decimals else "")

    def sortable(self) -> str:
        when = EPOCH + datetime.timedelta(seconds=self.seconds)
        return when.strftime("%Y-%m-%d %H:%M:%S.") + self.decimals.ljust(18, "0")


@dataclass(frozen=True)
class Const:
    """A constant of a predicate, with a name if it is private."""

    value: Any
    name: str | None = None


@dataclass(frozen=True)
class Node:
    """A node of a drawn predicate: its kind, and the parts of such a node."""

    kind: str
    attribute: str = ""
    constants: tuple[Const, ...] = ()
    parts: tuple[Node, ...] = ()
    detail: Any = None


@dataclass(frozen=True)
class Drawn:
    """A drawn predicate over a schema."""

    schema: Schema
    node: Node
    private: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return render(self.schema, self.node, sqlite=False)

    @property
    def where(self) -> str:
        return render(self.schema, self.node, sqlite=True)


# -- schemas ------------------------------------------------------------------------------------


@kept
def numeric_types() -> st.SearchStrategy[AttributeType]:
    widths = st.sampled_from([1, 2, 8, 16, 31, 63, 64])
    return st.one_of(
        st.builds(UInt, widths, nullable=st.booleans()),
        st.builds(Int, widths, nullable=st.booleans()),
        st.sampled_from(
            [
                Decimal(0, 3, 1),
                Decimal("-1.50", "2.25", "0.25", nullable=True),
                Decimal(0, 1000, "0.01"),
                Decimal("0.1", "0.7", "0.3", nullable=True),
                Decimal(-(2**40), 2**40, 1),
            ]
        ),
    )


@kept
def textual_types() -> st.SearchStrategy[AttributeType]:
    names = st.lists(WORDS, min_size=1, max_size=5, unique=True)
    return st.one_of(
        st.builds(Category, names, nullable=st.booleans()),
        st.builds(Keyword, st.sampled_from([48, 64, 128]), nullable=st.booleans()),
        st.builds(Text, st.sampled_from([1, 3, 8, 12]), nullable=st.booleans()),
    )


@kept
def timestamp_types() -> st.SearchStrategy[AttributeType]:
    return st.builds(
        Timestamp,
        st.sampled_from(list(DIGITS)),
        st.sampled_from(["1969-12-30", "1970-01-01", "2000-02-28"]),
        st.sampled_from(["2000-03-01", "2038-01-20"]),
        nullable=st.booleans(),
    )


@kept
def attribute_types() -> st.SearchStrategy[AttributeType]:
    return st.one_of(
        numeric_types(),
        textual_types(),
        timestamp_types(),
        st.builds(Bool, nullable=st.booleans()),
    )


@kept
def small_types() -> st.SearchStrategy[AttributeType]:
    """Types with at most 5 codes, all of them reachable: for exhaustive checks."""
    return st.one_of(
        st.builds(UInt, st.integers(1, 2), nullable=st.booleans()),
        st.builds(Int, st.integers(1, 2), nullable=st.booleans()),
        st.builds(Bool, nullable=st.booleans()),
        st.just(Category(["a", "b", "A"])),
    )


@kept
def schemas(
    kinds: st.SearchStrategy[AttributeType] | None = None, max_attributes: int = 4
) -> st.SearchStrategy[Schema]:
    """Schemas of 1 to `max_attributes` (at most 4) attributes."""
    chosen = attribute_types() if kinds is None else kinds
    drawn = st.lists(chosen, min_size=1, max_size=max_attributes)
    return drawn.map(lambda types: Schema(dict(zip(NAMES, types, strict=False))))


# -- values and constants -----------------------------------------------------------------------


def _edges(low: int, high: int) -> st.SearchStrategy[int]:
    near = [low, low + 1, high - 1, high, 0, (low + high) // 2]
    inside = sorted({min(max(value, low), high) for value in near})
    return st.one_of(st.sampled_from(inside), st.integers(low, high))


@kept
def domain(kind: AttributeType) -> st.SearchStrategy[Any]:
    """Values of a type, without NULL."""
    if isinstance(kind, (UInt, Int)):
        return _edges(kind.least, kind.least + 2**kind.width - 1)
    if isinstance(kind, Decimal):
        numbers = _edges(0, kind.cardinality - 1)
        return numbers.map(lambda number: kind.low + number * kind.step)
    if isinstance(kind, Category):
        return st.sampled_from(kind.values)
    if isinstance(kind, Keyword):
        return WORDS
    if isinstance(kind, Text):
        return WORDS.map(lambda word: shortened(word, kind.chars))
    if isinstance(kind, Bool):
        return st.booleans()
    assert isinstance(kind, Timestamp)
    first, last = int(kind.start.seconds), int(kind.end.seconds)
    if kind.unit == "day":
        return _edges(first // 86_400, last // 86_400).map(lambda day: Moment(day * 86_400))
    digits = DIGITS[kind.unit]
    # `end` is a whole second, so decimals are only in the domain before it.
    return st.builds(
        lambda second, decimals: Moment(second, decimals if second < last else ""),
        _edges(first, last),
        st.integers(0, 10**digits - 1).map(lambda ticks: f"{ticks:0{digits}}" if digits else ""),
    )


def shortened(word: str, size: int) -> str:
    """The longest start of `word` with at most `size` bytes of UTF-8."""
    while len(word.encode()) > size:
        word = word[:-1]
    return word


@kept
def values(kind: AttributeType) -> st.SearchStrategy[Any]:
    """Values of a type, None included when it is nullable."""
    return st.one_of(st.none(), domain(kind)) if kind.nullable else domain(kind)


def rows(schema: Schema, max_size: int = 12) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Batches of records as drawn; `record` makes them acceptable to `Schema.encode`."""
    return st.lists(
        st.fixed_dictionaries({name: values(schema[name]) for name in schema}), max_size=max_size
    )


def record(row: dict[str, Any]) -> dict[str, Any]:
    """A drawn row as a record: moments become ISO text."""
    return {
        name: value.iso() if isinstance(value, Moment) else value for name, value in row.items()
    }


@kept
def constants(kind: AttributeType) -> st.SearchStrategy[Any]:
    """Constants that compare with a type, inside and outside the domain and off its grid."""
    if isinstance(kind, (UInt, Int, Decimal)):
        far = st.sampled_from([-(10**22), -1, 0, 10**9, 2**64, 10**22])
        shift = st.sampled_from(["0", "0.5", "-0.5", "0.001", "-0.001", "1", "-1", "0.125"])
        near = st.builds(
            lambda value, by: _plain(EXACT.add(decimal.Decimal(value), decimal.Decimal(by))),
            domain(kind),
            shift,
        )
        return st.one_of(domain(kind), far, near)
    if isinstance(kind, Bool):
        return st.booleans()
    if isinstance(kind, Timestamp):
        return domain(kind) | st.builds(
            lambda moment, by, decimals: Moment(moment.seconds + by, decimals),
            domain(kind),
            st.sampled_from([-86_400, -1, 0, 1, 86_400]),
            st.sampled_from(["", "5", "000001", "9999999999"]),
        )
    return st.one_of(domain(kind), WORDS, domain(kind).map(lambda word: word + "a"))


@kept
def written_constants(kind: AttributeType, null: bool) -> st.SearchStrategy[Const]:
    """As a text has them, some NULL."""
    constant = constants(kind).map(Const)
    return st.one_of(constant, constant, constant, st.just(Const(None))) if null else constant


EXACT = decimal.Context(prec=80)


def _plain(number: decimal.Decimal) -> int | decimal.Decimal:
    return int(number) if number == int(number) else number


# -- predicates ---------------------------------------------------------------------------------


@st.composite
def leaves(draw: st.DrawFn, schema: Schema, hamming: bool, null: bool) -> Node:
    """A condition on one attribute, or a truth value."""
    name = draw(st.sampled_from(schema.names))
    kind = schema[name]
    constant = written_constants(kind, null)
    kinds = ["compare", "compare", "in", "null", "truth"]
    if not isinstance(kind, Keyword):
        kinds += ["between", "between"]
    if isinstance(kind, (Category, Text)):
        kinds += ["like", "like"]
    if isinstance(kind, Bool):
        kinds += ["bare"]
    if hamming and isinstance(kind, UInt) and not kind.nullable and kind.width <= 31:
        kinds += ["hamming"]
    chosen = draw(st.sampled_from(kinds))
    if chosen == "compare":
        operators = ["=", "!=", "<>", "=="]
        if not isinstance(kind, Keyword):
            operators += ["<", "<=", ">", ">="]
        swapped = draw(st.booleans())
        detail = (draw(st.sampled_from(operators)), swapped)
        return Node("compare", name, (draw(constant),), detail=detail)
    if chosen == "between":
        return Node("between", name, (draw(constant), draw(constant)), detail=draw(st.booleans()))
    if chosen == "in":
        items = draw(st.lists(constant, min_size=1, max_size=4))
        return Node("in", name, tuple(items), detail=draw(st.booleans()))
    if chosen == "like":
        pattern = draw(constants(kind)) + draw(st.sampled_from(["", "%"]))
        return Node("like", name, (Const(pattern),), detail=draw(st.booleans()))
    if chosen == "hamming":
        centre, limit = draw(domain(kind)), draw(st.integers(-1, kind.bits + 1))
        return Node("hamming", name, (Const(centre),), detail=limit)
    if chosen == "truth":
        return Node("truth", detail=draw(st.sampled_from([True, False, None])))
    return Node(chosen, name, detail=draw(st.booleans()))


@kept
def nodes(schema: Schema, *, hamming: bool = True, null: bool = True) -> st.SearchStrategy[Node]:
    """Trees of conditions with AND, OR, NOT and at_least."""
    leaf = leaves(schema, hamming, null)

    def grown(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
        several = st.lists(inner, min_size=2, max_size=3).map(tuple)
        counted = st.lists(inner, min_size=1, max_size=4).flatmap(
            lambda parts: st.integers(1, len(parts)).map(
                lambda count: Node("at_least", parts=tuple(parts), detail=count)
            )
        )
        return st.one_of(
            several.map(lambda parts: Node("and", parts=parts)),
            several.map(lambda parts: Node("or", parts=parts)),
            inner.map(lambda part: Node("not", parts=(part,))),
            counted,
        )

    return st.recursive(leaf, grown, max_leaves=6)


@st.composite
def predicates(
    draw: st.DrawFn, schema: Schema, *, private: bool = True, hamming: bool = True
) -> Drawn:
    """A predicate over the schema, some of its constants private."""
    node = draw(nodes(schema, hamming=hamming))
    hidden: dict[str, Any] = {}

    def hide(node: Node) -> Node:
        chosen = []
        for constant in node.constants:
            if constant.value is not None and draw(st.integers(0, 3)) == 0:
                name = f"p{len(hidden)}"
                hidden[name] = (
                    constant.value.iso() if isinstance(constant.value, Moment) else constant.value
                )
                constant = Const(constant.value, name)
            chosen.append(constant)
        return replace(node, constants=tuple(chosen), parts=tuple(map(hide, node.parts)))

    return Drawn(schema, hide(node) if private else node, hidden)


# -- rendering ----------------------------------------------------------------------------------


def native(kind: AttributeType) -> bool:
    """Whether SQLite's own integers hold the values of a numeric type and compare exactly."""
    return isinstance(kind, (UInt, Int)) and kind.width <= 31


def stored(kind: AttributeType, value: Any) -> int | str | None:
    """A value or constant as SQLite stores it: plain, or as text that sorts in the same order."""
    if isinstance(value, Moment):
        return value.sortable()
    if isinstance(value, bool):
        return int(value)
    if value is None or isinstance(value, str):
        return value
    if native(kind) and isinstance(value, int) and abs(value) < 2**62:
        return value
    if native(kind):
        return f"REAL {value}"
    # Neither 64-bit integers nor decimals are safe in SQLite: shift above zero, scale, pad.
    scaled = EXACT.multiply(EXACT.add(decimal.Decimal(value), decimal.Decimal(10) ** 30), 10**10)
    return f"{int(scaled):060}"


def _literal(schema: Schema, attribute: str, constant: Const, sqlite: bool) -> str:
    value = constant.value
    if value is None:
        return "NULL"
    if not sqlite and constant.name is not None:
        return f":{constant.name}"
    if sqlite:
        value = stored(schema[attribute], value)
        if isinstance(value, str) and value.startswith("REAL "):
            return value.removeprefix("REAL ")
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, Moment):
        keyword = "DATE " if "T" not in value.iso() else "TIMESTAMP "
        kind = schema[attribute]
        # A bare string with a time of day is refused for days: Spark has two meanings of it.
        days = isinstance(kind, Timestamp) and kind.unit == "day" and "T" in value.iso()
        return f"{keyword if days or value.seconds % 2 else ''}'{value.iso()}'"
    if isinstance(value, str):
        escaped = value.replace("'", "''")
        return f"'{escaped}'"
    return f"{value:f}" if isinstance(value, decimal.Decimal) else str(value)


_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def render(schema: Schema, node: Node, *, sqlite: bool) -> str:
    """The node as text for `Schema.parse`, or as a WHERE clause for SQLite."""
    texts = [_literal(schema, node.attribute, constant, sqlite) for constant in node.constants]
    parts = [f"({render(schema, part, sqlite=sqlite)})" for part in node.parts]
    negation = "NOT " if node.detail is True else ""
    if node.kind == "compare":
        operator, swapped = node.detail
        if swapped:
            return f"{texts[0]} {_MIRRORED.get(operator, operator)} {node.attribute}"
        return f"{node.attribute} {operator} {texts[0]}"
    if node.kind == "between":
        return f"{node.attribute} {negation}BETWEEN {texts[0]} AND {texts[1]}"
    if node.kind == "in":
        return f"{node.attribute} {negation}IN ({', '.join(texts)})"
    if node.kind == "like":
        return f"{node.attribute} {negation}LIKE {texts[0]}"
    if node.kind == "null":
        return f"{node.attribute} IS {negation}NULL"
    if node.kind == "bare":
        return f"{negation}{node.attribute}"
    if node.kind == "hamming":
        return f"hamming({node.attribute}, {texts[0]}) <= {node.detail}"
    if node.kind == "truth":
        return {True: "TRUE", False: "FALSE", None: "NULL"}[node.detail]
    if node.kind == "not":
        return f"NOT {parts[0]}"
    if node.kind in ("and", "or"):
        return f" {node.kind.upper()} ".join(parts)
    assert node.kind == "at_least"
    if not sqlite:
        return f"at_least({node.detail}, {', '.join(parts)})"
    true = " + ".join(f"({part} IS TRUE)" for part in parts)
    false = " + ".join(f"({part} IS FALSE)" for part in parts)
    return (
        f"CASE WHEN {true} >= {node.detail} THEN 1 "
        f"WHEN {len(parts)} - ({false}) < {node.detail} THEN 0 ELSE NULL END"
    )


class Exported:
    """A table or column that shows itself through Arrow's C interface alone, as polars' do."""

    def __init__(self, arrow: Any) -> None:
        self.arrow = arrow

    def __len__(self) -> int:
        return len(self.arrow)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.arrow.__arrow_c_stream__(requested_schema)
