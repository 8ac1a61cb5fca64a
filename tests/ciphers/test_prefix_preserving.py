"""Prefix-preserving encryption: Crypto-PAn's published addresses, another implementation, and the
property itself for trees of all shapes.
"""

from __future__ import annotations

import ipaddress
import pickle
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps.ciphers.prefix_preserving import CryptoPAn, FlipTree, PrefixPreservingCipher
from ccbps.errors import KeyMismatchError, ParameterError, SerializationError, ShapeError

# The key of the original distribution's sample, and addresses of its sample_trace.
KEY = bytes.fromhex("1522178d33a4cf80130a5b1649907d10d8988f837979652762574c2d2a842202")
IPV4 = {
    "128.11.68.132": "135.242.180.132",
    "129.118.74.4": "134.136.186.123",
    "130.132.252.244": "133.68.164.234",
    "141.223.7.43": "141.167.8.160",
    "141.233.145.108": "141.129.237.235",
    "152.163.225.39": "151.140.114.167",
    "156.29.3.236": "147.225.12.42",
    "165.247.96.84": "162.9.99.234",
    "166.107.77.190": "160.132.178.185",
    "192.102.249.13": "252.138.62.131",
    "24.0.250.221": "100.15.198.226",
    "64.34.154.117": "0.221.154.117",
    "10.185.25.118": "117.161.29.118",
}
# Not of the original distribution, which has no IPv6: of another implementation's tests.
IPV6 = {
    "::1": "78ff:f001:9fc0:20df:8380:b1f1:704:ed",
    "2001:db8::1": "4401:2bc:603f:d91d:27f:ff8e:e6f1:dc1e",
}


def limbs(values: list[int], bits: int) -> np.ndarray[tuple[int, int], np.dtype[np.uint64]]:
    count = -(-bits // 64)
    rows = [[v >> 64 * i & (1 << 64) - 1 for v in values] for i in reversed(range(count))]
    return np.array(rows, dtype=np.uint64).reshape(count, len(values))


def integers(codes: np.ndarray[tuple[int, int], np.dtype[np.uint64]]) -> list[int]:
    out = [0] * codes.shape[1]
    for limb in codes.tolist():
        out = [v << 64 | w for v, w in zip(out, limb, strict=True)]
    return out


def common(a: int, b: int, bits: int) -> int:
    return bits - (a ^ b).bit_length()


# -- Crypto-PAn ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "bits", "addresses"),
    [
        (KEY, 32, IPV4),
        (KEY, 128, IPV6),
        (b"32-char-str-for-AES-key-and-pad.", 32, {"192.0.2.1": "192.0.125.244"}),  # yacryptopan's
    ],
)
def test_published_addresses(key: bytes, bits: int, addresses: dict[str, str]) -> None:
    assert CryptoPAn(key, bits).encrypt_addresses([*addresses]) == [*addresses.values()]


def test_bulk_with_the_table_is_the_same() -> None:
    cipher = CryptoPAn(KEY)
    values = [int(ipaddress.ip_address(address)) for address in IPV4]
    before = cipher.encrypt(limbs(values, 32))
    assert cipher._tables is None
    many = cipher.encrypt(limbs(values * 1000, 32))
    assert cipher._tables is not None
    np.testing.assert_array_equal(many, np.tile(before, 1000))
    np.testing.assert_array_equal(cipher.encrypt(limbs(values, 32)), before)
    assert integers(cipher.decrypt(before)) == values


@pytest.mark.parametrize("version", [4, 6])
def test_agrees_with_yacryptopan(version: int) -> None:
    peer = pytest.importorskip("yacryptopan")
    bits = 32 if version == 4 else 128
    rng = np.random.default_rng(version)
    key = rng.bytes(32)
    values = [int.from_bytes(rng.bytes(bits // 8), "big") for _ in range(20)]
    values += [values[0] ^ 1, values[0] ^ 1 << bits - 1, 0, 2**bits - 1]
    theirs = peer.CryptoPAn(key)
    expected = [theirs.anonymize_bin(value, version) for value in values]
    assert integers(CryptoPAn(key, bits).encrypt(limbs(values, bits))) == expected


@given(
    bits=st.integers(1, 128),
    many=st.booleans(),
    key=st.binary(min_size=32, max_size=32),
    d=st.data(),
)
@settings(max_examples=60)
def test_every_width_keeps_common_prefixes_and_decrypts(
    bits: int, many: bool, key: bytes, d: st.DataObject
) -> None:
    value = st.integers(0, 2**bits - 1)
    values = d.draw(st.lists(value, min_size=1, max_size=5))
    values += [values[0] ^ 1 << d.draw(st.integers(0, bits - 1)) for _ in range(3)]
    cipher = CryptoPAn(key, bits)
    repeated = values * (1 if not many else 4096 // len(values) + 1)
    out = cipher.encrypt(limbs(repeated, bits))
    assert integers(cipher.decrypt(out)) == repeated
    for (a, x), (b, y) in product(zip(values, integers(out), strict=False), repeat=2):
        assert common(a, b, bits) == common(x, y, bits)


def test_batches_longer_than_a_chunk() -> None:
    cipher = CryptoPAn(KEY, 64)
    values = np.random.default_rng(5).integers(0, 2**63, size=(1, 5003), dtype=np.uint64)
    out = cipher.encrypt(values)
    assert out.shape == (1, 5003)
    rows = [0, 1, 1023, 1024, 2048, 5002]
    np.testing.assert_array_equal(CryptoPAn(KEY, 64).encrypt(values[:, rows]), out[:, rows])


def test_empty_batch() -> None:
    for bits in (8, 100):
        nothing = limbs([], bits)
        assert CryptoPAn(KEY, bits).encrypt(nothing).shape == nothing.shape
        assert CryptoPAn(KEY, bits).decrypt(nothing).shape == nothing.shape
    assert CryptoPAn(KEY).encrypt_addresses([]) == []


# -- all ciphers of few bits --------------------------------------------------------------------


def test_no_flip_is_the_identity() -> None:
    assert integers(FlipTree([0] * 15).encrypt(limbs([0b1011], 4))) == [0b1011]


def test_flips_by_hand() -> None:
    # Root flips; below plaintext 0 nothing does, below 1 the right one; of level 2 node 10.
    tree = FlipTree([1, 0, 1, 0, 0, 1, 0])
    assert integers(tree.encrypt(limbs(list(range(8)), 3))) == [4, 5, 6, 7, 3, 2, 0, 1]


def test_trees_of_three_bits_are_all_prefix_preserving_permutations() -> None:
    codes = limbs(list(range(8)), 3)
    seen = set()
    for flips in product([0, 1], repeat=7):
        tree = FlipTree(flips)
        out = integers(tree.encrypt(codes))
        assert integers(tree.decrypt(limbs(out, 3))) == list(range(8))
        for a, b in product(range(8), repeat=2):
            assert common(a, b, 3) == common(out[a], out[b], 3)
        seen.add(tuple(out))
    assert len(seen) == 2**7


def test_crypto_pan_of_few_bits_is_a_tree() -> None:
    cipher = CryptoPAn(KEY, 4)
    out = integers(cipher.encrypt(limbs(list(range(16)), 4)))
    flips = [
        out[p << 4 - i] >> 3 - i & 1 for i in range(4) for p in range(1 << i)
    ]  # the value p0...0 has the bit 0 after p
    assert integers(FlipTree(flips).encrypt(limbs(list(range(16)), 4))) == out


# -- what is refused ----------------------------------------------------------------------------


WRONG_CODES = [np.zeros((1, 3), np.int64), np.zeros(3, np.uint64), np.zeros((2, 3), np.uint64)]


def encrypted(codes: Any, bits: int = 32) -> Any:
    return CryptoPAn(KEY, bits).encrypt(codes)


REFUSALS: list[tuple[Callable[[Any], object], list[Any], type[Exception], str]] = [
    (CryptoPAn, [b"", b"x" * 16, b"x" * 33, "x" * 32], KeyMismatchError, "32 bytes, got"),
    (lambda bits: CryptoPAn(KEY, bits), [0, -1, 129], ParameterError, "from 1 to 128"),
    (FlipTree, [[], [0, 1], [[0]], [0] * 16], ShapeError, r"2\^n - 1"),
    (encrypted, WRONG_CODES, ShapeError, r"uint64 array of shape \(1, rows\)"),
    (CryptoPAn(KEY).decrypt, WRONG_CODES, ShapeError, r"uint64 array of shape \(1, rows\)"),
    (
        lambda bits: encrypted(limbs([0, 1 << bits], bits), bits),
        [1, 31, 32, 63, 65, 127],
        ParameterError,
        "more than",
    ),
    (CryptoPAn(KEY).encrypt_addresses, [["10.0.0.1", "::1"]], ParameterError, "row 1"),
    (CryptoPAn(KEY, 16).encrypt_addresses, [["10.0.0.1"]], ParameterError, "must be 32 or 128"),
]


@pytest.mark.parametrize(("call", "arguments", "kind", "words"), REFUSALS)
def test_wrong_arguments_are_refused(
    call: Callable[[Any], object], arguments: list[Any], kind: type[Exception], words: str
) -> None:
    for argument in arguments:
        with pytest.raises(kind, match=words):
            call(argument)


@pytest.mark.parametrize("cipher", [CryptoPAn(KEY), FlipTree([1])])
def test_ciphers_do_not_print_or_pickle_keys(cipher: PrefixPreservingCipher) -> None:
    assert "bits>" in repr(cipher) and KEY.hex() not in repr(cipher)
    with pytest.raises(SerializationError):
        pickle.dumps(cipher)
