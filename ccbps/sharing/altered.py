"""Which shares were altered, where there are more than are needed: decoding of Reed-Solomon codes.

Values of a polynomial of degree k - 1 at m points are a code word. If (m - k) / 2 of them or fewer
were altered, which ones is unique, and is found; if more were, this is often noticed and never
certain. The syndromes

    S_j = sum over i of  v_i x_i^j y_i,    v_i = product over l != i of 1 / (x_i - x_l)

are zero for code words, so they tell about errors alone and nothing about a secret; a linear
recurrence generates them whose roots are the points in error (Berlekamp and Massey).

Sources: [S79]; [McES81] for the link to Reed-Solomon codes; [M69] for the recurrence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ccbps.algebra import gf256, modular
from ccbps.errors import DecodeError


class Field(Protocol):
    """Arithmetic of numbers in a field."""

    def add(self, left: int, right: int) -> int:
        """The sum."""

    def subtract(self, left: int, right: int) -> int:
        """The difference."""

    def multiply(self, left: int, right: int) -> int:
        """The product."""

    def invert(self, value: int) -> int:
        """The inverse of a number that is not 0."""


class ByteField:
    """The field of 256 elements."""

    def add(self, left: int, right: int) -> int:
        """See `Field`."""
        return left ^ right

    def subtract(self, left: int, right: int) -> int:
        """See `Field`."""
        return left ^ right

    def multiply(self, left: int, right: int) -> int:
        """See `Field`."""
        return gf256.multiply(left, right)

    def invert(self, value: int) -> int:
        """See `Field`."""
        return gf256.inverse(value)


class PrimeField:
    """Integers modulo a prime."""

    def __init__(self, p: int) -> None:
        self._p = p

    def add(self, left: int, right: int) -> int:
        """See `Field`."""
        return (left + right) % self._p

    def subtract(self, left: int, right: int) -> int:
        """See `Field`."""
        return (left - right) % self._p

    def multiply(self, left: int, right: int) -> int:
        """See `Field`."""
        return left * right % self._p

    def invert(self, value: int) -> int:
        """See `Field`."""
        return modular.inverse(value, self._p)


def altered_places(field: Field, points: Sequence[int], values: Sequence[int], k: int) -> set[int]:
    """Places of the values that do not lie on the polynomial that most of them lie on.

    Args:
        field: of points and values.
        points: of m values, each once.
        values: one for each point.
        k: coefficients of the polynomial.

    Raises:
        DecodeError: more than (m - k) / 2 were altered, as far as this can be noticed.
    """
    m, terms = len(points), []
    for x, y in zip(points, values, strict=True):
        divisor = 1
        for other in points:
            if other != x:
                divisor = field.multiply(divisor, field.subtract(x, other))
        terms.append(field.multiply(field.invert(divisor), y))
    syndromes = []
    for _ in range(m - k):
        total = 0
        for term in terms:
            total = field.add(total, term)
        syndromes.append(total)
        terms = [field.multiply(x, term) for x, term in zip(points, terms, strict=True)]
    recurrence = _recurrence(field, syndromes)
    wrong = {i for i, x in enumerate(points) if not _value(field, recurrence, x)}
    if len(wrong) != len(recurrence) - 1 or 2 * len(wrong) > m - k:
        raise too_many_altered(m, k)
    return wrong


def too_many_altered(m: int, k: int) -> DecodeError:
    """What to raise where more than (m - k) / 2 of m shares were altered."""
    return DecodeError(
        f"more than {(m - k) // 2} of {m} shares were altered, and {k} are needed: which ones "
        "cannot be told; get more shares"
    )


def _recurrence(field: Field, sequence: Sequence[int]) -> list[int]:
    """Coefficients c_0 = 1, c_1, ... of the shortest recurrence sum c_i s_(j - i) = 0."""
    current, previous = [1], [1]
    length, gap, last = 0, 1, 1
    for place, item in enumerate(sequence):
        discrepancy = item
        for i in range(1, min(length, len(current) - 1) + 1):
            discrepancy = field.add(discrepancy, field.multiply(current[i], sequence[place - i]))
        if not discrepancy:
            gap += 1
            continue
        scale = field.multiply(discrepancy, field.invert(last))
        changed = current + [0] * max(0, len(previous) + gap - len(current))
        for i, coefficient in enumerate(previous):
            changed[i + gap] = field.subtract(changed[i + gap], field.multiply(scale, coefficient))
        if 2 * length <= place:
            previous, last, gap, length = current, discrepancy, 1, place + 1 - length
        else:
            gap += 1
        current = changed
    return (current + [0] * (length + 1))[: length + 1]


def _value(field: Field, recurrence: Sequence[int], x: int) -> int:
    """Zero where x is a root: of c_0 x^t + c_1 x^(t - 1) + ... + c_t."""
    total = 0
    for coefficient in recurrence:
        total = field.add(field.multiply(total, x), coefficient)
    return total
