"""Signed batches: the tree of RFC 6962, and proofs that fit one message and place."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ccbps.ciphers import signatures
from ccbps.ciphers.signatures import sign_batch, signed_in_batch
from ccbps.errors import ParameterError
from ccbps.keys.plain_key import SigningKey

KEY, OTHER = SigningKey(bytes(range(32))), SigningKey(bytes(32))

LEAVES = [
    bytes.fromhex(text)
    for text in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = (
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
)
"""Roots of the first 1 to 8 leaves, as in the tests of Certificate Transparency's code."""


def root(leaves: list[bytes]) -> bytes:
    """Compute a root as RFC 6962, section 2.1, defines it."""
    if len(leaves) == 1:
        return sha256(b"\0" + leaves[0]).digest()
    split = 1 << (len(leaves) - 1).bit_length() - 1
    return sha256(b"\1" + root(leaves[:split]) + root(leaves[split:])).digest()


@pytest.mark.parametrize("size", range(1, 9))
def test_roots_are_those_of_certificate_transparency(size: int) -> None:
    assert root(LEAVES[:size]).hex() == ROOTS[size - 1]
    (proof, *_) = sign_batch(KEY, LEAVES[:size])
    message = b"ccbps signed batch 1\0" + size.to_bytes(8) + root(LEAVES[:size])
    assert proof.signature == KEY.sign(message)


@given(st.lists(st.binary(max_size=3), min_size=1, max_size=40), st.data())
def test_a_proof_fits_its_message_and_place(messages: list[bytes], data: st.DataObject) -> None:
    proofs = sign_batch(KEY, messages)
    place = data.draw(st.integers(0, len(messages) - 1))
    proof = proofs[place]
    assert len(proof.path) <= (len(messages) - 1).bit_length()
    for message in messages:
        assert signed_in_batch(KEY.identity, message, proof) == (message == messages[place])
    assert not signed_in_batch(OTHER.identity, messages[place], proof)
    wrong = [
        replace(proof, place=data.draw(st.integers(0, 2 * len(messages)))),
        replace(proof, size=data.draw(st.integers(0, 2 * len(messages)))),
        replace(proof, path=(*proof.path, bytes(32))),
        replace(proof, path=proof.path[:-1]),
    ]
    for other in wrong:
        # An equal message of the batch has the proof of its own place.
        is_own = any(
            other == own and message == messages[place]
            for own, message in zip(proofs, messages, strict=True)
        )
        assert signed_in_batch(KEY.identity, messages[place], other) == is_own


def test_no_node_passes_for_a_message() -> None:
    """A leaf that is the two hashes of a node is not what the writer signed."""
    messages = [b"a", b"b", b"c", b"d"]
    proof = sign_batch(KEY, messages)[0]
    left, right = (sha256(b"\0" + message).digest() for message in messages[:2])
    for size in (2, 4):
        shorter = replace(proof, size=size, path=proof.path[1:])
        assert not signed_in_batch(KEY.identity, left + right, shorter)


def test_a_batch_is_verified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [b"%d" % number for number in range(100)]
    proofs, calls = sign_batch(KEY, messages), []
    verify = signatures.signed_by
    monkeypatch.setattr(
        signatures,
        "signed_by",
        lambda *args: calls.append(args) or verify(*args),  # type: ignore[func-returns-value]
    )
    signatures._signed_root.cache_clear()
    pairs = zip(messages, proofs, strict=True)
    assert all(signed_in_batch(KEY.identity, *pair) for pair in pairs)
    assert len(calls) == 1


def test_a_batch_has_a_message() -> None:
    with pytest.raises(ParameterError, match="messages must be one or more"):
        sign_batch(KEY, [])
    assert SigningKey.from_text(KEY.to_text()) == KEY
