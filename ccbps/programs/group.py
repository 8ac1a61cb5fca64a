"""Group programs: products of permutations that evaluate a predicate on some bits.

- A **group program** <(g1_0, g1_1, i1), ..., (gl_0, gl_1, il)> takes from each instruction one of
  two elements, chosen by bit i_j of the input. It alpha-computes f when the product is the 5-cycle
  alpha where f holds and the identity elsewhere. [SSM] Definition 6.
- An **alpha-preserving** program <g0, i1, g1, ..., il, gl> alpha-computes f when
  g0 alpha^x[i1] g1 ... alpha^x[il] gl = alpha^f(x). The elements that depend on the input are alpha
  or the identity in every program. The *interstitial* elements g0 ... gl depend on the predicate.
  [SSM] Definitions 16 and 17.
- It has **fixed structure** when the index sequence i1 ... il does not depend on the predicate.
  Publisher and subscriber then write their elements independently. [SSM] Definition 19.

Convention: products run left to right. Elements are ranks of a `ccbps.algebra.group.Group`.
Not protected: interstitial elements show the predicate. Blind them before they leave their owner.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ccbps.algebra.group import Group
from ccbps.arrays import Index, Ranks
from ccbps.errors import ParameterError, ShapeError

NONE: Final = -1
"""Index of an instruction without an input bit, such as padding: its bit is always 0."""


@dataclass(frozen=True, slots=True, eq=False)
class GroupProgram:
    """A group program, [SSM] Definition 6.

    Attributes:
        group: group of the elements.
        zero: element of each instruction for a 0, shape (length,).
        one: element of each instruction for a 1, shape (length,).
        index: input bit of each instruction, shape (length,).
    """

    group: Group
    zero: Ranks = field(repr=False)
    one: Ranks = field(repr=False)
    index: Index = field(repr=False)

    @property
    def length(self) -> int:
        """Number of instructions."""
        return len(self.index)

    def evaluate(self, bits: NDArray[np.bool_]) -> Ranks:
        """Multiply the elements for inputs of shape (batch, n) to ranks of shape (batch,)."""
        least = int(self.index.max(initial=NONE)) + 1
        if bits.ndim != 2 or bits.shape[1] < least:
            raise ShapeError(f"bits must have shape (batch, at least {least}), got {bits.shape}")
        padded = np.zeros((len(bits), bits.shape[1] + 1), dtype=np.bool_)  # False for `NONE`
        padded[:, :-1] = bits
        chosen = np.where(padded[:, self.index], self.one, self.zero)
        return self.group.row_products(chosen)


@dataclass(frozen=True, slots=True, eq=False)
class PreservingProgram:
    """An alpha-preserving program, [SSM] Definition 16.

    Attributes:
        group: group of the elements.
        interstitials: elements g0 ... gl, shape (length + 1,).
        index: input bits i1 ... il, shape (length,); `NONE` stands for a bit that is always 0.
    """

    group: Group
    interstitials: Ranks = field(repr=False)
    index: Index = field(repr=False)

    def __post_init__(self) -> None:
        if self.interstitials.shape != (len(self.index) + 1,):
            raise ParameterError(
                f"interstitials must be {len(self.index) + 1} for {len(self.index)} indices, got "
                f"{self.interstitials.shape}"
            )

    @property
    def length(self) -> int:
        """Number of indices, l."""
        return len(self.index)

    @property
    def elements(self) -> int:
        """Number of elements in the product: l depend on the input, l + 1 on the predicate."""
        return 2 * self.length + 1

    def evaluate(self, bits: NDArray[np.bool_]) -> Ranks:
        """Multiply the elements for inputs of shape (batch, n) to ranks of shape (batch,)."""
        return self.group_program().evaluate(bits)

    def group_program(self) -> GroupProgram:
        """Return the group program of the same length, with neighbouring elements multiplied.

        This is [SSM] Theorem 8's program if this one is Theorem 18's.
        """
        multiply, only = self.group.multiplication, self.interstitials
        if not self.length:
            return GroupProgram(self.group, only, only, np.full(1, NONE, dtype=np.int32))
        zero = self.interstitials[1:].copy()
        one = multiply[self.group.alpha, zero]
        zero[0] = multiply[self.interstitials[0], zero[0]]
        one[0] = multiply[self.interstitials[0], one[0]]
        return GroupProgram(self.group, zero, one, self.index)
