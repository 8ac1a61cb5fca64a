"""Blinded group programs: Definition 4 byte by byte, segments, decoding, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ccbps.algebra import A5, S5, Group
from ccbps.encodings.group import SEGMENT, TRAILER_BYTES, GroupEncoding
from ccbps.errors import ParameterError, SamplingError, ShapeError
from tests.reference import group_programs as twin
from tests.support.planted_encoding import PlantedEncoding, encoded, laid_out, positions, view
from tests.support.program_strategies import seeds

Bytes = NDArray[np.uint8]
Ranks = NDArray[np.uint8]
Bools = NDArray[np.bool_]

GROUPS = [S5, A5]
every_group = pytest.mark.parametrize("group", GROUPS, ids=repr)
# Lengths in segments of 64 positions: one short one, one full one, three of which the last is
# short, three full ones.
lengths = pytest.mark.parametrize("length", [1, 5, 64, 150, 192])


def random_bytes(encoding: GroupEncoding, batch: int, seed: int) -> Bytes:
    shape = batch, len(encoding.segments), encoding.segment_randomness
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def random_program(encoding: GroupEncoding, batch: int, seed: int) -> tuple[Bools, Ranks]:
    """Bits, and interstitials that multiply with their powers of alpha to alpha or 1, by rows."""
    group, rng = encoding.group, np.random.default_rng(seed)
    bits = rng.integers(0, 2, (batch, encoding.length)).astype(np.bool_)
    elements = rng.integers(0, group.order, (batch, encoding.length + 1), dtype=np.uint8)
    for row, (x, g) in enumerate(zip(bits.tolist(), elements, strict=True)):
        index = [0 if bit else -1 for bit in x]
        made = [group.one_line(rank) for rank in g.tolist()], index
        whole = twin.product(twin.sequence(made, [True]))
        rank = group.inverses[twin.elements(group.name).index(whole)]
        g[-1] = group.multiplication[g[-1], rank]
        if row % 2:
            g[-1] = group.multiplication[g[-1], group.alpha]
    return bits, elements


def decoded(encoding: GroupEncoding, events: Bytes, interests: Bytes) -> tuple[Bools, Bools, Bools]:
    """Answers, impossible products, and whether all bytes were elements."""
    product = np.zeros(len(events), dtype=np.uint8)
    valid = np.ones(len(events), dtype=np.bool_)
    for segment in encoding.segments:
        part, good = encoding.decode_segment(events[:, segment.place], interests[:, segment.place])
        product, valid = encoding.group.multiplication[product, part], valid & good
    return *encoding.finish(product, interests[:, -TRAILER_BYTES:]), valid


# -- blinding -----------------------------------------------------------------------------------


@lengths
@every_group
def test_messages_are_the_blinded_sequence(group: Group, length: int) -> None:
    encoding = PlantedEncoding(group, length, segment=64)
    rng = np.random.default_rng(length)
    encoding.planted = rng.integers(0, group.order, (4, 2 * positions(encoding)), dtype=np.uint8)
    bits, interstitials = random_program(encoding, 4, length)
    messages = encoded(encoding, bits, interstitials, random_bytes(encoding, 4, 0))
    seen, given_ = view(encoding, *messages), laid_out(encoding, bits, interstitials)
    for row in range(4):
        sequence, blinders, wanted = (
            [group.one_line(rank) for rank in ranks[row].tolist()]
            for ranks in (given_, encoding.planted, seen)
        )
        assert twin.blinded(sequence, blinders) == wanted
        assert twin.product(wanted) == (twin.ALPHA if row % 2 else twin.ONE)


@lengths
@every_group
def test_blinders_are_the_uniform_elements_of_the_bytes(group: Group, length: int) -> None:
    encoding = GroupEncoding(group, length, segment=64)
    randomness = random_bytes(encoding, 3, 1)
    planted = PlantedEncoding(group, length, segment=64)
    planted.planted = np.empty((3, 2 * positions(encoding)), dtype=np.uint8)
    for number, segment in enumerate(encoding.segments):
        width = group.random_bytes(segment.padded)
        for shift in (0, 1):
            drawn = randomness[:, number, shift * width : (shift + 1) * width]
            start = 2 * segment.start + shift
            planted.planted[:, start : start + 2 * segment.padded : 2] = group.to_ranks(
                group.uniform(np.ascontiguousarray(drawn))
            )
    bits, interstitials = random_program(encoding, 3, 2)
    first = encoded(encoding, bits, interstitials, randomness)
    second = encoded(planted, bits, interstitials, randomness)
    assert np.array_equal(first[0], second[0])
    assert np.array_equal(first[1], second[1])


@every_group
def test_blinders_of_both_parities_and_all_segments_differ(group: Group) -> None:
    encoding = GroupEncoding(group, 192, segment=64)
    randomness = random_bytes(encoding, 1, 3)
    drawn = [
        group.to_ranks(bulk).tobytes()
        for number, segment in enumerate(encoding.segments)
        for bulk in encoding.blinders(randomness[:, number], segment)
    ]
    assert len(set(drawn)) == 6


# -- answers ------------------------------------------------------------------------------------


@lengths
@every_group
def test_product_is_the_answer(group: Group, length: int) -> None:
    encoding = GroupEncoding(group, length, segment=64)
    bits, interstitials = random_program(encoding, 10, 4)
    messages = encoded(encoding, bits, interstitials, random_bytes(encoding, 10, 5))
    answers, impossible, valid = decoded(encoding, *messages)
    assert answers.tolist() == [False, True] * 5
    assert not impossible.any() and valid.all()


@given(length=st.integers(1, 400), group=st.sampled_from(GROUPS), seed=seeds)
@settings(max_examples=30)
def test_messages_of_any_length_are_answered(length: int, group: Group, seed: int) -> None:
    encoding = GroupEncoding(group, length, segment=128)
    bits, interstitials = random_program(encoding, 2, seed)
    messages = encoded(encoding, bits, interstitials, random_bytes(encoding, 2, seed))
    answers, impossible, valid = decoded(encoding, *messages)
    assert answers.tolist() == [False, True] and not impossible.any() and valid.all()


@every_group
def test_every_other_product_is_impossible(group: Group) -> None:
    encoding = GroupEncoding(group, 3)
    bits, interstitials = random_program(encoding, group.order, 6)
    interstitials[1::2, -1] = group.multiplication[
        interstitials[1::2, -1], group.inverses[group.alpha]
    ]
    interstitials[:, -1] = group.multiplication[interstitials[:, -1], np.arange(group.order)]
    messages = encoded(encoding, bits, interstitials, random_bytes(encoding, group.order, 7))
    answers, impossible, valid = decoded(encoding, *messages)
    assert np.flatnonzero(answers).tolist() == [group.alpha]
    assert np.flatnonzero(~impossible).tolist() == [0, group.alpha]
    assert valid.all()


@every_group
def test_trailer_begins_with_one_element(group: Group) -> None:
    encoding = GroupEncoding(group, 1)
    trailers = np.zeros((256, TRAILER_BYTES), dtype=np.uint8)
    trailers[:, 0] = np.arange(256)
    trailers[:, 1:] = 170  # a tag, the matcher's business
    _, impossible = encoding.finish(np.zeros(256, np.uint8), trailers)
    assert np.flatnonzero(~impossible).tolist() == [0, group.alpha]


@every_group
def test_bytes_that_are_no_elements_are_seen_in_every_segment(group: Group) -> None:
    encoding = GroupEncoding(group, 150, segment=64)
    bits, interstitials = random_program(encoding, 1, 8)
    messages = encoded(encoding, bits, interstitials, random_bytes(encoding, 1, 9))
    for side in (0, 1):
        for segment in encoding.segments:
            spoiled = [message.copy() for message in messages]
            # No rank of S5; in A5 a lane whose first row is zero.
            spoiled[side][:, segment.place] = 255 if group is S5 else 0
            assert decoded(encoding, *messages)[2].all()
            assert not decoded(encoding, *spoiled)[2].any()


# -- segments and sizes -------------------------------------------------------------------------


@given(
    length=st.integers(1, 2000),
    segment=st.sampled_from([64, 128, 192, 640]),
    group=st.sampled_from(GROUPS),
)
def test_segments_cover_the_positions_and_the_message(
    length: int, segment: int, group: Group
) -> None:
    encoding = GroupEncoding(group, length, segment=segment)
    assert len(encoding.segments) == -(-length // segment)
    position = place = 0
    for part in encoding.segments:
        # Eight bytes for a tag in front of all but the first.
        assert part.tag == slice(place, place + 8 * (position > 0))
        assert part.start == position and part.place.start == part.tag.stop
        assert part.stop == min(length, part.start + segment)
        assert part.padded == group.padded(part.stop - part.start) >= part.stop - part.start
        width = group.element_bytes(part.padded)
        assert part.place.stop - part.place.start == width
        position, place = part.stop, part.place.stop
    assert (position, place) == (length, encoding.event_bytes)
    assert encoding.interest_bytes == encoding.event_bytes + 8
    needed = [2 * group.random_bytes(part.padded) for part in encoding.segments]
    assert encoding.segment_randomness == max(needed)


def test_sizes_by_hand() -> None:
    # One byte an element in S5; in A5 six bits, 64 elements together.
    assert GroupEncoding(S5, 96).event_bytes == 96
    assert GroupEncoding(A5, 96).event_bytes == 128 * 6 // 8
    assert GroupEncoding(A5, 96).interest_bytes == 128 * 6 // 8 + 8
    assert len(GroupEncoding(A5, SEGMENT).segments) == 1
    assert len(GroupEncoding(A5, SEGMENT + 1).segments) == 2


# -- the simulator ------------------------------------------------------------------------------


@lengths
@every_group
def test_simulated_messages_decode_to_the_given_answers(group: Group, length: int) -> None:
    encoding = GroupEncoding(group, length, segment=64)
    wanted = np.random.default_rng(10).integers(0, 2, 50).astype(np.bool_)
    events, interests = encoding.simulate(wanted, random_bytes(encoding, 50, 11))
    assert events.shape == (50, encoding.event_bytes)
    assert interests.shape == (50, encoding.interest_bytes)
    answers, impossible, valid = decoded(encoding, events, interests)
    assert np.array_equal(answers, wanted)
    assert not impossible.any() and valid.all()


# -- what is refused ----------------------------------------------------------------------------


@every_group
def test_lengths_below_one_are_refused(group: Group) -> None:
    with pytest.raises(ParameterError, match="length must be a whole number, at least 1, got 0"):
        GroupEncoding(group, 0)


def test_segments_that_are_no_whole_words_are_refused() -> None:
    for group, segment in ((A5, 100), (A5, 0), (S5, 0)):
        with pytest.raises(ParameterError, match=f"whole number of words, got {segment}"):
            GroupEncoding(group, 10, segment=segment)


@every_group
def test_randomness_of_another_width_is_refused(group: Group) -> None:
    encoding = GroupEncoding(group, 10)
    for more in (-1, 1):
        rows = np.zeros((1, encoding.segment_randomness + more), dtype=np.uint8)
        with pytest.raises(ShapeError, match=rf"\(batch, {encoding.segment_randomness}\)"):
            encoding.blinders(rows, encoding.segments[0])


@every_group
def test_bytes_that_yield_too_few_elements_are_refused(group: Group) -> None:
    encoding = GroupEncoding(group, 10)
    # Draws of S5 from 240 up are rejected, and first rows of A5 that are zero.
    rows = np.full((1, encoding.segment_randomness), 255 if group is S5 else 0, dtype=np.uint8)
    with pytest.raises(SamplingError, match="give this round up and use another"):
        encoding.blinders(rows, encoding.segments[0])
