"""Fragments of secrets: shares of shares, joined from the last split to the first."""

from __future__ import annotations

import pickle
from dataclasses import replace
from itertools import product

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps.errors import DecodeError, ParameterError, SerializationError
from ccbps.overlay.fragments import Fragment, join_fragments


def split_often(secret: bytes, k: int, n: int, splits: int) -> list[Fragment]:
    fragments: list[Fragment] = [Fragment.of(secret, k)]
    for _ in range(splits):
        fragments = [part for one in fragments for part in one.split(n)]
    return fragments


@given(
    secret=st.binary(min_size=1, max_size=40),
    k=st.integers(1, 3),
    more=st.integers(0, 2),
    splits=st.integers(1, 3),
    data=st.data(),
)
@settings(max_examples=examples(40), deadline=None)
def test_k_of_each_split_give_the_secret_back(
    secret: bytes, k: int, more: int, splits: int, data: st.DataObject
) -> None:
    n = k + more
    fragments = split_often(secret, k, n, splits)
    assert len(fragments) == n**splits
    assert {one.path for one in fragments} == {*product(range(1, n + 1), repeat=splits)}

    def chosen(path: tuple[int, ...]) -> list[tuple[int, ...]]:
        if len(path) == splits:
            return [path]
        points = data.draw(st.permutations(range(1, n + 1)))[:k]
        return [found for point in points for found in chosen((*path, point))]

    kept = {*chosen(())}
    some = [one for one in fragments if one.path in kept]
    assert len(some) == k**splits
    assert join_fragments(data.draw(st.permutations(some))) == secret
    sent = [Fragment.from_bytes(one.to_bytes()) for one in some]
    assert join_fragments(sent) == secret


def test_one_split_too_few_gives_nothing() -> None:
    fragments = split_often(b"a secret", 2, 2, 2)
    for lost in range(4):
        with pytest.raises(DecodeError, match="fewer than 2 came"):
            join_fragments(fragments[:lost] + fragments[lost + 1 :])
    with pytest.raises(DecodeError, match="no fragments"):
        join_fragments([])


def test_lost_branches_and_altered_fragments_lose_no_secret() -> None:
    secret = b"32 bytes of a seed for matching."
    fragments = split_often(secret, 2, 4, 2)
    without = [one for one in fragments if one.path[0] not in (1, 3)]
    assert join_fragments(without) == secret
    changed = [
        Fragment(one.name, one.k, one.path, bytes(32)) if one.path[0] == 2 else one
        for one in fragments
    ]
    assert join_fragments(changed) == secret
    other = [Fragment(bytes(8), 2, (1, 1), bytes(32)), Fragment(fragments[0].name, 2, (1,), b"1")]
    assert join_fragments([*other, *fragments]) == secret


def test_messages_that_are_no_fragments_are_refused() -> None:
    message = split_often(b"a secret", 2, 3, 2)[4].to_bytes()
    head = len(message) - len(b"a secret")
    for cut in range(head + 1):
        with pytest.raises(DecodeError):
            Fragment.from_bytes(message[:cut])
    for place, value in ((0, 1), (1, 9), (2, 0), (3, 1), (13, 0)):
        damaged = bytearray(message)
        damaged[place] = value
        with pytest.raises(DecodeError):
            Fragment.from_bytes(bytes(damaged))


def test_values_do_not_print_or_pickle() -> None:
    fragment = split_often(b"a secret", 1, 1, 1)[0]
    assert fragment.value == b"a secret"
    assert "secret" not in repr(fragment)
    with pytest.raises(SerializationError):
        pickle.dumps(fragment)


@given(
    sizes=st.sampled_from([(2, 3), (3, 4), (3, 5), (2, 2), (1, 2)]),
    splits=st.integers(1, 2),
    data=st.data(),
)
@settings(max_examples=examples(25), deadline=None)
def test_checks_tell_altered_fragments_while_they_are_fewer_than_half(
    sizes: tuple[int, int], splits: int, data: st.DataObject
) -> None:
    (k, n), secret = sizes, b"a secret"
    fragments: list[Fragment] = [Fragment.of(secret, k, checked=n)]
    for _ in range(splits):
        fragments = [part for one in fragments for part in one.split(n)]
    assert {len(one.value) for one in fragments} == {len(secret) + splits * (8 + 48 * (n - 1))}
    bad = min(n - k, (n - 1) // 2)
    points = data.draw(st.permutations(range(1, n + 1)))[:bad]
    level = data.draw(st.integers(0, splits - 1))
    sent = [
        Fragment.from_bytes(
            replace(one, value=data.draw(st.binary(min_size=size, max_size=size))).to_bytes()
            if one.path[level] in points
            else one.to_bytes()
        )
        for one in fragments
        for size in [len(one.value)]
    ]
    assert join_fragments(data.draw(st.permutations(sent))) == secret


def test_checks_refuse_what_they_cannot_mend() -> None:
    fragments = Fragment.of(b"a secret", 3, checked=3).split(3)
    altered = replace(fragments[1], value=bytes(len(fragments[1].value)))
    with pytest.raises(DecodeError, match="do not give their secret back"):
        join_fragments([fragments[0], altered, fragments[2]])
    plain = Fragment.of(b"a secret", 3).split(3)
    wrong = replace(plain[1], value=bytes(len(plain[1].value)))
    assert join_fragments([plain[0], wrong, plain[2]]) != b"a secret"
    with pytest.raises(ParameterError, match="n must be 3, as the secret's checks say, got 4"):
        fragments[0].split(4)
    message = bytearray(fragments[0].to_bytes())
    message[3] = 2
    with pytest.raises(DecodeError, match="threshold 3, checks for 2"):
        Fragment.from_bytes(bytes(message))
