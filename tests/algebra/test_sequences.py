"""Bulk operations of S5 and A5 against the tables, and the sampling of uniform elements."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise, permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from ccbps.algebra import A5, S5, Group, alternating, sl24
from ccbps.algebra import group as s5
from ccbps.errors import CcbpsError, ParameterError, SamplingError, ShapeError
from tests.reference.group_wire import wire_planes

GROUPS = [S5, A5]
groups = st.sampled_from(GROUPS)
lengths = st.one_of(
    st.integers(1, 300),
    st.integers(4000, 9000),
    st.sampled_from([64, 128, 4096, 8191, 64 * 255, 64 * 256]),
)
shapes = st.tuples(st.integers(1, 4), lengths)

Ranks = NDArray[np.uint8]


def draw_ranks(group: Group, shape: tuple[int, int], seed: int) -> tuple[Ranks, Ranks, Ranks]:
    """Three batches of random sequences, `shape` being (batch, length before padding)."""
    rng = np.random.default_rng(seed)
    size = (3, shape[0], group.padded(shape[1]))
    a, b, c = rng.integers(0, group.order, size, dtype=np.uint8)
    return a, b, c


def random_bytes(group: Group, batch: int, length: int, seed: int) -> NDArray[np.uint8]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (batch, group.random_bytes(length)), dtype=np.uint8)


def folded(group: Group, ranks: Ranks) -> Ranks:
    result = np.zeros(len(ranks), dtype=np.uint8)
    for column in ranks.T:
        result = group.multiplication[result, column]
    return result


@given(groups, st.integers(1, 1 << 40))
def test_padding_is_small_and_needs_no_more_padding(group: Group, length: int) -> None:
    padded = group.padded(length)
    words = -(-length // 64)
    assert padded >= length
    assert group.padded(padded) == padded
    assert padded == length if group is S5 else padded <= 64 * (words + words // 64)
    bits = 8 if group is S5 else 6
    assert 8 * group.element_bytes(padded) == bits * padded


@given(groups, shapes, st.integers(0, 2**32))
def test_ranks_go_in_and_come_out(group: Group, shape: tuple[int, int], seed: int) -> None:
    a, _, _ = draw_ranks(group, shape, seed)
    assert np.array_equal(group.to_ranks(group.from_ranks(a)), a)


@given(groups, shapes, st.integers(0, 2**32), st.integers(1, 9))
def test_choose_put_and_invert_treat_their_positions(
    group: Group, shape: tuple[int, int], seed: int, every: int
) -> None:
    a, b, _ = draw_ranks(group, shape, seed)
    bits, one, zero = a % 2 == 1, int(b[0, 0]), int(b[0, -1])
    bulk = group.choose(bits, one, zero)
    expected = np.where(bits, one, zero)
    assert np.array_equal(group.to_ranks(bulk), expected)
    assert np.array_equal(group.to_ranks(group.choose(group.pack(bits), one, zero)), expected)
    if group.divides(every, a.shape[1]):
        group.invert(bulk, every)
        expected[:, ::every] = group.inverses[expected[:, ::every]]
        assert np.array_equal(group.to_ranks(bulk), expected)
        group.put(bulk, every, a[:, ::every])
        expected[:, ::every] = a[:, ::every]
        assert np.array_equal(group.to_ranks(bulk), expected)


@given(groups, shapes, st.integers(0, 2**32))
def test_take_picks_sequences(group: Group, shape: tuple[int, int], seed: int) -> None:
    a, _, _ = draw_ranks(group, shape, seed)
    rows = np.random.default_rng(seed).integers(0, shape[0], 5)
    assert np.array_equal(group.to_ranks(group.take(group.from_ranks(a), rows)), a[rows])


@given(groups, shapes, st.integers(0, 2**32), st.sampled_from([None, 0, 1, 2]))
def test_elementwise_operations_are_those_of_the_table(
    group: Group, shape: tuple[int, int], seed: int, place: int | None
) -> None:
    table, (a, b, c) = group.multiplication, draw_ranks(group, shape, seed)

    for operation, expected in (
        (lambda x, y, z, out: group.multiply(x, y, out), table[a, b]),
        (group.blind, table[table[group.inverses[a], b], c]),
        (lambda x, y, z, out: group.inverse(x, out), group.inverses[a]),
        (
            lambda x, y, z, out: group.delay(x, b[:, 0], out),
            np.concatenate([b[:, :1], a[:, :-1]], axis=1),
        ),
    ):
        bulks = [group.from_ranks(ranks.copy()) for ranks in (a, b, c)]
        result = operation(*bulks, None if place is None else bulks[place])
        assert np.array_equal(group.to_ranks(result), expected)


@given(groups, shapes, st.integers(0, 2**32))
def test_product_and_last_read_the_whole_sequence(
    group: Group, shape: tuple[int, int], seed: int
) -> None:
    a, _, _ = draw_ranks(group, shape, seed)
    assert np.array_equal(group.product(group.from_ranks(a)), folded(group, a))
    assert np.array_equal(group.last(group.from_ranks(a)), a[:, -1])


@pytest.mark.parametrize("length", [1, 2, 7, 20_000])
def test_s5_does_not_compute_with_bytes_that_are_no_ranks(length: int) -> None:
    ranks = np.zeros((2, length), dtype=np.uint8)

    def computed(x: Any) -> list[Any]:
        return [
            lambda: S5.product(x),
            lambda: S5.inverse(x),
            *(lambda pair=pair: S5.multiply(*pair) for pair in ((x, ranks), (ranks, x))),
            *(lambda three=three: S5.blind(*three) for three in permutations([x, ranks, ranks])),
        ]

    for wrong, place in product((120, 239, 255), (0, length // 2, length - 1)):
        spoiled = ranks.copy()
        spoiled[1, place] = wrong
        for compute in computed(spoiled):
            with pytest.raises(ParameterError, match="ranks of S5 must be 0 to 119"):
                compute()
    for compute in computed(ranks):
        assert not compute().any()
    for compute in computed(ranks.astype(np.int64)):
        with pytest.raises(ShapeError, match="ranks must be a uint8 array"):
            compute()


@pytest.mark.parametrize("group", GROUPS, ids=repr)
@pytest.mark.parametrize(
    "batch, length", [pytest.param(1, 300_000, marks=pytest.mark.slow), (9, 70_000), (5000, 40)]
)
def test_product_of_large_batches(group: Group, batch: int, length: int) -> None:
    a, b, _ = draw_ranks(group, (batch, length), 1)
    assert np.array_equal(group.product(group.from_ranks(a)), folded(group, a))
    rows = [np.empty((batch, group.element_bytes(a.shape[1])), dtype=np.uint8) for _ in "xy"]
    for ranks, row in zip((a, b), rows, strict=True):
        group.store(group.from_ranks(ranks), row)
    products, valid = group.product_of(*rows)
    assert valid.all()
    assert np.array_equal(products, folded(group, group.multiplication[a, b]))


@given(groups, shapes, st.data())
def test_powers_of_bits_packed_bits_and_periodic_bits(
    group: Group, shape: tuple[int, int], data: st.DataObject
) -> None:
    batch, length = shape[0], group.padded(shape[1])
    element = data.draw(st.integers(0, group.order - 1))
    period = data.draw(st.integers(1, min(length, 70)))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    some = rng.integers(0, 2, (batch, period), dtype=np.uint8).view(np.bool_)
    bits = np.tile(some, (1, -(-length // period)))[:, :length]
    for given_bits in (bits, group.pack(bits), group.pack_periodic(some, length)):
        ranks = group.to_ranks(group.powers(given_bits, element))
        assert np.array_equal(ranks, bits * np.uint8(element))


@given(groups, shapes, st.integers(0, 2**32))
def test_wire_form_goes_both_ways(group: Group, shape: tuple[int, int], seed: int) -> None:
    a, b, _ = draw_ranks(group, shape, seed)
    width = group.element_bytes(a.shape[1])
    wide = np.zeros((len(a), width + 19), dtype=np.uint8)  # messages have headers: odd addresses
    rows, others = wide[:, 16 : 16 + width], np.empty((len(a), width), dtype=np.uint8)
    group.store(group.from_ranks(a), rows)
    group.store(group.from_ranks(b), others)
    loaded, valid = group.load(rows)
    assert valid.all()
    assert np.array_equal(group.to_ranks(loaded), a)
    products, valid = group.product_of(rows, others)
    assert valid.all()
    assert np.array_equal(products, folded(group, group.multiplication[a, b]))
    assert not wide[:, :16].any() and not wide[:, 16 + width :].any()


@given(st.integers(1, 9000), st.data())
def test_s5_load_finds_bytes_that_are_no_rank(length: int, data: st.DataObject) -> None:
    rows = np.full((3, length), 119, dtype=np.uint8)
    rows[1, data.draw(st.integers(0, length - 1))] = data.draw(st.integers(120, 255))
    good = np.zeros_like(rows)
    for valid in (S5.load(rows)[1], S5.product_of(rows, good)[1], S5.product_of(good, rows)[1]):
        assert valid.tolist() == [True, False, True]


@given(st.integers(1, 9000), st.data())
def test_a5_load_finds_a_row_of_zeros_in_any_lane(length: int, data: st.DataObject) -> None:
    words = A5.padded(length) // 64
    good = np.full((3, 48 * words), 255, dtype=np.uint8)
    rows = good.copy()
    word, lane = data.draw(st.integers(0, words - 1)), data.draw(st.integers(0, 63))
    rows.view("<u8").reshape(3, 6, words)[1, :4, word] ^= np.uint64(1 << lane)
    assert A5.load(good)[1].all()
    for valid in (A5.load(rows)[1], A5.product_of(rows, good)[1], A5.product_of(good, rows)[1]):
        assert valid.tolist() == [True, False, True]


def test_a5_wire_values_are_the_60_elements_each_once() -> None:
    """All 64 values of six bits: 4 have no first row; the 60 others are the 60 elements."""
    planes = np.zeros((1, 6, 1), dtype="<u8")
    for value in range(64):
        for plane in range(6):
            planes[0, plane, 0] |= np.uint64((value >> plane & 1) << value)
    scratch = list(np.empty((sl24.COMPLETE_SCRATCH, 1), dtype=np.uint64))
    second = list(np.empty((4, 1), dtype=np.uint64))
    sl24.complete(list(planes[0]), second, scratch)
    kept = [v for v in range(64) if int(scratch[0][0]) >> v & 1]
    assert kept == [v for v in range(64) if v & 0b1111]
    lanes = [[int(row[0]) >> v & 1 for row in [*planes[0, :4], *second]] for v in kept]
    codes = [sum(bit << plane for plane, bit in enumerate(lane)) for lane in lanes]
    assert sorted(codes) == sorted(A5._codes.tolist())


def test_s5_accepted_bytes_are_the_120_elements_each_twice() -> None:
    draws = s5._reduced(np.arange(256, dtype=np.uint8))
    assert Counter(draws[:240].tolist()) == dict.fromkeys(range(120), 2)
    assert (draws[240:] >= 120).all()


@pytest.mark.parametrize("group", GROUPS, ids=repr)
@pytest.mark.parametrize("batch, length", [(1, 1 << 20), (300, 3000), (4000, 64)])
def test_uniform_elements_are_uniform(group: Group, batch: int, length: int) -> None:
    length = group.padded(length)
    ranks = group.to_ranks(group.uniform(random_bytes(group, batch, length, 5)))
    assert ranks.shape == (batch, length)
    counts = np.bincount(ranks.ravel(), minlength=group.order)
    assert stats.chisquare(counts).pvalue > 1e-3
    # Neighbours, lanes and sequences do not depend on one another.
    others = [np.roll(ranks, 1, axis=1)] if length > 64 else [ranks[:, ::-1]]
    others += [np.roll(ranks, length // 64, axis=1), np.roll(ranks, 1, axis=0)][: 1 + (batch > 1)]
    for other in others:
        pairs = np.bincount((ranks.astype(np.intp) * group.order + other).ravel())
        assert stats.chisquare(pairs).pvalue > 1e-3


@pytest.mark.parametrize("group", GROUPS, ids=repr)
def test_uniform_elements_replaced_by_redraws_are_uniform(group: Group) -> None:
    """First draws that are all rejected leave every element to the reserve."""
    length = 64
    randomness = random_bytes(group, 5000, length, 8)
    if group is S5:
        randomness[:, :8] = 255  # more would use up the reserve
    else:
        randomness[:, : 4 * 8] = 0
        randomness[:, 6 * 8 : 10 * 8] = 0
    ranks = group.to_ranks(group.uniform(randomness))[:, : 8 if group is S5 else length]
    assert stats.chisquare(np.bincount(ranks.ravel(), minlength=group.order)).pvalue > 1e-3


@given(groups, shapes, st.integers(0, 2**32))
def test_uniform_is_a_function_of_a_sequences_bytes(
    group: Group, shape: tuple[int, int], seed: int
) -> None:
    batch, length = shape[0], group.padded(shape[1])
    randomness = random_bytes(group, batch, length, seed)
    together = group.to_ranks(group.uniform(randomness))
    for i in range(batch):
        alone = group.to_ranks(group.uniform(randomness[i : i + 1]))
        assert np.array_equal(alone[0], together[i])


@pytest.mark.parametrize(
    "batch, length", [(1, 64), (3, 3000), (40, 100), (2, 64 * 8192 + 64 * 900)]
)
def test_a5_draws_are_those_of_the_twin(batch: int, length: int) -> None:
    length = A5.padded(length)
    randomness = random_bytes(A5, batch, length, 11)
    sent = np.empty((batch, A5.element_bytes(length)), dtype=np.uint8)
    A5.store(A5.uniform(randomness), sent)
    for i in range(batch):
        planes = wire_planes(randomness[i].tobytes(), length // 64)
        assert sent[i].tobytes() == np.array(planes, dtype="<u8").tobytes()


@pytest.mark.parametrize("group", GROUPS, ids=repr)
def test_uniform_says_when_its_bytes_do_not_last(group: Group) -> None:
    length = group.padded(1000)
    randomness = random_bytes(group, 3, length, 1)
    randomness[1] = 255 if group is S5 else 0
    with pytest.raises(SamplingError, match="give this round up") as caught:
        group.uniform(randomness)
    assert isinstance(caught.value, CcbpsError)
    assert group.to_ranks(group.uniform(randomness[::2].copy())).shape == (2, length)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 9, 17, 64, 200, 1000, 4097, 2**19, 2**25, 2**31])
@pytest.mark.parametrize("group", GROUPS, ids=repr)
def test_reserve_lasts_but_once_in_2_to_the_64(group: Group, count: int) -> None:
    """Chernoff's bound on the spare draws of `count` elements (S5) or words of 64 lanes (A5).

    P(D > budget) <= E[exp(s X)]^count / exp(s (budget + 1)) for every s > 0, where X, the spare
    draws of one of them, is k or more with probability tail[k].
    """
    if group is S5:
        budget = s5._reserve(count)
        tail = [16.0**-k for k in range(60)]
    else:
        budget = alternating.reserve(count)
        # k spare draws: some lane of 64 was 0 in k + 1 draws before.
        tail = [1.0, *(-math.expm1(64 * math.log1p(-(16.0 ** -(k + 1)))) for k in range(1, 60))]
    bounds = []
    for s in np.geomspace(1e-5, 2.7, 400):
        moment = sum(tail[k] * math.exp(s * (k - 1)) for k in range(1, len(tail))) * math.expm1(s)
        bounds.append((count * math.log1p(moment) - s * (budget + 1)) / math.log(2))
    assert min(bounds) < -64


@pytest.mark.parametrize("group", GROUPS, ids=repr)
def test_wrong_shapes_are_refused(group: Group) -> None:
    one, two = (group.from_ranks(np.zeros((n, 64), dtype=np.uint8)) for n in (1, 2))
    for action in (
        lambda: group.multiply(one, two),
        lambda: group.blind(one, two, one),
        lambda: group.store(one, np.empty((1, 7), dtype=np.uint8)),
        lambda: group.load(np.zeros((1, 8, 6), dtype=np.uint8)),
        lambda: group.uniform(np.zeros((1, 11), dtype=np.uint8)),
        lambda: group.from_ranks(np.zeros(64, dtype=np.uint8)),
        lambda: group.product_of(
            np.ones((1, group.element_bytes(64)), np.uint8),
            np.ones((2, group.element_bytes(64)), np.uint8),
        ),
    ):
        with pytest.raises((ShapeError, ParameterError)):
            action()
    with pytest.raises(ParameterError):
        group.from_ranks(np.full((1, 64), group.order, dtype=np.uint8))
    with pytest.raises(ParameterError):
        group.padded(0)


def test_a5_refuses_lengths_that_are_not_padded() -> None:
    for length in (0, 63, 65, 64 * 8193):
        with pytest.raises(ParameterError):
            A5.element_bytes(length)


@settings(max_examples=20)
@given(st.integers(1, 6), st.integers(0, 2**32))
def test_a5_bulks_can_be_cut_into_runs_of_steps(pieces: int, seed: int) -> None:
    a, b, c = draw_ranks(A5, (2, 8192), seed)
    x, y, z = map(A5.from_ranks, (a, b, c))
    out = np.empty_like(x)
    ends = np.linspace(0, x.shape[1], pieces + 1).astype(int)
    for start, stop in pairwise(ends):
        A5.blind(x[:, start:stop], y[:, start:stop], z[:, start:stop], out=out[:, start:stop])
    table = A5.multiplication
    assert np.array_equal(A5.to_ranks(out), table[table[A5.inverses[a], b], c])
