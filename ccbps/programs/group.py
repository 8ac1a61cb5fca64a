"""Group programs: products of permutations that tell what a predicate says of some bits.

- A **group program** <(g1_0, g1_1, i1), ..., (gl_0, gl_1, il)> takes from each instruction one of
  two elements, by bit i_j of the input. It alpha-computes f when the product is the 5-cycle alpha
  where f holds and the identity where it does not. [SSM] Definition 6.
- An **alpha-preserving** program <g0, i1, g1, ..., il, gl> alpha-computes f when
  g0 alpha^x[i1] g1 ... alpha^x[il] gl = alpha^f(x). What depends on the input is alpha or the
  identity, whatever the program; what depends on the predicate are the *interstitial* elements
  g0 ... gl. [SSM] Definitions 16 and 17.
- It has **fixed structure** when the index sequence i1 ... il does not depend on the predicate:
  then publisher and subscriber can write their elements without knowing of each other.
  [SSM] Definition 19.

Convention: products run left to right. Elements are ranks of a `ccbps.algebra.group.Group`.
Not protected: interstitial elements show the predicate. Blind them before they leave their owner.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ccbps.algebra.group import Group
from ccbps.algebra.lookup import pair_table, tree
from ccbps.arrays import Index, Ranks
from ccbps.errors import ParameterError, ShapeError

NONE: Final = -1
"""In an index sequence: no input bit, always 0. Padding takes it."""


def _looked_up(bits: NDArray[np.bool_], index: Index) -> NDArray[np.bool_]:
    """bits[:, index], with False for `NONE`: shape (batch, length)."""
    if bits.ndim != 2 or (len(index) and int(index.max()) >= bits.shape[1]):
        raise ShapeError(
            f"bits must have shape (batch, at least {int(index.max(initial=0)) + 1}), "
            f"got {bits.shape}"
        )
    padded = np.zeros((len(bits), bits.shape[1] + 1), dtype=np.bool_)
    padded[:, :-1] = bits
    return padded[:, index]


@dataclass(frozen=True, slots=True, eq=False)
class GroupProgram:
    """[SSM] Definition 6.

    Attributes:
        group: where the elements are.
        zero: the element of each instruction for a 0, shape (length,).
        one: the element of each instruction for a 1, likewise.
        index: which bit chooses, shape (length,).
    """

    group: Group
    zero: Ranks = field(repr=False)
    one: Ranks = field(repr=False)
    index: Index = field(repr=False)

    @property
    def length(self) -> int:
        """Instructions."""
        return len(self.index)

    def evaluate(self, bits: NDArray[np.bool_]) -> Ranks:
        """Products for inputs, shape (batch, n) -> ranks, shape (batch,)."""
        chosen = np.where(_looked_up(bits, self.index), self.one, self.zero)
        return tree(pair_table(self.group.multiplication), chosen)


@dataclass(frozen=True, slots=True, eq=False)
class PreservingProgram:
    """An alpha-preserving program, [SSM] Definition 16.

    Attributes:
        group: where the elements are.
        interstitials: g0 ... gl, shape (length + 1,).
        index: i1 ... il, shape (length,); `NONE` stands for a bit that is always 0.
    """

    group: Group
    interstitials: Ranks = field(repr=False)
    index: Index = field(repr=False)

    def __post_init__(self) -> None:
        if self.interstitials.shape != (len(self.index) + 1,):
            raise ParameterError(
                f"{len(self.index)} indices need {len(self.index) + 1} interstitials, got "
                f"{self.interstitials.shape}"
            )

    @property
    def length(self) -> int:
        """l, the number of indices."""
        return len(self.index)

    @property
    def elements(self) -> int:
        """Elements in the product: l of them depend on the input, l + 1 on the predicate."""
        return 2 * self.length + 1

    def evaluate(self, bits: NDArray[np.bool_]) -> Ranks:
        """Products for inputs, shape (batch, n) -> ranks, shape (batch,)."""
        return self.group_program().evaluate(bits)

    def group_program(self) -> GroupProgram:
        """The group program that comes of multiplying each element with what is beside it.

        This is [SSM] Theorem 8's program where this one is Theorem 18's, of the same length.
        """
        multiply = self.group.multiplication
        if not self.length:
            return GroupProgram(
                self.group,
                self.interstitials,
                self.interstitials,
                np.full(1, NONE, dtype=np.int32),
            )
        zero = self.interstitials[1:].copy()
        one = multiply[self.group.alpha, zero]
        zero[0] = multiply[self.interstitials[0], zero[0]]
        one[0] = multiply[self.interstitials[0], one[0]]
        return GroupProgram(self.group, zero, one, self.index)
