"""Attack on commutative exponentiation without squares: the Legendre symbol passes all layers.

From nothing but messages, without a key, an eavesdropper tells keywords of one class from those of
the other, at every hop and under any number of layers. With H(w)^2 in place of H(w) it learns
nothing; so words are squared, and what is no square is refused.
"""

from __future__ import annotations

import numpy as np
import pytest

from ccbps import Category, Schema
from ccbps.attacks.schemes.commutative import CIPHER, add_unsquared, hash_unsquared, read_symbols
from ccbps.errors import ParameterError
from ccbps.matching import CommutativeMatch
from tests.support.refusals import refused
from tests.support.reusable_checks import BODY

WORDS = [f"issue {number}" for number in range(64)]
P = CIPHER.prime
UNSQUARED = [hash_unsquared(word.encode(), P) for word in WORDS]
SQUARES = read_symbols(UNSQUARED, P)


@pytest.mark.parametrize("layers", [1, 2, 5])
def test_without_squares_every_layered_word_shows_its_class(layers: int) -> None:
    keys = [CIPHER.generate() for _ in range(layers)]
    classes = read_symbols(add_unsquared(UNSQUARED, keys, P), P)
    assert np.array_equal(classes, SQUARES)
    assert 16 < SQUARES.sum() < 48  # a whole bit of each word


def test_two_stocks_are_told_apart_in_a_stream_without_squares() -> None:
    up, down = UNSQUARED[int(np.argmax(SQUARES))], UNSQUARED[int(np.argmin(SQUARES))]
    order = np.random.default_rng(5).integers(0, 2, 40)
    stream = add_unsquared([(up, down)[which] for which in order], [CIPHER.generate()], P)
    assert np.array_equal(~read_symbols(stream, P), order == 1)


def test_with_squares_all_words_are_of_one_class() -> None:
    keys = [CIPHER.generate() for _ in range(2)]
    hidden = CIPHER.add([CIPHER.encode(word.encode()) for word in WORDS], *keys)
    assert read_symbols(hidden, P).all()
    schema = Schema(issue=Category(WORDS))
    matcher = CommutativeMatch(schema, group="toy64")
    publisher = matcher.publisher(matcher.key_server().publisher_key())
    rows = publisher.encode([{"issue": word} for word in WORDS])
    assert read_symbols(CIPHER.from_rows(rows[:, BODY][:, -8:]), P).all()


def test_what_is_no_square_is_refused_by_the_cipher() -> None:
    bad = UNSQUARED[int(np.argmin(SQUARES))]
    refused(ParameterError, "not an element", CIPHER.add, [bad], CIPHER.generate())
