"""A group of permutations of five points, and long sequences of its elements.

Group programs compute with 5-cycles: a sequence of elements whose product is alpha or the identity.
`Group` is what their encodings need of a group: its tables, Barrington's constants, and bulk
operations on sequences of millions of elements, which `S5` does by table look-up and `A5` by word
operations on bit-planes.

Conventions: products run left to right, ``p * q`` is first p, then q. Points are 1..5 in text.
Elements are *ranks*: 0 .. order - 1 in lexicographic order of their one-line forms, so the identity
is 0. Sequences are *bulks*, opaque arrays that only their group's methods read; a bulk holds a
batch of sequences of one length.

Hazard: `S5` looks secret elements up in tables, so its running time depends on them through the
caches. `A5` multiplies, inverts, blinds, loads and stores without secret addresses or branches; but
its `uniform` shows which draws were rejected (not what was drawn), and wherever ranks come in or go
out, and at the end of `product`, it uses tables too.
Sources: [SSM] sections 1.2 and 4, Lemma 29; [Bar89].
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import permutations
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bytes, Ranks
from ccbps.errors import ParameterError, ShapeError

POINTS: Final = 5

Bits = NDArray[Any]
"""Bits of sequences: bool of shape (batch, length), or what the group's `pack` made of them."""
Bulk = NDArray[Any]
"""A batch of sequences, in the form of its group."""


class Group(ABC):
    """A group of permutations of five points that contains the 5-cycle alpha.

    Attributes:
        name: "S5" or "A5".
        order: number of elements.
        multiplication: rank of p * q at [p, q]; shape (order, order), uint8, read-only.
        inverses: rank of the inverse of p at [p]; shape (order,), uint8, read-only.
        alpha: rank of the 5-cycle (1 2 3 4 5).
        beta: rank of a conjugate of alpha whose commutator alpha beta alpha^-1 beta^-1 is itself
            a conjugate of alpha; conjugate means by elements of this group.
    """

    def __init__(self, name: str, elements: list[tuple[int, ...]], beta: str) -> None:
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
        self.alpha = self.rank("(1 2 3 4 5)")
        self.beta = self.rank(beta)

    def __repr__(self) -> str:
        return self.name

    # --- single elements -----------------------------------------------------------------------

    def one_line(self, rank: int) -> tuple[int, ...]:
        """Images of the points 1..5."""
        self._require_rank(rank)
        return tuple(image + 1 for image in self._elements[rank])

    def cycle(self, rank: int) -> str:
        """Cycle notation: "(1 2 3)(4 5)"; fixed points are left out, "()" is the identity."""
        images, text, seen = self.one_line(rank), "", set[int]()
        for start in range(1, POINTS + 1):
            if start in seen or images[start - 1] == start:
                continue
            members, point = [start], images[start - 1]
            while point != start:
                members.append(point)
                point = images[point - 1]
            seen.update(members)
            text += f"({' '.join(map(str, members))})"
        return text or "()"

    def rank(self, cycles: str) -> int:
        """Rank of an element in cycle notation; the cycles are disjoint.

        Raises:
            ParameterError: not cycle notation, or not an element of this group.
        """
        parts = cycles.replace(",", " ").strip()
        if not (parts.startswith("(") and parts.endswith(")")):
            raise ParameterError(f"cycles look like (1 2 3)(4 5), got {cycles!r}")
        images, seen = list(range(POINTS)), set[int]()
        for part in parts[1:-1].split(")"):
            names = part.strip().removeprefix("(").split()
            if not all(n in {"1", "2", "3", "4", "5"} for n in names):
                raise ParameterError(f"points are 1 to {POINTS}, got {cycles!r}")
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
        """rank^exponent; negative exponents too."""
        self._require_rank(rank)
        base = int(self.inverses[rank]) if exponent < 0 else rank
        result = 0
        for _ in range(abs(exponent) % 60):  # 60: every order, 1 to 6, divides it
            result = int(self.multiplication[result, base])
        return result

    def conjugator(self, a: int, b: int) -> int:
        """The least rank rho of this group with rho^-1 a rho = b.

        Raises:
            ParameterError: a and b are not conjugate in this group.
        """
        self._require_rank(a)
        self._require_rank(b)
        # a rho = rho b, for all rho at once.
        found = np.flatnonzero(self.multiplication[a] == self.multiplication[:, b])
        if not len(found):
            raise ParameterError(f"{self.cycle(a)} and {self.cycle(b)} are not conjugate in {self}")
        return int(found[0])

    # --- sequences -----------------------------------------------------------------------------

    @abstractmethod
    def padded(self, length: int) -> int:
        """Positions that a sequence of `length` elements takes: what the other methods call
        length. The positions past `length` are ordinary ones; fill them with the identity.
        """

    @abstractmethod
    def element_bytes(self, length: int) -> int:
        """Bytes of a sequence on the wire."""

    @abstractmethod
    def random_bytes(self, length: int) -> int:
        """Bytes that `uniform` takes for a sequence."""

    @abstractmethod
    def from_ranks(self, ranks: Ranks) -> Bulk:
        """Sequences from ranks of shape (batch, length).

        Raises:
            ParameterError: a rank is out of range, or length is not a padded one.
        """

    @abstractmethod
    def to_ranks(self, bulk: Bulk) -> Ranks:
        """Ranks of shape (batch, length)."""

    @abstractmethod
    def pack(self, bits: NDArray[np.bool_]) -> Bits:
        """Bits of shape (batch, length) in the form that `powers` reads fastest."""

    @abstractmethod
    def pack_periodic(self, bits: NDArray[np.bool_], length: int) -> Bits:
        """As ``pack`` of bits of shape (batch, period), repeated until `length` is reached."""

    @abstractmethod
    def choose(self, bits: Bits, one: int, zero: int) -> Bulk:
        """The element `one` where the bit is 1, `zero` where it is 0."""

    def powers(self, bits: Bits, element: int) -> Bulk:
        """`element` where the bit is 1, the identity where it is 0."""
        return self.choose(bits, element, 0)

    @abstractmethod
    def divides(self, every: int, length: int) -> bool:
        """Whether `put` and `invert` can treat each `every`-th position of such sequences."""

    @abstractmethod
    def put(self, x: Bulk, every: int, ranks: Ranks) -> None:
        """Write ranks, shape (batch, length // every), to positions 0, every, 2 every, ..."""

    @abstractmethod
    def invert(self, x: Bulk, every: int) -> None:
        """Replace the elements at positions 0, every, 2 every, ... by their inverses."""

    @abstractmethod
    def take(self, x: Bulk, rows: NDArray[np.intp]) -> Bulk:
        """The sequences `rows` of a batch, in that order, any of them more than once."""

    @abstractmethod
    def multiply(self, x: Bulk, y: Bulk, out: Bulk | None = None) -> Bulk:
        """x * y at each position; `out` may be x or y."""

    @abstractmethod
    def inverse(self, x: Bulk, out: Bulk | None = None) -> Bulk:
        """x^-1 at each position; `out` may be x."""

    @abstractmethod
    def blind(self, left: Bulk, x: Bulk, right: Bulk, out: Bulk | None = None) -> Bulk:
        """left^-1 * x * right at each position, in one pass; `out` may be any of them."""

    @abstractmethod
    def delay(self, x: Bulk, first: Ranks, out: Bulk | None = None) -> Bulk:
        """The sequences moved one position later: `first`, shape (batch,), comes to position 0
        and the last elements drop out. `out` may be x.
        """

    @abstractmethod
    def last(self, x: Bulk) -> Ranks:
        """The last element of each sequence, shape (batch,)."""

    @abstractmethod
    def product(self, x: Bulk) -> Ranks:
        """The product of each whole sequence, left to right, shape (batch,)."""

    @abstractmethod
    def uniform(self, randomness: Bytes) -> Bulk:
        """Independent elements, exactly uniform, from uniform bytes (batch, random_bytes).

        Equal bytes give equal elements. The bytes determine the length.

        Raises:
            SamplingError: too many draws were rejected, which happens with probability below
                2^-64 per sequence. Given that it does not, the elements are exactly uniform.
        """

    @abstractmethod
    def store(self, x: Bulk, out: Bytes) -> None:
        """Write the wire form to `out`, shape (batch, element_bytes), rows contiguous."""

    @abstractmethod
    def load(self, rows: Bytes) -> tuple[Bulk, NDArray[np.bool_]]:
        """Sequences from the wire, shape (batch, element_bytes), and which of them are valid.

        A sequence that is not valid holds bytes that are not elements; its values mean nothing, and
        operations on it may be refused.
        """

    @abstractmethod
    def product_of(self, x: Bytes, y: Bytes) -> tuple[Ranks, NDArray[np.bool_]]:
        """x_1 y_1 x_2 y_2 ... of two messages on the wire, in one pass over them.

        Returns:
            products, shape (batch,), and which pairs are valid.
        """

    def _require_rank(self, rank: int) -> None:
        if not 0 <= rank < self.order:
            raise ParameterError(f"ranks of {self.name} are 0 to {self.order - 1}, got {rank}")

    def _require_ranks(self, ranks: Ranks, dimensions: int) -> None:
        if ranks.dtype != np.uint8 or ranks.ndim != dimensions:
            raise ShapeError(
                f"ranks must be uint8 with {dimensions} dimensions, got {ranks.dtype} {ranks.shape}"
            )
        if ranks.size and ranks.max() >= self.order:
            raise ParameterError(f"ranks of {self.name} are 0 to {self.order - 1}")


def all_permutations() -> list[tuple[int, ...]]:
    """The permutations of 0..4 in one-line form, in lexicographic order."""
    return list(permutations(range(POINTS)))


def require_rows(name: str, rows: Bytes, width: int | None = None) -> None:
    """Bytes of shape (batch, width), each row contiguous."""
    if (
        rows.dtype != np.uint8
        or rows.ndim != 2
        or (width is not None and rows.shape[1] != width)
        or (rows.size and rows.strides[1] != 1)
    ):
        raise ShapeError(
            f"{name} must be uint8 of shape (batch, {'width' if width is None else width}) with "
            f"contiguous rows, got {rows.dtype} {rows.shape}"
        )
