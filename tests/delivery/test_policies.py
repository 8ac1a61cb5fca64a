"""Delivery by policy: who can open what, what a batch shares, and what refuses."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccbps import Bool, Category, Schema, UInt
from ccbps.delivery import PolicyOpener, PolicySealer
from ccbps.delivery.policies import REMEMBERED, PolicyPayload
from ccbps.errors import DecodeError, ParameterError, PredicateError, SerializationError
from ccbps.functional import Authority, CpAbe, HiddenVectors, Ibe, KpAbe, UserKey
from ccbps.functional.trees import Tree

SCHEMA = Schema(doctor=Bool(), ward=Category(["A", "B"]), age=UInt(5))
POLICY = "(doctor AND ward = 'A') OR age >= 20"
RECORD = {"doctor": False, "ward": "B", "age": 21}
SCHEMES = {
    "ciphertext-policy": (CpAbe, POLICY, RECORD, {**RECORD, "age": 19}),
    "key-policy": (KpAbe, RECORD, POLICY, "NOT doctor AND age < 20"),
    "hidden vectors": (HiddenVectors, RECORD, POLICY, "NOT doctor AND age < 20"),
    "identity-based": (Ibe, "bob", "bob", "alice"),
}


def authority_of(scheme: Any, pairing: str = "transparent") -> Authority:
    return Authority.generate(scheme.made_from(None if scheme is Ibe else SCHEMA, pairing))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Capsules that keys opened, in order."""
    calls: list[bytes] = []
    open_one = UserKey.open

    def counted(self: UserKey, message: bytes) -> bytes:
        calls.append(message)
        return open_one(self, message)

    monkeypatch.setattr(UserKey, "open", counted)
    return calls


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("pairing", ["transparent", "bls12-381"])
def test_whoever_fits_opens_and_nobody_else(name: str, pairing: str) -> None:
    scheme, to, fitting, other = SCHEMES[name]
    authority = authority_of(scheme, pairing)
    payloads = [b"", b"119/80", bytes(300)]
    sealed = PolicySealer(authority.public).seal(payloads, to)
    assert PolicyOpener(authority.key(fitting)).open(sealed) == payloads
    found, causes = PolicyOpener(authority.key(other)).examine(sealed)
    assert found == [None] * 3
    assert [*causes] == [0, 1, 2]
    with pytest.raises(DecodeError, match=r"^row 0: ") as error:
        PolicyOpener(authority.key(other)).open(sealed)
    assert error.value.rows == (0,)


@given(payloads=st.lists(st.binary(max_size=40), max_size=6), pad_to=st.integers(1, 64))
def test_payloads_come_back_and_lengths_are_padded(payloads: list[bytes], pad_to: int) -> None:
    authority = authority_of(Ibe)
    sealed = PolicySealer(authority.public).seal(payloads, "bob", pad_to=pad_to)
    assert PolicyOpener(authority.key("bob")).open(sealed) == payloads
    for payload, message in zip(payloads, sealed, strict=True):
        padded = len(PolicyPayload.from_bytes(message).sealed) - 16
        assert padded % pad_to == 0
        assert 0 < padded - len(payload) <= pad_to


def test_a_batch_shares_one_capsule_that_is_opened_once(opened: list[bytes]) -> None:
    authority = authority_of(CpAbe)
    sealer, opener = PolicySealer(authority.public), PolicyOpener(authority.key(RECORD))
    sealed = sealer.seal([bytes([n]) for n in range(50)], POLICY)
    capsules = {PolicyPayload.from_bytes(message).capsule for message in sealed}
    assert len(capsules) == 1
    # Each message stands by itself, and its key is its own.
    assert opener.open(sealed[7:8]) == [b"\x07"]
    assert opener.open(sealed[::-1]) == [bytes([n]) for n in range(49, -1, -1)]
    assert len(opened) == 1
    assert {PolicyPayload.from_bytes(m).capsule for m in sealer.seal([b""], POLICY)} != capsules


def test_payloads_of_a_batch_have_keys_of_their_own() -> None:
    # Under one key and nonce, equal payloads would look equal.
    sealed = PolicySealer(authority_of(Ibe).public).seal([bytes(200)] * 20, "bob")
    starts = {PolicyPayload.from_bytes(message).sealed[:16] for message in sealed}
    assert len(starts) == len(sealed)


def test_a_capsule_that_does_not_open_is_tried_once(opened: list[bytes]) -> None:
    authority = authority_of(HiddenVectors)
    sealed = PolicySealer(authority.public).seal([b"a"] * 5, RECORD)
    opener = PolicyOpener(authority.key("age < 20"))
    assert len(opener.examine(sealed)[1]) == len(opener.examine(sealed[:2])[1]) + 3 == 5
    assert len(opened) == 1


def test_the_last_capsules_are_remembered(opened: list[bytes]) -> None:
    authority = authority_of(Ibe)
    sealer, opener = PolicySealer(authority.public), PolicyOpener(authority.key("bob"))
    batches = [sealer.seal([b"a", b"b"], "bob") for _ in range(REMEMBERED + 1)]
    first = [batch[0] for batch in batches]
    assert opener.open(first) == [b"a"] * len(batches)
    assert opener.open(batches[-1] + batches[1]) == [b"a", b"b"] * 2
    assert len(opened) == len(batches)
    assert opener.open(batches[0]) == [b"a", b"b"]
    assert len(opened) == len(batches) + 1
    # Anybody can send long ones, of which the opener keeps no more than of others.
    assert {len(kept) for kept in opener._opened} == {32}


@pytest.mark.parametrize("name", ["ciphertext-policy", "key-policy", "identity-based"])
def test_epochs_are_those_of_keys(name: str) -> None:
    scheme, to, fitting, _ = SCHEMES[name]
    authority = authority_of(scheme)
    sealed = PolicySealer(authority.public).seal([b"a"], to, epoch=7)
    assert PolicyOpener(authority.key(fitting, epoch=7)).open(sealed) == [b"a"]
    for epoch in (None, 6, 8):
        with pytest.raises(DecodeError, match="epoch 7"):
            PolicyOpener(authority.key(fitting, epoch=epoch)).open(sealed)


@pytest.mark.parametrize("name", SCHEMES)
def test_altered_and_mixed_messages_are_one_decode_error(name: str) -> None:
    scheme, to, fitting, _ = SCHEMES[name]
    authority = authority_of(scheme)
    sealer, opener = PolicySealer(authority.public), PolicyOpener(authority.key(fitting))
    sealed, other = sealer.seal([b"first", b"second"], to), sealer.seal([b"third"], to)[0]
    parts, another = (PolicyPayload.from_bytes(message) for message in (sealed[0], other))
    altered = [
        sealed[0][:at] + bytes([sealed[0][at] ^ 1]) + sealed[0][at + 1 :]
        for at in range(0, len(sealed[0]), 11)
    ]
    mixed = [
        PolicyPayload(parts.capsule, 1, parts.sealed).to_bytes(),
        PolicyPayload(another.capsule, 0, parts.sealed).to_bytes(),
        PolicyPayload(authority.public.seal(b"no key", to), 0, parts.sealed).to_bytes(),
        PolicyPayload(b"", 0, b"").to_bytes(),
    ]
    wrong = [*altered, *mixed, b"", sealed[0][:-1], sealed[0] + b"\0", parts.capsule]
    found, causes = opener.examine([*wrong, *sealed])
    assert found == [None] * len(wrong) + [b"first", b"second"]
    assert [*causes] == [*range(len(wrong))]
    for message in wrong:
        with pytest.raises(DecodeError):
            opener.open([message])


def test_two_authorities_do_not_open_for_one_another() -> None:
    sealed = PolicySealer(authority_of(Ibe).public).seal([b"a"], "bob")
    with pytest.raises(DecodeError, match="the message is of authority"):
        PolicyOpener(authority_of(Ibe).key("bob")).open(sealed)


def test_arguments_are_checked() -> None:
    authority = authority_of(CpAbe)
    sealer, opener = PolicySealer(authority.public), PolicyOpener(authority.key(RECORD))
    assert sealer.seal([], POLICY) == opener.open([]) == []
    with pytest.raises(ParameterError, match="public must be a PublicKey"):
        PolicySealer(authority)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="key must be a UserKey"):
        PolicyOpener(authority.public)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="payloads must be bytes"):
        sealer.seal(["a"], POLICY)  # type: ignore[list-item]
    with pytest.raises(ParameterError, match="pad_to"):
        sealer.seal([b"a"], POLICY, pad_to=0)
    with pytest.raises(ParameterError, match="ciphertexts must be bytes"):
        opener.open([None])  # type: ignore[list-item]
    with pytest.raises(PredicateError):
        sealer.seal([b"a"], "doctor AND room = 1")
    with pytest.raises(SerializationError):
        pickle.dumps(opener)
    assert "PolicyOpener of key" in repr(opener)


def test_anybody_reads_the_policy_of_a_payload_and_nobody_the_hidden_record() -> None:
    authority = authority_of(CpAbe)
    (sealed,) = PolicySealer(authority.public).seal([b"a"], "doctor AND ward = 'A'")
    label = authority.public.read(PolicyPayload.from_bytes(sealed).capsule)
    assert label == Tree(("doctor=1", "ward=0"), ((0, 1), (0, 1), (2, 2)))
    hidden = authority_of(HiddenVectors)
    (sealed,) = PolicySealer(hidden.public).seal([b"a"], RECORD)
    assert hidden.public.read(PolicyPayload.from_bytes(sealed).capsule) is None


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ("doctor", "doctor=1"),
        ("TRUE", "*"),
        ("doctor AND ward = 'B'", "doctor=1 AND ward=1"),
        ("doctor OR age >= 28", "doctor=1 OR (age[0]=1 AND age[1]=1 AND age[2]=1)"),
        (
            "at_least(2, doctor, ward = 'A', age = 3) AND NOT doctor",
            "at_least(2, doctor=1, ward=0, age=3) AND doctor=0",
        ),
    ],
)
def test_policies_of_messages_have_a_text(policy: str, text: str) -> None:
    authority = authority_of(CpAbe)
    assert authority.public.read(authority.public.seal(b"", policy)).text == text
