"""Garbled circuits: the slow twin, the hash's keys, sizes, toy labels over all randomness, AES."""

from __future__ import annotations

import os
from hashlib import sha256, shake_256
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ccbps.circuits import Circuit, CircuitBuilder, Gate, Op, bristol
from ccbps.encodings.garbling.encoding import GarbledEncoding
from ccbps.encodings.garbling.hashing import BLOCK_BITS
from ccbps.encodings.garbling.plan import GarblingPlan
from ccbps.errors import ParameterError, ShapeError
from tests.reference import half_gates
from tests.reference.half_gates import HalfGates
from tests.support.aes_circuit import VECTORS, aes_128
from tests.support.circuit_strategies import circuits
from tests.support.effort import examples
from tests.support.kernels import both_kernels, each_kernel  # noqa: F401

Bytes = NDArray[np.uint8]
EDGE = 1 << BLOCK_BITS


def packed(rows: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Return rows of at most 64 bits, a word each."""
    return (
        np.packbits(np.pad(rows, ((0, 0), (0, 64 - rows.shape[1]))), axis=1, bitorder="little")
        .view("<u8")
        .astype(np.uint64)
    )


def uniform(encoding: GarbledEncoding, batch: int, seed: int = 0) -> Bytes:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (batch, encoding.randomness_bytes), dtype=np.uint8)


@both_kernels
@given(data=st.data(), circuit=circuits(max_inputs=7, max_gates=30, min_outputs=1))
@settings(max_examples=examples(300))
def test_messages_are_the_twins_and_outputs_the_circuits(
    data: st.DataObject, circuit: Circuit
) -> None:
    event_bits = data.draw(st.integers(0, circuit.inputs))
    encoding = GarbledEncoding(circuit, event_bits)
    batch = data.draw(st.integers(1, 5))
    inputs = np.array(
        data.draw(
            st.lists(
                st.lists(st.booleans(), min_size=circuit.inputs, max_size=circuit.inputs),
                min_size=batch,
                max_size=batch,
            )
        ),
        dtype=np.bool_,
    ).reshape(batch, circuit.inputs)
    rounds = np.array(
        data.draw(st.lists(st.integers(0, 3) | st.just(EDGE) | st.just(2**64 - 1),
                           min_size=batch, max_size=batch)),
        dtype=np.uint64,
    )  # fmt: skip
    randomness = uniform(encoding, batch, data.draw(st.integers(0, 99)))
    events, interests = packed(inputs[:, :event_bits]), packed(inputs[:, event_bits:])
    sent = encoding.encode_event(events, randomness)
    wanted = encoding.encode_interest(interests, randomness, rounds=rounds)
    assert np.array_equal(encoding.open(sent, wanted), circuit.evaluate(inputs))
    for row in range(batch):
        event, interest = inputs[row, :event_bits].tolist(), inputs[row, event_bits:].tolist()
        pair = half_gates.messages(
            encoding, event, interest, randomness[row].tobytes(), int(rounds[row])
        )
        assert (sent[row].tobytes(), wanted[row].tobytes()) == pair


def wide(width: int, depth: int) -> Circuit:
    """Many gates in few layers, with private negations; and sums between them."""
    builder = CircuitBuilder()
    x, c = builder.inputs(width), builder.inputs(width)
    for step in range(depth):
        x = [(x[i] ^ c[i]) & (x[i - 1] | c[i - step]) ^ x[i - 2] for i in range(width)]
    return builder.build(*x)


@both_kernels
def test_batches_of_several_blocks_of_rows_and_rounds() -> None:
    circuit = wide(40, 3)
    encoding, rng = GarbledEncoding(circuit, 40), np.random.default_rng(1)
    count = 700
    inputs = rng.integers(0, 2, (count, 80)).astype(np.bool_)
    index = rng.integers(0, 5, count)
    inputs[:, 40:] = inputs[:5, 40:][index]
    events, interests = packed(inputs[:, :40]), packed(inputs[:5, 40:])
    interests = packed(np.array([inputs[np.flatnonzero(index == i)[0], 40:] for i in range(5)]))
    randomness = uniform(encoding, count)
    for start in (0, EDGE - 300):
        rounds = np.arange(start, start + count, dtype=np.uint64)
        sent = encoding.encode_event(events, randomness)
        wanted = encoding.encode_interest(interests, randomness, rounds=rounds, index=index)
        assert np.array_equal(encoding.open(sent, wanted), circuit.evaluate(inputs))
        alone = [
            encoding.encode_interest(
                interests[index[row]][None], randomness[row][None], rounds=rounds[row][None]
            )
            for row in (0, 299, 300, 699)
        ]
        assert np.array_equal(np.concatenate(alone), wanted[[0, 299, 300, 699]])
        turned = rng.permutation(count)
        again = encoding.open(sent[turned], wanted[turned])
        assert np.array_equal(again, circuit.evaluate(inputs[turned]))


def test_keys_differ_by_gate_circuit_and_block_of_rounds() -> None:
    one, other = (GarbledEncoding(wide(4, depth), 4) for depth in (2, 3))
    keys = [*one.ciphers.keys(0), *one.ciphers.keys(1), *other.ciphers.keys(0)]
    assert len(set(keys)) == len(keys)
    assert len(one.ciphers.keys(0)) == one.plan.gates + one.plan.half_gates


def test_keys_follow_from_the_numbers_of_the_circuit() -> None:
    # As docs/matchers/garbled.md has it: no names of this library, no types of numbers.
    name = sha256(b"[1, 2, [[3, 0, 1], [2, 2, -1], [3, 0, 3]], [4]]").digest()
    block = (7).to_bytes(8, "little")
    keys = shake_256(b"ccbps garbled circuit keys 1" + name + block).digest(16)
    inputs: Any
    for inputs in (2, np.int64(2)):
        gates = (Op.AND, 0, 1), (Op.NOT, 2, -1), (Op.AND, 0, 3)
        circuit = Circuit(inputs, tuple(Gate(*gate) for gate in gates), (4,))
        assert type(circuit.inputs) is int
        assert GarbledEncoding(circuit, 1).ciphers.keys(7)[0] == keys


def test_what_the_garbler_knows_costs_nothing_or_half() -> None:
    builder = CircuitBuilder()
    x, y, c, d = builder.inputs(4)

    def cost(output: object) -> tuple[int, int]:
        plan = GarblingPlan(builder.build(output), 2)  # type: ignore[arg-type]
        return plan.gates, plan.half_gates

    assert cost(~(x ^ y ^ c) ^ (c & d)) == (0, 0)
    assert cost(x & c) == cost(~x | (c ^ d)) == (0, 1)
    assert cost((x ^ c) & (y ^ d) ^ c) == cost(x | ~y) == (1, 0)
    assert cost((x ^ c) & (x ^ d)) == (0, 1)  # one label
    assert cost((x ^ y ^ c) & (x & y)) == (2, 0)
    assert cost(c & d) == cost(builder.constant(True)) == (0, 0)


def test_the_simulators_messages_give_the_answers_and_have_the_right_form() -> None:
    circuit = wide(6, 2)
    encoding, rng = GarbledEncoding(circuit, 6), np.random.default_rng(5)
    answers = rng.integers(0, 2, (50, 6)).astype(np.bool_)
    width = encoding.event_bytes + encoding.table_bytes
    rounds = np.arange(50, dtype=np.uint64)
    drawn = rng.integers(0, 256, (50, width), dtype=np.uint8)
    events, interests = encoding.simulate(answers, drawn, rounds)
    assert np.array_equal(encoding.open(events, interests), answers)
    assert np.array_equal(events, drawn[:, : encoding.event_bytes])
    assert np.array_equal(interests[:, : encoding.table_bytes], drawn[:, encoding.event_bytes :])
    assert np.array_equal(interests[:, -9:-1].copy().view("<u8")[:, 0], rounds)


def test_wrong_shapes_are_refused() -> None:
    encoding = GarbledEncoding(wide(4, 1), 4)
    one = np.zeros((2, 1), dtype=np.uint64)
    random, rounds = uniform(encoding, 2), np.zeros(2, dtype=np.uint64)
    for call in (
        lambda: encoding.encode_event(one, random[:, 1:]),
        lambda: encoding.encode_event(np.zeros((3, 1), dtype=np.uint64), random),
        lambda: encoding.encode_interest(one, random, rounds=rounds[:1]),
        lambda: encoding.open(random, random),
        lambda: encoding.simulate(np.zeros((2, 4), dtype=np.bool_), random, rounds),
    ):
        with pytest.raises(ShapeError):
            call()
    with pytest.raises(ParameterError, match="event_bits"):
        GarbledEncoding(wide(4, 1), 9)


# -- toy labels: the hash is a random function -----------------------------------------------------


def views(turns: tuple[int, ...], inputs: tuple[int, int]) -> NDArray[np.int64]:
    """Count the broker's views of one gate, over Delta, labels and all values of the hash.

    Labels have 2 bits. A gate hashes two labels of each operand, which are four different points:
    their values are independent and uniform. The view is what the broker holds and may compute:
    labels, hashes of them, ciphertexts, and the turn of the output. Its answer is fixed.
    """
    alpha, beta, gamma = turns
    counts = np.zeros(1 << 13, dtype=np.int64)
    values = np.arange(256)[None] >> np.array([[0], [2], [4], [6]]) & 3
    for delta, a, b in product((2, 3), range(4), range(4)):
        points = [(0, a), (0, a ^ delta), (1, b), (1, b ^ delta)]
        table = dict(zip(points, values, strict=True))
        gates = HalfGates(1, lambda _, operand, label, table=table: table[operand, label])
        t_g, t_e, out = gates.gate(0, a ^ alpha * delta, b ^ beta * delta, delta)
        held = a ^ inputs[0] * delta, b ^ inputs[1] * delta
        seen = (*held, table[0, held[0]], table[1, held[1]], t_g, t_e)
        view = gates.select(out) ^ gamma
        for part in seen:
            view = view << 2 | part
        counts += np.bincount(view, minlength=len(counts))
    return counts


def test_all_private_negations_give_the_same_views_of_toy_labels() -> None:
    """Enumerate everything: (a + alpha) (b + beta) + gamma, for all eight and all inputs."""
    by_answer: dict[int, list[NDArray[np.int64]]] = {0: [], 1: []}
    for *turns, x, y in product(range(2), repeat=5):
        answer = (x ^ turns[0]) & (y ^ turns[1]) ^ turns[2]
        by_answer[answer].append(views(tuple(turns), (x, y)))
    for alike in by_answer.values():
        assert len(alike) == 16
        assert all(np.array_equal(other, alike[0]) for other in alike)
    # Without the turn, which stands first, not even the answer shows.
    without = [alike[0].reshape(2, -1).sum(axis=0) for alike in by_answer.values()]
    assert np.array_equal(*without)
    assert not np.array_equal(by_answer[0][0], by_answer[1][0])


@pytest.mark.parametrize("seed", range(3))
def test_the_same_for_labels_of_8_bits_whatever_is_held(seed: int) -> None:
    """Given Delta, held labels and their hashes: enumerate the hashes of the two other labels."""
    half, rng = 4, np.random.default_rng(seed)
    delta = int(rng.integers(0, 256)) | 1 << half
    held, known = rng.integers(0, 256, 2).tolist(), rng.integers(0, 256, 2).tolist()
    others = np.divmod(np.arange(1 << 16), 256)
    table = {
        (operand, held[operand] ^ other * delta): others[operand] if other else known[operand]
        for operand, other in product(range(2), repeat=2)
    }
    gates = HalfGates(half, lambda _, operand, label: table[operand, label])
    by_answer: dict[int, list[NDArray[np.int64]]] = {0: [], 1: []}
    for alpha, beta, gamma, x, y in product(range(2), repeat=5):
        # The labels of 0 that give these held labels, turned.
        zeros = held[0] ^ (x ^ alpha) * delta, held[1] ^ (y ^ beta) * delta
        t_g, t_e, out = gates.gate(0, *zeros, delta)
        turn = gates.select(out) ^ gamma
        counts = np.bincount(np.ravel(t_g << 9 | t_e << 1 | turn), minlength=1 << 17)
        by_answer[(x ^ alpha) & (y ^ beta) ^ gamma].append(counts)
    for alike in by_answer.values():
        assert len(alike) == 16 and alike[0].max() == 1
        assert all(np.array_equal(other, alike[0]) for other in alike)
    # The ciphertexts alone are uniform, and tell nothing of the answer.
    pairs = [alike[0].reshape(-1, 2).sum(axis=1) for alike in by_answer.values()]
    assert np.array_equal(*pairs) and (pairs[0] == 1).all()


def test_a_half_gate_of_8_bit_labels_hides_what_the_garbler_knows() -> None:
    """All four functions of a bit, for a wire and its turn: every ciphertext occurs once."""
    half, delta, held, known = 4, 0b1011_0110, 77, 140
    gates = HalfGates(half, lambda *_: 0)
    for alpha, bit, x in product(range(2), repeat=3):
        table = {held: known, held ^ delta: np.arange(256)}
        gates = HalfGates(half, lambda _, operand, label, table=table: table[label])
        t_g, out = gates.half_gate(0, held ^ (x ^ alpha) * delta, bit, delta)
        assert sorted(np.ravel(t_g).tolist()) == list(range(256))
        answer = np.full(256, (x ^ alpha) & bit)
        opened = known ^ gates.select(held) * t_g
        assert np.array_equal(opened ^ answer * delta, np.broadcast_to(out, 256))


# -- AES-128 ---------------------------------------------------------------------------------------


def garbled_aes(read: bristol.BristolCircuit) -> GarbledEncoding:
    """Garble an AES circuit as of a publisher with the block, and of a subscriber with the key."""
    builder = CircuitBuilder()
    block, key = builder.inputs(128), builder.inputs(128)
    return GarbledEncoding(builder.build(*builder.embed(read.circuit, [*key, *block])), 128)


def check_aes(encoding: GarbledEncoding) -> None:
    keys, blocks, expected = zip(*VECTORS, strict=True)
    sides = [
        np.frombuffer(b"".join(number.to_bytes(16, "little") for number in some), dtype="<u8")
        for some in (blocks, keys)
    ]
    randomness, rounds = uniform(encoding, len(VECTORS)), np.arange(2, dtype=np.uint64)
    sent = encoding.encode_event(sides[0].reshape(-1, 2), randomness)
    wanted = encoding.encode_interest(sides[1].reshape(-1, 2), randomness, rounds=rounds)
    octets = np.packbits(encoding.open(sent, wanted), axis=1, bitorder="little")
    assert [int.from_bytes(row.tobytes(), "little") for row in octets] == [*expected]


@pytest.mark.slow
def test_aes_128_under_a_private_key_gives_the_published_output() -> None:
    """FIPS 197, from a file of the circuit; the key schedule is the garbler's own, and free."""
    read = bristol.loads(bristol.dumps(aes_128()))
    keys, blocks, expected = zip(*VECTORS, strict=True)
    assert read.integers(keys, blocks) == [[*expected]]
    assert sum(gate.op == Op.AND for gate in read.circuit.gates) == 6400
    encoding = garbled_aes(read)
    assert (encoding.plan.gates, encoding.plan.half_gates) == (5120, 0)
    check_aes(encoding)


@pytest.mark.skipif("BRISTOL_CIRCUITS" not in os.environ, reason="BRISTOL_CIRCUITS is not set")
def test_the_published_aes_circuit_gives_the_published_output() -> None:
    """BRISTOL_CIRCUITS names a directory with published circuits; the repository holds none."""
    path = Path(os.environ["BRISTOL_CIRCUITS"]) / "aes_128.txt"
    if not path.exists():
        pytest.skip("the directory of BRISTOL_CIRCUITS has no aes_128.txt")
    check_aes(garbled_aes(bristol.load(path)))
