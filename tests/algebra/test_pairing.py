"""Pairings: the libraries agree with one another, with published vectors and with exponents."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps.algebra.pairing import Pairing, curve, hash_to_curve, pairing, target_field
from ccbps.algebra.pairing.curve import COMPRESSED, INFINITY, ArkworksCurve, BothCurve, MclCurve
from ccbps.algebra.pairing.groups import HASHED_BYTES, TransparentPairing
from ccbps.errors import DecodeError, ParameterError

pytest.importorskip("pymcl", reason="pymcl has no wheel for this Python")
CURVES = [MclCurve(), ArkworksCurve(), BothCurve()]
ALL = [*CURVES, TransparentPairing()]
DOMAIN = b"QUUX-V01-CS02-with-BLS12381G1_XMD:SHA-256_SSWU_RO_"
HASHES = {
    b"": (
        "052926add2207b76ca4fa57a8734416c8dc95e24501772c814278700eed6d1e4e8cf62d9c09db0fac349612b759e79a1",
        "08ba738453bfed09cb546dbb0783dbb3a5f1f566ed67bb6be0e8c67e2e81a4cc68ee29813bb7994998f3eae0c9c6a265",
    ),
    b"abc": (
        "03567bc5ef9c690c2ab2ecdf6a96ef1c139cc0b2f284dca0a9a7943388a49a3aee664ba5379a7655d3c68900be2f6903",
        "0b9c15f3fe6e5cf4211f346271d7b01c8f3b28be689c8429c85b67af215533311f0b8dfaaa154fa6b88176c229f2885d",
    ),
}
"""RFC 9380, J.9.1: coordinates of the hashes of two messages."""
GENERATOR = bytes.fromhex(
    "1250ebd871fc0a92a7b2d83168d0d727272d441befa15c503dd8e90ce98db3e7b6d194f60839c508a84305aaca1789b6"
)[::-1]
"""First number of e(g1, g2), as published with the curve."""

named = pytest.mark.parametrize("group", ALL, ids=lambda group: type(group).__name__)
curves = pytest.mark.parametrize("group", CURVES, ids=lambda group: type(group).__name__)


@named
def test_the_map_is_bilinear(group: Pairing) -> None:
    a, b, c = group.exponents(3)
    p, q = group.power(group.g1, a), group.power(group.g2, b)
    unit = group.product([(group.g1, group.g2)])
    assert group.product([(p, q)]) == group.target_power(unit, a * b)
    both = group.product([(p, q), (group.g1, group.power(group.g2, c))])
    assert both == group.target_power(unit, a * b + c)
    assert group.product([]) == group.target_power(unit, group.order) != unit
    assert group.multiply(p, group.power(group.g1, c)) == group.power(group.g1, a + c)
    assert group.cancels([(p, q), (group.inverse(p), q)])
    assert not group.cancels([(p, q), (p, q)])
    assert group.cancels([])


@named
def test_elements_have_one_form_in_bytes(group: Pairing) -> None:
    (k,) = group.exponents(1)
    p, q = group.power(group.g1, k), group.power(group.g2, -k)
    t = group.product([(p, q)])
    assert group.decode_g1(group.encode(p)) == p
    assert group.decode_g2(group.encode(q)) == q
    assert group.decode_target(group.encode_target(t)) == t
    sizes = group.g1_bytes, group.g2_bytes, group.target_bytes
    assert sizes == tuple(map(len, (group.encode(p), group.encode(q), group.encode_target(t))))


@given(st.integers(0, 1 << 300), st.integers(1, 1 << 255))
@settings(max_examples=5)
def test_the_libraries_agree(k: int, j: int) -> None:
    j = j % curve.BLS12_381_ORDER or 1
    seen = set()
    for group in CURVES:
        p = group.hash_to_g1(str(k).encode(), b"a domain")
        q = group.power(group.g2, j)
        t = group.target_power(group.product([(group.power(p, j), q)]), k)
        points = group.encode(group.power(p, j)), group.encode(q)
        assert group.decode_g1(points[0]) == group.power(p, j)
        seen.add((*points, group.encode_target(t)))
    assert len(seen) == 1


@curves
def test_powers_by_table_and_by_negative_numbers_are_those_of_the_library(
    group: Pairing,
) -> None:
    for base in (group.g1, group.g2):
        for exponent in (1, 2, 255, 256, 257, 1 << 248, group.order - 1, *group.exponents(2)):
            looked_up = group.power(base, exponent)
            assert looked_up == group._power(base, exponent)
            assert group.power(base, exponent + group.order) == looked_up
            assert group.power(base, -exponent) == group.inverse(looked_up)
        point = group.power(base, 7)
        for exponent in (1, 3, (1 << 64) - 1, 1 << 64, (1 << 64) + 1):
            assert group.power(point, -exponent) == group.inverse(group._power(point, exponent))
            assert group.power(point, group.order - exponent) == group.power(point, -exponent)
        assert group.power(base, 0) == group.power(base, group.order) == group._power(base, 0)


@curves
def test_products_of_few_and_of_many_pairs_agree(group: Pairing) -> None:
    pairs = [(group.power(group.g1, k), group.power(group.g2, 2 * k)) for k in range(1, 6)]
    unit = group.product([(group.g1, group.g2)])
    for count in range(6):
        wanted = sum(2 * k * k for k in range(1, count + 1))
        assert group.product(pairs[:count]) == group.target_power(unit, wanted)


@curves
def test_published_vectors(group: Pairing) -> None:
    for message, (x, y) in HASHES.items():
        larger = 0x20 * (2 * int(y, 16) > target_field.P)
        wanted = bytes([int(x[:2], 16) | COMPRESSED | larger]) + bytes.fromhex(x[2:])
        assert group.encode(group.hash_to_g1(message, DOMAIN)) == wanted
        assert hash_to_curve.hash_to_curve(message, DOMAIN) == (int(x, 16), int(y, 16))
    assert group.encode_target(group.product([(group.g1, group.g2)])).startswith(GENERATOR)
    assert group.encode(group.g1).hex().startswith("97f1d3a73197d794")
    assert group.encode(group.g2).hex().startswith("93e02b6052719f60")


def test_long_messages_are_not_remembered() -> None:
    """Senders choose the words that an opener hashes."""
    group = TransparentPairing()
    for size in (HASHED_BYTES, HASHED_BYTES + 1, 1 << 20):
        assert group.hash_to_g1(bytes(size), DOMAIN) == group.hash_to_g1(bytes(size), DOMAIN)
    assert group._remembered.cache_info().currsize == 1


def test_a_long_message_is_expanded_by_rfc_9380() -> None:
    """Appendix K.1 of RFC 9380: SHA-256, 32 bytes of the empty message."""
    domain = b"QUUX-V01-CS02-with-expander-SHA256-128"
    wanted = "68a985b87eb6b46952128911f2a4412bbc302a9d759667f87f7a21d803f07235"
    assert hash_to_curve.expand_message(b"", domain, 32).hex() == wanted


def wrong_order() -> bytes:
    """Return a point of the curve that is not in the group of order r."""
    x = 3
    while True:
        data = x.to_bytes(48)
        if pow(x**3 + 4, (int(target_field.P) - 1) // 2, int(target_field.P)) == 1:
            return bytes([data[0] | COMPRESSED]) + data[1:]
        x += 1


@curves
def test_bytes_that_are_no_element_are_refused(group: Pairing) -> None:
    good = group.encode(group.power(group.g1, 5))
    p = int(target_field.P)
    beyond = int.from_bytes(bytes([good[0] & 31]) + good[1:]) + p
    bad = [
        b"",
        good[:-1],
        good + b"\0",
        bytes(48),
        bytes([COMPRESSED | INFINITY]) + bytes(47),
        bytes([good[0] & 127]) + good[1:],
        p.to_bytes(48),
        bytes([0xFF]) * 48,
        wrong_order(),
    ]
    if beyond < 1 << 381:
        bad.append(bytes([beyond.to_bytes(48)[0] | COMPRESSED]) + beyond.to_bytes(48)[1:])
    for data in bad:
        with pytest.raises(DecodeError, match="not an element"):
            group.decode_g1(data)
        with pytest.raises(DecodeError, match="not an element"):
            group.decode_g2(data)
    for data in (b"", bytes([255]) * 576, bytes(575)):
        with pytest.raises(DecodeError):
            group.decode_target(data)
    for _ in range(20):
        with pytest.raises(DecodeError):
            group.decode_g2(os.urandom(96))


def test_pairings_have_names() -> None:
    assert pairing("bls12-381") is pairing()
    assert isinstance(pairing("transparent"), TransparentPairing)
    with pytest.raises(ParameterError, match="transparent"):
        pairing("bn254")


@pytest.mark.parametrize("missing", ["pymcl", "py_arkworks_bls12381"])
def test_one_library_suffices(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = curve.find_spec
    monkeypatch.setattr(curve, "find_spec", lambda name: None if name == missing else real(name))
    assert type(curve.curve.__wrapped__()) in (MclCurve, ArkworksCurve)
