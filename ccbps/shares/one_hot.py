"""Check that an event's vectors are one-hot, without opening them.

A client might share vectors with several ones: its event would be several events in one, and its
look-ups in an interest would be undefined. For random public vectors r and s with the place-by-
place product r s, a one-hot vector e satisfies <r, e> <s, e> = <r s, e>. For any other vector of
odd sum the difference is 1 with a probability of at least 3/8. The sum over all digits is still 1
with that probability, as each digit has random vectors of its own. The brokers open 64 such sums of
each event. All are 0 for an honest event, but for another one at most with probability 2^-43. Sums
over several events would not do: two equal events cancel.

Hazard: an honest event that was altered on its way is not one-hot, and its sums reveal much of it.
So a broker that notices the change adds noise to these sums.

Source: as in Boneh, Boyle, Corrigan-Gibbs, Gilboa and Ishai, IEEE S&P 2021 (sketches for shares of
unit vectors).
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from ccbps.arrays import Bools, Bytes, Words
from ccbps.checks import octets
from ccbps.shares.replicated import Masks, Steps


def one_hot_steps(
    events: tuple[Bytes, Bytes],
    digit_bits: Sequence[int],
    coin: bytes,
    masks: Masks,
    altered: Bools | None = None,
) -> Steps:
    """Check each event of a batch.

    Args:
        events: two shares of events with whole vectors, 0 and 1, shape (events, bits).
        digit_bits: bits of each digit.
        coin: random bytes that all three brokers drew after they had the events, 32 bytes.
        masks: masks of this broker, which nobody uses again.
        altered: events that this broker refuses by itself, shape (events,), whose sums become
            noise; None for none.

    Returns:
        (sums, sums), shape (events,); 0 where all vectors are one-hot.
    """
    sizes = [1 << width for width in digit_bits]
    total = np.zeros(len(events[0]), dtype=np.uint64)
    start = 0
    for r, s in _vectors(coin, sizes):
        part = slice(start, start + len(r))
        start = part.stop
        left = [_weighted(share[:, part], r) for share in events]
        right = [_weighted(share[:, part], s) for share in events]
        total ^= (left[0] & (right[0] ^ right[1])) ^ (left[1] & right[0])
        total ^= _weighted(events[0][:, part], r & s)
    total ^= masks(total.shape)
    if altered is not None:
        noise = os.urandom(total.itemsize * int(np.count_nonzero(altered)))
        total[altered] ^= np.frombuffer(noise, dtype=np.uint64)
    others = yield total
    third = yield others
    opened = total ^ others ^ third
    return opened, opened


def _vectors(coin: bytes, sizes: Sequence[int]) -> list[tuple[Words, Words]]:
    """Return r and s of each digit: for each place a word, one bit of it for each test."""
    stream = Cipher(algorithms.AES256(octets("coin", coin, 32)), modes.CTR(bytes(16))).encryptor()
    words = np.frombuffer(stream.update(bytes(16 * sum(sizes))), dtype="<u8").astype(np.uint64)
    pairs, start = [], 0
    for size in sizes:
        pairs.append((words[start : start + size], words[start + size : start + 2 * size]))
        start += 2 * size
    return pairs


def _weighted(bits: Bytes, words: Words) -> Words:
    """Return the sums of the words at places that are 1, shape (events,)."""
    sums: Words = np.bitwise_xor.reduce(-bits.astype(np.uint64) & words, axis=1)
    return sums
