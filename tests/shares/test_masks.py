"""Masks of three brokers: they add up to nothing, follow AES, and come once."""

from __future__ import annotations

import copy
import os

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from ccbps.errors import ParameterError, RandomnessReuseError, SerializationError
from ccbps.shares.masks import MaskStreams, mask_key
from tests.support.forks import answer_of_child

FRESH = [os.urandom(32) for _ in range(6)]
KEYS = [mask_key(FRESH[2 * i], FRESH[2 * i + 1]) for i in range(3)]


def brokers() -> list[MaskStreams]:
    return [MaskStreams(KEYS[i], KEYS[(i + 1) % 3]) for i in range(3)]


@pytest.mark.parametrize("shapes", [[(3, 2, 5)], [(1, 1, 1), (4, 3, 2), (2, 9, 1000)]])
def test_masks_add_up_to_nothing(shapes: list[tuple[int, ...]]) -> None:
    for unit in (0, 5, 2**64 - 1):
        masks = [broker.unit(unit) for broker in brokers()]
        for shape in shapes:
            parts = [draw(shape) for draw in masks]
            assert parts[0].shape == shape and parts[0].dtype == np.uint64
            assert not (parts[0] ^ parts[1] ^ parts[2]).any()
            assert len(np.unique(np.concatenate(parts))) > 2


def test_masks_are_aes_of_unit_and_place() -> None:
    masks = brokers()[1].unit(7)
    drawn = np.concatenate([masks((3, 1, 3)).reshape(-1), masks((1, 2, 2)).reshape(-1)])
    blocks = b"".join((7).to_bytes(8, "big") + i.to_bytes(8, "big") for i in range(7))
    streams = [
        np.frombuffer(
            Cipher(algorithms.AES256(KEYS[i]), modes.ECB()).encryptor().update(blocks), "<u8"
        )
        for i in (1, 2)
    ]
    assert np.array_equal(drawn, (streams[0] ^ streams[1])[:13])


def test_units_are_used_once() -> None:
    broker = brokers()[0]
    broker.unit(3)
    for number in (3, 2, 0):
        with pytest.raises(RandomnessReuseError, match="units rise from 4"):
            broker.unit(number)
    broker.unit(4)
    with pytest.raises(ParameterError, match="number"):
        broker.unit(-1)


def test_a_forked_process_has_no_masks() -> None:
    broker = brokers()[0]
    assert answer_of_child(lambda: broker.unit(9)).startswith("RandomnessReuseError: masks of unit")
    broker.unit(9)


def test_keys_depend_on_all_that_is_agreed() -> None:
    first, second = FRESH[:2]
    keys = {
        mask_key(first, second),
        mask_key(second, first),
        mask_key(first, second, worker=1),
        mask_key(first, second, attempt=1),
        mask_key(first, second, worker=1, attempt=1),
    }
    assert len(keys) == 5
    with pytest.raises(ParameterError, match="lower"):
        mask_key(b"short", second)
    for act in (copy.copy, copy.deepcopy):
        with pytest.raises(SerializationError):
            act(brokers()[0])
