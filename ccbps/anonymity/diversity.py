"""l-diversity: rules on the distribution of a sensitive attribute's values in a class of records.

k records that nobody can tell apart hide which record is whose. If all of them have the same
sensitive value, they do not hide that value (homogeneity). A rule demands several values in each
class:

- *distinct*: at least l different values;
- *entropy*: the entropy of the values is at least log l, so none of them dominates;
- *recursive* (c, l): with counts r_1 >= r_2 >= ..., r_1 < c (r_l + r_(l+1) + ...), so the most
  frequent value stays rare enough even if l - 2 other values are ruled out.

If some classes keep a rule, so does their union, for all three.

Hazard: no rule knows which values have nearly the same meaning, and none protects a value from
somebody who knows its probability for a person.
Sources: [MKGV07]; [RCT13] asks for distinct values only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final

import numpy as np

from ccbps.arrays import Bools, Index, Numbers, Reals, Words
from ccbps.checks import number, whole

_SLACK: Final = 1e-9
"""Rounding error of an entropy, far below the difference that one record makes."""


class Diversity(ABC):
    """A rule on the sensitive values of a class: `Distinct`, `Entropy` or `Recursive`.

    Example:
        >>> from ccbps.anonymity import Distinct, Diversity, Entropy, Recursive
        >>> [isinstance(rule, Diversity) for rule in (Distinct(3), Entropy(2), Recursive(2, 2))]
        [True, True, True]
        >>> [rule.allows([4, 2, 2]) for rule in (Distinct(3), Entropy(3), Recursive(2, 3))]
        [True, False, False]
    """

    @abstractmethod
    def check(self, groups: Index, counts: Numbers, count: int) -> Bools:
        """Tell which groups keep the rule.

        Args:
            groups: group of each pair of a group and a value that occurs in it, ascending.
            counts: number of records of each pair.
            count: number of groups.

        Returns:
            bool, shape (count,); False for a group without records.
        """

    def allows(self, counts: list[int]) -> bool:
        """Tell whether a class with these numbers of records of each value keeps the rule."""
        numbers = np.array([given for given in counts if given > 0], dtype=np.int64)
        return bool(self.check(np.zeros(len(numbers), dtype=np.intp), numbers, 1)[0])

    def of_groups(self, groups: Index, values: Index, count: int) -> Bools:
        """Tell which groups of rows keep the rule, shape (count,).

        Args:
            groups: group of each row.
            values: sensitive value of each row, by number.
            count: number of groups.
        """
        most = int(values.max(initial=0)) + 1
        pairs, counts = np.unique(groups.astype(np.int64) * most + values, return_counts=True)
        return self.check(pairs // most, counts, count)

    def windows(self, values: Index, start: int, stop: int, longest: int) -> Bools:
        """Tell which windows of neighbouring rows keep the rule.

        Args:
            values: sensitive value of each row, by number.
            start: first end of a window.
            stop: end behind the last one.
            longest: largest number of rows in a window.

        Returns:
            bool, shape (stop - start, longest): entry (j, t) is for the t + 1 rows that end before
            row start + j. Windows that begin before row 0 are False.
        """
        places = np.arange(start, stop)[:, None] - 1 - np.arange(longest)
        inside = np.maximum(places, 0)
        # Rows of one value are neighbours in this order, so differences of places are counts.
        order = np.argsort(values, kind="stable")
        rank = np.empty(len(values), dtype=np.intp)
        rank[order] = np.arange(len(values))
        rows = len(values) + 1
        keys = values[order].astype(np.int64) * rows + order
        before = np.searchsorted(keys, values[inside] * rows + np.arange(start, stop)[:, None])
        return self.grow(before - rank[inside]) & (places >= 0)

    @abstractmethod
    def grow(self, counts: Index) -> Bools:
        """Tell for which prefixes of their rows groups keep the rule.

        Args:
            counts: number of rows, up to this one, that have its value; shape (groups, rows).

        Returns:
            bool, of the same shape: entry (g, t) is for the first t + 1 rows of group g.
        """


@dataclass(frozen=True)
class Distinct(Diversity):
    """At least `l` different sensitive values in each class.

    Attributes:
        l: number of values, at least 1.
    """

    l: int  # noqa: E741  the field's own letter

    def __post_init__(self) -> None:
        whole("l", self.l, 1)

    def check(self, groups: Index, counts: Numbers, count: int) -> Bools:
        return np.bincount(groups, minlength=count) >= self.l

    def grow(self, counts: Index) -> Bools:
        return np.cumsum(counts == 1, axis=1) >= self.l


@dataclass(frozen=True)
class Entropy(Diversity):
    """Entropy of at least log `l` in each class, as if l values were equally frequent.

    Attributes:
        l: effective number of values, at least 1; not necessarily whole.
    """

    l: float  # noqa: E741

    def __post_init__(self) -> None:
        number("l", self.l, 1)

    def check(self, groups: Index, counts: Numbers, count: int) -> Bools:
        return effective_values(groups, counts, count) >= self.l * (1 - _SLACK)

    def grow(self, counts: Index) -> Bools:
        own = np.maximum(counts, 1)
        added = own * np.log(own) - (own - 1) * np.log(np.maximum(own - 1, 1))
        total = np.arange(1, counts.shape[1] + 1)
        entropy = np.log(total) - np.cumsum(added, axis=1) / total
        return np.asarray(np.exp(entropy) >= self.l * (1 - _SLACK))


@dataclass(frozen=True)
class Recursive(Diversity):
    """The most frequent value has fewer records than `c` times all values from the l-th on.

    Attributes:
        c: factor, above 0.
        l: number of values, at least 2.
    """

    c: float
    l: int  # noqa: E741

    def __post_init__(self) -> None:
        number("c", self.c, 0)
        whole("l", self.l, 2)

    def check(self, groups: Index, counts: Numbers, count: int) -> Bools:
        order = np.lexsort((-counts, groups))
        groups, counts = groups[order], counts[order]
        values = np.bincount(groups, minlength=count)
        ranks = np.arange(len(groups)) - np.repeat(np.cumsum(values) - values, values)
        most = np.bincount(groups, counts * (ranks == 0), count)
        rest = np.bincount(groups, counts * (ranks >= self.l - 1), count)
        return np.asarray(most < self.c * rest)

    def grow(self, counts: Index) -> Bools:
        out = np.empty(counts.shape, dtype=np.bool_)
        top = np.zeros((len(counts), self.l - 1), dtype=np.intp)  # the greatest counts, descending
        groups = np.arange(len(counts))
        for size, now in enumerate(counts.T, 1):
            # The value had one row fewer, so this is the count that grows, if it is among them.
            same = top == now[:, None] - 1
            hit = same.any(axis=1)
            top[groups[hit], same.argmax(axis=1)[hit]] += 1
            out[:, size - 1] = top[:, 0] < self.c * (size - top.sum(axis=1))
        return out


def effective_values(groups: Index, counts: Numbers, count: int) -> Reals:
    """Return 2 to the entropy of each group's values, shape (count,); 0 for an empty group.

    Example:
        >>> import numpy as np
        >>> from ccbps.anonymity.diversity import effective_values
        >>> effective_values(np.array([0, 0, 0, 1, 1]), np.array([4, 2, 2, 9, 1]), 2).round(2)
        array([2.83, 1.38])
    """
    totals = np.bincount(groups, counts, count)
    spread = np.bincount(groups, counts * np.log(np.maximum(counts, 1)), count)
    safe = np.maximum(totals, 1)
    return np.where(totals > 0, np.exp(np.log(safe) - spread / safe), 0.0)


def numbered(codes: Words) -> Index:
    """Number the codes of an attribute by value, from 0, shape (rows,)."""
    _, numbers = np.unique(codes, axis=1, return_inverse=True)
    return np.asarray(numbers, dtype=np.intp).reshape(-1)
