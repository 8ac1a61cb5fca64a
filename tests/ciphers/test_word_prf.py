"""WordKeys and NonceHash: against AES written out with single calls."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.cmac import CMAC
from hypothesis import given
from hypothesis import strategies as st

from ccbps.ciphers.word_prf import NonceHash, WordKeys, to_blocks

KEY = bytes(range(16))


def aes(key: bytes, block: bytes) -> bytes:
    return Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(block)


def xor(a: bytes, b: bytes) -> bytes:
    return bytes(x ^ y for x, y in zip(a, b, strict=True))


def test_known_answer() -> None:
    """FIPS 197, appendix C.1."""
    plain = bytes.fromhex("00112233445566778899aabbccddeeff")
    found = WordKeys(KEY).extend(np.zeros(2, np.uint64), to_blocks(plain))
    assert found.astype("<u8").tobytes().hex() == "69c4e0d86a7b0430d8cdb78070b4c55a"


@given(st.lists(st.binary(min_size=16, max_size=16), min_size=1, max_size=4))
def test_words_are_cbc_mac(blocks: list[bytes]) -> None:
    state = np.zeros((1, 2), np.uint64)
    for block in blocks:
        state = WordKeys(KEY).extend(state, to_blocks(block))
    # CMAC is CBC-MAC whose last block has a subkey added, the doubled encryption of zero.
    zero = int.from_bytes(aes(KEY, bytes(16)), "big")
    subkey = (zero << 1 ^ (0x87 if zero >> 127 else 0)) & (1 << 128) - 1
    mac = CMAC(algorithms.AES(KEY))
    mac.update(b"".join(blocks[:-1]) + xor(blocks[-1], subkey.to_bytes(16, "big")))
    assert state.astype("<u8").tobytes() == mac.finalize()


@given(
    keys=st.lists(st.binary(min_size=16, max_size=16), max_size=5),
    nonces=st.lists(st.binary(min_size=16, max_size=16), max_size=5),
)
def test_hash_is_even_mansour_for_all_pairs(keys: list[bytes], nonces: list[bytes]) -> None:
    hashed = NonceHash(KEY)
    y, n = to_blocks(b"".join(keys)), to_blocks(b"".join(nonces))
    found = hashed.all_pairs(y, n)
    assert found.shape == (len(nonces), len(keys))
    assert np.array_equal(found, hashed.pairs(y[None], n[:, None]))
    for row, nonce in enumerate(nonces):
        for column, key in enumerate(keys):
            mixed = xor(key, nonce)
            wanted = xor(aes(KEY, mixed), mixed)[:8]
            assert int(found[row, column]) == int.from_bytes(wanted, "little")


def test_hash_in_pieces_is_the_hash() -> None:
    rng = np.random.default_rng(1)
    keys, nonces = rng.integers(0, 2**63, (2, 40_000, 2)).astype(np.uint64)
    hashed = NonceHash(KEY)
    wide = hashed.all_pairs(keys, nonces[:2])
    assert np.array_equal(wide[1], hashed.pairs(keys, nonces[1]))
    assert np.array_equal(hashed.all_pairs(keys[:3], nonces)[:, 2], hashed.pairs(keys[2], nonces))


@pytest.mark.parametrize(("keys", "nonces"), [(40_000, 1), (700, 40), (1, 1), (0, 3)])
@pytest.mark.parametrize("bits", [1, 9])
def test_likely_pairs_are_those_whose_low_bits_are_marked(
    keys: int, nonces: int, bits: int
) -> None:
    rng = np.random.default_rng(bits)
    y, n = (rng.integers(0, 2**64, (count, 2), np.uint64) for count in (keys, nonces))
    for share in (0.0, 0.05, 1.0):
        table = rng.random((nonces, 1 << bits)) < share
        rows, columns, values = NonceHash(KEY).likely(y, n, table)
        found = NonceHash(KEY).all_pairs(y, n)
        low = (found & np.uint64((1 << bits) - 1)).astype(np.int64)
        wanted = np.flatnonzero(np.take_along_axis(table, low, axis=1))
        order = np.argsort(rows * keys + columns)
        assert np.array_equal((rows * keys + columns)[order], wanted)
        assert np.array_equal(values[order], found.reshape(-1)[wanted])


def test_secrets_do_not_print() -> None:
    assert repr(WordKeys(KEY)) == "<WordKeys>"
