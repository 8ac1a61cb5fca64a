"""Sealed payloads: they come back, have a length of their own choice, and damage is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from ccbps.ciphers.payloads import (
    ONE_PAYLOAD,
    SEAL_BYTES,
    as_bytes,
    check_sizes,
    open_sealed,
    own_keys,
    seal,
    sealed_bytes,
)
from ccbps.errors import DecodeError, ParameterError
from ccbps.keys.secret import SecretBytes

KEY, HEAD = bytes(range(16)), b"header"
PAYLOADS = st.binary(max_size=40) | st.sampled_from([b"\x80", b"\0\0", b"x\x80\0", b"\x80\0\0"])


@given(
    PAYLOADS, st.sampled_from([16, 32]), st.binary(max_size=9), st.binary(min_size=12, max_size=12)
)
def test_payloads_come_back(payload: bytes, key_bytes: int, head: bytes, nonce: bytes) -> None:
    key = bytes(range(key_bytes))
    for pad_to in (1, 16, 41, 256):
        sealed = seal(payload, key, head, pad_to=pad_to, nonce=nonce)
        padded = len(sealed) - SEAL_BYTES
        assert padded % pad_to == 0
        assert 0 < padded - len(payload) <= pad_to
        assert open_sealed(sealed, key, head, nonce=nonce) == payload


@given(st.lists(st.binary(max_size=20), min_size=2, max_size=4))
def test_payloads_up_to_a_size_are_all_of_one_length(payloads: list[bytes]) -> None:
    sealed = {len(seal(payload, KEY, HEAD, pad_to=21)) for payload in payloads}
    assert sealed == {sealed_bytes(20)} == {37}


@given(PAYLOADS, st.data())
def test_what_was_altered_does_not_open(payload: bytes, data: st.DataObject) -> None:
    sealed = seal(payload, KEY, HEAD, pad_to=16)
    parts = [sealed, KEY, HEAD, ONE_PAYLOAD]
    which = data.draw(st.integers(0, 3))
    bit = data.draw(st.integers(0, 8 * len(parts[which]) - 1))
    wrong = bytearray(parts[which])
    wrong[bit // 8] ^= 1 << bit % 8
    parts[which] = bytes(wrong)
    with pytest.raises(DecodeError, match="not a payload for this key, or one that was altered"):
        open_sealed(parts[0], parts[1], parts[2], nonce=parts[3])


@pytest.mark.parametrize("sealed", [b"", bytes(15), bytes(16), bytes(40)])
@pytest.mark.parametrize("nonce", [ONE_PAYLOAD, b"", bytes(5)])
def test_bytes_of_any_length_are_refused(sealed: bytes, nonce: bytes) -> None:
    with pytest.raises(DecodeError, match="not a payload"):
        open_sealed(sealed, KEY, HEAD, nonce=nonce)


@pytest.mark.parametrize("padded", [b"", b"abc", b"abc\0", bytes(16)])
def test_content_without_padding_is_refused(padded: bytes) -> None:
    with pytest.raises(DecodeError, match="not a payload"):
        open_sealed(AESGCM(KEY).encrypt(ONE_PAYLOAD, padded, HEAD), KEY, HEAD)


def test_own_keys_depend_on_secret_number_and_payload() -> None:
    first, second = SecretBytes(bytes(32)), SecretBytes(bytes(31) + b"\1")
    numbers = np.array([1, 1, 2], dtype=np.uint64)
    keys = own_keys(first, numbers, [b"a", b"b", b"a"])
    assert keys.shape == (3, 16)
    assert keys.dtype == np.uint8
    others = own_keys(second, numbers, [b"a", b"b", b"a"])
    assert len({row.tobytes() for row in (*keys, *others)}) == 6
    assert np.array_equal(own_keys(first, numbers[:1], [b"a"]), keys[:1])
    assert own_keys(first, numbers[:0], []).shape == (0, 16)


@pytest.mark.parametrize("wrong", ["text", None, 5])
def test_payloads_are_bytes_of_at_most_some_size(wrong: Any) -> None:
    with pytest.raises(ParameterError, match="payloads must be bytes, one per row; row 1 is"):
        as_bytes("payloads", [b"x", wrong])
    assert as_bytes("payloads", [b"x", bytearray(b"y"), memoryview(b"z")]) == [b"x", b"y", b"z"]
    check_sizes([b"1234", b""], 4)
    with pytest.raises(ParameterError, match="payloads must have 4 bytes or less; row 1 has 5"):
        check_sizes([b"1234", b"12345"], 4)
