"""Pohlig-Hellman: layers commute and come off, elements and keys are checked."""

from __future__ import annotations

import copy
import pickle
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps.algebra.prime_order import prime_order_group
from ccbps.ciphers.pohlig_hellman import (
    MODP_2048,
    TOY_PRIME_64,
    GroupLayers,
    LayerKey,
    PohligHellman,
)
from ccbps.errors import KeyMismatchError, ParameterError, SerializationError

TOY = PohligHellman(TOY_PRIME_64)
TINY_PRIMES = [11, 23, 47, 59, 83, 107]


def pi_bits(bits: int) -> int:
    """floor(2^bits pi), by Machin's formula."""
    guard = bits + 32

    def arctan_inverse(x: int) -> int:
        term = total = (1 << guard) // x
        odd, sign = 3, -1
        while term:
            term //= x * x
            total += sign * (term // odd)
            odd, sign = odd + 2, -sign
        return total

    return (4 * (4 * arctan_inverse(5) - arctan_inverse(239))) >> 32


def test_the_default_prime_is_the_one_of_the_formula_in_rfc_3526() -> None:
    assert 2**2048 - 2**1984 - 1 + 2**64 * (pi_bits(1918) + 124476) == MODP_2048


@given(words=st.lists(st.binary(), min_size=1, max_size=4), count=st.integers(1, 3))
def test_layers_come_off_in_any_order(words: list[bytes], count: int) -> None:
    keys = [TOY.generate() for _ in range(count)]
    plain = [TOY.encode(word) for word in words]
    hidden = TOY.add(plain, *keys)
    one_by_one = plain
    for key in reversed(keys):
        one_by_one = TOY.add(one_by_one, key)
    assert hidden == one_by_one
    for order in permutations(keys):
        bare = hidden
        for key in order:
            bare = TOY.remove(bare, key)
        assert bare == plain
    assert TOY.remove(hidden, *keys) == plain


@pytest.mark.parametrize("prime", TINY_PRIMES)
def test_every_key_permutes_the_elements_of_a_tiny_group(prime: int) -> None:
    cipher = PohligHellman(prime)
    squares = sorted({x * x % prime for x in range(1, prime)} - {1})
    assert [x for x in range(-2, prime + 2) if cipher.is_element(x)] == squares
    refused = 0
    for exponent in range(prime + 2):
        secret = bytes([exponent])
        if exponent < 2 or exponent % 2 == 0 or exponent == prime // 2 or exponent >= prime - 1:
            with pytest.raises(KeyMismatchError, match="no factor in common"):
                LayerKey(secret, prime)
            refused += 1
            continue
        key = LayerKey(secret, prime)
        hidden = cipher.add(squares, key)
        assert sorted(hidden) == squares
        assert cipher.remove(hidden, key) == squares
        assert [int(x) for x in cipher.remove(squares, key)] == [
            pow(x, exponent, prime) for x in squares
        ]
    assert refused < prime


@pytest.mark.parametrize("prime", TINY_PRIMES)
def test_drawn_keys_and_words_are_good_ones_even_in_tiny_groups(prime: int) -> None:
    cipher = PohligHellman(prime)
    seen = {cipher.generate().export_secret()[0] for _ in range(400)}
    assert all(1 < exponent < prime - 1 for exponent in seen)
    assert len(seen) > (prime - 1) // 4
    words = {int(cipher.encode(bytes([i, j]))) for i in range(8) for j in range(8)}
    assert all(cipher.is_element(word) for word in words)


def test_keys_of_full_size_are_short_to_remove_and_all_of_one_length() -> None:
    cipher = PohligHellman()
    keys = [cipher.generate() for _ in range(8)]
    assert {int.from_bytes(key.export_secret(), "big").bit_length() for key in keys} == {256}
    (hidden,) = cipher.add([cipher.encode(b"word")], *keys[:2])
    assert hidden.bit_length() > 1900
    assert cipher.remove([hidden], keys[1], keys[0]) == [cipher.encode(b"word")]
    assert cipher.remove([hidden], keys[1], keys[2]) != [cipher.encode(b"word")]


def test_derived_keys_repeat_by_name_and_differ_between_names() -> None:
    secret = bytes(range(32))
    names = [TOY.derive(secret, name) for name in (b"a", b"b", b"a")]
    assert names[0] == names[2] != names[1]
    assert TOY.derive(bytes(32), b"a") != names[0]
    with pytest.raises(KeyMismatchError, match="16 bytes or more, got 4"):
        TOY.derive(b"1234", b"a")


def test_what_is_no_element_is_refused_without_showing_it() -> None:
    key = TOY.generate()
    good = TOY.encode(b"word")
    not_a_square = int(TOY.prime - good)  # -1 is no square modulo a safe prime
    for bad in (0, 1, TOY.prime - 1, not_a_square, TOY.prime, TOY.prime + int(good), -int(good)):
        assert not TOY.is_element(bad)
        for method in (TOY.add, TOY.remove):
            with pytest.raises(ParameterError, match="element 1 is not an element") as caught:
                method([good, bad], key)
            assert str(not_a_square) not in str(caught.value)


def test_wrong_keys_and_primes_are_refused() -> None:
    good = TOY.encode(b"word")
    with pytest.raises(KeyMismatchError, match="a key that <PohligHellman of 64 bits> made"):
        TOY.add([good], PohligHellman(107).generate())
    with pytest.raises(KeyMismatchError, match="a layer needs a key"):
        TOY.add([good], 5)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="at least one key"):
        TOY.remove([good])
    for prime in (0, 2, 5, 7, 13, 24, TOY_PRIME_64 + 2):
        with pytest.raises(ParameterError, match="safe prime"):
            PohligHellman(prime)


def test_keys_do_not_print_pickle_or_copy() -> None:
    key = TOY.generate()
    assert key.export_secret().hex() not in repr(key)
    for act in (pickle.dumps, copy.copy):
        with pytest.raises(SerializationError):
            act(key)
    assert "64 bits" in repr(TOY)


@settings(max_examples=20)
@given(words=st.lists(st.binary(), max_size=5))
def test_elements_travel_as_rows(words: list[bytes]) -> None:
    elements = [TOY.encode(word) for word in words]
    rows = TOY.to_rows(elements)
    assert rows.shape == (len(words), 8)
    assert rows.dtype == np.uint8
    assert TOY.from_rows(rows) == elements


def test_layers_of_any_group_come_off_in_any_order() -> None:
    cipher = GroupLayers(prime_order_group("toy64"))
    keys = [cipher.generate() for _ in range(3)]
    plain = [cipher.encode(word) for word in (b"IBM", b"SAP")]
    hidden = cipher.add(plain, *keys)
    assert hidden != plain
    rows = cipher.to_rows(hidden)
    for order in permutations(keys):
        bare = cipher.from_rows(rows)
        for key in order:
            bare = cipher.remove(bare, key)
        assert bare == plain
    assert cipher.key(keys[0].export_secret()) == keys[0]
    assert cipher.derive(bytes(16), b"a") == cipher.derive(bytes(16), b"a") != keys[0]
    with pytest.raises(ParameterError, match="element 1 is not an element"):
        cipher.add([plain[0], *cipher.from_rows(np.zeros((1, 8), dtype=np.uint8))], keys[0])
    with pytest.raises(ParameterError, match="at least one key"):
        cipher.add(plain)
    with pytest.raises(KeyMismatchError, match="a key that <GroupLayers over toy64> made"):
        cipher.add(plain, TOY.generate())  # type: ignore[arg-type]
    for exponent in (0, 1, int(cipher.group.order)):
        with pytest.raises(KeyMismatchError, match="exponent in 2"):
            cipher.key(exponent.to_bytes(8, "big"))


def test_ciphers_over_one_prime_are_equal() -> None:
    assert PohligHellman(TOY_PRIME_64) == TOY
    assert hash(PohligHellman(TOY_PRIME_64)) == hash(TOY)
    assert PohligHellman(23) != TOY
