"""ElGamal proxy search: the formulas of the scheme, many users, the sign, bad bytes."""

from __future__ import annotations

import hmac
from hashlib import sha256

import numpy as np
import pytest

from ccbps.algebra.prime_order import prime_order_group
from ccbps.ciphers.proxy_search import ProxySearch, SearchForm

WORDS = [b"army", b"movies", b"music", b"army"]

every_group = pytest.mark.parametrize(
    "name", ["toy64", "secp256k1", pytest.param("modp2048", marks=pytest.mark.slow)]
)


@every_group
def test_any_user_finds_what_any_other_encrypted(name: str) -> None:
    scheme = ProxySearch(prime_order_group(name))
    master = scheme.init()
    (alice, alice2), (bob, bob2) = scheme.key_gen(master), scheme.key_gen(master)
    equal = np.array(WORDS)[:, None] == np.array(WORDS)
    sent = scheme.encrypt(alice, WORDS)
    wanted = scheme.trapdoors(bob, WORDS)
    assert sent.shape == (4, scheme.ciphertext_bytes)
    assert wanted.shape == (4, scheme.trapdoor_bytes)
    assert scheme.well_formed(sent).all() and scheme.well_formed(wanted).all()
    form, tokens = scheme.re_encrypt(alice2, sent), scheme.tokens(bob2, wanted)
    assert (scheme.search(form, tokens) == equal).all()
    # With another user's half nothing is found, not even what is equal.
    assert not scheme.search(scheme.re_encrypt(bob2, sent), tokens).any()
    assert not scheme.search(form, scheme.tokens(alice2, wanted)).any()


@pytest.mark.parametrize("name", ["toy64", "secp256k1"])
def test_formulas(name: str) -> None:
    """Everything again with plain exponents of g, as the scheme is written."""
    group = prime_order_group(name)
    scheme = ProxySearch(group)
    master = scheme.init()
    user, x2 = scheme.key_gen(master)
    assert (user.x1 + x2 - master.x) % group.order == 0
    stream = bytes(range(256)) * 4
    (r,) = group.random_exponents(1, lambda n: stream[:n])
    (sigma,) = scheme.sigmas(master.s, [b"army"])
    assert sigma == group.hash_to_exponent(hmac.digest(master.s, b"army", "sha256"))

    def g(exponent: int) -> bytes:
        return group.encode(group.generator_power(exponent))

    x, x1 = master.x, user.x1
    (row,) = scheme.encrypt(user, [b"army"], lambda n: stream[:n])
    digest = sha256(group.labels([group.generator_power(x * r)])[0]).digest()[:16]
    assert row.tobytes() == g(r + sigma) + g((r + sigma) * x1) + digest
    (trapdoor,) = scheme.trapdoors(user, [b"army"], lambda n: stream[:n])
    assert trapdoor.tobytes() == g(sigma - r) + g(x * r - x1 * r + x1 * sigma)
    form = scheme.re_encrypt(x2, row[None])
    assert form.c1 == [group.generator_power(x * (r + sigma))]
    assert form.c2.tobytes() == digest
    assert scheme.tokens(x2, trapdoor[None]) == [group.generator_power(x * sigma)]


def test_the_sign_of_the_first_half_is_minus() -> None:
    group = prime_order_group("toy64")
    scheme = ProxySearch(group)
    master = scheme.init()
    user, x2 = scheme.key_gen(master)
    (sigma,) = scheme.sigmas(master.s, [b"army"])
    r = group.random_exponent()
    h = group.decode(user.h)
    second = group.multiply(group.power(h, r), group.generator_power(user.x1 * sigma - user.x1 * r))
    token = group.generator_power(master.x * sigma)
    for sign, right in ((-1, True), (1, False)):
        first = group.generator_power(sign * r + sigma)
        assert (group.multiply(group.power(first, x2), second) == token) is right


def test_shapes_at_the_edges() -> None:
    scheme = ProxySearch(prime_order_group("toy64"))
    master = scheme.init()
    user, x2 = scheme.key_gen(master)
    assert scheme.encrypt(user, []).shape == (0, 32)
    assert scheme.trapdoors(user, []).shape == (0, 16)
    form, tokens = (
        scheme.re_encrypt(x2, scheme.encrypt(user, WORDS)),
        scheme.tokens(x2, scheme.trapdoors(user, WORDS[:2])),
    )
    nothing = SearchForm([], np.zeros((0, 16), np.uint8))
    assert scheme.search(nothing, tokens).shape == (2, 0)
    assert scheme.search(form, []).shape == (0, 4)
    words = [b"%d" % number for number in range(3000)]  # more than is hashed at a time
    many = scheme.re_encrypt(x2, scheme.encrypt(user, words))
    found = scheme.search(many, scheme.tokens(x2, scheme.trapdoors(user, words[1000:1003])))
    assert np.argwhere(found).tolist() == [[0, 1000], [1, 1001], [2, 1002]]


def test_secrets_do_not_print() -> None:
    scheme = ProxySearch(prime_order_group("toy64"))
    master = scheme.init()
    user, _ = scheme.key_gen(master)
    for secret in (master, user):
        assert str(master.x) not in repr(secret) and str(user.x1) not in repr(secret)
        assert master.s.hex() not in repr(secret)


def test_bytes_that_are_no_elements() -> None:
    scheme = ProxySearch(prime_order_group("toy64"))
    user, _ = scheme.key_gen(scheme.init())
    rows = scheme.encrypt(user, WORDS)
    rows[1, :8] = 255
    rows[2, 8:16] = 0
    assert scheme.well_formed(rows).tolist() == [True, False, False, True]
