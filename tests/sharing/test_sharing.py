"""Shamir's sharing: what is joined, which altered shares are found, and what is refused."""

from __future__ import annotations

import contextlib
import copy
import os
import pickle
from collections.abc import Callable, Iterator
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps.errors import CcbpsError, DecodeError, ParameterError, SerializationError, ShapeError
from ccbps.sharing import CheckedShamir, PrimeShamir, Shamir, Share, ss_join, ss_split
from ccbps.sharing.polynomials import byte_weights, integer_rows
from ccbps.sharing.prime import PRIME_257
from tests.reference import shamir as twin
from tests.support.effort import examples

thresholds = st.integers(1, 9).flatmap(lambda n: st.tuples(st.integers(1, n), st.just(n)))
secrets = st.binary(min_size=1, max_size=70)


def changed(share: Share, value: bytes | None = None, **parts: object) -> Share:
    """Return a share with other parts, by default with the first byte of its value changed."""
    before = {name: getattr(share, name) for name in ("k", "point", "name", "value", "checks")}
    if value is None and not parts:
        value = bytes([share.value[0] ^ 1]) + share.value[1:]
    return Share(**before | parts | ({} if value is None else {"value": value}))


def flipped(data: bytes, draw: st.DrawFn) -> bytes:
    """Return the bytes with one of them changed."""
    place, difference = draw(st.integers(0, len(data) - 1)), draw(st.integers(1, 255))
    return data[:place] + bytes([data[place] ^ difference]) + data[place + 1 :]


# -- splitting and joining ----------------------------------------------------------------------


@given(secrets, thresholds, st.data())
def test_any_k_shares_join_in_any_order(secret: bytes, kn: tuple[int, int], data) -> None:
    k, n = kn
    shares = Shamir(k, n).split(secret)
    chosen = data.draw(st.permutations(shares))[: data.draw(st.integers(k, n))]
    assert Shamir(k, n).join(chosen) == secret
    assert ss_join(chosen) == secret
    assert twin.byte_secret({s.point: s.value for s in chosen[:k]}) == secret


@given(st.integers(1, 5000), st.integers(1, 6))
@settings(max_examples=examples(30))
def test_secrets_of_any_length(size: int, k: int) -> None:
    secret = os.urandom(size)
    assert Shamir(k, 6).join(ss_split(secret, k, 6)[-k:]) == secret


def test_all_255_points() -> None:
    secret = b"a secret"
    shares = ss_split(secret, 3, 255)
    assert [share.point for share in shares] == [*range(1, 256)]
    assert ss_join(shares) == secret
    assert ss_join([shares[254], shares[127], shares[0]]) == secret


@pytest.mark.parametrize("size", [1, 7, 32, 2000])
def test_shares_are_the_polynomials_values(size: int) -> None:
    secret, random = os.urandom(size), os.urandom(8 + 2 * size)
    shares = Shamir(3, 5).split(secret, randomness=lambda count: random[:count])
    for share in shares:
        assert share.name == random[:8]
        for place in {0, size // 2, size - 1}:
            terms = [secret[place], random[8 + place], random[8 + size + place]]
            assert share.value[place] == twin.byte_value(terms, share.point)


@given(st.integers(0, 40), st.integers(1, 40), thresholds)
@settings(max_examples=examples(60))
def test_a_batch_is_the_single_shares(count: int, size: int, kn: tuple[int, int]) -> None:
    k, n = kn
    rows = np.random.default_rng(size).integers(0, 256, (count, size), dtype=np.uint8)
    random = np.random.default_rng(1).integers(0, 256, (k - 1, count, size), dtype=np.uint8)
    values = Shamir(k, n).split_rows(rows, randomness=lambda count: random.tobytes())
    assert values.shape == (n, count, size)
    for row in range(count):
        drawn = bytes(8) + random[:, row].tobytes()
        single = Shamir(k, n).split(rows[row].tobytes(), randomness=lambda count, b=drawn: b)
        assert [share.value for share in single] == [part.tobytes() for part in values[:, row]]
    for points in ([*range(1, n + 1)], [*range(n, n - k, -1)]):
        joined = Shamir(k, n).join_rows(values[[point - 1 for point in points]], points)
        assert np.array_equal(joined, rows)


def test_a_batch_of_several_blocks_with_any_strides() -> None:
    rows = np.random.default_rng(0).integers(0, 256, (33, 3000), dtype=np.uint8)[:, ::2]
    values = Shamir(2, 3).split_rows(rows)
    assert np.array_equal(Shamir(2, 3).join_rows(values[::-1], np.array([3, 2, 1])), rows)
    assert not any(np.array_equal(part, rows) for part in values)


def test_a_batch_says_which_secret_does_not_fit() -> None:
    values = Shamir(2, 4).split_rows(np.zeros((5000, 16), dtype=np.uint8))
    values[3, 4321, 5] ^= 1
    with pytest.raises(DecodeError, match="secret 4321: the share of point 4 does not fit"):
        Shamir(2, 4).join_rows(values, [1, 2, 3, 4])


@given(st.data(), thresholds, st.sampled_from([11, 257, 65537, 2**61 - 1, PRIME_257]))
def test_modulo_a_prime_as_in_the_textbook(data, kn: tuple[int, int], p: int) -> None:
    k, n = kn
    secret = data.draw(st.integers(0, p - 1))
    scheme = PrimeShamir(k, n, p)
    size = (p.bit_length() + 7) // 8 + 16
    random = os.urandom(size * (k - 1))
    shares = scheme.split(secret, randomness=lambda count: random[:count])
    # The first of the random numbers is the highest coefficient.
    numbers = [int.from_bytes(random[at : at + size]) % p for at in range(0, len(random), size)]
    terms = [secret, *numbers[::-1]]
    assert shares == {x: twin.value(terms, x, p) for x in range(1, n + 1)}
    chosen = data.draw(st.permutations([*shares.items()]))[: data.draw(st.integers(k, n))]
    assert scheme.join(dict(chosen)) == secret
    assert twin.secret(dict(chosen[:k]), p) == secret


def test_shares_of_a_prime_can_be_added() -> None:
    scheme = PrimeShamir(3, 5)
    first, second = scheme.split(12345), scheme.split(PRIME_257 - 345)
    assert scheme.join({x: (first[x] + second[x]) % PRIME_257 for x in first}) == 12000


def test_published_shares_give_the_published_secret() -> None:
    """Test case of draft-mcgrew-tss-03, section 9, over the same field."""
    values = {1: "B9FA07E185", 2: "F5409B4511"}
    shares = [Share(2, x, bytes(8), bytes.fromhex(value)) for x, value in values.items()]
    assert Shamir(2, 2).join(shares).hex() == "7465737400"


# -- altered shares -----------------------------------------------------------------------------


def patterns() -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Yield every k and m up to 7, with every set of up to (m - k) / 2 places."""
    for m in range(1, 8):
        for k in range(1, m + 1):
            for count in range((m - k) // 2 + 1):
                for places in combinations(range(m), count):
                    yield k, m, places


def test_up_to_half_of_the_shares_to_spare_may_be_altered() -> None:
    rng = np.random.default_rng(0)
    seen = 0
    for k, m, places in patterns():
        secret = rng.bytes(9)
        shares = ss_split(secret, k, m)
        for place in places:
            # The altered bytes of the shares overlap in part.
            noise = rng.integers(0, 256, 9) * (rng.random(9) < 0.5)
            value = bytes(a ^ int(b) for a, b in zip(shares[place].value, noise, strict=True))
            shares[place] = changed(shares[place], value)
        rng.shuffle(shares)
        assert Shamir(k, m).join(shares) == secret
        seen += len(places)
    assert seen > 200


def test_up_to_half_of_the_values_modulo_a_prime_may_be_altered() -> None:
    rng = np.random.default_rng(0)
    for p in (11, 257, PRIME_257):
        for k, m, places in patterns():
            secret = int(rng.integers(0, min(p, 1 << 60)))
            scheme = PrimeShamir(k, m, p)
            shares = scheme.split(secret)
            for place in places:
                shares[place + 1] = (shares[place + 1] + int(rng.integers(1, min(p, 1 << 60)))) % p
            assert scheme.join(shares) == secret


PARTS: dict[str, Callable[[Share], Share]] = {
    "threshold": lambda share: changed(share, k=share.k + 1),
    "name": lambda share: changed(share, name=bytes(8)),
    "point": lambda share: changed(share, point=200),
    "point of another": lambda share: changed(share, point=2),
    "size": lambda share: changed(share, share.value + b"\0"),
    "value": lambda share: changed(share),
    "empty value": lambda share: changed(share, b""),
}


@pytest.mark.parametrize("part", PARTS)
def test_any_part_of_a_share_may_be_altered(part: str) -> None:
    shares = ss_split(b"a secret", 3, 5)
    altered = PARTS[part](shares[0])
    assert ss_join([altered, *shares[1:]]) == b"a secret"
    assert ss_join([*shares, altered]) == b"a secret"
    # Of four shares, one altered share is noticed; of three, only if its parts do not fit.
    with pytest.raises(DecodeError):
        ss_join([*shares[1:4], altered])
    if part in ("value", "point"):
        assert ss_join([*shares[1:3], altered]) != b"a secret"
    else:
        with pytest.raises(DecodeError, match="too few"):
            ss_join([*shares[1:3], altered])


@given(st.data())
@settings(max_examples=examples(60))
def test_more_altered_shares_are_noticed(data) -> None:
    """They are noticed in all likelihood if many bytes are wrong independently."""
    k, n = data.draw(st.sampled_from([(2, 4), (3, 5), (3, 7), (1, 3)]))
    shares = ss_split(bytes(32), k, n)
    count = (n - k) // 2 + 1
    for place in data.draw(st.permutations(range(n)))[:count]:
        shares[place] = changed(shares[place], os.urandom(32))
    with pytest.raises(DecodeError, match="more than"):
        ss_join(shares)


def test_shares_altered_in_different_bytes_count_together() -> None:
    """Every byte could be corrected alone, but only by a guess."""
    shares = ss_split(bytes(9), 3, 5)
    for place in (1, 4):
        value = bytearray(shares[place].value)
        value[place] ^= 1
        shares[place] = changed(shares[place], bytes(value))
        if place == 1:
            assert ss_join(shares) == bytes(9)
    with pytest.raises(DecodeError, match="more than 1 of 5 shares were altered"):
        ss_join(shares)


def test_one_more_is_always_noticed_where_an_odd_number_is_to_spare() -> None:
    for k, m in ((1, 2), (1, 4), (2, 5)):
        scheme = PrimeShamir(k, m, 7)
        shares = scheme.split(3)
        for places in combinations(shares, (m - k + 1) // 2):
            for differences in product(range(1, 7), repeat=len(places)):
                moved = dict(zip(places, differences, strict=True))
                with pytest.raises(DecodeError, match="more than"):
                    scheme.join({x: (y + moved.get(x, 0)) % 7 for x, y in shares.items()})


def test_shares_that_shamir_mnemonic_understands() -> None:
    """SLIP-0039 shares bytes over the same field, and has its secret at the point 255."""
    peer = pytest.importorskip("shamir_mnemonic.shamir")
    secret = os.urandom(32)
    theirs = [peer.RawShare(share.point, share.value) for share in ss_split(secret, 3, 5)]
    assert peer._interpolate(theirs[1:4], 0) == secret
    shares = [share for share in peer._split_secret(3, 5, secret) if share.x][:3]
    weights = byte_weights(tuple(share.x for share in shares), 255)
    rows = [int.from_bytes(share.data) for share in shares]
    assert integer_rows(32).combine(weights, rows).to_bytes(32) == secret


def test_of_k_shares_an_altered_one_gives_a_wrong_secret() -> None:
    first, *others = ss_split(b"a secret", 3, 3)
    assert ss_join([changed(first), *others]) != b"a secret"


def test_too_many_altered_alike_are_not_told() -> None:
    """Shares altered by the values of a polynomial lie on one, as documented."""
    shares, others = ss_split(b"a secret", 2, 4), ss_split(b"anything", 2, 4)
    moved = [
        changed(share, bytes(a ^ b for a, b in zip(share.value, other.value, strict=True)))
        for share, other in zip(shares, others, strict=True)
    ]
    joined = ss_join([*moved[:3], shares[3]])
    assert joined == bytes(a ^ b for a, b in zip(b"a secret", b"anything", strict=True))


def test_long_secrets_with_altered_shares_are_joined_at_once() -> None:
    # A share that is wrong in all bytes is noticed in any of them.
    secret = os.urandom(1 << 20)
    shares = ss_split(secret, 3, 7)
    shares[1] = changed(shares[1], os.urandom(1 << 20))
    shares[6] = changed(shares[6], shares[6].value[:-1] + bytes([shares[6].value[-1] ^ 1]))
    assert ss_join(shares) == secret


def test_shares_that_came_twice_count_once() -> None:
    shares = ss_split(b"a secret", 2, 3)
    assert ss_join([shares[0], shares[0], shares[2], shares[2]]) == b"a secret"
    with pytest.raises(DecodeError, match="2 shares of a secret are needed, got 1"):
        ss_join([shares[0], shares[0]])


# -- shares with checks -------------------------------------------------------------------------


@given(st.data(), st.integers(1, 6), secrets)
@settings(max_examples=examples(60))
def test_checked_shares_join_and_altered_ones_are_named(data, n: int, secret: bytes) -> None:
    k = data.draw(st.integers(1, n))
    scheme = CheckedShamir(k, n)
    shares = [Share.from_bytes(share.to_bytes()) for share in scheme.split(secret)]
    shares = data.draw(st.permutations(shares))[: data.draw(st.integers(k, n))]
    assert scheme.altered(shares) == []
    assert scheme.join(shares) == secret
    most = (len(shares) - 1) // 2
    places = data.draw(st.sets(st.integers(0, len(shares) - 1), max_size=most))
    for place in places:
        shares[place] = changed(shares[place], flipped(shares[place].value, data.draw))
    assert scheme.altered(shares) == sorted(shares[place].point for place in places)
    if len(shares) - len(places) >= k:
        assert scheme.join(shares) == secret
    else:
        with pytest.raises(DecodeError, match="altered shares: of points"):
            scheme.join(shares)


@pytest.mark.parametrize("part", PARTS)
def test_any_part_of_a_checked_share_is_checked(part: str) -> None:
    scheme = CheckedShamir(3, 5)
    shares = scheme.split(b"a secret")
    altered = PARTS[part](shares[0])
    assert scheme.altered([altered, *shares[1:3]]) == [altered.point]
    assert scheme.join([altered, *shares[1:4]]) == b"a secret"
    with pytest.raises(DecodeError, match="altered shares: of points"):
        scheme.join([altered, *shares[1:3]])


def test_checks_of_an_altered_share_decide_nothing() -> None:
    scheme = CheckedShamir(3, 5)
    shares = scheme.split(b"a secret")
    width = len(shares[0].checks)
    for checks in (bytes(width), bytes(width - 16) + os.urandom(16), shares[1].checks, b"", b"1"):
        altered = changed(shares[0], os.urandom(8), checks=checks)
        assert scheme.altered([altered, *shares[1:3]]) == [1]
    # An altered share beside its original, at any point.
    for few in (scheme, CheckedShamir(2, 2)):
        originals = few.split(b"a secret")
        for share in originals:
            altered = changed(share, os.urandom(8))
            assert few.altered([altered, *originals]) == [share.point]
            assert few.join([altered, *originals]) == b"a secret"
    # A share's keys are for others. Without them it still has its value and its tags.
    keys = changed(shares[0], checks=bytes(4 * 32) + shares[0].checks[4 * 32 :])
    assert scheme.altered([keys, *shares[1:]]) == []
    assert scheme.join([keys, *shares]) == b"a secret"


def test_altered_shares_that_accept_one_another_do_not_outvote_the_others() -> None:
    """An adversary who holds some points replaces their shares by those of another sharing."""
    scheme = CheckedShamir(2, 5)
    shares = scheme.split(b"a secret")
    forged = [changed(share, name=shares[0].name) for share in scheme.split(b"anything")]
    assert scheme.altered([*forged[:2], *shares[2:]]) == [1, 2]
    assert scheme.join([*forged[:2], *shares[2:]]) == b"a secret"
    # As many forged as other shares: none is accepted.
    with pytest.raises(DecodeError, match="half or more"):
        scheme.join([*forged[:2], *shares[2:4]])


def test_shares_that_most_accept_and_that_do_not_fit_are_refused() -> None:
    scheme = CheckedShamir(1, 3)
    shares = scheme.split(b"a secret")
    fitting = CheckedShamir(1, 3).split(b"anything", randomness=lambda size: bytes(size))
    again = CheckedShamir(1, 3).split(b"a secret", randomness=lambda size: bytes(size))
    # Under keys that are all zero, every tag is zero: everybody accepts everything.
    for forged in ([fitting[0], again[1], again[2]], [fitting[0], *again]):
        assert scheme.altered(forged) == []
        with pytest.raises(DecodeError, match="half or more"):
            scheme.join(forged)
    assert scheme.join(shares) == b"a secret"


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (CheckedShamir(2, 4), "not shares of CheckedShamir.2, 3., which have 96 bytes of checks"),
        (CheckedShamir(3, 3), "and the threshold 3; join shares with the k and n"),
        (Shamir(2, 3), "share 1 has 0 and the threshold 2"),
    ],
    ids=str,
)
def test_shares_of_another_scheme_are_told(other: Shamir | CheckedShamir, message: str) -> None:
    with pytest.raises(DecodeError, match=message):
        CheckedShamir(2, 3).join(other.split(b"a secret"))


def test_tags_are_those_of_the_cipher_and_of_all_others() -> None:
    """The layout, byte for byte, against a walk over all pairs."""
    from cryptography.hazmat.primitives.poly1305 import Poly1305

    shares = CheckedShamir(2, 4).split(b"a secret")
    for share in shares:
        others = [other for other in shares if other is not share]
        for place, judge in enumerate(others):
            column = [point for point in range(1, 5) if point != judge.point].index(share.point)
            key = judge.checks[32 * column : 32 * column + 32]
            tag = share.checks[96 + 16 * place : 96 + 16 * place + 16]
            content = bytes([2, share.point]) + share.name + share.value
            Poly1305.verify_tag(key, content, tag)


# -- shares as messages -------------------------------------------------------------------------


@given(st.binary(min_size=1, max_size=40), st.binary(max_size=200), st.data())
def test_a_share_as_a_message(value: bytes, checks: bytes, data) -> None:
    k, point = data.draw(st.integers(1, 255)), data.draw(st.integers(1, 255))
    share = Share(k, point, os.urandom(8), value, checks)
    message = share.to_bytes()
    assert len(message) == 12 + len(value) + (4 + len(checks) if checks else 0)
    for form in (bytes, bytearray, memoryview):
        again = Share.from_bytes(form(message))
        assert again == share
        assert type(again.value) is type(again.name) is bytes
    assert {share, again} == {share}


@given(st.one_of(st.binary(max_size=60), st.data()))
@settings(max_examples=examples(300))
def test_malformed_messages_are_decode_errors(data) -> None:
    if not isinstance(data, bytes):
        scheme = data.draw(st.sampled_from([Shamir(2, 3), CheckedShamir(2, 3)]))
        message = flipped(scheme.split(b"secret")[1].to_bytes(), data.draw)
        data = message[: data.draw(st.integers(0, 200))]
    try:
        share = Share.from_bytes(data)
    except DecodeError:
        return
    assert share.to_bytes() == data
    # Joining any such share with others raises no other error.
    for join in (ss_join, CheckedShamir(2, 3).join):
        with contextlib.suppress(DecodeError):
            join([share, *ss_split(b"secret", 2, 2)])


def test_a_message_that_is_cut_off() -> None:
    plain, checked = ss_split(b"secret", 2, 3)[0], CheckedShamir(2, 3).split(b"secret")[0]
    for message, least in ((plain.to_bytes(), 13), (checked.to_bytes(), 12 + 4 + 6 + 1)):
        for length in range(least):
            with pytest.raises(DecodeError):
                Share.from_bytes(message[:length])
        assert Share.from_bytes(message[:least]) != plain


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_a_message_of_something_else(place: int) -> None:
    message = bytearray(ss_split(b"secret", 2, 3)[0].to_bytes())
    message[place] = 0
    with pytest.raises(DecodeError, match="not a share"):
        Share.from_bytes(message)


def test_shares_show_no_secret_and_are_not_pickled() -> None:
    for share in (*ss_split(b"secret" * 4, 1, 1), *CheckedShamir(1, 2).split(b"secret" * 4)):
        assert b"secret" in share.value
        for text in (repr(share), str(share), f"{share}", repr([share])):
            assert "secret" * 2 not in text
            assert share.value.hex() not in text
        for action in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(SerializationError, match="to_bytes"):
                action(share)


def test_errors_show_no_secret() -> None:
    shares = ss_split(b"\xaa" * 8, 1, 3)
    other = ss_split(b"\xaa" * 9, 1, 3)
    for wrong in (
        [shares[0], other[0]],
        [changed(shares[0]), shares[1]],
        [changed(shares[0], b"")],
    ):
        with pytest.raises(DecodeError) as caught:
            Shamir(1, 3).join(wrong)
        assert "aa" not in str(caught.value).replace("aal", "")
        assert "170" not in str(caught.value)


# -- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Shamir, CheckedShamir, PrimeShamir])
@pytest.mark.parametrize("kn", [(0, 3), (4, 3), (-1, 2), (2, 0), (True, 3), (2.0, 3), ("2", 3)])
def test_thresholds_that_cannot_be(kind: type, kn: tuple) -> None:
    with pytest.raises(ParameterError, match=r"[kn] must be a whole number of shares"):
        kind(*kn)


def test_more_shares_than_points() -> None:
    for kind in (Shamir, CheckedShamir):
        with pytest.raises(ParameterError, match=r"n must be .* from 1 to 255, got 256"):
            kind(2, 256)
    assert PrimeShamir(2, 6, 7).n == 6
    with pytest.raises(ParameterError, match=r"n must be .* from 1 to 6, got 7"):
        PrimeShamir(2, 7, 7)
    scheme = PrimeShamir(np.int64(2), np.uint8(6), np.int32(7))
    assert [type(value) for value in (scheme.k, scheme.n, scheme.p)] == [int] * 3


@pytest.mark.parametrize("p", [1, 0, -7, 15, 257.0, "257", True])
def test_a_modulus_that_is_no_prime(p: object) -> None:
    with pytest.raises(ParameterError, match=r"p must be a (prime|whole) number"):
        PrimeShamir(2, 3, p)


@pytest.mark.parametrize("secret", [b"", bytearray(), "text", 5, None, [1, 2]])
def test_secrets_that_are_no_bytes(secret: object) -> None:
    for scheme in (Shamir(2, 3), CheckedShamir(2, 3)):
        with pytest.raises(ParameterError, match="a secret"):
            scheme.split(secret)


@pytest.mark.parametrize("secret", [-1, 11, 1.5, "1", True, None])
def test_secrets_that_are_not_below_the_prime(secret: object) -> None:
    with pytest.raises(ParameterError, match="0 to p - 1"):
        PrimeShamir(2, 3, 11).split(secret)


@pytest.mark.parametrize(
    "shares",
    [{}, {1: 1}, {0: 1, 1: 1}, {1: 1, 11: 1}, {1: 1, 2: 11}, {1: -1, 2: 1}, {1: 1.0, 2: 1}],
)
def test_shares_modulo_a_prime_that_cannot_be(shares: dict[int, int]) -> None:
    with pytest.raises(DecodeError, match="share"):
        PrimeShamir(2, 3, 11).join(shares)


def test_shares_that_are_none() -> None:
    for join in (ss_join, Shamir(2, 3).join, CheckedShamir(2, 3).join, CheckedShamir(2, 3).altered):
        with pytest.raises(DecodeError, match="share"):
            join([])
        with pytest.raises(ParameterError, match="reads messages"):
            join([ss_split(b"secret", 2, 3)[0].to_bytes()])


def test_points_that_no_share_has() -> None:
    good = ss_split(b"secret", 2, 3)[0]
    for point in (0, 256, -1, "1"):
        with pytest.raises(CcbpsError, match=r"points of shares must be 1 \.\. 255"):
            ss_join([good, changed(good, point=point)])


@pytest.mark.parametrize(
    "rows",
    [b"bytes", np.zeros(4, np.uint8), np.zeros((2, 4), np.int64), np.zeros((2, 0), np.uint8), None],
)
def test_rows_of_another_shape(rows: object) -> None:
    with pytest.raises(ShapeError, match="secrets must"):
        Shamir(2, 3).split_rows(rows)
    with pytest.raises(ShapeError, match="values must"):
        Shamir(2, 3).join_rows(rows, [1, 2])
    with pytest.raises(ShapeError, match="values must have rows of at least 1 byte"):
        Shamir(2, 3).join_rows(np.zeros((2, 3, 0), np.uint8), [1, 2])


@pytest.mark.parametrize(
    ("points", "error", "message"),
    [
        ([1], ShapeError, "values must have 1 shares, as points, got 2"),
        ([1, 1], ParameterError, "points must be different"),
        ([0, 1], ParameterError, "from 1 to 255"),
        ([1, 256], ParameterError, "from 1 to 255"),
        (["1", "2"], ParameterError, "from 1 to 255"),
    ],
)
def test_points_of_rows(points: list, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Shamir(2, 3).join_rows(np.zeros((2, 1, 4), np.uint8), points)
    with pytest.raises(ParameterError, match="3 shares are needed, got 2"):
        Shamir(3, 3).join_rows(np.zeros((2, 1, 4), np.uint8), [1, 2])
