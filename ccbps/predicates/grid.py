"""Grids: equally spaced numbers, and the exact numbers among them.

An exact number is on the grid or it is refused; nothing is rounded. Arrays hold whole numbers, to
be read as so many units of a power of ten. The units that are on the grid are equally spaced, too:
a few divisions find the first and their spacing, and every row then takes one division of 64 bits.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from ccbps.predicates.types import Numbering, Refused

_LIMB: Final = 2**64
_Plan: TypeAlias = tuple[int, int, int, int, int, int]


class Grid(Struct, frozen=True, dict=True):
    """The numbers low, low + step, ..., `count` of them, numbered from 0.

    Attributes:
        low: least number.
        step: distance of neighbours, > 0.
        count: number of numbers, at most 2**64.
        between: reason for refusing a number between two of the grid, or less than a step beyond
            the greatest.
    """

    low: Fraction
    step: Fraction
    count: int
    between: str

    @cached_property
    def _plans(self) -> dict[tuple[int, int, str], _Plan]:
        return {}

    @cached_property
    def _scaled(self) -> tuple[int, int, int]:
        """With the denominators of `low` and `step` multiplied out: 1, low and step."""
        (low, below), (step, under) = self.low.as_integer_ratio(), self.step.as_integer_ratio()
        return below * under, low * under, step * below

    def number_of(self, value: Fraction | int) -> int:
        """Return the number of an exact value.

        Raises:
            Refused: not on the grid.
        """
        number, rest = self._divided(value)
        if not 0 <= number < self.count:
            raise Refused("out of range")
        if rest:
            raise Refused(self.between)
        return number

    def bisect(self, value: Fraction | int) -> tuple[int, int]:
        """Count the numbers that are (< value, <= value)."""
        number, rest = self._divided(value)
        below = number + (rest > 0)
        return min(max(below, 0), self.count), min(max(number + 1, 0), self.count)

    def _divided(self, value: Fraction | int) -> tuple[int, int]:
        """Divide value - low by step; return the quotient, rounded down, and the rest."""
        # In integers: it is asked for every constant, and every distinct value of a column.
        unit, low, step = self._scaled
        return divmod(value.numerator * unit - low * value.denominator, value.denominator * step)

    def numbers_of(self, values: npt.NDArray[Any], unit: Fraction) -> Numbering:
        """Return the numbers of the exact ``values * unit``; `values` are of kind i or u."""
        key = unit.numerator, unit.denominator, values.dtype.char
        plan = self._plans.get(key) or self._plans.setdefault(key, self._plan(unit, values.dtype))
        least, greatest, first, spacing, number, stride = plan
        # Exact: NumPy compares integer arrays with Python integers of any size exactly.
        outside = (values < least) | (values > greatest)
        problems = [(outside, "out of range")]
        # Modulo 2**64 this is the distance whatever the signs, for rows in range.
        distance = values.astype(np.uint64) - np.uint64(least % _LIMB)
        if spacing == 1:
            steps = distance
        else:
            # A spacing beyond 64 bits leaves room for one value at most.
            steps = distance // np.uint64(spacing) if spacing < _LIMB else np.zeros_like(distance)
            rest = distance - steps * np.uint64(spacing % _LIMB)
            problems.append(((rest != first - least) & ~outside, self.between))
        # Modulo 2**64 again: on the grid, the number itself is below 2**64.
        return np.uint64(number % _LIMB) + np.uint64(stride % _LIMB) * steps, problems

    def _plan(self, unit: Fraction, dtype: np.dtype[Any]) -> _Plan:
        """Find the least and greatest multiple of a unit in range, and what `_units` returns."""
        limits = np.iinfo(dtype)
        # Within the dtype, so that no difference of two values exceeds 64 bits.
        least = max(math.ceil(self.low / unit), int(limits.min))
        end = math.ceil((self.low + self.count * self.step) / unit)
        return least, min(end - 1, int(limits.max)), *self._units(unit, least)

    def _units(self, unit: Fraction, least: int) -> tuple[int, int, int, int]:
        """Find the multiples ``u * unit`` with ``u >= least`` that are on the endless grid.

        Returns:
            (first, spacing, number, stride): the u are first, first + spacing, ..., their numbers
            are number, number + stride, ...; `first` is below `least` when there is none.
        """
        # u * unit = low + n * step, multiplied by what makes all three whole: u * a = b + n * c.
        per_unit, base = unit / self.step, self.low / self.step
        c = math.lcm(per_unit.denominator, base.denominator)
        a, b = int(per_unit * c), int(base * c)
        common = math.gcd(a, c)
        if b % common:
            return least - 1, c, 0, 0
        a, b, c = a // common, b // common, c // common
        first = least + (b * pow(a, -1, c) - least) % c
        return first, c, (first * a - b) // c, a
