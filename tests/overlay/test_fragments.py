"""Fragments of secrets: shares of shares, joined from the last split to the first."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from contextlib import suppress
from itertools import permutations, product

import pytest
from cryptography.hazmat.primitives.poly1305 import Poly1305
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from ccbps.errors import DecodeError, ParameterError, SerializationError
from ccbps.overlay.splits.fragments import Agreed, Fragment, join_fragments
from ccbps.records import write
from ccbps.sharing import CheckedShamir, Share
from tests.support.altered import altered
from tests.support.effort import examples


def joined(fragments: Iterable[Fragment], n: int = 0) -> bytes:
    """With what the first fragment says agreed upon."""
    given = [*fragments]
    if not given:
        return join_fragments(given, Agreed(2, 2, 1))
    first, most = given[0], max((point for one in given for point in one.path), default=1)
    most = max(n, most, first.k, first.checked)
    return join_fragments(
        given, Agreed(first.k, most, len(first.path), checked=bool(first.checked))
    )


def split_often(
    secret: bytes, k: int, n: int, splits: int, *, checked: bool = False
) -> list[Fragment]:
    fragments: list[Fragment] = [Fragment.of(secret, k, checked=n * checked)]
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
    assert joined(data.draw(st.permutations(some))) == secret
    sent = [Fragment.from_bytes(one.to_bytes()) for one in some]
    assert joined(sent) == secret


def test_one_split_too_few_gives_nothing() -> None:
    fragments = split_often(b"a secret", 2, 2, 2)
    for lost in range(4):
        with pytest.raises(DecodeError, match="fewer than 2 came"):
            joined(fragments[:lost] + fragments[lost + 1 :])
    with pytest.raises(DecodeError, match="0 fragments do not give their secret back"):
        joined([])


def test_lost_branches_and_altered_fragments_lose_no_secret() -> None:
    secret = b"32 bytes of a seed for matching."
    fragments = split_often(secret, 2, 4, 2)
    without = [one for one in fragments if one.path[0] not in (1, 3)]
    assert joined(without) == secret
    changed = [
        Fragment(one.name, one.k, one.path, bytes(32)) if one.path[0] == 2 else one
        for one in fragments
    ]
    assert joined(changed) == secret
    other = [Fragment(bytes(8), 2, (1, 1), bytes(32)), Fragment(fragments[0].name, 2, (1,), b"1")]
    assert joined([*fragments, *other]) == secret


@pytest.mark.parametrize(
    "changes",
    [
        {"name": bytes(7)},
        {"k": 0},
        {"k": 256},
        {"path": (1, 0)},
        {"path": (1, 256)},
        {"value": b""},
        {"checked": 1},
        {"checked": 256},
    ],
    ids=str,
)
def test_messages_that_are_no_fragments_are_refused(changes: dict[str, object]) -> None:
    fragment = split_often(b"a secret", 2, 3, 2)[4]
    fields = asdict(fragment)
    assert write([*fields.values()], Fragment.front) == fragment.to_bytes()
    with pytest.raises(DecodeError, match="not a fragment"):
        Fragment.from_bytes(write([*{**fields, **changes}.values()], Fragment.front))
    with pytest.raises(ParameterError):
        replace(fragment, **changes)


def test_messages_that_were_altered_are_other_fragments_or_none() -> None:
    fragment = split_often(b"a secret", 2, 3, 2)[4]
    for message in altered(fragment.to_bytes()):
        with suppress(DecodeError):
            assert Fragment.from_bytes(message) != fragment
    message = fragment.to_bytes()
    for wrong in (message + b"\0", *(message[:size] for size in range(len(message)))):
        with pytest.raises(DecodeError):
            Fragment.from_bytes(wrong)


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
    fragments = split_often(secret, k, n, splits, checked=True)
    assert {len(one.value) for one in fragments} == {len(secret) + splits * (8 + 48 * (n - 1))}
    bad = min(n - k, (n - 1) // 2)
    points = data.draw(st.permutations(range(1, n + 1)))[:bad]
    level = data.draw(st.integers(0, splits - 1))
    sent = []
    for fragment in fragments:
        if fragment.path[level] in points:
            size = len(fragment.value)
            fragment = replace(fragment, value=data.draw(st.binary(min_size=size, max_size=size)))
        sent.append(Fragment.from_bytes(fragment.to_bytes()))
    assert joined(data.draw(st.permutations(sent))) == secret


def test_checks_refuse_what_they_cannot_mend() -> None:
    fragments = Fragment.of(b"a secret", 3, checked=3).split(3)
    changed = replace(fragments[1], value=bytes(len(fragments[1].value)))
    with pytest.raises(DecodeError, match="do not give their secret back"):
        joined([fragments[0], changed, fragments[2]])
    plain = Fragment.of(b"a secret", 3).split(3)
    wrong = replace(plain[1], value=bytes(len(plain[1].value)))
    assert joined([plain[0], wrong, plain[2]]) != b"a secret"
    with pytest.raises(ParameterError, match="n must be 3, as the secret's checks say, got 4"):
        fragments[0].split(4)


def test_one_broker_cannot_speak_for_the_others() -> None:
    """Fragments of its own making, of other splits, thresholds or checks, are not as agreed."""
    agreed = Agreed(3, 5, 1, checked=True)
    first = Fragment.of(b"S" * 32, 3, checked=5)
    honest = first.split(5)
    name = first.name
    forged = [
        *Fragment(name, 3, (), b"E" * 32, 5).split(5),
        *[Fragment(name, 1, (), b"E" * size) for size in range(1, 9)],
        Fragment(name, 3, (), b"E" * 32, 5),
        *Fragment(name, 3, (), b"E" * 32).split(9),
        *Fragment(bytes(8), 3, (), b"E" * 32, 5).split(5),
    ]
    # A receiver takes from the broker of point 2 fragments of point 2 only.
    taken = [one for one in forged if agreed.misfit(one, 2) is None]
    assert {one.path for one in taken} == {(2,)} and len(taken) == 2
    others = [one for one in honest if one.path != (2,)]
    assert join_fragments([*taken, *others], agreed) == b"S" * 32
    assert join_fragments([*taken, *honest], agreed) == b"S" * 32
    # Whatever it sends under its own point, twice or more, only that path is lost.
    several = [replace(honest[1], value=bytes([i]) * len(honest[1].value)) for i in range(200)]
    assert join_fragments([*several, *honest], agreed) == b"S" * 32


def test_colluders_that_tag_each_other_and_come_first_are_not_believed() -> None:
    """Two of five, k - 1: of the first three they would be the majority."""
    agreed = Agreed(3, 5, 1, checked=True)
    honest = Fragment.of(b"S" * 32, 3, checked=5).split(5)
    bad = retagged(honest[:2])
    for came in ([*bad, honest[2]], [*bad, honest[2], honest[3]]):
        for order in permutations(came):
            with pytest.raises(DecodeError):
                join_fragments(order, agreed)
    assert join_fragments([*bad, *honest[2:]], agreed) == b"S" * 32
    # Where only as many as came count, the first three are believed.
    scheme = CheckedShamir(3, 5)
    shares = [
        Share(3, one.path[0], one.value[:8], one.value[8:40], one.value[40:])
        for one in [*bad, honest[2]]
    ]
    assert scheme.join(shares) != b"S" * 32
    with pytest.raises(DecodeError):
        CheckedShamir(3, 5, strict=True).join(shares)


def retagged(two: list[Fragment]) -> list[Fragment]:
    """Fragments of points 1 and 2 of 5 with other values, each tagged with the other's key."""
    values = [bytes([65 + i]) * 32 for i in range(2)]
    keys = [one.value[40 : 40 + 4 * 32] for one in two]
    made = []
    for place, one in enumerate(two):
        judge = 1 - place  # its key for this point is its first one, for point 1 as for point 2
        content = bytes([3, place + 1]) + one.value[:8] + values[place]
        tag = Poly1305.generate_tag(keys[judge][:32], content)
        tags = bytearray(one.value[40 + 4 * 32 :])
        tags[:16] = tag  # of judge 2 for point 1, and of judge 1 for point 2: the first one
        made.append(replace(one, value=one.value[:8] + values[place] + keys[place] + bytes(tags)))
    return made


def test_what_is_no_secret_is_refused() -> None:
    for secret, k, checked in ((b"", 2, 0), (b"a", 0, 0), (b"a", 300, 0), (b"a", 3, 2)):
        with pytest.raises(ParameterError):
            Fragment.of(secret, k, checked=checked)
    message = Fragment.of(b"a secret", 2).split(2)[0].to_bytes()
    assert hash(Fragment.from_bytes(bytearray(message))) == hash(Fragment.from_bytes(message))
