"""Labels of an event's digits, and the pads that they open.

A round has a label of 16 bytes for each digit (a window of a few bits) and each of its values. The
lowest bits of its first byte, its select bits, are the value plus a shift of the digit that only
those know who hold all labels. An event is the labels of its digits' values. Under each label there
is a pad for whoever has it: AES-128 under the label of blocks

    nonce (12 bytes), place of the digit, 0, 1, ... (2 bytes each, little-endian)

whose nonce is fresh for each message, so that no two messages share a pad.

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
"""Rows for each run of equal events from which pads are enciphered event by event."""


class Labels:
    """What parties do with the labels of some digits.

    Attributes:
        count: labels of a round.
        event_bytes: bytes of an event's labels.
        round_bytes: bytes of all labels of a round.
        select_bytes: bytes of the select bits of one label for each digit, packed.
        pad_bytes: bytes of a pad.
        pad_blocks: AES blocks of a pad.
    """

    def __init__(self, widths: Sequence[int], pad_bytes: int) -> None:
        """
        Args:
            widths: bits of each digit, at most 8.
            pad_bytes: a multiple of 4.
        """
        counts = [1 << width for width in widths]
        # Of each label of a round: its digit's first label, its value and the digit's select bits.
        starts = np.cumsum([0, *counts])[:-1].astype(np.intp)
        self._first = np.repeat(starts, counts)
        self._place = np.repeat(np.arange(len(counts)), counts)
        self._value = (np.arange(sum(counts)) - self._first).astype(np.uint8)
        self._starts = starts
        self._low_bits = np.array(counts, dtype=np.uint8) - np.uint8(1)
        self._low = np.repeat(self._low_bits, counts)
        self._heads = LABEL_BYTES * starts
        self._widths = list(widths)
        self.count = sum(counts)
        self.event_bytes = LABEL_BYTES * len(counts)
        self.round_bytes = LABEL_BYTES * self.count
        self.select_bytes = -(-sum(widths) // 8)
        self.pad_bytes, self.pad_blocks = pad_bytes, -(-pad_bytes // 16)

    def of(self, random: Bytes) -> Bytes:
        """All labels of rounds, shape (count, labels, 16), from as many uniform bytes.

        Args:
            random: shape (count, round_bytes), uint8.
        """
        made = np.array(random, order="C").reshape(len(random), self.count, LABEL_BYTES)
        head = made[:, :, 0]
        select = head[:, self._first] & self._low ^ self._value
        head &= ~self._low
        head |= select
        return made

    def choose(self, event: Bytes, random: Bytes, out: Bytes) -> None:
        """Write the labels of events.

        Args:
            event: values of all digits, shape (count, digits), uint8.
            random: of the rounds, shape (count, round_bytes).
            out: shape (count, event_bytes).
        """
        count = len(event)
        labels = random.view(np.uint64).reshape(count, self.count, 2)
        # Every label is read, and a mask keeps the one of the event's value.
        mask = -(event[:, self._place] == self._value).astype(np.uint64)
        chosen = np.bitwise_or.reduceat(labels & mask[:, :, None], self._starts, axis=1)
        made = chosen.view(np.uint8)
        head = made[:, :, 0]
        head ^= (head ^ random[:, self._heads] ^ event) & self._low_bits
        out[:] = made.reshape(count, self.event_bytes)

    def write(self, labels: Bytes, nonces: Bytes, select: Bytes, pads: Bytes) -> None:
        """Write what messages are made with: the digits' shifts and the pads of all labels.

        Args:
            labels: what `of` made, shape (count, labels, 16).
            nonces: shape (count, 12).
            select: where to write select bits of value 0, shape (count, select_bytes).
            pads: where to write pads, shape (count, labels * pad_bytes).
        """
        if not self._widths:
            return
        select[:] = self._selects(labels[:, self._starts, 0])
        if self.pad_bytes:
            keys = labels.reshape(-1, LABEL_BYTES)
            blocks = self._tweaks(nonces, self._place)
            enciphered = encipher_rows(keys, _as_blocks(blocks, len(keys)))
            _copy_pads(enciphered.reshape(len(labels), self.count, -1), pads)

    def open(self, events: Bytes, nonces: Bytes, select: Bytes, pads: Bytes) -> None:
        """Write what the labels of events open: their select bits, and their pads.

        Args:
            events: shape (count, event_bytes).
            nonces: shape (count, 12).
            select: shape (count, select_bytes).
            pads: shape (count, digits * pad_bytes).
        """
        count, digits = len(events), len(self._widths)
        if not digits:
            return
        runs = _runs(events)
        if len(runs) * FEW_RUNS > count:
            keys = np.ascontiguousarray(events).reshape(-1, LABEL_BYTES)
            select[:] = self._selects(keys[:, 0].reshape(count, digits))
            if self.pad_bytes:
                blocks = self._tweaks(nonces, np.arange(digits))
                found = encipher_rows(keys, _as_blocks(blocks, len(keys)))
                _copy_pads(found.reshape(count, digits, -1), pads)
            return
        opened = events[runs].reshape(len(runs), digits, LABEL_BYTES)
        lengths = np.diff([*runs, count])
        select[:] = np.repeat(self._selects(opened[:, :, 0]), lengths, axis=0)
        if self.pad_bytes:
            for keys, start, stop in zip(opened, runs, [*runs[1:], count], strict=True):
                blocks = self._tweaks(nonces[start:stop], np.arange(digits), turned=True)
                found = encipher_rows(keys, _as_blocks(blocks, digits))
                turned = found.reshape(digits, stop - start, -1).transpose(1, 0, 2)
                _copy_pads(turned, pads[start:stop])

    def _tweaks(
        self, nonces: Bytes, places: NDArray[np.intp], *, turned: bool = False
    ) -> NDArray[np.uint64]:
        """Blocks to encipher, shape (count, labels, blocks, 2); or (labels, count, blocks, 2).

        Args:
            nonces: shape (count, 12).
            places: of each label's digit.
            turned: labels first.
        """
        nonce = np.zeros((len(nonces), 2), dtype=np.uint64)
        nonce.view(np.uint8)[:, :NONCE_BYTES] = nonces
        tail = places.astype(np.uint64)[:, None] << np.uint64(32)
        tail = tail | np.arange(self.pad_blocks, dtype=np.uint64) << np.uint64(48)
        if turned:
            out = np.empty((len(places), len(nonces), self.pad_blocks, 2), dtype=np.uint64)
            out[..., 0] = nonce[None, :, None, 0]
            out[..., 1] = nonce[None, :, None, 1] | tail[:, None]
        else:
            out = np.empty((len(nonces), len(places), self.pad_blocks, 2), dtype=np.uint64)
            out[..., 0] = nonce[:, None, None, 0]
            out[..., 1] = nonce[:, None, None, 1] | tail[None]
        return out

    def _selects(self, heads: Bytes) -> Bytes:
        """Select bits of labels' first bytes (count, digits), packed."""
        columns = [heads[:, i] >> b & 1 for i, w in enumerate(self._widths) for b in range(w)]
        return np.packbits(np.stack(columns, axis=1), axis=1, bitorder="little")


def _runs(rows: Bytes) -> list[int]:
    """Where runs of equal rows begin."""
    if not rows.strides[0]:
        return [0]
    changed = (rows[1:] != rows[:-1]).any(axis=1)
    return [0, *(np.flatnonzero(changed) + 1).tolist()]


def _copy_pads(enciphered: NDArray[np.generic], pads: Bytes) -> None:
    """The first bytes of each pad to rows: (count, labels, bytes) to (count, labels * fewer)."""
    count, labels = enciphered.shape[:2]
    source = enciphered.view(np.uint32)
    words = pads.shape[1] // (4 * labels)
    target = np.empty((count, labels, words), dtype=np.uint32)
    target[:] = source[:, :, :words]
    pads[:] = target.reshape(count, -1).view(np.uint8)


def _as_blocks(tweaks: NDArray[np.uint64], keys: int) -> Bytes:
    return tweaks.view(np.uint8).reshape(keys, -1, 16)
