"""Universal re-encryption: only owners read, nobody links, onions come apart in any order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from ccbps.algebra.named_groups import prime_order_group
from ccbps.ciphers.universal import UniversalCipher
from ccbps.errors import DecodeError, ParameterError

TOY = UniversalCipher(prime_order_group("toy64"))
MESSAGES = [TOY.group.hash_to_group(bytes([i])) for i in range(5)]


def joint(keys: Sequence[tuple[int, Any]]) -> Any:
    """The joint key of nodes that prove they have theirs."""
    names = [b"node %d" % place for place in range(len(keys))]
    proofs = [TOY.proofs.prove(key[0], name) for key, name in zip(keys, names, strict=True)]
    return TOY.joint([public for _, public in keys], proofs, names)


@pytest.mark.parametrize("name", ["toy64", "secp256k1"])
def test_owners_read_what_was_encrypted_again_and_others_do_not(name: str) -> None:
    if name == "secp256k1":
        pytest.importorskip("coincurve")
    cipher = UniversalCipher(prime_order_group(name))
    messages = [cipher.group.hash_to_group(bytes([i])) for i in range(3)]
    (alice, public), (bob, _) = cipher.generate(), cipher.generate()
    texts = cipher.encrypt(public, messages)
    for _ in range(3):
        again = cipher.from_rows(cipher.to_rows(cipher.reencrypt(texts)))
        # Nothing of the old ciphertext is in the new one.
        for old, new in zip(texts, again, strict=True):
            assert not set(old) & set(new)
        texts = again
        assert cipher.decrypt(alice, texts) == messages
        assert cipher.decrypt(bob, texts) == [None] * 3
    assert "x" not in repr(cipher).replace("secp256k1", "")


def test_an_onion_comes_apart_in_any_order_and_only_at_its_end() -> None:
    keys = [TOY.generate() for _ in range(3)]
    public = joint(keys)
    sent = TOY.encrypt(public, MESSAGES)
    for path in permutations(secret for secret, _ in keys):
        texts = sent
        for secret in path[:-1]:
            assert TOY.decrypt(secret, texts) == [None] * 5
            texts = TOY.reencrypt(TOY.peel(secret, texts))
        assert TOY.decrypt(path[-1], texts) == MESSAGES


def test_keys_that_make_no_onion_are_refused() -> None:
    (secret, public), other = TOY.generate(), TOY.generate()
    inverse = -secret, TOY.group.inverse(public)
    for keys in ([], [(secret, public), inverse], [other, (0, TOY.group.identity)]):
        with pytest.raises(ParameterError, match="neither they nor their product may be"):
            joint(keys)
    with pytest.raises(ParameterError, match="each public key once"):
        joint([other, (secret, public), other])
    proof = TOY.proofs.prove(secret, b"a")
    for proofs, contexts in (([], [b"a"]), ([proof] * 2, [b"a"]), ([proof], [])):
        with pytest.raises(ParameterError, match="needs one proof and one context: got 1 public"):
            TOY.joint([public], proofs, contexts)


def test_ciphertexts_that_could_be_marked_are_refused() -> None:
    """With c = d = 1 re-encryption changes nothing: a tag that survives all hops."""
    _, public = TOY.generate()
    text = TOY.encrypt(public, MESSAGES[:1])[0]
    identity = TOY.group.identity
    for marked in ((*text[:2], identity, identity), (*text[:3], identity)):
        with pytest.raises(ParameterError, match="ciphertext 1 would stay as it is"):
            TOY.reencrypt([text, marked])
        with pytest.raises(DecodeError, match="not elements"):
            TOY.from_rows(TOY.to_rows([text, marked]))
    rows = TOY.to_rows([text]).copy()
    rows[0, :8] = 0
    with pytest.raises(DecodeError, match="row 0: a message holds bytes") as caught:
        TOY.from_rows(rows)
    assert caught.value.rows == (0,)
    with pytest.raises(DecodeError, match="has 32 bytes, got"):
        TOY.from_rows(np.zeros((1, 31), dtype=np.uint8))
