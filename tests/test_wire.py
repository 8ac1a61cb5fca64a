"""The header in front of every message, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from ccbps.errors import DecodeError
from ccbps.wire import HEADER_BYTES, TAG_BYTES, Cause, Kind, check_headers, raise_for, write_header

Bytes = NDArray[np.uint8]
FINGERPRINT = bytes(range(0x50, 0x70))
TAGS = np.random.default_rng(1).integers(0, 256, (5, TAG_BYTES), dtype=np.uint8)


def headers(kind: Kind, fingerprint: bytes = FINGERPRINT) -> Bytes:
    rows = np.empty((5, HEADER_BYTES), dtype=np.uint8)
    write_header(rows, kind, fingerprint, TAGS)
    return rows


def test_header_is_kind_version_fingerprint_and_tag() -> None:
    assert (HEADER_BYTES, TAG_BYTES) == (16, 8)
    for kind, first in ((Kind.EVENT, 1), (Kind.INTEREST, 2)):
        row = headers(kind)[2].tobytes()
        assert row == bytes([first, 1]) + FINGERPRINT[:6] + TAGS[2].tobytes()


def test_header_leaves_the_body_alone() -> None:
    rows = np.full((5, HEADER_BYTES + 3), 0xEE, dtype=np.uint8)
    write_header(rows, Kind.EVENT, FINGERPRINT, TAGS)
    assert (rows[:, HEADER_BYTES:] == 0xEE).all()


def test_headers_of_a_pair_and_round_are_accepted() -> None:
    causes = check_headers(headers(Kind.EVENT), headers(Kind.INTEREST), FINGERPRINT)
    assert causes.tolist() == [Cause.NONE] * 5
    raise_for(causes)


def test_headers_of_no_messages_are_accepted() -> None:
    nothing = headers(Kind.EVENT)[:0]
    assert check_headers(nothing, nothing, FINGERPRINT).shape == (0,)


@pytest.mark.parametrize("bit", range(8))
@pytest.mark.parametrize("byte", range(HEADER_BYTES))
@pytest.mark.parametrize("side", ["event", "interest"])
def test_header_with_any_bit_flipped_is_refused_for_what_it_is(
    side: str, byte: int, bit: int
) -> None:
    events, interests = headers(Kind.EVENT), headers(Kind.INTEREST)
    (events if side == "event" else interests)[3, byte] ^= 1 << bit
    causes = check_headers(events, interests, FINGERPRINT)
    kind = Cause.EVENT_KIND if side == "event" else Cause.INTEREST_KIND
    matcher = Cause.EVENT_MATCHER if side == "event" else Cause.INTEREST_MATCHER
    expected = kind if byte < 2 else matcher if byte < 8 else Cause.PAIRING
    assert causes.tolist() == [0, 0, 0, expected, 0]


def test_swapped_messages_are_refused() -> None:
    causes = check_headers(headers(Kind.INTEREST), headers(Kind.EVENT), FINGERPRINT)
    assert set(causes.tolist()) == {Cause.EVENT_KIND}


def test_messages_of_another_matcher_are_refused() -> None:
    other = bytes(32)
    causes = check_headers(headers(Kind.EVENT, other), headers(Kind.INTEREST), FINGERPRINT)
    assert set(causes.tolist()) == {Cause.EVENT_MATCHER}
    causes = check_headers(headers(Kind.EVENT), headers(Kind.INTEREST, other), FINGERPRINT)
    assert set(causes.tolist()) == {Cause.INTEREST_MATCHER}


def test_messages_paired_wrongly_are_refused_row_by_row() -> None:
    events, interests = headers(Kind.EVENT), headers(Kind.INTEREST)
    interests[[1, 3]] = interests[[3, 1]]
    causes = check_headers(events, interests, FINGERPRINT)
    assert causes.tolist() == [0, Cause.PAIRING, 0, Cause.PAIRING, 0]


def test_refusal_names_all_rows_and_the_first_cause() -> None:
    causes = np.array([0, Cause.PAIRING, 0, Cause.EVENT_KIND], np.uint8)
    with pytest.raises(DecodeError, match=r"row 1: .*different pairs.*and 1 more rows") as refusal:
        raise_for(causes)
    assert refusal.value.rows == (1, 3)
    assert refusal.value.causes == (Cause.PAIRING.text, Cause.EVENT_KIND.text)


def test_causes_have_a_text_each() -> None:
    texts = [cause.text for cause in Cause if cause]
    assert len(set(texts)) == len(Cause) - 1
    assert all(texts)
    assert Cause.NONE.text == ""
