"""Writing a predicate as a hidden tree, of the least depth that is found with bounded work.

The predicate's normal form becomes a circuit of AND, OR and NOT whose inputs are leaves. Where that
is too deep, the predicate as a union of products is tried, too. The circuit is unfolded into the
tree, whose spare leaves are constants.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from ccbps.circuits import Circuit, Op
from ccbps.errors import ParameterError
from ccbps.predicates.attributes import Attributes
from ccbps.predicates.box_writer import Boxes
from ccbps.predicates.form import AllOf, AnyOf, AtLeastOf, Form, HammingWithin, InRange
from ccbps.predicates.hidden import AnyLeaf, HiddenTree, TreeNode
from ccbps.predicates.leaf_writers import Comparisons, DoesNotFit, Literals, Ranges, Work, Writer
from ccbps.predicates.products import NotABox, union_of

LeafKind: TypeAlias = Literal["literal", "compare", "interval", "box"]

MAX_DEPTH: Final = 16
"""Of a tree: it is written out, all 2^depth leaves."""

_MAX_PRODUCTS: Final = 256

_WRITERS: Final[dict[str, type[Writer]]] = {
    "literal": Literals,
    "compare": Comparisons,
    "interval": Ranges,
    "box": Boxes,
}


def hide(schema: Attributes, form: Form, depth: int, kind: LeafKind) -> HiddenTree:
    """A tree that is true of the same events of the schema as the form.

    Args:
        schema: the attributes.
        form: code form of a bound predicate.
        depth: of the tree, 0..`MAX_DEPTH`; it has 2^depth leaves.
        kind: of its leaves.

    Raises:
        DoesNotFit: the form needs a deeper tree, or is too large.
        ParameterError: `depth` or `kind` is none of these; or a bound is private and not filled in.
    """
    if kind not in _WRITERS:
        raise ParameterError(f"leaf must be one of {', '.join(map(repr, _WRITERS))}, got {kind!r}")
    if not 0 <= depth <= MAX_DEPTH:
        raise ParameterError(f"depth must be 0..{MAX_DEPTH}, got {depth}")
    work = Work()
    waiting = [form]
    while waiting:
        node = waiting.pop()
        work.spend(16 + (4 * len(node.children) ** 2 if isinstance(node, AtLeastOf) else 0))
        waiting.extend(node.children)
    writer = _WRITERS[kind](schema, work)
    circuit = writer.circuit([writer.normal.of(form)])
    if circuit.depth > depth:
        circuit = min([circuit, *_as_products(form, writer)], key=lambda one: one.depth)
    if circuit.depth > depth:
        raise DoesNotFit(circuit.depth)
    return _unfolded(circuit, writer, depth)


def _as_products(form: Form, writer: Writer) -> list[Circuit]:
    """The form as a union of products, unless that is too much work."""
    if _products(form) > _MAX_PRODUCTS:
        return []
    normal = writer.normal
    try:
        union = union_of(writer.schema, form)
        # One by one: the normal form of their OR would be one leaf less open to each of them.
        parts = [
            normal.all_of(normal.member(*pair) for pair in product.items()) for product in union
        ]
        return [writer.circuit(parts)]
    except (NotABox, DoesNotFit):
        return []


def _products(form: Form) -> int:
    """At most how many products `union_of` looks at, or any number above the limit."""
    if isinstance(form, HammingWithin):
        return _MAX_PRODUCTS + 1
    parts = form.children
    counts = [_products(part) for part in parts]
    if isinstance(form, AnyOf):
        names = {part.attribute if isinstance(part, InRange) else None for part in parts}
        if len(names) == 1 and None not in names:
            return 1  # a set of codes, however many
        return min(sum(counts), _MAX_PRODUCTS + 1)
    if isinstance(form, AtLeastOf):
        # All choices of k counts, multiplied and added up.
        sums = [1] + [0] * form.k
        for count in counts:
            for size in range(form.k, 0, -1):
                sums[size] = min(sums[size] + count * sums[size - 1], _MAX_PRODUCTS + 1)
        return sums[form.k]
    found = 1
    for count in counts if isinstance(form, AllOf) else ():
        found = min(found * count, _MAX_PRODUCTS + 1)
    return found


def _unfolded(circuit: Circuit, writer: Writer, depth: int) -> HiddenTree:
    """The circuit as a tree; whatever it does not need is ANDed with constants that are true."""
    spare = writer.constant(True)
    nodes = [TreeNode(either=False, negated=False)] * ((1 << depth) - 1)
    leaves: list[AnyLeaf] = [spare] * (1 << depth)
    waiting = [(circuit.outputs[0], 0)]
    while waiting:
        wire, place = waiting.pop()
        op, a, b = (Op.XOR, 0, 0) if wire < circuit.inputs else circuit.gates[wire - circuit.inputs]
        if op in (Op.AND, Op.OR):
            nodes[place] = TreeNode(either=op == Op.OR, negated=False)
            waiting += [(a, 2 * place + 1), (b, 2 * place + 2)]
            continue
        if op in (Op.FALSE, Op.TRUE):
            leaf = writer.constant(op == Op.TRUE)
        elif op == Op.NOT:
            leaf = writer.negated(writer.leaves[a])
        else:
            leaf = writer.leaves[wire]
        while place < len(nodes):
            place = 2 * place + 1
        leaves[place - len(nodes)] = leaf
    return HiddenTree(depth, tuple(nodes), tuple(leaves))
