"""Write the tables of rank_one_gates.md, matchers/formula.md and matchers/broadcast.md.

    python docs/formula_table.py

Sizes are counted from the library's own plans; those of other constructions come from their
formulas. A test counts again and compares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log2
from pathlib import Path

from leakage_table import table

from ccbps import Category, Decimal, Schema, UInt
from ccbps.encodings.formula.rank_one import RankOne
from ccbps.matching import BranchingMatch, BroadcastMatch, FormulaMatch
from ccbps.programs.branching import event_bit, interest_bit
from ccbps.programs.formula import And, Formula, gates, total

DOCS = Path(__file__).resolve().parent

LABEL = 128
"""Bits of a wire label of a garbled circuit; half-gates send two for each AND."""
STOCKS = Schema(
    issue=Category(["AAPL", "GOOG", "IBM", "MSFT"]),
    price=Decimal(0, 1000, "0.01"),
    volume=UInt(32),
)
MOST = 60_000
"""AND gates that the tables ask for."""


def box_schema(widths: Sequence[int]) -> Schema:
    """Return a schema of attributes of some widths, in bits."""
    return Schema(**{f"a{i}": UInt(bits) for i, bits in enumerate(widths)})


def name_of(widths: Sequence[int]) -> str:
    """Name widths: 16 + 16 + 20, or 4 x 32."""
    if len(widths) > 1 and len(set(widths)) == 1:
        return f"{len(widths)} \N{MULTIPLICATION SIGN} {widths[0]}"
    return " + ".join(map(str, widths))


def comparison(bits: int) -> tuple[Schema, str]:
    """Return the schema and the text of x < :c over some bits."""
    return Schema(x=UInt(bits)), "x < :c"


# -- other constructions, by their formulas -------------------------------------------------------


def bound(widths: Sequence[int]) -> tuple[int, float]:
    """Return the least bits of an event and of an interest of a box, by the number of boxes.

    Every attribute has 2^(k-1) (2^k + 1) intervals that are not empty. All predicates with an empty
    interval are one.
    """
    boxes = 1
    for bits in widths:
        boxes *= 2 ** (bits - 1) * (2**bits + 1)
    return sum(widths), log2(boxes + 1)


def determinant(matcher: BranchingMatch) -> int:
    """Return the bits of either message: a triangle with a row less than the program has nodes."""
    size = matcher.program.size
    return size * (size + 1) // 2


def halves(matcher: FormulaMatch) -> tuple[int, int]:
    """Return the bits of labels and of garbled gates, for a circuit with the same AND gates."""
    return LABEL * matcher.schema.bits, 2 * LABEL * gates(matcher.formula)


def gess(depth: int, secret: int = 1) -> int:
    """Return the bits of all leaves' shares of a balanced tree of private gates.

    The left part of a gate gets secrets one bit longer than `secret`, the right part twice as long.
    """
    if not depth:
        return secret
    return gess(depth - 1, secret + 1) + gess(depth - 1, 2 * secret)


def labels(depth: int) -> int:
    """Return the bits of all labels for rank-one gates, one label a leaf: the sum of n V."""
    return 2**depth * (4 + 4 * depth + depth * (depth - 1)) // 4


def tree(depth: int) -> Formula:
    """Return a balanced tree of privately AND or OR gates, with a bit of each party at a leaf."""
    leaves = iter(range(2**depth))
    kinds = iter(range(2**depth, 2 ** (depth + 1)))

    def node(level: int) -> Formula:
        if not level:
            i = next(leaves)
            return event_bit(i) ^ interest_bit(i)
        left, right = node(level - 1), node(level - 1)
        kind = interest_bit(next(kinds))
        return total([And(total([left, kind]), total([right, kind])), kind])

    return node(depth)


# -- tables ---------------------------------------------------------------------------------------


def sizes() -> str:
    """Tabulate the bits of comparisons and boxes."""
    rows = []
    for bits in (8, 16, 32, 64):
        schema, text = comparison(bits)
        matcher = FormulaMatch(schema, text)
        least = bits, log2(2**bits + 1)
        rows.append([f"x < c, {bits} bits", *_beside(matcher, BranchingMatch(schema, text), least)])
    for widths in ([16], [16, 16, 20], [32] * 4, [64] * 3, [32] * 16):
        schema = box_schema(widths)
        other = BranchingMatch.box(schema)
        cells = _beside(FormulaMatch.box(schema), other, bound(widths))
        kind = "interval" if len(widths) == 1 else "box"
        rows.append([f"{kind}, {name_of(widths)} bits", *cells])
    head = ["bits of an event, of an interest", "rank-one gates", "determinant, each"]
    return table([*head, "half-gates", "lower bound"], rows)


def _beside(matcher: FormulaMatch, other: BranchingMatch, least: tuple[int, float]) -> list[str]:
    event, interest = matcher.encoding.slots.bits
    inputs, garbled = halves(matcher)
    return [
        f"{event:,}, {interest:,}",
        f"{determinant(other):,}",
        f"{inputs:,}, {garbled:,}",
        f"{least[0]:,}, {least[1]:,.0f}",
    ]


def trees() -> str:
    """Tabulate the bits of balanced trees of private gates."""
    rows = []
    for depth in (2, 4, 6, 8, 10):
        event, interest = RankOne(tree(depth)).bits
        cells = f"{event:,}, {interest:,}", f"{labels(depth):,}", f"{gess(depth):,}"
        rows.append([str(depth), f"{2**depth:,}", *cells])
    head = ["depth", "leaves", "rank-one gates: event, interest", "the same, one label a leaf"]
    return table([*head, "GESS"], rows)


def small() -> str:
    """Tabulate lone comparisons of a few bits."""
    rows = []
    for bits in range(1, 7):
        matcher, other = FormulaMatch(*comparison(bits)), BranchingMatch(*comparison(bits))
        event, interest = matcher.encoding.slots.bits
        lengths = f"{matcher.encoding.event_bytes}, {matcher.encoding.interest_bytes}"
        rows.append([str(bits), f"{event}, {interest}", lengths])
        rows[-1] += [str(determinant(other)), str(other.encoding.message_bytes)]
    head = ["bits of x", "rank-one gates: bits", "bytes", "determinant: bits, each", "bytes, each"]
    return table(head, rows)


def boxes() -> str:
    """Tabulate the bytes and work of boxes."""
    found = [(f"box over {name_of(w)} bits", box_schema(w)) for w in ([16], [16, 16])]
    found.append(("box of the example (51 bits)", STOCKS))
    for widths in ([16, 16, 20], [32] * 4, [64] * 3, [32] * 8, [32] * 16):
        found.append((f"box over {name_of(widths)} bits", box_schema(widths)))
    rows = [_row(name, FormulaMatch.box(s), BranchingMatch.box(s)) for name, s in found]
    return table(HEAD, rows)


def templates() -> str:
    """Tabulate the bytes and work of templates."""
    x = Schema(x=UInt(16))
    flags = Schema(**{f"b{i}": UInt(1) for i in range(12)})
    scattered = ", ".join(str(7 * i) for i in range(400))
    pairs = ", ".join(f"b{i} = :c{i}" for i in range(12))
    eight = Schema(**{f"a{i}": UInt(8) for i in range(12)})
    limits = ", ".join(f"a{i} < :c{i}" for i in range(12))
    found = (
        (STOCKS, "issue = :issue", ""),
        (STOCKS, "price < :limit", ""),
        (STOCKS, "price BETWEEN :a AND :b", ""),
        (STOCKS, "issue = :issue AND (price < :limit OR volume > :least)", ""),
        (STOCKS, "issue = :issue AND price < :limit AND volume > 1000", ""),
        (x, "x BETWEEN :a AND :b OR x BETWEEN :c AND :d", "16 bits"),
        (x, f"x IN ({', '.join(f':v{i}' for i in range(4))})", "16 bits"),
        (x, f"x IN ({', '.join(f':v{i}' for i in range(16))})", "16 private values of 16 bits"),
        (x, f"x IN ({scattered})", "400 scattered public values"),
        (x, "hamming(x, :c) <= 2", "16 bits"),
        (x, "hamming(x, :c) <= 8", "16 bits"),
        (flags, f"at_least(3, {pairs})", "3 of 12 bits"),
        (eight, f"at_least(3, {limits})", "3 of 12 comparisons of 8 bits"),
    )
    rows = []
    for schema, text, note in found:
        shown = f"`{text}`" + (f", {note}" if note else "")
        if len(text) > 70:
            shown = f"`{'IN' if ' IN ' in text else 'at_least'}`: {note}"
        rows.append(_row(shown, FormulaMatch(schema, text), _branching(schema, text)))
    return table(HEAD, rows)


HEAD = [
    "matcher", "gates", "bytes: event, interest", "randomness", "publisher", "subscriber",
    "broker", "BranchingMatch: bytes a side",
]  # fmt: skip


def _branching(schema: Schema, text: str) -> BranchingMatch | None:
    try:
        return BranchingMatch(schema, text)
    except ValueError:
        return None


def _row(name: str, matcher: FormulaMatch, other: BranchingMatch | None) -> list[str]:
    return [
        name,
        f"{gates(matcher.formula):,}",
        f"{matcher.event_bytes:,}, {matcher.interest_bytes:,}",
        f"{matcher.randomness_bytes:,}",
        *(f"{cost.count:,.0f}" for cost in matcher.costs),
        f"{other.event_bytes:,}" if other else "refused",
    ]


def hidden(depths: Sequence[int] = (2, 3, 4)) -> str:
    """Tabulate the bits of hidden formulas."""
    stocks = box_schema([16, 16, 20])
    rows = []
    for leaf, schema in (
        ("literal", box_schema([32])),
        ("compare", stocks),
        ("interval", stocks),
        ("box", stocks),
    ):
        widths = [schema[name].bits for name in schema]
        cells = []
        for depth in depths:
            matcher = FormulaMatch.hidden(schema, depth=depth, leaf=leaf, max_gates=MOST)
            event, interest = matcher.encoding.slots.bits
            cells.append(f"{event:,}, {interest:,}")
        rows.append([f"`{leaf}`, {name_of(widths)} bits", *cells])
    return table(["kind of leaf", *(f"{2**depth} leaves" for depth in depths)], rows)


DISTANCES = ((16, (1, 4, 8)), (24, (2, 6)), (32, (2, 4, 8)), (40, (2, 4, 6)), (64, (2,)))
"""Bits and limits of the table of Hamming distances."""


def counting(distances: Sequence[tuple[int, Sequence[int]]] = DISTANCES) -> str:
    """Tabulate Hamming distances, at which BranchingMatch overtakes."""
    rows = []
    for bits, limits in distances:
        for limit in limits:
            schema, text = Schema(x=UInt(bits)), f"hamming(x, :c) <= {limit}"
            matcher = FormulaMatch(schema, text, max_gates=MOST)
            other = BranchingMatch(schema, text)
            # As `costs` has it, without building the encoders.
            ours = -(-matcher.encoding.broker.operations // 64)
            theirs = {cost.role: cost.count for cost in other.costs}["broker"]
            both = matcher.event_bytes + matcher.interest_bytes
            shown = [f"{both:,}", f"{other.event_bytes + other.interest_bytes:,}"]
            small = f"{gates(matcher.formula):,}"
            rows.append([str(bits), str(limit), small, *shown, f"{ours:,}", f"{theirs:,.0f}"])
    head = ["bits", "limit", "gates", "FormulaMatch: bytes of a pair", "BranchingMatch"]
    return table([*head, "FormulaMatch: broker", "BranchingMatch"], rows)


BROADCAST = ([16, 16, 20], [32] * 4, [16] * 8)
"""Boxes of the tables of BroadcastMatch."""


def windows() -> str:
    """Tabulate the bytes and work of a broadcast by its window."""
    rows = []
    for widths in BROADCAST:
        schema = box_schema(widths)
        for window in (1, 2, 3, 4):
            matcher = BroadcastMatch.box(schema, window=window)
            costs: dict[tuple[str, str], float] = {}
            for cost in matcher.costs:
                key = cost.role, cost.operation.name
                costs[key] = costs.get(key, 0) + cost.count
            rows.append(
                [
                    f"{name_of(widths)} bits",
                    str(window),
                    f"{matcher.event_bytes:,}",
                    f"{matcher.interest_bytes:,}",
                    f"{matcher.randomness_bytes:,}",
                    *(
                        f"{costs[role, 'AES_BLOCK']:,.0f}, {costs[role, 'WORD']:,.0f}"
                        for role in ("subscriber", "broker")
                    ),
                ]
            )
    head = ["box over", "window", "event", "interest", "randomness"]
    return table([*head, "subscriber: AES, words", "broker: AES, words"], rows)


def beside() -> str:
    """Tabulate the bytes of one event with many subscriptions, and the publisher's part."""
    rows = []
    for widths in BROADCAST:
        schema = box_schema(widths)
        pairs, one = FormulaMatch.box(schema), BroadcastMatch.box(schema)
        for count in (1, 10, 100):
            both = count * pairs.event_bytes, one.event_bytes
            whole = both[0] + count * pairs.interest_bytes, both[1] + count * one.interest_bytes
            rows.append(
                [f"{name_of(widths)} bits", f"{count:,}"]
                + [f"{sent:,}, {every:,}" for sent, every in zip(both, whole, strict=True)]
            )
    head = ["box over", "subscriptions", "FormulaMatch: publisher, both", "BroadcastMatch"]
    return table(head, rows)


BLOCKS: dict[str, tuple[Callable[[], str], ...]] = {
    "rank_one_gates.md": (sizes, trees, small),
    "matchers/formula.md": (hidden, boxes, templates, counting),
    "matchers/broadcast.md": (windows, beside),
}
"""Pages, and the tables in them."""


def page(name: str) -> str:
    """Return the text that a file of the documentation must have."""
    text = (DOCS / name).read_text(encoding="utf-8")
    for make in BLOCKS[name]:
        before, _, after = around(text, make)
        text = f"{before}{make()}{after}"
    return text


def around(text: str, make: Callable[[], str]) -> tuple[str, str, str]:
    """Return the text before a table, the table, and the text after it."""
    begin = f"<!-- {make.__name__}, by python docs/formula_table.py -->\n\n"
    end = f"\n<!-- end of {make.__name__} -->"
    before, rest = text.split(begin)
    table, after = rest.split(end)
    return before + begin, table, end + after


if __name__ == "__main__":
    for name in BLOCKS:
        (DOCS / name).write_text(page(name), encoding="utf-8")
