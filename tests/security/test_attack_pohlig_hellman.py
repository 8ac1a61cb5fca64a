"""Attack on commutative exponentiation without squares: the Legendre symbol passes all layers.

From nothing but messages, without a key, an eavesdropper tells keywords of one class from those of
the other, at every hop and under any number of layers. With H(w)^2 in place of H(w) it learns
nothing; so words are squared, and what is no square is refused.
"""

from __future__ import annotations

from hashlib import sha256

import numpy as np
import pytest

from ccbps import Category, Schema
from ccbps.ciphers.pohlig_hellman import TOY_PRIME_64, LayerKey, PohligHellman
from ccbps.errors import ParameterError
from ccbps.matching import CommutativeMatch
from tests.support.refusals import refused
from tests.support.reusable_checks import BODY

WORDS = [f"issue {number}" for number in range(64)]
CIPHER = PohligHellman(TOY_PRIME_64)
P = CIPHER.prime


def unsquared(word: str) -> int:
    return int.from_bytes(sha256(word.encode()).digest(), "big") % P


def legendre(value: int) -> int:
    """By Euler's criterion: 1 for squares, P - 1 for others."""
    return pow(int(value), (P - 1) // 2, P)


def exponent(key: LayerKey) -> int:
    return pow(int.from_bytes(key.export_secret(), "big"), -1, P - 1)


@pytest.mark.parametrize("layers", [1, 2, 5])
def test_without_squares_every_layered_word_shows_its_class(layers: int) -> None:
    keys = [CIPHER.generate() for _ in range(layers)]
    hidden = {word: unsquared(word) for word in WORDS}
    for key in keys:
        hidden = {word: pow(value, exponent(key), P) for word, value in hidden.items()}
    # The attacker sees values only; that it is right is checked with the words.
    classes = {word: legendre(value) for word, value in hidden.items()}
    assert classes == {word: legendre(unsquared(word)) for word in WORDS}
    assert 16 < sum(symbol == 1 for symbol in classes.values()) < 48  # a whole bit of each word


def test_two_stocks_are_told_apart_in_a_stream_without_squares() -> None:
    up = next(word for word in WORDS if legendre(unsquared(word)) == 1)
    down = next(word for word in WORDS if legendre(unsquared(word)) != 1)
    order = np.random.default_rng(5).integers(0, 2, 40)
    key = CIPHER.generate()
    stream = [pow(unsquared((up, down)[which]), exponent(key), P) for which in order]
    assert [int(legendre(value) != 1) for value in stream] == order.tolist()


def test_with_squares_all_words_are_of_one_class() -> None:
    keys = [CIPHER.generate() for _ in range(2)]
    hidden = CIPHER.add([CIPHER.encode(word.encode()) for word in WORDS], *keys)
    assert {legendre(value) for value in hidden} == {1}
    schema = Schema(issue=Category(WORDS))
    matcher = CommutativeMatch(schema, group="toy64")
    publisher = matcher.publisher(matcher.key_server().publisher_key())
    rows = publisher.encode([{"issue": word} for word in WORDS])
    assert {legendre(value) for value in CIPHER.from_rows(rows[:, BODY][:, -8:])} == {1}


def test_what_is_no_square_is_refused_by_the_cipher() -> None:
    bad = next(unsquared(word) for word in WORDS if legendre(unsquared(word)) != 1)
    refused(ParameterError, "not an element", CIPHER.add, [bad], CIPHER.generate())
