"""Seeds in shares: the seed comes back, or an error; never another seed."""

from __future__ import annotations

import os
import traceback
from itertools import combinations

import numpy as np
import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps import EpochSeed, SharedSeed
from ccbps.errors import DecodeError, KeyMismatchError, ParameterError
from ccbps.keys import share_form
from ccbps.sharing import Shamir, Share, ss_join, ss_split
from tests.support.effort import examples

SEED = SharedSeed(bytes(range(32)))
REFUSED = "do not give a seed back: fewer than it needs"


def altered(share: Share, value: bytes) -> Share:
    return Share(share.k, share.point, share.name, value, share.checks)


@pytest.mark.parametrize(("k", "n"), [(1, 1), (1, 3), (2, 2), (3, 5), (5, 10)])
def test_any_k_shares_give_the_seed_back(k: int, n: int) -> None:
    shares = [Share.from_bytes(share.to_bytes()) for share in SEED.to_shares(k, n)]
    for chosen in combinations(shares, k):
        assert SharedSeed.from_shares(chosen) == SEED
    assert SharedSeed.from_shares(iter(shares[::-1])) == SEED
    assert {len(share.to_bytes()) for share in shares} == {60}


def test_what_is_shared_is_the_seed_and_its_check() -> None:
    check = HKDF(SHA256(), 16, salt=None, info=b"ccbps 1 shares\0seed").derive(bytes(range(32)))
    assert ss_join(SEED.to_shares(3, 5)) == bytes(range(32)) + check


@given(st.data())
@settings(max_examples=examples(90))
def test_with_k_shares_as_they_were_the_others_may_be_anything(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 7))
    k = data.draw(st.integers(1, n))
    shares = SEED.to_shares(k, n)
    for place in data.draw(st.permutations(range(n)))[k:]:
        share = shares[place]
        kind = data.draw(st.sampled_from(["value", "name", "point", "k", "size", "other"]))
        value, other = os.urandom(48), ss_split(os.urandom(48), k, n)[place]
        shares[place] = {
            "value": altered(share, value),
            "name": Share(k, share.point, bytes(8), share.value),
            "point": Share(k, share.point % n + 1, share.name, share.value),
            "k": Share(k % 255 + 1, share.point, share.name, share.value),
            "size": altered(share, value[:7]),
            "other": other,
        }[kind]
    assert SharedSeed.from_shares(data.draw(st.permutations(shares))) == SEED


def test_an_adversary_who_moves_the_secret_by_a_known_difference_is_refused() -> None:
    """Adding shares of d to some shares adds to the secret what only these shares give d."""
    shares, moved = SEED.to_shares(3, 3), ss_split(b"\1" + bytes(47), 3, 3)
    for count in (1, 2, 3):
        wrong = [
            altered(one, bytes(a ^ b for a, b in zip(one.value, other.value, strict=True)))
            for one, other in zip(shares[:count], moved, strict=False)
        ] + shares[count:]
        with pytest.raises(DecodeError, match=REFUSED):
            SharedSeed.from_shares(wrong)
        # Without the check it would be another seed, and nothing would tell.
        assert Shamir(3, 3).join(wrong)[:32] != bytes(range(32))


@pytest.mark.parametrize(
    "shares",
    [
        [],
        SEED.to_shares(3, 5)[:2],
        SEED.to_shares(3, 5)[:1] * 3,
        SEED.to_shares(3, 5)[:2] + SEED.to_shares(3, 5)[2:4],
        ss_split(bytes(32), 2, 3),
        ss_split(bytes(48), 2, 3),
        ss_split(b"short", 2, 3),
        EpochSeed(bytes(32)).to_shares(2, 3),
    ],
    ids=["none", "few", "one", "two sharings", "unchecked", "zeros", "short", "epoch seed"],
)
def test_shares_that_give_no_seed(shares: list[Share]) -> None:
    with pytest.raises(DecodeError, match=REFUSED) as caught:
        SharedSeed.from_shares(shares)
    assert str(len(shares)) in str(caught.value)


def test_the_search_ends() -> None:
    """Of 30 shares, 14 altered: too many choices; of 15, all are tried."""
    shares = SEED.to_shares(15, 30)
    for place in range(14):
        shares[place] = altered(shares[place], os.urandom(48))
    with pytest.raises(DecodeError, match="30 shares that do not give a seed back"):
        SharedSeed.from_shares(shares)
    assert SharedSeed.from_shares(shares[13:]) == SEED
    assert max(share_form.TRIES, 6435) == share_form.TRIES


def test_seeds_of_epochs_keep_epoch_and_pairs() -> None:
    seed = EpochSeed.generate().step(to=3)
    alice = seed.pair("alice")
    again = EpochSeed.from_shares(seed.to_shares(2, 3)[1:])
    assert type(again) is EpochSeed
    assert (again.epoch, again.to_text()) == (3, seed.to_text())
    assert again.pair("alice") == alice
    with pytest.raises(DecodeError, match="do not give an epoch seed back"):
        EpochSeed.from_shares(SEED.to_shares(2, 3))
    seed.step()
    with pytest.raises(KeyMismatchError, match="stepped and is erased"):
        seed.to_shares(2, 3)


def test_wrong_arguments() -> None:
    with pytest.raises(ParameterError, match=r"k must be .*from 1 to 3, got 4"):
        SEED.to_shares(4, 3)
    with pytest.raises(ParameterError, match="reads messages"):
        SharedSeed.from_shares([SEED.to_shares(1, 1)[0].to_bytes()])


def test_errors_and_what_they_pass_through_show_no_seed() -> None:
    seed = SharedSeed(b"\xab" * 32)
    shares = seed.to_shares(1, 1)
    wrong = altered(shares[0], shares[0].value[:-1] + bytes([shares[0].value[-1] ^ 1]))
    with pytest.raises(DecodeError) as caught:
        SharedSeed.from_shares([wrong])
    frames = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    ours = [frame for frame in frames.stack if "ccbps" in frame.filename]
    assert ours
    shown = str(caught.value) + "".join(str(frame.locals) for frame in ours[1:])
    assert "\\xab\\xab" not in shown


def test_a_share_of_a_seed_does_not_depend_on_it() -> None:
    """The check is shared with the seed: bytes of k - 1 shares are uniform all the same."""
    rows = []
    for _ in range(2000):
        (share, _) = SEED.to_shares(2, 2)
        rows.append(np.frombuffer(share.value, dtype=np.uint8))
    columns = np.array(rows).T
    statistic = [
        ((np.bincount(column >> 4, minlength=16) - 125.0) ** 2 / 125).sum() for column in columns
    ]
    # 48 chi-square values with 15 degrees of freedom; 90 has a chance of 1e-12 each.
    assert max(statistic) < 90
    assert all(len(set(column.tolist())) > 200 for column in columns)
