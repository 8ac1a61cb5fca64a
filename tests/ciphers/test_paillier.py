"""Paillier: the homomorphism, both key forms, refusals, and the package `phe` as another opinion.

Nabeel's modified Paillier: E' by its definition, exact comparisons up to the conditions, refusals.

TOY keys can be factored in minutes; they make the tests fast.
"""

from __future__ import annotations

import copy
import json
import os
import pickle
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccbps.algebra.modular import inverse, lcm, powmod
from ccbps.ciphers.nabeel import NabeelComparer, NabeelEncoder, NabeelParameters, factor_bits
from ccbps.ciphers.paillier import PaillierEncryptor, PaillierPublicKey, PaillierSecretKey
from ccbps.errors import KeyMismatchError, ParameterError, SerializationError
from tests.support.forks import answer_of_child

TOY, BITS = 256, 20
P61, P89 = 2**61 - 1, 2**89 - 1
FORMS = {"textbook": None, "subgroup": 64}
both = pytest.mark.parametrize("form", FORMS)


@cache
def keys(form: str, number: int = 0) -> tuple[PaillierSecretKey, PaillierEncryptor]:
    secret = PaillierSecretKey.generate(TOY, FORMS[form], toy=True)
    return secret, PaillierEncryptor(secret.public)


messages = st.integers(-(2**120), 2**120)


@both
@given(a=messages, b=messages, k=messages)
def test_homomorphism(form: str, a: int, b: int, k: int) -> None:
    secret, encryptor = keys(form)
    public = secret.public
    ea, eb = encryptor.encrypt_many([a, b])
    read = secret.decrypt
    assert read(ea, signed=True) == read(ea, signed=True, hardened=True) == a
    assert read(public.add(ea, eb), signed=True) == a + b
    assert read(public.add_many([ea, eb, eb]), signed=True) == a + 2 * b
    assert read(public.add_plain(ea, b), signed=True) == a + b
    assert read(public.multiply(ea, k)) == a * k % public.n
    assert read(encryptor.refresh(ea), signed=True) == a and encryptor.refresh(ea) != ea


@both
def test_edges_of_the_messages(form: str) -> None:
    secret, encryptor = keys(form)
    n = int(secret.public.n)
    for m in (0, 1, -1, n - 1, 1 - n, n // 2, n // 2 + 1):
        c = encryptor.encrypt(m)
        assert secret.decrypt(c) == m % n
        assert secret.decrypt(c, signed=True) == (m % n if m % n <= n // 2 else m % n - n)
    for m in (n, -n, 2 * n):
        with pytest.raises(ParameterError, match="between -n and n"):
            encryptor.encrypt(m)
    with pytest.raises(ParameterError, match="factor must be between"):
        secret.public.multiply(c, n)


@both
def test_every_way_to_encrypt_decrypts(form: str) -> None:
    secret, encryptor = keys(form)
    slow = PaillierEncryptor(secret.public, textbook=True)
    public = secret.public
    any_key = secret.textbook()
    assert any_key.decrypt(slow.encrypt(7)) == any_key.decrypt(encryptor.encrypt(7)) == 7
    assert any_key.decrypt(public.plain(7) * secret.blinding() % public.n2) == 7
    if form == "subgroup":
        with pytest.raises(ParameterError, match=r"without this key's h"):
            secret.decrypt(slow.encrypt(7))
    encryptor = PaillierEncryptor(public, window=5)
    encryptor.fill(3)
    assert encryptor.pooled == 3 and "3 blindings" in repr(encryptor)
    made = encryptor.encrypt_many([5] * 4)
    assert encryptor.pooled == 0 and len(set(made)) == 4
    assert secret.decrypt_many(made) == [5] * 4


def test_blinding_of_the_key_owner_is_that_of_the_textbook() -> None:
    """Both draw the n-th powers uniformly: all of them, as often, for a key of 10 bits."""
    p, q = 29, 31
    n, n2 = p * q, (p * q) ** 2
    wanted = {pow(r, n, n2) for r in range(1, n) if r % p and r % q}
    by_crt = {
        next(x for x in (a + p * p * t for t in range(q * q)) if x % (q * q) == b)
        for a in {pow(x, p, p * p) for x in range(1, p)}
        for b in {pow(x, q, q * q) for x in range(1, q)}
    }
    assert wanted == by_crt and len(wanted) == (p - 1) * (q - 1)


def test_ciphertexts_that_are_none_are_refused() -> None:
    secret, encryptor = keys("textbook")
    public, (p, _) = secret.public, secret.primes()
    good = encryptor.encrypt(1)
    wrong = [0, -1, public.n2, public.n, p, 3 * p]
    assert public.check([good, *wrong, good]) == [1, 2, 3, 4, 5, 6]
    assert public.check([good, p]) == [1] and public.check([]) == []
    for value in wrong:
        with pytest.raises(ParameterError, match="ciphertext"):
            secret.decrypt(value)


def test_ciphertext_of_another_key_is_refused_where_that_can_be_seen() -> None:
    secret, _ = keys("subgroup")
    other, encryptor = keys("subgroup", 1)
    assert secret.public != other.public
    refused = 0
    for m in range(20):
        with pytest.raises(ParameterError, match="ciphertext"):
            secret.decrypt(encryptor.encrypt(m) % secret.public.n2)
        refused += 1
    assert refused == 20


@both
def test_keys_keep_their_secrets(form: str) -> None:
    secret, _ = keys(form)
    shown = repr(secret) + str(secret) + repr(secret.public) + repr(secret._halves)
    p, q = secret.primes()
    assert not any(f(prime) in shown for prime in (p, q) for f in (str, hex, lambda x: f"{x:x}"))
    for call in (pickle.dumps, copy.copy):
        with pytest.raises(SerializationError):
            call(secret)
    twin = PaillierSecretKey(secret.export_secret())
    assert twin == secret and twin.public == secret.public and twin.subgroup == secret.subgroup
    public = pickle.loads(pickle.dumps(secret.public))
    assert public == secret.public and hash(public) == hash(secret.public)
    assert public.fingerprint == secret.public.fingerprint and public != shown


def test_keys_that_are_none_are_refused() -> None:
    secret, _ = keys("subgroup")
    p, q = secret.primes()
    parts = json.loads(secret.export_secret())
    calls: list[tuple[Any, str]] = [
        (
            lambda: PaillierSecretKey.from_primes(p, q, p * q + 2, toy=True),
            "must have the product n",
        ),
        (lambda: PaillierSecretKey.from_primes(p, p, toy=True), "two different primes"),
        (lambda: PaillierSecretKey.from_primes(p, 3 * q, toy=True), "two different primes"),
        (lambda: PaillierSecretKey.from_primes(1009, 1013, toy=True), "64 bits or more"),
        (lambda: PaillierSecretKey(b"{}"), "not the bytes"),
        (lambda: PaillierSecretKey(b"[1]"), "not the bytes"),
        (lambda: PaillierSecretKey(b"\xff"), "not the bytes"),
        (lambda: PaillierSecretKey(b"[" * 100_000), "not the bytes"),
    ]
    for change, message in (
        ({"vp": parts["vq"]}, "prime factors of p - 1"),
        ({"vp": "2"}, "h of a Paillier key"),
        ({"vp": "0"}, "prime factors of p - 1"),
        ({"vp": "-2"}, "prime factors of p - 1"),
        ({"h": "2"}, "h of a Paillier key"),
        ({"n": "f"}, "product n"),
    ):
        data = json.dumps({**parts, **change}).encode()
        calls.append((lambda data=data: PaillierSecretKey(data), message))
    for call, message in calls:
        with pytest.raises(KeyMismatchError, match=message) as refusal:
            call()
        assert str(p) not in str(refusal.value) and f"{p:x}" not in str(refusal.value)


def test_small_primes_are_taken_as_a_toy_only() -> None:
    secret = PaillierSecretKey.from_primes(P61, P89, toy=True)
    assert secret.textbook() == secret
    assert secret.decrypt(PaillierEncryptor(secret.public).encrypt(-7), signed=True) == -7


@both
@pytest.mark.parametrize(
    "value", [1.5, 2.0, np.float32(3), Decimal(4), Fraction(7, 2), "7", None, 1j]
)
def test_messages_that_are_no_integers_are_refused_when_encrypted(form: str, value: Any) -> None:
    secret, encryptor = keys(form)
    public, made = secret.public, encryptor.encrypt(1)
    calls: list[Any] = [
        encryptor.encrypt,
        lambda m: encryptor.encrypt_many([1, m]),
        lambda m: public.add_plain(made, m),
        lambda k: public.multiply(made, k),
    ]
    for call in calls:
        with pytest.raises(ParameterError, match="must be an integer, got"):
            call(value)
    assert secret.decrypt_many(encryptor.encrypt_many(np.arange(3))) == [0, 1, 2]
    for same in (np.int64(5), np.uint8(5), True):
        assert secret.decrypt(encryptor.encrypt(same)) == int(same)


def blindings(secret: PaillierSecretKey, ciphertexts: list[int]) -> set[int]:
    """What blinds them; the owner of the key sees it as (1 + n)^-m times the ciphertext."""
    public = secret.public
    plain = secret.decrypt_many(ciphertexts)
    found = zip(ciphertexts, plain, strict=True)
    return {int(c * public.plain(-m) % public.n2) for c, m in found}


@pytest.mark.parametrize(
    "copied", [lambda x: pickle.loads(pickle.dumps(x)), copy.copy, copy.deepcopy]
)
def test_a_copy_starts_with_an_empty_pool(copied: Any) -> None:
    secret, _ = keys("textbook")
    encryptor = PaillierEncryptor(secret.public, window=4)
    encryptor.fill(3)
    twin = copied(encryptor)
    assert encryptor.pooled == 3 and twin.pooled == 0
    used = blindings(secret, encryptor.encrypt_many([1, 2, 3]))
    assert len(used | blindings(secret, twin.encrypt_many([4, 5, 6]))) == 6
    twin.fill(2)
    assert (encryptor.pooled, twin.pooled) == (0, 2)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_starts_with_an_empty_pool() -> None:
    secret, _ = keys("textbook")
    encryptor = PaillierEncryptor(secret.public, window=4)
    encryptor.fill(3)
    sent = answer_of_child(lambda: [int(c) for c in encryptor.encrypt_many([4, 5, 6])])
    used = blindings(secret, encryptor.encrypt_many([1, 2, 3]))
    assert len(used | blindings(secret, json.loads(sent))) == 6


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_that_has_its_parents_number_starts_with_an_empty_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encryptor, number = PaillierEncryptor(keys("textbook")[0].public, window=4), os.getpid()
    encryptor.fill(3)

    def pooled() -> int:  # as the first process of a namespace has the number 1, like its parent
        monkeypatch.setattr(os, "getpid", lambda: number)
        return encryptor.pooled

    assert (answer_of_child(pooled), encryptor.pooled) == ("0", 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: PaillierSecretKey.generate(1024), "at least 2,048, got 1024"),
        (lambda: PaillierSecretKey.generate(62, toy=True), "at least 64, got 62"),
        (lambda: PaillierSecretKey.generate(257, toy=True), "must be even"),
        (lambda: PaillierSecretKey.generate(2048, 160), "from 224 to 1,000, got 160"),
        (lambda: PaillierSecretKey.generate(256, 120, toy=True), "from 16 to 104, got 120"),
        (lambda: PaillierSecretKey.from_primes(P61, P89), "at least 2,048, got 150"),
        (lambda: PaillierPublicKey(2**64), "must be odd"),
        (lambda: PaillierPublicKey(12345), "bits of n must be .* 64, got 14"),
        (lambda: PaillierPublicKey(3**50, 9), "no factor in common"),
        (lambda: PaillierEncryptor(PaillierPublicKey(2**255 + 1), exponent_bits=128), "got 128"),
    ],
)
def test_parameters_out_of_range_are_refused(call: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        call()


@both
def test_phe_reads_our_ciphertexts_and_we_read_its(form: str) -> None:
    phe = pytest.importorskip("phe")
    secret, encryptor = keys(form)
    public = phe.PaillierPublicKey(int(secret.public.n))
    private = phe.PaillierPrivateKey(public, *map(int, secret.primes()))
    for m in (0, 1, 12345, int(public.n) - 1):
        assert private.raw_decrypt(int(encryptor.encrypt(m))) == m
        assert secret.textbook().decrypt(public.raw_encrypt(m)) == m
    theirs = public.encrypt(1000)
    ours = encryptor.encrypt(-1)
    total = phe.EncryptedNumber(public, int(secret.public.add(theirs.ciphertext(), ours)))
    assert private.decrypt(total) == 999
    assert secret.textbook().decrypt(total.ciphertext()) == 999


@pytest.mark.slow
@pytest.mark.parametrize("subgroup", [None, 256])
def test_full_size(subgroup: int | None) -> None:
    secret = PaillierSecretKey.generate(2048, subgroup)
    assert secret.public.bits == 2048 and secret.public.width == 512
    encryptor = PaillierEncryptor(secret.public)
    made = encryptor.encrypt_many([1, -2])
    assert secret.decrypt_many(made, signed=True) == [1, -2]
    assert secret.decrypt(secret.public.add(*made), signed=True) == -1


# -- modified Paillier ---------------------------------------------------------------------------


@cache
def server() -> NabeelParameters:
    return NabeelParameters.generate(TOY, toy=True)


@cache
def parties(factor: int | None = None) -> tuple[NabeelEncoder, NabeelEncoder, NabeelComparer, int]:
    made = server()
    t, r = made.blinding(), factor or made.factor(BITS)
    publisher = NabeelEncoder(made.n, made.kappa, t, r, BITS)
    subscriber = NabeelEncoder(made.n, made.kappa, inverse(t, made.n2), r, BITS)
    return publisher, subscriber, NabeelComparer(made.n, made.mu), int(r)


def encoded(made: NabeelParameters, m: int) -> int:
    """E'(m), from its definition: E(m)^lambda."""
    p, q = made.primes()
    cipher = powmod(made._g, m, made.n2) * made._secret.blinding() % made.n2
    return powmod(cipher, lcm(p - 1, q - 1), made.n2)


@given(st.integers(0, 2**BITS))
def test_shortcut_is_the_definition(m: int) -> None:
    """E'(m) = E(m)^lambda = (1 + kappa n)^m, deterministic, and mu reads it."""
    made = server()
    by_definition = encoded(made, m)
    assert by_definition == encoded(made, m) == powmod(1 + made.kappa * made.n, m, made.n2)
    assert NabeelComparer(made.n, made.mu).reads(by_definition) == m


@given(st.integers(0, 2**BITS), st.integers(0, 2**BITS))
def test_messages_are_the_papers_formulas(m: int, s: int) -> None:
    """With r_q = 0 from the randomness, E_p and E_s are products of powers of E'(m), E'(-s)."""
    made = server()
    publisher, subscriber, _, r = parties()
    t = publisher._blinding
    wanted = t * powmod(encoded(made, m), r, made.n2) % made.n2
    assert publisher.values([m], lambda count: bytes(count)) == [wanted]
    wanted = inverse(t, made.n2) * powmod(inverse(encoded(made, s), made.n2), r, made.n2)
    assert subscriber.bounds([s]) == [wanted % made.n2]


BOUNDS = st.integers(0, 2**BITS) | st.sampled_from([0, 1, 2**BITS - 1, 2**BITS])


@given(m=BOUNDS, s=BOUNDS, data=st.data())
def test_comparison_is_exact(m: int, s: int, data: Any) -> None:
    publisher, subscriber, broker, r = parties()
    shift = data.draw(st.integers(-1, 1))
    for bound in {s, max(0, min(2**BITS, m + shift))}:
        (value,), (other,) = publisher.values([m]), subscriber.bounds([bound])
        assert broker.at_least(value, other) == (m >= bound)
        assert 0 <= broker.difference(value, other) - r * (m - bound) < r
        assert broker.offsets([value], other) == [broker.difference(value, other)]


def test_exactness_conditions_are_enforced_and_tight() -> None:
    made = server()
    n, t = int(made.n), made.blinding()
    greatest = ((n - 1) // 2 + 1) // (2**BITS + 1)  # r 2^l + r - 1 <= (n - 1) / 2
    with pytest.raises(ParameterError, match="must stay below n / 2"):
        NabeelEncoder(n, made.kappa, t, greatest + 1, BITS)
    for factor in (0, -1):
        with pytest.raises(ParameterError, match="r_p be positive"):
            NabeelEncoder(n, made.kappa, t, factor, BITS)
    publisher, subscriber, broker, _ = parties(greatest)
    top = 2**BITS
    assert broker.at_least(publisher.values([top])[0], subscriber.bounds([0])[0])
    assert not broker.at_least(publisher.values([0])[0], subscriber.bounds([top])[0])
    for _ in range(20):
        factor = made.factor(BITS)
        assert 2 * (factor * 2**BITS + factor) < n
        assert factor.bit_length() == factor_bits(TOY, BITS) == TOY - BITS - 3
    with pytest.raises(ParameterError, match="need a modulus of at least 257 bits, got 256"):
        factor_bits(TOY, 190)


def test_what_is_out_of_range_is_refused_and_not_shown() -> None:
    publisher, subscriber, broker, r = parties()
    for value in (-1, 2**BITS + 1):
        calls: list[Any] = [publisher.values, subscriber.bounds]
        for call in calls:
            with pytest.raises(ParameterError, match=r"must be in 0\.\.2\^20") as refusal:
                call([value])
            assert str(value) not in str(refusal.value).replace("0..2^20", "")
    (value,) = publisher.values([1])
    with pytest.raises(ParameterError, match="of different keys"):
        broker.difference(value, value)
    for shown in map(repr, (publisher, broker, server())):
        assert "256 bits" in shown and str(r) not in shown


def test_unsafe_generators_are_refused() -> None:
    secret = PaillierSecretKey.generate(TOY, toy=True)
    n, n2 = secret.public.n, secret.public.n2
    for g in (n + 1, 1 + 5 * n, n - 1, n2 - 1):
        with pytest.raises(ParameterError, match="must not be 1"):
            NabeelParameters(secret, g)
    for g in (0, n, n2 + 2, secret.primes()[0]):
        with pytest.raises(ParameterError, match="no factor in common"):
            NabeelParameters(secret, g)
    with pytest.raises(ParameterError, match="order of g_p"):
        NabeelParameters(secret, powmod(2, n, n2))


@pytest.mark.parametrize("bits", [128, TOY])
def test_generators_whose_mu_gives_lambda_are_refused(bits: int) -> None:
    """(1 + n)^a b^n has kappa = a lambda: with a = x / y, lambda is y / x kappa."""
    secret = PaillierSecretKey.generate(bits, toy=True)
    n, n2, (p, q) = secret.public.n, secret.public.n2, secret.primes()
    order = lcm(p - 1, q - 1)
    for x, y in ((1, 1), (-1, 1), (2, 1), (1, 2), (-3, 7), (10**9, 10**9 - 1)):
        a = x * inverse(y, n) % n
        g = (1 + a * n) * powmod(5, n, n2) % n2
        kappa = (powmod(g, order, n2) - 1) // n
        assert y * inverse(x, n) * kappa % n == order  # by who has mu and guesses x and y
        with pytest.raises(ParameterError, match="1 / mu would give away lambda"):
            NabeelParameters(secret, g)
    for _ in range(10):
        NabeelParameters.generate(bits, toy=True)  # a random a is none of these
