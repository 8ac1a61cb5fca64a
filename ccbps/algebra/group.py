"""A group of permutations of five points, and long sequences of its elements.

Group programs compute with 5-cycles: the product of a sequence is alpha or the identity. `Group`
has the tools of their encodings: multiplication tables, Barrington's constants, and bulk operations
on sequences of millions of elements. It performs these by table look-up, on bulks that are the
arrays of ranks themselves: shape (batch, length), uint8, as on the wire. `S5` is such a group. `A5`
performs them by word operations on bit-planes (`ccbps.algebra.alternating`).

Conventions: products run left to right, ``p * q`` is first p, then q. Points are 1..5 in text.
Elements are *ranks*: 0 .. order - 1 in lexicographic order of their one-line forms, so the identity
is 0. Sequences are *bulks*, opaque arrays that only their group's methods read. A bulk holds a
batch of sequences of one length. Bytes that are not ranks are refused by products and inverses with
a `ParameterError`.

Hazard: `S5` looks secret elements up in tables, so its running time depends on them through the
caches. `A5` multiplies, inverts, blinds, loads and stores without secret addresses or branches. Its
`uniform` shows which draws were rejected (not their values). It uses tables to convert ranks and at
the end of `product`.
Sources: [SSM] sections 1.2 and 4, Lemma 29; [Bar89].
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import combinations, permutations, product
from math import isqrt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bytes, Ranks, slices
from ccbps.checks import Printable, array, whole
from ccbps.errors import ParameterError, SamplingError, ShapeError

POINTS: Final = 5
ACCEPTED: Final = 240
"""Bound of the random bytes that are kept: twice the order of S5, so that two bytes give a rank."""
BLOCK: Final = 1 << 14
"""Ranks looked up at a time: indices and results stay in the cache."""

Bits = NDArray[Any]
"""Bits of sequences: bool of shape (batch, length), or the result of the group's `pack`."""
Bulk = NDArray[Any]
"""A batch of sequences, in the form of its group."""


class Group(Printable):
    """A group of permutations of five points that contains the 5-cycle alpha.

    Args:
        name: name of the group.
        only_even: whether it has the even permutations only.

    Attributes:
        name: "S5" or "A5".
        order: number of elements.
        multiplication: rank of p * q at [p, q]; shape (order, order), uint8, read-only.
        inverses: rank of the inverse of p at [p]; shape (order,), uint8, read-only.
        alpha: rank of the 5-cycle (1 2 3 4 5).
        beta: rank of a conjugate of alpha. The commutator alpha beta alpha^-1 beta^-1 is a
            conjugate of alpha, too. Both are conjugate by elements of this group.
    """

    def __init__(self, name: str, only_even: bool) -> None:
        elements = [
            element
            for element in permutations(range(POINTS))
            if not (only_even and sum(a > b for a, b in combinations(element, 2)) % 2)
        ]
        images = np.array(elements, dtype=np.intp)
        codes = images @ POINTS ** np.arange(POINTS)
        ranks = np.zeros(POINTS**POINTS, dtype=np.uint8)
        ranks[codes] = np.arange(len(elements))
        # First p, then q: point x goes to q[p[x]].
        products = images[:, images].swapaxes(0, 1)
        self.name = name
        self.order = len(elements)
        self.multiplication: Ranks = ranks[products @ POINTS ** np.arange(POINTS)]
        self.inverses: Ranks = ranks[np.argsort(images, axis=1) @ POINTS ** np.arange(POINTS)]
        self.multiplication.flags.writeable = False
        self.inverses.flags.writeable = False
        self._elements = tuple(elements)
        self._ranks = {element: rank for rank, element in enumerate(elements)}
        self._products = _pair_table(self.multiplication)
        self._quotients = _pair_table(self.multiplication[self.inverses])
        self._inverses = np.zeros(256, dtype=np.uint8)
        self._inverses[: self.order] = self.inverses
        self.alpha = self.rank("(1 2 3 4 5)")
        self.beta = self.rank("(1 2 4 5 3)")

    def __repr__(self) -> str:
        return self.name

    # --- single elements -----------------------------------------------------------------------

    def one_line(self, rank: int) -> tuple[int, ...]:
        """Return the images of the points 1..5."""
        self._require_rank(rank)
        return tuple(image + 1 for image in self._elements[rank])

    def cycle(self, rank: int) -> str:
        """Return cycle notation, such as "(1 2 3)(4 5)", without fixed points; "()" is rank 0."""
        images, text, seen = self.one_line(rank), "", set[int]()
        for point in range(1, POINTS + 1):
            members = []
            while point not in seen:
                seen.add(point)
                members.append(point)
                point = images[point - 1]
            if len(members) > 1:
                text += f"({' '.join(map(str, members))})"
        return text or "()"

    def rank(self, cycles: str) -> int:
        """Return the rank of an element in cycle notation. Its cycles are disjoint.

        Raises:
            ParameterError: the text is not cycle notation, or not an element of this group.
        """
        parts = cycles.replace(",", " ").strip()
        if not (parts.startswith("(") and parts.endswith(")")):
            raise ParameterError(f"cycles must look like (1 2 3)(4 5), got {cycles!r}")
        images, seen = list(range(POINTS)), set[int]()
        for part in parts[1:-1].split(")"):
            names = part.strip().removeprefix("(").split()
            if not all(n in {"1", "2", "3", "4", "5"} for n in names):
                raise ParameterError(f"points must be 1 to {POINTS}, got {cycles!r}")
            points = [int(n) - 1 for n in names]
            if len(set(points)) != len(points) or seen.intersection(points):
                raise ParameterError(f"a point occurs twice in {cycles!r}")
            seen.update(points)
            for point, image in zip(points, points[1:] + points[:1], strict=True):
                images[point] = image
        try:
            return self._ranks[tuple(images)]
        except KeyError:
            raise ParameterError(f"{cycles!r} is not in {self.name}") from None

    def power(self, rank: int, exponent: int) -> int:
        """Return the rank of an element's power. The exponent may be negative."""
        self._require_rank(rank)
        base = int(self.inverses[rank]) if exponent < 0 else rank
        result = 0
        for _ in range(abs(exponent) % 60):  # 60: every order, 1 to 6, divides it
            result = int(self.multiplication[result, base])
        return result

    def conjugator(self, a: int, b: int) -> int:
        """Return the least rank rho of this group with rho^-1 a rho = b.

        Raises:
            ParameterError: a and b are not conjugate in this group.
        """
        self._require_rank(a)
        self._require_rank(b)
        # This compares a rho with rho b, for all rho at once.
        conjugators = np.flatnonzero(self.multiplication[a] == self.multiplication[:, b])
        if not len(conjugators):
            raise ParameterError(f"{self.cycle(a)} and {self.cycle(b)} are not conjugate in {self}")
        return int(conjugators[0])

    def row_products(self, ranks: Ranks) -> Ranks:
        """Return the products of whole rows of ranks, from (batch, length) to (batch,).

        Two neighbouring ranks, read as one little-endian 16-bit number, are an index. So a long
        product is a tree of look-ups without arithmetic for the index.
        """
        batch, length = ranks.shape
        if length > BLOCK:
            complete = length // BLOCK * BLOCK
            heads = self.row_products(ranks[:, :complete].reshape(-1, BLOCK)).reshape(batch, -1)
            tail = ranks[:, complete:]
            tail = self.row_products(tail)[:, None] if tail.size else heads[:, :0]
            return self.row_products(np.concatenate([heads, tail], axis=1))
        result = np.empty(batch, dtype=np.uint8)
        step = max(1, BLOCK // length)
        for start in range(0, batch, step):
            level = ranks[start : start + step]
            while (count := level.shape[1]) > 1:
                pairs = np.ascontiguousarray(level[:, : count - count % 2]).view("<u2")
                halves = self._products.take(pairs)
                level = np.concatenate([halves, level[:, -1:]], axis=1) if count % 2 else halves
            result[start : start + step] = level[:, 0]
        return result

    # --- sequences -----------------------------------------------------------------------------

    def padded(self, length: int) -> int:
        """Return the positions that a sequence of `length` elements takes.

        The other methods call this number length. Fill the positions past `length` with the
        identity.
        """
        return whole("length", length, 1)

    def element_bytes(self, length: int) -> int:
        """Return the bytes of a sequence on the wire."""
        return length

    def random_bytes(self, length: int) -> int:
        """Return the bytes that `uniform` takes for a sequence: one per element, and a reserve.

        The reserve is for one element in 15, with a slack of 3 standard units.
        """
        return length + _reserve(length)

    def from_ranks(self, ranks: Ranks) -> Bulk:
        """Convert ranks of shape (batch, length) to sequences.

        Raises:
            ParameterError: a rank is out of range, or length is not a padded one.
        """
        self._require_ranks(ranks)
        return ranks.copy()

    def to_ranks(self, bulk: Bulk) -> Ranks:
        """Convert sequences to ranks of shape (batch, length)."""
        return bulk.copy()

    def pack(self, bits: NDArray[np.bool_]) -> Bits:
        """Pack bits of shape (batch, length) in the form that `choose` reads fastest."""
        return bits

    def pack_periodic(self, bits: NDArray[np.bool_], length: int) -> Bits:
        """Pack bits of shape (batch, period), repeated until `length` is reached."""
        times = -(-length // bits.shape[1])
        return np.tile(bits, (1, times))[:, :length]

    def choose(self, bits: Bits, one: int, zero: int) -> Bulk:
        """Return the element `one` where the bit is 1, and `zero` where it is 0."""
        self._require_rank(one)
        self._require_rank(zero)
        out = np.multiply(bits, np.uint8(one ^ zero), dtype=np.uint8)
        return np.bitwise_xor(out, np.uint8(zero), out=out)

    def powers(self, bits: Bits, element: int) -> Bulk:
        """Return the element where the bit is 1, and the identity where it is 0."""
        return self.choose(bits, element, 0)

    def divides(self, every: int, length: int) -> bool:
        """Return whether `put` and `invert` can treat each `every`-th position of a sequence."""
        return length % every == 0

    def put(self, x: Bulk, every: int, ranks: Ranks) -> None:
        """Write ranks, shape (batch, length // every), to positions 0, every, 2 every and so on."""
        self._require_ranks(ranks)
        x[:, ::every] = ranks

    def invert(self, x: Bulk, every: int) -> None:
        """Invert the elements at positions 0, every, 2 every and so on, in place."""
        x[:, ::every] = self._inverses.take(x[:, ::every])

    def take(self, x: Bulk, rows: NDArray[np.intp]) -> Bulk:
        """Select sequences of a batch by row number. A row may be selected repeatedly."""
        return x.take(rows, axis=0)

    def multiply(self, x: Bulk, y: Bulk, out: Bulk | None = None) -> Bulk:
        """Return x * y at each position; `out` may be x or y."""
        self._require_ranks(x)
        self._require_ranks(y)
        return _products(self._products, x, y, out)

    def inverse(self, x: Bulk, out: Bulk | None = None) -> Bulk:
        """Return x^-1 at each position; `out` may be x."""
        self._require_ranks(x)
        return self._inverses.take(x, out=out, mode="clip")

    def blind(self, left: Bulk, x: Bulk, right: Bulk, out: Bulk | None = None) -> Bulk:
        """Return left^-1 * x * right at each position, in one pass; `out` may be any of them."""
        if left.shape != x.shape or x.shape != right.shape:
            raise ShapeError(f"shapes differ: {left.shape}, {x.shape}, {right.shape}")
        for bulk in (left, x, right):
            self._require_ranks(bulk)
        out = np.empty_like(x) if out is None else out
        for at in _blocks(x):
            part = _products(self._quotients, left[at], x[at])
            _products(self._products, part, right[at], out[at])
        return out

    def delay(self, x: Bulk, first: Ranks, out: Bulk | None = None) -> Bulk:
        """Move the sequences one position later.

        Args:
            x: sequences. Their last elements drop out.
            first: new elements at position 0, shape (batch,).
            out: bulk for the result; may be `x`.
        """
        out = np.empty_like(x) if out is None else out
        out[:, 1:] = x[:, :-1]
        out[:, 0] = first
        return out

    def last(self, x: Bulk) -> Ranks:
        """Return the last element of each sequence, shape (batch,)."""
        return x[:, -1].copy()

    def product(self, x: Bulk) -> Ranks:
        """Return the product of each whole sequence, left to right, shape (batch,).

        Cost: one look-up per product, about 0.7 ns.
        """
        self._require_ranks(x)
        return self.row_products(x)

    def uniform(self, randomness: Bytes) -> Bulk:
        """Draw independent, exactly uniform elements from uniform bytes (batch, random_bytes).

        Equal bytes give equal elements. The bytes determine the length.

        Raises:
            SamplingError: too many draws were rejected, which happens with probability below
                2^-64 per sequence. Otherwise the elements are exactly uniform.
        """
        width = randomness.shape[1]
        length = 1 + bisect_left(range(1, width), width, key=self.random_bytes)
        require_rows("randomness", randomness, self.random_bytes(length))
        spare = Reserve(_reduced(randomness[:, length:]))
        result = _reduced(randomness[:, :length])
        draws = result.reshape(-1)
        rejected = np.flatnonzero(draws >= self.order)
        while len(rejected):
            fresh = spare.take(rejected, length)
            draws[rejected] = fresh
            rejected = rejected[fresh >= self.order]
        return result

    def store(self, x: Bulk, out: Bytes) -> None:
        """Write the wire form to `out`, shape (batch, element_bytes), rows contiguous."""
        require_rows("out", out, x.shape[1])
        np.copyto(out, x)

    def load(self, rows: Bytes) -> tuple[Bulk, NDArray[np.bool_]]:
        """Load sequences from the wire, shape (batch, element_bytes).

        Returns:
            The sequences, and for each whether it is valid. An invalid sequence holds bytes that
            are not elements: its values mean nothing, and operations may refuse it.
        """
        require_rows("rows", rows)
        return rows.copy(), self._valid(rows)

    def product_of(self, x: Bytes, y: Bytes) -> tuple[Ranks, NDArray[np.bool_]]:
        """Multiply x_1 y_1 x_2 y_2 ... of two messages on the wire, in one pass over them.

        Returns:
            Products, shape (batch,), and for each pair whether both messages are valid.
        """
        require_rows("x", x)
        require_rows("y", y, x.shape[1])
        if len(x) != len(y):
            raise ShapeError(f"{len(x)} sequences do not pair with {len(y)}")
        partial = np.empty((len(x), -(-x.shape[1] // BLOCK)), dtype=np.uint8)
        for rows, part in _blocks(x):
            # Bytes that are not ranks count as the identity here, and their row is not valid.
            both = _products(self._products, x[rows, part], y[rows, part])
            partial[rows, part.start // BLOCK] = self.row_products(both)
        return self.product(partial), self._valid(x) & self._valid(y)

    def _valid(self, rows: Bytes) -> NDArray[np.bool_]:
        valid: NDArray[np.bool_] = rows.max(axis=1) < self.order
        return valid

    def _require_rank(self, rank: int) -> None:
        whole(f"a rank of {self.name}", rank, 0, self.order - 1)

    def _require_ranks(self, ranks: Ranks) -> None:
        array("ranks", ranks, np.uint8, ("batch", "length"))
        if ranks.size and ranks.max() >= self.order:
            raise ParameterError(f"ranks of {self.name} must be 0 to {self.order - 1}")


def _pair_table(products: Bytes) -> Bytes:
    """Return a table of shape (65536,) with products[p, q] at p + 256 q.

    It has zeros for bytes that are not ranks, so bytes from the wire cannot reach beyond it.
    """
    table = np.zeros((256, 256), dtype=np.uint8)
    table[: products.shape[1], : products.shape[0]] = products.T
    return table.reshape(-1)


class Reserve:
    """Spare draws of a batch of sequences, handed out in order, each once.

    In both groups 15 of 16 first draws are kept: bytes below 240 in `S5`, rows that are not zero in
    `A5`. A rejected draw is replaced from a reserve at the end of the sequence's bytes, again and
    again until a draw is kept. Which draws are rejected says nothing about the values of those
    kept. So the result is exactly uniform as long as the reserve lasts. It runs out with
    probability below 2^-64 (Chernoff's bound; the tests compute it).

    Args:
        draws: spare draws, shape (batch, ..., budget), any dtype.
    """

    def __init__(self, draws: NDArray[Any]) -> None:
        self._draws = draws
        self._used = np.zeros(len(draws), dtype=np.intp)

    def take(self, places: NDArray[np.intp], each: int) -> NDArray[Any]:
        """Take the next draw for each place.

        Args:
            places: places without an element, ascending, counted through all sequences.
            each: number of places in a sequence.

        Returns:
            Draws, shape (..., len(places)).

        Raises:
            SamplingError: a sequence's reserve is used up.
        """
        before = self._used
        if len(before) == 1:
            sequences, counts = None, np.array([len(places)])
        else:
            sequences = places // each
            counts = np.bincount(sequences, minlength=len(before))
        self._used = before + counts
        if self._used.max() > self._draws.shape[-1]:
            raise SamplingError(
                "random elements: too many draws were rejected (expected less than once in 2^64 "
                "sequences, unless the bytes are not random); give this round up and use another"
            )
        if sequences is None:
            fresh: NDArray[Any] = self._draws[0, ..., before[0] : self._used[0]]
            return fresh
        first = before - (np.cumsum(counts) - counts)
        draws = self._draws[sequences, ..., first[sequences] + np.arange(len(places))]
        return np.moveaxis(draws, 0, -1)


def require_rows(name: str, rows: Bytes, width: int | str = "width") -> None:
    """Require bytes of shape (batch, width), each row contiguous."""
    array(name, rows, np.uint8, ("batch", width))
    if rows.size and rows.strides[1] != 1:
        raise ShapeError(f"{name} must have contiguous rows, got strides {rows.strides}; copy it")


def _products(table: Bytes, x: Bytes, y: Bytes, out: Bytes | None = None) -> Bytes:
    """Return x * y at each position of two arrays (batch, length); `out` may be one of them."""
    if x.shape != y.shape:
        raise ShapeError(f"shapes differ: {x.shape} and {y.shape}")
    out = np.empty(x.shape, dtype=np.uint8) if out is None else out
    for at in _blocks(x):
        pairs = np.empty((*x[at].shape, 2), dtype=np.uint8)
        pairs[..., 0], pairs[..., 1] = x[at], y[at]
        out[at] = table.take(pairs.view("<u2")[..., 0])
    return out


def _blocks(x: Bytes) -> Iterator[tuple[slice, slice]]:
    """Yield parts of an array (batch, length), about `BLOCK` elements each."""
    step = max(1, BLOCK // max(1, x.shape[1]))
    return product(slices(len(x), step), slices(x.shape[1], BLOCK))


def _reduced(draws: Bytes) -> Bytes:
    """Reduce bytes below 240 mod 120, and map the others to numbers from 120 up."""
    reduced: Bytes = np.minimum(draws, draws - np.uint8(ACCEPTED // 2))
    return reduced


def _reserve(length: int) -> int:
    """Return the number of spare draws: mean length / 15, standard deviation 0.27 sqrt(length)."""
    return length // 15 + 3 * isqrt(length) + 22


S5: Final = Group("S5", only_even=False)
