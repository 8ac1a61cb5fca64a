"""Labels of an event's digits, and the pads that they open.

A round has a label of 16 bytes for each digit (a window of a few bits) and each of its values. The
lowest bits of its first byte, its select bits, are the value plus a shift of the digit. Only the
holders of all labels know the shift. An event is the labels of its digits' values. Each label opens
a pad: AES-128, with the label as key, of the blocks::

    nonce (12 bytes), place of the digit, 0, 1, ... (2 bytes each, little-endian)

with a fresh nonce for each message, so that no two messages share a pad.

Sources: Yao, FOCS 1986; Beaver, Micali and Rogaway, STOC 1990 (select bits).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bytes
from ccbps.ciphers.many_keys import encipher_rows

LABEL_BYTES: Final = 16
NONCE_BYTES: Final = 12
FEW_RUNS: Final = 16
"""Rows of a run of equal events, on average, from which pads are enciphered event by event."""


class Labels:
    """Labels of some digits, and their pads.

    Attributes:
        count: number of labels of a round.
        event_bytes: bytes of an event's labels.
        round_bytes: bytes of all labels of a round.
        select_bytes: bytes of the select bits of one label for each digit, packed.
        pad_bytes: bytes of a pad.
        pad_blocks: AES blocks of a pad.
    """

    def __init__(self, widths: Sequence[int], pad_bytes: int) -> None:
        """Count the labels.

        Args:
            widths: bits of each digit, at most 8.
            pad_bytes: bytes of a pad, a multiple of 4.
        """
        counts = [1 << width for width in widths]
        # For each label of a round: its digit's first label, place, value and select bits.
        self._starts = np.cumsum([0, *counts])[:-1].astype(np.intp)
        self._first = np.repeat(self._starts, counts)
        self._place = np.repeat(np.arange(len(counts)), counts)
        self._value = (np.arange(sum(counts)) - self._first).astype(np.uint8)
        self._low_bits = np.array(counts, dtype=np.uint8) - np.uint8(1)
        self._low = np.repeat(self._low_bits, counts)
        self._widths = list(widths)
        self.count = sum(counts)
        self.event_bytes = LABEL_BYTES * len(counts)
        self.round_bytes = LABEL_BYTES * self.count
        self.select_bytes = -(-sum(widths) // 8)
        self.pad_bytes, self.pad_blocks = pad_bytes, -(-pad_bytes // 16)

    def of(self, random: Bytes) -> Bytes:
        """Return all labels of rounds, shape (count, labels, 16).

        Args:
            random: uniform bytes, shape (count, round_bytes), uint8.
        """
        labels = np.array(random, order="C").reshape(len(random), self.count, LABEL_BYTES)
        head = labels[:, :, 0]
        select = head[:, self._first] & self._low ^ self._value
        head &= ~self._low
        head |= select
        return labels

    def choose(self, event: Bytes, random: Bytes, out: Bytes) -> None:
        """Write the labels of events.

        Args:
            event: values of all digits, shape (count, digits), uint8.
            random: uniform bytes of the rounds, shape (count, round_bytes).
            out: place of the labels, shape (count, event_bytes).
        """
        count = len(event)
        labels = random.view(np.uint64).reshape(count, self.count, 2)
        # Every label is read, and a mask keeps the one of the event's value.
        mask = -(event[:, self._place] == self._value).astype(np.uint64)
        chosen = np.bitwise_or.reduceat(labels & mask[:, :, None], self._starts, axis=1)
        octets = chosen.view(np.uint8)
        head = octets[:, :, 0]
        head ^= (head ^ random[:, LABEL_BYTES * self._starts] ^ event) & self._low_bits
        out[:] = octets.reshape(count, self.event_bytes)

    def write(self, labels: Bytes, nonces: Bytes, select: Bytes, pads: Bytes) -> None:
        """Write the shift of each digit and the pads of all labels, with which messages are made.

        Args:
            labels: all labels of the rounds, as `of` returns them.
            nonces: nonces of the messages, shape (count, 12).
            select: place of the select bits of value 0, shape (count, select_bytes).
            pads: place of the pads, shape (count, labels * pad_bytes).
        """
        if not self._widths:
            return
        select[:] = self._selects(labels[:, self._starts, 0])
        if self.pad_bytes:
            tweaks = self._tweaks(nonces, self._place)
            _copy_pads(_enciphered(labels.reshape(-1, LABEL_BYTES), tweaks), pads)

    def open(self, events: Bytes, nonces: Bytes, select: Bytes, pads: Bytes) -> None:
        """Write the select bits of events' labels, and the pads that these labels open.

        Args:
            events: labels of the events, shape (count, event_bytes).
            nonces: nonces of the messages, shape (count, 12).
            select: place of the select bits, shape (count, select_bytes).
            pads: place of the pads, shape (count, digits * pad_bytes).
        """
        count, digits = len(events), len(self._widths)
        if not digits:
            return
        places, runs = np.arange(digits), _runs(events)
        if len(runs) * FEW_RUNS > count:
            keys = np.ascontiguousarray(events).reshape(-1, LABEL_BYTES)
            select[:] = self._selects(keys[:, 0].reshape(count, digits))
            if self.pad_bytes:
                _copy_pads(_enciphered(keys, self._tweaks(nonces, places)), pads)
            return
        opened = events[runs].reshape(len(runs), digits, LABEL_BYTES)
        lengths = np.diff([*runs, count])
        select[:] = np.repeat(self._selects(opened[:, :, 0]), lengths, axis=0)
        if self.pad_bytes:
            for keys, start, stop in zip(opened, runs, [*runs[1:], count], strict=True):
                tweaks = self._tweaks(nonces[start:stop], places, labels_first=True)
                _copy_pads(_enciphered(keys, tweaks).transpose(1, 0, 2), pads[start:stop])

    def _tweaks(
        self, nonces: Bytes, places: NDArray[np.intp], *, labels_first: bool = False
    ) -> NDArray[np.uint64]:
        """Return the blocks to encipher.

        Args:
            nonces: shape (count, 12).
            places: place of each label's digit.
            labels_first: True for the shape (labels, count, blocks, 2), False for
                (count, labels, blocks, 2).
        """
        nonce = np.zeros((len(nonces), 2), dtype=np.uint64)
        nonce.view(np.uint8)[:, :NONCE_BYTES] = nonces
        nonce = np.expand_dims(nonce, (0, 2) if labels_first else (1, 2))
        tail = places.astype(np.uint64)[:, None] << np.uint64(32)
        tail = tail | np.arange(self.pad_blocks, dtype=np.uint64) << np.uint64(48)
        second = nonce[..., 1] | np.expand_dims(tail, 1 if labels_first else 0)
        out = np.empty((*second.shape, 2), dtype=np.uint64)
        out[..., 0], out[..., 1] = nonce[..., 0], second
        return out

    def _selects(self, heads: Bytes) -> Bytes:
        """Return the select bits of labels' first bytes (count, digits), packed."""
        columns = [heads[:, i] >> b & 1 for i, w in enumerate(self._widths) for b in range(w)]
        return np.packbits(np.stack(columns, axis=1), axis=1, bitorder="little")


def _runs(rows: Bytes) -> list[int]:
    """Return the starts of the runs of equal rows, labels next to one another."""
    if not rows.strides[0]:
        return [0]
    words = rows.view(np.uint64)
    changed = (words[1:] != words[:-1]).any(axis=1)
    return [0, *(np.flatnonzero(changed) + 1).tolist()]


def _enciphered(keys: Bytes, tweaks: NDArray[np.uint64]) -> Bytes:
    """Encipher blocks, shape (first, second, blocks, 2), under the keys of their first axes.

    Returns:
        uint8, shape (first, second, bytes).
    """
    blocks = tweaks.view(np.uint8).reshape(len(keys), -1, 16)
    return encipher_rows(keys, blocks).reshape(*tweaks.shape[:2], -1)


def _copy_pads(enciphered: Bytes, pads: Bytes) -> None:
    """Copy the first bytes of each pad: (count, labels, bytes) to (count, labels * fewer)."""
    count, labels = enciphered.shape[:2]
    source = enciphered.view(np.uint32)
    words = pads.shape[1] // (4 * labels)
    target = np.empty((count, labels, words), dtype=np.uint32)
    target[:] = source[:, :, :words]
    pads[:] = target.reshape(count, -1).view(np.uint8)
