"""One-time matchers for tests: schemas, predicates of every kind, and answers of all roles."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike

from ccbps import Bool, Category, Decimal, Int, Keyword, Schema, SharedSeed, Text, UInt
from ccbps.errors import ParameterError
from ccbps.matching import Answers, Matcher
from ccbps.predicates import AttributeType, Events
from tests.support.strategies import Const, Node, render

SEED = SharedSeed(bytes(range(32)))
SYMBOLS = ["IBM", "MSFT", "ORCL", "SAP", "TSM"]
QUOTES = Schema(issue=Category(SYMBOLS), price=Decimal(0, "655.35", "0.01"), volume=UInt(20))
TEMPLATE = "issue = :issue AND price < :price"
BITS = Schema({name: UInt(4) for name in "abcd"})
WIDE = Schema({f"a{number}": UInt(64) for number in range(1000)})


def quotes(count: int, seed: int) -> Events:
    rng = np.random.default_rng(seed)
    return QUOTES.encode(
        {
            "issue": rng.choice(SYMBOLS, count),
            "price": rng.integers(0, 65_536, count) / 100,
            "volume": rng.integers(0, 2**20, count),
        }
    )


def answered(matcher: Matcher, events: Any, interests: Any, which: ArrayLike | None = None) -> Any:
    """Match each interest with one event.

    Args:
        which: number of each interest's event; None for each event once. Each pair has a round of
            its own, or each event if it serves many interests.
    """
    batch = matcher.schema.encode(events)
    chosen = np.asarray(np.arange(batch.count) if which is None else which).astype(np.intp)
    publisher, subscriber = matcher.publisher(SEED), matcher.subscriber(SEED)
    if matcher.answers is Answers.ROUND:
        names = [f"subscription {row}" for row in range(len(chosen))]
        sent = publisher.encode(batch, range(batch.count))[chosen]
        wanted = subscriber.encode(interests, chosen.astype(np.uint64), pairs=names)
    else:
        sent = publisher.encode(batch.take(chosen), range(len(chosen)))
        wanted = subscriber.encode(interests, range(len(chosen)))
    return matcher.broker().match(sent, wanted)


def in_two_processes(code: str) -> list[str]:
    """Words that a program prints, which must not depend on the process's hashes."""
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1
    return printed.pop().split()


# -- texts --------------------------------------------------------------------------------------


def text_of(matcher: Matcher, schema: Schema | None = None, **parameters: Any) -> str:
    fields = json.loads(matcher.to_json())
    if schema is not None:
        fields["schema"] = schema.describe()
    return json.dumps({**fields, "parameters": {**fields["parameters"], **parameters}})


def cheap_refusal(make: Callable[[], Any], message: str, error: Any = ParameterError) -> None:
    """A refusal before anything is built: it takes next to no memory."""
    tracemalloc.start()
    try:
        with pytest.raises(error, match=message):
            make()
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()


# -- every construct ----------------------------------------------------------------------------

CONSTRUCTS = {
    "equal": ("a = :p", {"p": 9}),
    "unequal": ("a <> :p", {"p": 9}),
    "below": ("a < :p", {"p": 9}),
    "at most": ("a <= :p", {"p": 9}),
    "above": ("a > :p", {"p": 9}),
    "at least": ("a >= :p", {"p": 9}),
    "between": ("a BETWEEN :p AND :q", {"p": 3, "q": 9}),
    "not between": ("a NOT BETWEEN :p AND :q", {"p": 3, "q": 9}),
    "public low": ("a BETWEEN 3 AND :q", {"q": 9}),
    "public high": ("a BETWEEN :p AND 12", {"p": 3}),
    "in": ("a IN (:p, 7, :q, 1)", {"p": 3, "q": 7}),
    "not in": ("a NOT IN (:p, 7, :q, 1)", {"p": 3, "q": 15}),
    "public": ("a IN (1, 2, 3) OR b > 5", {}),
    "and": ("a < :p AND b >= :q AND c = 3", {"p": 9, "q": 3}),
    "or": ("a < :p OR b >= :q OR c = 3", {"p": 3, "q": 9}),
    "not": ("NOT (a < :p AND b < 9)", {"p": 9}),
    "two of three": ("at_least(2, a < :p, b < :q, c < 7)", {"p": 9, "q": 7}),
    "three of five": ("at_least(3, a < :p, b < :q, c < 7, d > 3, a > 2)", {"p": 9, "q": 7}),
    "all of two": ("at_least(2, a < :p, b < :q)", {"p": 9, "q": 12}),
    "hamming": ("hamming(a, :p) <= 1", {"p": 9}),
    "public hamming": ("hamming(a, 9) <= 1 AND b < :p", {"p": 12}),
    "not hamming": ("NOT hamming(a, :p) <= 2", {"p": 9}),
    "nested": ("a < :p AND NOT (b = :q OR (c IN (:r, 4) AND d > 2))", {"p": 12, "q": 3, "r": 9}),
}


# -- random schemas and predicates --------------------------------------------------------------


def uniform(kind: AttributeType, rng: np.random.Generator, count: int) -> list[Any]:
    """Values of a type, some of them often."""
    if isinstance(kind, Category):
        found: list[Any] = rng.choice(kind.values, count).tolist()
    elif isinstance(kind, Keyword | Text):
        found = [f"w{i}" for i in rng.integers(0, 9, count)]
    elif isinstance(kind, Bool):
        found = rng.integers(0, 2, count).astype(bool).tolist()
    elif isinstance(kind, UInt | Int):
        wide = [int(word) for word in rng.integers(0, 2**63, count, dtype=np.uint64)]
        few = [(word >> 40) % 3 * ((1 << kind.width) - 1) // 2 for word in wide]
        codes = [w * 2 % (1 << kind.width) if w & 64 else f for w, f in zip(wide, few, strict=True)]
        found = [kind.least + code for code in codes]
    else:
        assert isinstance(kind, Decimal)
        found = [kind.low + int(i) * kind.step for i in rng.integers(0, kind.cardinality, count)]
    if kind.nullable:
        found = [
            None if none else one for none, one in zip(rng.random(count) < 0.1, found, strict=True)
        ]
    return found


def some_schema(rng: np.random.Generator) -> Schema:
    """One to four attributes."""
    width = [1, 2, 3, 7, 16, 31, 33, 64]

    def one() -> AttributeType:
        bits, nullable = int(rng.choice(width)), bool(rng.random() < 0.3)
        names = [f"n{i}" for i in range(int(rng.integers(1, 9)))]
        return (
            UInt(bits, nullable=nullable),
            Int(bits, nullable=nullable),
            Decimal("-7.5", "80.25", "0.25", nullable=nullable),
            Category(names, nullable=nullable),
            Keyword(128),
            Text(9, nullable=nullable),
            Bool(nullable=nullable),
        )[rng.integers(0, 7)]

    return Schema({name: one() for name in "abcd"[: rng.integers(1, 5)]})


def some_leaf(schema: Schema, rng: np.random.Generator, box: bool) -> Node:
    """A condition; for a box, one that is an interval."""
    name = str(rng.choice(schema.names))
    kind = schema[name]

    def constant() -> Const:
        values = [one for one in uniform(kind, rng, 9) if one is not None]
        return Const(values[0] if values else kind.low if isinstance(kind, Decimal) else 0)

    ordered = not isinstance(kind, Keyword)
    what = rng.integers(0, 4)
    if what == 0 and ordered:
        return Node("between", name, (constant(), constant()), detail=False)
    if what == 1 and not box:
        many = tuple(constant() for _ in range(int(rng.integers(1, 5))))
        return Node("in", name, many, detail=bool(rng.random() < 0.5))
    if what == 2 and kind.nullable:
        return Node("null", name, detail=bool(rng.random() < 0.5))
    signs = ["<", "<=", ">", ">=", "="] if ordered else ["="]
    signs += [] if box else ["!="]
    return Node("compare", name, (constant(),), detail=(str(rng.choice(signs)), False))


def some_formula(schema: Schema, rng: np.random.Generator, leaves: int) -> Node:
    """A tree of AND, OR, NOT and at_least."""
    if leaves == 1:
        return some_leaf(schema, rng, box=False)
    cut = int(rng.integers(1, leaves))
    parts = (some_formula(schema, rng, cut), some_formula(schema, rng, leaves - cut))
    what = str(rng.choice(["and", "or", "or", "not", "at_least"]))
    if what == "not":
        return Node("not", parts=(Node("and", parts=parts),))
    if what == "at_least":
        return Node("at_least", parts=(*parts, some_leaf(schema, rng, box=False)), detail=2)
    return Node(what, parts=parts)


def hidden(node: Node, rng: np.random.Generator, values: dict[str, Any]) -> Node:
    """Half of the constants become private ones, whose values are kept."""
    constants = []
    for constant in node.constants:
        if rng.random() < 0.5:
            name = f"p{len(values)}"
            values[name] = constant.value
            constant = Const(constant.value, name)
        constants.append(constant)
    parts = tuple(hidden(part, rng, values) for part in node.parts)
    return Node(node.kind, node.attribute, tuple(constants), parts, node.detail)


def private_kinds(node: Node) -> dict[str, str]:
    """The attribute that each private constant is compared with."""
    own = {one.name: node.attribute for one in node.constants if one.name is not None}
    return own | {name: kind for part in node.parts for name, kind in private_kinds(part).items()}


def some_text(schema: Schema, rng: np.random.Generator, *, box: bool) -> str:
    """A conjunction of intervals, or any formula."""
    if not box:
        tree = some_formula(schema, rng, int(rng.integers(1, 4)))
    else:
        parts = tuple(some_leaf(schema, rng, box=True) for _ in range(int(rng.integers(1, 3))))
        tree = Node("and", parts=parts)
    return render(schema, tree, sqlite=False)


def some_template(
    schema: Schema, rng: np.random.Generator, others: int
) -> tuple[str, list[dict[str, Any]]]:
    """A template, and values for its private constants: those that it was written with, and more.

    Args:
        others: number of further mappings.
    """
    private: dict[str, Any] = {}
    tree = hidden(some_formula(schema, rng, int(rng.integers(1, 6))), rng, private)
    more = {
        name: [one for one in uniform(schema[kind], rng, 4 * others) if one is not None]
        for name, kind in private_kinds(tree).items()
    }
    values = [{name: some[i] for name, some in more.items()} for i in range(others)]
    return render(schema, tree, sqlite=False), [private, *values]
