"""eq-COT hides the sender's key from other words perfectly: all randomness of a tiny group.

A group of 11 elements: for every request, honest or not, and every pair of words, the receiver's
view of a response (d1, d2) over all r, u and keys. For unequal words the key is uniform among the
others than what arrives; for equal ones it arrives. Then statistics at 64 bits, with a generator of
r that is broken on purpose to see that the test can fail; and what a non-element would have leaked.
"""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest
from scipy import stats

from ccbps.algebra.modular import integer
from ccbps.algebra.prime_order import ModpGroup
from ccbps.ciphers.oblivious import EqCot, decode_columns


class TinyGroup(ModpGroup):
    """The 11 squares modulo 23."""

    def __init__(self) -> None:
        self.name, self.security = "tiny", 0
        self.modulus, self.order = integer(23), integer(11)
        self.element_bytes = 1


TINY = TinyGroup()
Q = 11
ELEMENTS = [int(x) for x in TINY.generator_powers(range(Q))]
COT = EqCot(TINY)


def responses(request: tuple[int, int, int], word: int, key: int) -> list[tuple[int, int]]:
    """(d1, d2) for all r in 1..q - 1 and all u."""
    draws = list(product(range(1, Q), range(Q)))
    columns = [[integer(element)] * len(draws) for element in request]
    words, keys = [integer(word)] * len(draws), [integer(key)] * len(draws)
    first, second = COT.transform(
        columns, words, [r for r, _ in draws], [u for _, u in draws], keys
    )
    return [(int(a), int(b)) for a, b in zip(first, second, strict=True)]


def request_of(z: int, y: int, word: int) -> tuple[int, int, int]:
    g = ELEMENTS
    return g[z % Q], g[y % Q], g[z * y % Q] * word % 23


@pytest.mark.parametrize("z", range(1, Q))
def test_equal_words_always_get_the_key(z: int) -> None:
    for y, word, key in product(range(1, Q), ELEMENTS, ELEMENTS[:3]):
        for d1, d2 in responses(request_of(z, y, word), word, key):
            assert d2 * pow(d1, -z, 23) % 23 == key


@pytest.mark.parametrize("z", [1, 4, 10])
def test_for_unequal_words_the_view_is_the_same_whatever_the_words_and_nearly_the_key(
    z: int,
) -> None:
    for y, word, other in product((1, 7), ELEMENTS, (ELEMENTS[2], ELEMENTS[5])):
        if word == other:
            continue
        for key in ELEMENTS:
            views = Counter(responses(request_of(z, y, word), other, key))
            # d1 uniform, and what the receiver computes uniform among all but the key itself.
            arrived = Counter((d1, d2 * pow(d1, -z, 23) % 23) for d1, d2 in views.elements())
            assert arrived == Counter(
                {(d1, got): 1 for d1 in ELEMENTS for got in ELEMENTS if got != key}
            )


def test_every_request_that_decodes_stands_for_one_word() -> None:
    """So the two tests above are about all receivers, those that do not follow the protocol too."""
    for h, c1, c2 in product(ELEMENTS[1:], ELEMENTS[1:], ELEMENTS):
        z = ELEMENTS.index(h)
        word = c2 * pow(c1, -z, 23) % 23
        assert request_of(z, ELEMENTS.index(c1), word) == (h, c1, c2)


def test_a_non_element_would_show_whether_r_is_even() -> None:
    """Why elements are checked: with c1 = -g^y, (d1 / p) is (-1)^r."""
    y = 3
    for r, u in product(range(1, Q), range(Q)):
        d1 = pow(23 - ELEMENTS[y], r, 23) * ELEMENTS[u] % 23
        assert (pow(d1, 11, 23) == 1) == (r % 2 == 0)
    assert TINY.decode_many(np.array([[23 - ELEMENTS[y]]], dtype=np.uint8)) == [None]


def arriving(fixed_r: bool, count: int = 4000) -> np.ndarray:
    """Arriving elements of unequal words at 64 bits, by their bucket of 16."""
    group = ModpGroup("toy64")
    cot = EqCot(group)
    draw = np.random.default_rng(1).bytes
    secrets, rows = cot.request([b"IBM"])
    request = [column * count for column in decode_columns(group, "requests", rows, 3)]
    r = [1] * count if fixed_r else group.random_exponents(count, draw)
    u = group.random_exponents(count, draw)
    word, key = group.hash_to_group(b"other"), group.generator
    first, second = cot.transform(request, [word] * count, r, u, [key] * count)
    got = group.quotients(second, group.powers(first, secrets[0]))
    return np.bincount([int(x) * 16 // int(group.modulus) for x in got], minlength=16)


def test_at_64_bits_keys_of_unequal_words_look_uniform_and_the_test_can_fail() -> None:
    assert stats.chisquare(arriving(fixed_r=False)).pvalue > 1e-6
    assert stats.chisquare(arriving(fixed_r=True)).pvalue < 1e-12
