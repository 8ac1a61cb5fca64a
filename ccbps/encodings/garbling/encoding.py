"""Garbled circuits between two parties: half gates, with private negations.

A label has 16 bytes, and its last bit, the lowest one of byte 8, is its *select bit*. A wire has
two labels, which differ by Delta, whose last bit is 1. The garbler, who is the subscriber, keeps of
each wire the label Z with select bit 0, and pi, the bit that Z stands for. So a label with select
bit s stands for s + pi, and the label of 0 is Z + pi Delta. Sums are XORs.

For operands a and b, negated privately by alpha and beta, let p = pi_a + alpha and
q = pi_b + beta. The gate of a' b' = (a + alpha) (b + beta) has two ciphertexts, and its output ::

    T_G = H(Z_a, t) + H(Z_a + Delta, t) + q Delta
    T_E = H(Z_b, t + 1) + H(Z_b + Delta, t + 1) + Z_a + p Delta
    K   = H(Z_a, t) + H(Z_b, t + 1),    s = last bit of K,    Z = K + s Delta,    pi = s + p q

The broker, who holds labels A and B with select bits s_a and s_b, computes ::

    H(A, t) + s_a T_G + H(B, t + 1) + s_b (T_E + A)

These are half gates, written so that Z never depends on a private bit. Private bits enter
ciphertexts in p and q alone, and pi_a and pi_b are uniform to whoever holds one label of each. A
half gate, of a known bit q and a label, has only T_G, and K = H(Z_a, t).

=================  =======================================================================
event message      for each bit of the event that is used, the label of its value
interest message   ciphertexts; number of the round, 8 bytes; pi of the outputs, a bit each
=================  =======================================================================

Shared randomness of a pair is Delta, but for its last bit, and the label of 0 of each event bit.

Hazard: randomness must be uniform, shared by the two parties only, and used for one pair only. Two
event messages of one pair show Delta, and with it everything.

Sources: Yao, FOCS 1986; Kolesnikov and Schneider, ICALP 2008 (free XOR); Zahur, Rosulek and Evans,
EUROCRYPT 2015 (half gates); Feige, Kilian and Naor, STOC 1994 (the three parties).
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bools, Bytes, Index, Rounds, Words, slices
from ccbps.checks import array
from ccbps.circuits.circuit import Circuit
from ccbps.compiled import rows_compiled
from ccbps.encodings.garbling.hashing import (
    SLACK,
    GateCiphers,
    groups_of,
    spread,
    tweaks,
)
from ccbps.encodings.garbling.plan import GarblingPlan, Layer
from ccbps.encodings.rows import (
    Draw,
    PairEncoding,
    draw_rows,
    require_inputs,
    require_rows,
    used_bits,
)

COMPILED: Final = "encodings.garbling.compiled_gates"
LABEL_BYTES: Final = 16
ROUND_BYTES: Final = 8
GATE_ROWS: Final = 4500
"""Gates of a layer times rows, on average, that are treated together, for the cache."""
LEAST_ROWS: Final = 32
MOST_ROWS: Final = 1020
"""Largest number of rows treated together; no multiple of a large power of two, so that the labels
of a row do not share places of the cache."""
_ONE: Final = np.uint64(1)


class GarbledEncoding(PairEncoding):
    """Encoders, decoder and simulator of one circuit.

    Inputs are rows of packed bits: bit i of a party's input is bit ``i % 64``, counted from the low
    end, of word ``i // 64``.

    Attributes:
        plan: gates and labels.
        ciphers: the gates' public keys.
        outputs: number of outputs of the circuit.
    """

    def __init__(self, circuit: Circuit, event_bits: int) -> None:
        """Plan the garbling of a circuit.

        Args:
            circuit: its inputs are the event's bits, then the interest's.
            event_bits: number of the former.

        Raises:
            ParameterError: the circuit has fewer inputs.
        """
        self.plan = plan = GarblingPlan(circuit, event_bits)
        gates = [list(map(int, gate)) for gate in circuit.gates]
        content = [plan.event_bits, circuit.inputs, gates, list(circuit.outputs)]
        name = sha256(json.dumps(content).encode()).digest()
        self.ciphers = GateCiphers(name, plan.gates + plan.half_gates)
        self.outputs = len(plan.outputs)
        self.table_bytes = LABEL_BYTES * plan.ciphertexts
        self.event_bytes = LABEL_BYTES * len(plan.used)
        self.interest_bytes = self.table_bytes + ROUND_BYTES + -(-self.outputs // 8)
        self.randomness_bytes = LABEL_BYTES * (1 + len(plan.used))
        layers = [layer for layer in plan.layers if layer.kind != "xor"]
        width = max(1, (plan.gates + plan.half_gates) // max(1, len(layers)))
        rows = min(max(GATE_ROWS // width, LEAST_ROWS), MOST_ROWS)
        self._rows = rows - 4 * (rows % 64 == 0)

    # -- messages ---------------------------------------------------------------------------------

    def encode_event(
        self, event: Words, randomness: Bytes | Draw, out: Bytes | None = None
    ) -> Bytes:
        """Encode event messages.

        Args:
            event: packed event bits, shape (batch, words); or (1, words) for one event for all.
            randomness: shape (batch, randomness_bytes), uint8, rows contiguous; or a function.
            out: place of the messages, shape (batch, event_bytes). Made when None.

        Raises:
            ShapeError: a shape does not fit.
        """
        draw, out = draw_rows(randomness, self.randomness_bytes, out, self.event_bytes)
        words = max(1, -(-self.plan.event_bits // 64))
        require_inputs("event", event, words, len(out), None, exact=True)
        bits = _unpacked(event, self.plan.event_bits)[:, self.plan.used]
        for at in slices(len(out), self._rows):
            delta, labels = self._labels(draw(at.start, at.stop))
            mask = _masks(bits if len(bits) == 1 else bits[at])
            for word in range(2):
                labels[..., word] ^= mask & delta[:, word, None]
            out[at] = labels.view(np.uint8).reshape(len(labels), -1)
        return out

    def encode_interest(
        self,
        interest: Words,
        randomness: Bytes | Draw,
        out: Bytes | None = None,
        *,
        rounds: Rounds,
        index: Index | None = None,
    ) -> Bytes:
        """Garble the circuit, with interests folded in.

        Args:
            interest: packed interest bits, shape (rows, words).
            randomness: as for events.
            out: as for events, of interest_bytes.
            rounds: number of each pair's round, which the broker learns; shape (batch,).
            index: row of `interest` for each message, where few interests serve many messages.

        Raises:
            ShapeError: a shape does not fit.
        """
        draw, out = draw_rows(randomness, self.randomness_bytes, out, self.interest_bytes)
        words = max(1, -(-self.plan.interest_bits // 64))
        require_inputs("interest", interest, words, len(out), index, exact=True)
        array("rounds", rounds, np.uint64, (len(out),))
        known = self.plan.known_bits(_unpacked(interest, self.plan.interest_bits)).T
        if index is None and len(interest) > 1:
            index = np.arange(len(out))
        kernels, room = self._compiled(len(out)), None
        for at in slices(len(out), self._rows):
            delta, labels = self._labels(draw(at.start, at.stop))
            own, chosen = rounds[at], None if index is None else index[at]
            for block, rows in groups_of(own):
                numbers = own[rows]
                if room is None or room.rows != len(numbers):
                    room = _Garbler(self, len(numbers), kernels)
                part = None if chosen is None else chosen[rows]
                inputs = delta[rows], labels[rows], known
                if isinstance(rows, slice):
                    room.garble(*inputs, part, block, numbers, out[at])
                else:
                    messages = np.empty((len(rows), self.interest_bytes), dtype=np.uint8)
                    room.garble(*inputs, part, block, numbers, messages)
                    out[at.start + rows] = messages
        return out

    def _decode(self, events: Bytes, interests: Bytes) -> tuple[Bools, Bools]:
        answers = self.open(events, interests)
        unused = ~used_bits(self.outputs)
        return answers[:, 0], interests[:, -1] & unused != 0

    def open(self, events: Bytes, interests: Bytes) -> Bools:
        """Evaluate garbled circuits.

        Args:
            events: shape (batch, event_bytes), uint8, rows contiguous.
            interests: shape (batch, interest_bytes), likewise.

        Returns:
            all outputs, shape (batch, outputs).

        Raises:
            ShapeError: a shape does not fit.
        """
        require_rows("events", events, self.event_bytes)
        require_rows("interests", interests, self.interest_bytes, len(events))
        tail = np.ascontiguousarray(interests[:, self.table_bytes :])
        rounds = tail[:, :ROUND_BYTES].copy().view("<u8")[:, 0]
        turns = np.unpackbits(tail[:, ROUND_BYTES:], axis=1, bitorder="little")
        out = turns[:, : self.outputs].view(np.bool_)
        kernels, room = self._compiled(len(events)), None
        for at in slices(len(events), self._rows):
            own = rounds[at]
            for block, rows in groups_of(own):
                sent, wanted, numbers = events[at][rows], interests[at][rows], own[rows]
                if room is None or room.rows != len(numbers):
                    room = _Evaluator(self, len(numbers), kernels)
                out[at][rows] ^= room.evaluate(sent, wanted, block, numbers)
        return out

    def simulate(self, answers: Bools, uniform: Bytes, rounds: Rounds) -> tuple[Bytes, Bytes]:
        """Make pairs of messages from the answers alone, like the real ones (SIM).

        Args:
            answers: shape (batch, outputs), bool.
            uniform: fresh uniform bytes, shape (batch, event_bytes + table_bytes).
            rounds: number of each pair's round, shape (batch,).

        Returns:
            event messages (batch, event_bytes) and interest messages (batch, interest_bytes).
        """
        require_rows("uniform", uniform, self.event_bytes + self.table_bytes, len(answers))
        array("answers", answers, np.bool_, (len(answers), self.outputs))
        array("rounds", rounds, np.uint64, (len(answers),))
        events = uniform[:, : self.event_bytes].copy()
        interests = np.zeros((len(answers), self.interest_bytes), dtype=np.uint8)
        interests[:, : self.table_bytes] = uniform[:, self.event_bytes :]
        self._write_tail(interests, rounds, np.zeros_like(answers))
        wrong = self.open(events, interests) ^ answers
        self._write_tail(interests, rounds, wrong)
        return events, interests

    def _compiled(self, batch: int) -> Any:
        """Return the module of compiled kernels, or None where NumPy does the work."""
        if not rows_compiled(batch, 2 * self.plan.ciphertexts, COMPILED):
            return None
        from ccbps.encodings.garbling import compiled_gates

        return compiled_gates

    def _write_tail(self, out: Bytes, rounds: Rounds, turns: Bools) -> None:
        """Write all that follows the ciphertexts."""
        tail = out[:, self.table_bytes :]
        tail[:, :ROUND_BYTES] = rounds.astype("<u8").view(np.uint8).reshape(-1, ROUND_BYTES)
        tail[:, ROUND_BYTES:] = np.packbits(turns, axis=1, bitorder="little")

    def _labels(self, random: Bytes) -> tuple[Words, Words]:
        """Return Delta of each row, (rows, 2), and labels of 0, (rows, used bits, 2)."""
        words = np.array(random, order="C").view(np.uint64).reshape(len(random), -1, 2)
        delta = words[:, 0].copy()
        delta[:, 1] |= _ONE
        return delta, words[:, 1:]


class _Garbler:
    """Arrays for garbling so many rows at a time."""

    def __init__(self, encoding: GarbledEncoding, rows: int, kernels: Any) -> None:
        self._encoding, self.rows, self._kernels = encoding, rows, kernels
        plan = encoding.plan
        # Z and pi of each label; a bit is a mask, a word of all ones or none.
        self._labels = np.empty((plan.labels, rows, 2), dtype=np.uint64)
        self._bits = np.empty((plan.labels, rows), dtype=np.uint64)
        width = _width(plan.layers)
        self._places = np.empty((4, width * 2 * rows * 2), dtype=np.uint64)
        self._sources = np.empty(width * 4 * rows * 2, dtype=np.uint64)
        self._enciphered = np.empty(width * 4 * rows * 2 + SLACK, dtype=np.uint64)

    def garble(
        self,
        delta: Words,
        labels: Words,
        known: Bools,
        index: Index | None,
        block: int,
        rounds: Rounds,
        out: Bytes,
    ) -> None:
        """Write interest messages.

        Args:
            delta: Delta of each row, shape (rows, 2).
            labels: labels of 0 of the event's bits, shape (rows, used bits, 2).
            known: known bits of interests, shape (known bits, interests).
            index: interest of each row; None where there is one.
            block: block of the rounds.
            rounds: number of each row's round.
            out: place of the messages.
        """
        plan, rows = self._encoding.plan, self.rows
        # Known bits as masks, (known bits, rows) or (known bits, 1).
        self._known = _masks(known if index is None else known.take(index, axis=1))
        self._delta, self._spread_delta = delta, np.empty_like(delta)
        spread(delta, np.zeros(rows, np.uint64), self._spread_delta, np.empty(rows, np.uint64))
        inputs, bits = self._labels[: len(plan.used)], self._bits[: len(plan.used)]
        inputs[...] = labels.transpose(1, 0, 2)
        _select_masks(inputs, bits)
        for word in range(2):
            inputs[..., word] ^= bits & delta[:, word]
        tweak = tweaks(rounds)
        for layer in plan.layers:
            if layer.kind == "xor":
                for own in (self._labels, self._bits):
                    _sums(own, layer, self._kernels)
            else:
                self._layer(layer, block, tweak, out)
        turns = np.empty((rows, len(plan.outputs)), dtype=np.bool_)
        for place, (label, turn) in enumerate(plan.outputs):
            turns[:, place] = self._known[turn] != 0
            if label >= 0:
                turns[:, place] ^= self._bits[label] != 0
        self._encoding._write_tail(out, rounds, turns)

    def _layer(self, layer: Layer, block: int, tweak: Rounds, out: Bytes) -> None:
        """Garble gates, or half gates, that do not depend on one another."""
        count, kernels = layer.size, self._kernels
        each = len(layer.operands) // count
        size = 2 * count * each * self.rows
        sources, room = self._sources[: 2 * size], self._enciphered[: 2 * size + SLACK]
        tables = self._places[0][:size].reshape(count, each, self.rows, 2)
        turns, known = self._known[layer.turns], self._known[layer.known]
        ciphers, spread_delta = self._encoding.ciphers, self._spread_delta
        blocks = sources.reshape(count, each, 2, self.rows, 2)
        if kernels is None:
            self._read(layer, tweak, blocks)
            ciphers.encipher(layer.gate, block, blocks, room)
            self._make(layer, turns, known, blocks, room[:-SLACK].reshape(blocks.shape), tables)
        else:
            own = self._labels, layer.operands
            kernels.garbling_sources(*own, tweak, spread_delta, each, sources)
            ciphers.encipher(layer.gate, block, blocks, room)
            labels, operands = own
            kernels.garble(
                labels, self._bits, operands, turns, known, each, sources, room, self._delta,
                spread_delta, layer.first, tables,
            )  # fmt: skip
        at = LABEL_BYTES * layer.start
        target = out[:, at : at + LABEL_BYTES * count * each].view("V16")
        target[...] = tables.reshape(-1, self.rows, 2).view("V16")[:, :, 0].T

    def _read(self, layer: Layer, tweak: Rounds, sources: Words) -> None:
        """Write sigma(Z) + t, and sigma(Z + Delta) + t, of all operands."""
        count, each = sources.shape[:2]
        shape = count, each, self.rows, 2
        labels, words = (part[: sources.size // 2].reshape(shape) for part in self._places[1:3])
        self._labels.take(layer.operands, axis=0, out=labels.reshape(-1, self.rows, 2), mode="clip")
        spread(labels, tweak[:each], sources[:, :, 0], words[..., 0])
        np.bitwise_xor(sources[:, :, 0], self._spread_delta, out=sources[:, :, 1])

    def _make(
        self,
        layer: Layer,
        turns: Words,
        known: Words,
        sources: Words,
        enciphered: Words,
        tables: Words,
    ) -> None:
        """Write the ciphertexts, and the labels and bits that gates make."""
        count, each = sources.shape[:2]
        shape, delta = (count, each, self.rows, 2), self._delta
        # `labels` are the operands, from `_read`.
        labels, words, made = (part[: tables.size].reshape(shape) for part in self._places[1:4])
        turned, spare = words.reshape(2, count, each, self.rows)
        # p and q. The known bit of a half gate is q.
        self._bits.take(layer.operands, axis=0, out=turned.reshape(-1, self.rows), mode="clip")
        turned ^= turns.reshape(count, each, -1)
        p = turned[:, 0]
        q = turned[:, 1] if each == 2 else known
        other = turned[:, ::-1] if each == 2 else known[:, None]
        # The ciphertexts.
        np.bitwise_xor(enciphered[:, :, 0], enciphered[:, :, 1], out=tables)
        tables ^= self._spread_delta
        for word in range(2):
            np.bitwise_and(other, delta[:, word], out=made[..., word])
        tables ^= made
        if each == 2:
            tables[:, 1] ^= labels[:, 0]
        # The outputs: K, and with it Z and pi.
        output = self._labels[layer.first : layer.first + count]
        hashes = np.bitwise_xor(enciphered[:, :, 0], sources[:, :, 0], out=labels)
        if each == 2:
            np.bitwise_xor(hashes[:, 0], hashes[:, 1], out=output)
        else:
            output[...] = hashes[:, 0]
        select = spare[:, 0]
        _select_masks(output, select)
        p &= q
        np.bitwise_xor(p, select, out=self._bits[layer.first : layer.first + count])
        for word in range(2):
            output[..., word] ^= np.bitwise_and(select, delta[:, word], out=p)


class _Evaluator:
    """Arrays for evaluating so many rows at a time."""

    def __init__(self, encoding: GarbledEncoding, rows: int, kernels: Any) -> None:
        self._encoding, self.rows, self._kernels = encoding, rows, kernels
        plan, width = encoding.plan, _width(encoding.plan.layers)
        self._labels = np.empty((plan.labels, rows, 2), dtype=np.uint64)
        self._places = np.empty((4, width * 2 * rows * 2), dtype=np.uint64)
        self._enciphered = np.empty(width * 2 * rows * 2 + SLACK, dtype=np.uint64)

    def evaluate(self, events: Bytes, interests: Bytes, block: int, rounds: Rounds) -> Bools:
        """Return the select bits of outputs, shape (rows, outputs); 0 where there is no label."""
        plan, labels = self._encoding.plan, self._labels
        if len(plan.used):
            labels[: len(plan.used)].view("V16")[:, :, 0] = events.view("V16").T
        tweak = tweaks(rounds)
        for layer in plan.layers:
            if layer.kind == "xor":
                _sums(labels, layer, self._kernels)
            else:
                self._layer(layer, block, tweak, interests)
        out = np.zeros((self.rows, len(plan.outputs)), dtype=np.bool_)
        for place, (label, _) in enumerate(plan.outputs):
            if label >= 0:
                out[:, place] = labels[label, :, 1] & _ONE
        return out

    def _layer(self, layer: Layer, block: int, tweak: Rounds, interests: Bytes) -> None:
        """Evaluate gates, or half gates, that do not depend on one another."""
        count, kernels = layer.size, self._kernels
        each = len(layer.operands) // count
        shape = count, each, self.rows, 2
        size = 2 * count * each * self.rows
        labels, sources, tables, made = (part[:size].reshape(shape) for part in self._places)
        room = self._enciphered[: size + SLACK]
        at = LABEL_BYTES * layer.start
        source = interests[:, at : at + LABEL_BYTES * count * each].view("V16").T
        tables.reshape(-1, self.rows, 2).view("V16")[:, :, 0] = source
        flat = sources.reshape(-1)
        if kernels is not None:
            kernels.evaluating_sources(self._labels, layer.operands, tweak, each, flat)
            self._encoding.ciphers.encipher(layer.gate, block, sources, room)
            kernels.evaluate(self._labels, layer.operands, each, flat, room, layer.first, tables)
            return
        self._labels.take(layer.operands, axis=0, out=labels.reshape(-1, self.rows, 2), mode="clip")
        spread(labels, tweak[:each], sources, made[..., 0])
        self._encoding.ciphers.encipher(layer.gate, block, sources, room)
        if each == 2:
            tables[:, 1] ^= labels[:, 0]
        _select_masks(labels, made[..., 0])
        made[..., 1] = made[..., 0]
        made &= tables
        made ^= sources
        made ^= room[:-SLACK].reshape(shape)
        output = self._labels[layer.first : layer.first + count]
        if each == 2:
            np.bitwise_xor(made[:, 0], made[:, 1], out=output)
        else:
            output[...] = made[:, 0]


def _width(layers: tuple[Layer, ...]) -> int:
    """Return the greatest number of gates of a layer."""
    return max((layer.size for layer in layers if layer.kind != "xor"), default=0)


def _sums(rows: Words, layer: Layer, kernels: Any) -> None:
    """Write labels, or bits, that are sums of two."""
    if kernels is not None:
        kernels.sums(rows.reshape(len(rows), -1), layer.operands, layer.first)
        return
    made = rows[layer.first : layer.first + layer.size]
    np.bitwise_xor(rows[layer.operands[::2]], rows[layer.operands[1::2]], out=made)


def _select_masks(labels: Words, out: Words) -> None:
    """Write the select bits of labels as masks."""
    np.bitwise_and(labels[..., 1], _ONE, out=out)
    np.negative(out, out=out)


def _masks(bits: NDArray[Any]) -> Words:
    """Return words of all ones where a bit is set."""
    return np.negative(bits.astype(np.uint64))


def _unpacked(words: Words, bits: int) -> Bools:
    """Return packed bits, shape (rows, bits)."""
    octets = np.ascontiguousarray(words.astype("<u8", copy=False)).view(np.uint8)
    return np.unpackbits(octets, axis=1, count=bits, bitorder="little").view(np.bool_)
