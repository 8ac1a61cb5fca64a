"""Onions that every node re-randomizes: universal re-encryption, with proofs for a verifier.

A path is n_1 ... n_k, with public keys y_n = g^x_n. Each node i has two blocks, ciphertexts of
`ccbps.ciphers.universal` under the product of the keys of n_1 ... n_i: one of the element that
names n_(i+1), but not for the last node, and one of a random element, the seed e_i. Blocks of
random elements fill the onion up, so its size does not depend on k. Nodes before i remove their
parts of the key. A node

- peels all blocks with its secret. Blocks whose c is then 1 open: to a name and a seed, or to a
  seed alone at the end of the path;
- removes the mask SHAKE256(e_i) from the body;
- replaces the opened blocks by elements that are hashed from the onion, of which nobody knows a
  logarithm, encrypts all blocks again and permutes them.

The last node opens the body by a key that is hashed from its seed (AES-256-GCM). No byte of an
onion is on two links.

**Return onions.** A client makes the blocks for a path that ends with itself, and leaves 1 in the
place of the last seed. Anybody replaces (a, b, c, d) there by (m c^r, d^r, c^s, d^s), which
encrypts m under the same key. The client knows the seeds of its path, and removes their masks.

**Attacks.** The same step lets a node put markers under keys that it does not know. A colluder
further on opens them: 20 of 20 (tests/security/test_attack_universal_onion.py). An element that is
multiplied by a factor serves as a marker, too. So without a verifier there is anonymity only
against passive nodes, which follow the rules.

**Proofs.** A node proves for all blocks at once that it peeled with its own secret (Chaum and
Pedersen: log_g y_n = log_b(a / a') = log_d(c / c') for each block), and for each block that it
knows the exponents with which it encrypted again. With the opened elements and the mask of the
body, that determines the node's output but for randomness. A verifier checks the proof, and so
refuses markers and factors. The verifier can link the onions before and after a node: it must be
trusted not to collude. Elements are checked to be members of the group, and c, d other than 1.

**Replays.** Re-encryption does not change seeds. A node refuses a seed that it saw before, for as
long as it has its key.
Hazards: keys need proofs of possession, which are checked here once. Times and volumes are not
hidden. Not constant time.
Sources: [GJJS04]; [Survey] section 4.2 and chapter 6; [CP92] for the proofs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256, shake_256
from itertools import chain
from typing import Final

import numpy as np

from ccbps.algebra.prime_order import Element, PrimeOrderGroup
from ccbps.arrays import Randomness
from ccbps.checks import Printable, instance, octets, whole
from ccbps.ciphers.payloads import open_sealed, seal, sealed_bytes
from ccbps.ciphers.universal import Ciphertext, UniversalCipher
from ccbps.errors import CcbpsError, DecodeError, KeyMismatchError, ParameterError, ReplayError
from ccbps.keys.secret import Confined, confined
from ccbps.overlay.onion.cells import shuffled

BOUND: Final = b"ccbps 1 universal onion"


@dataclass(frozen=True, slots=True)
class Onion:
    """An onion on its way between two nodes.

    Attributes:
        blocks: ciphertexts, of which each node opens its own.
        body: masked payload.
    """

    blocks: tuple[Ciphertext, ...]
    body: bytes


@dataclass(frozen=True, slots=True)
class ReturnOnion:
    """Blocks of a path to a client that others do not know, for one message.

    Attributes:
        blocks: ciphertexts.
        slot: place of the block that takes the seed.
    """

    blocks: tuple[Ciphertext, ...]
    slot: int


@dataclass(frozen=True, slots=True)
class Passage:
    """Proof that a node followed the rules, for a verifier only: it links the two onions.

    Attributes:
        peeled: blocks without the node's layer, in the order in which they came.
        order: place in the old onion of each block of the new one.
        challenge: challenge of the proof.
        peeling: answer for the node's secret.
        encrypting: answers for both exponents of each block, in the order in which they came.
    """

    peeled: tuple[Ciphertext, ...]
    order: tuple[int, ...]
    challenge: int
    peeling: int
    encrypting: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Step:
    """An onion that passed a node.

    Attributes:
        after: name of the next node; None at the end of the path.
        onion: onion for the next node; None at the end of the path.
        payload: payload; None before the end of the path.
        passage: proof for a verifier; None at the end of the path.
    """

    after: str | None
    onion: Onion | None
    payload: bytes | None
    passage: Passage | None


class UniversalOnions(Printable):
    """Onions over some nodes. It holds no secret.

    Args:
        group: group of the keys.
        nodes: public key of each node and the proof of possession of its secret, by name:
            ``cipher.proofs.prove(secret, context(name))``.
        most_hops: largest number of nodes on a path.
        payload_bytes: largest number of bytes of a payload.

    Attributes:
        cipher: cipher of the blocks.
        blocks: number of blocks of an onion.
        onion_bytes: bytes of an onion.
        passage_bytes: bytes of a passage.

    Raises:
        KeyMismatchError: a proof does not hold.

    Example:
        >>> from ccbps.algebra.prime_order import prime_order_group
        >>> from ccbps.ciphers.universal import UniversalCipher
        >>> from ccbps.overlay import OnionNode, UniversalOnions
        >>> group, context = prime_order_group("toy64"), UniversalOnions.context
        >>> cipher = UniversalCipher(group)
        >>> keys = {name: cipher.generate() for name in ("a", "b")}
        >>> onions = UniversalOnions(
        ...     group,
        ...     {n: (y, cipher.proofs.prove(x, context(n))) for n, (x, y) in keys.items()},
        ...     most_hops=3,
        ...     payload_bytes=64,
        ... )
        >>> nodes = {name: OnionNode(onions, name, x) for name, (x, _) in keys.items()}
        >>> first = onions.make(["a", "b"], b"hello")
        >>> step = nodes["a"].handle(first)
        >>> step.after, onions.verify("a", first, step)
        ('b', True)
        >>> nodes["b"].handle(step.onion).payload
        b'hello'
    """

    def __init__(
        self,
        group: PrimeOrderGroup,
        nodes: Mapping[str, tuple[Element, bytes]],
        *,
        most_hops: int,
        payload_bytes: int,
    ) -> None:
        self.cipher = UniversalCipher(instance("group", group, PrimeOrderGroup))
        names = [*nodes]
        publics, proofs = [nodes[n][0] for n in names], [nodes[n][1] for n in names]
        held = self.cipher.proofs.hold(publics, proofs, [self.context(name) for name in names])
        if not held.all():
            bad = ", ".join(repr(names[place]) for place in np.flatnonzero(~held))
            raise KeyMismatchError(
                f"no proof that somebody knows the secret of {bad}: leave it out"
            )
        self.publics = dict(zip(names, publics, strict=True))
        elements = {
            name: group.hash_to_group(b"ccbps onion name\0" + name.encode()) for name in names
        }
        self._elements = elements
        self._names = {group.encode(element): name for name, element in elements.items()}
        self._payload = whole("payload_bytes", payload_bytes, 1, 1 << 30)
        self.most_hops = whole("most_hops", most_hops, 1, 64)
        self.blocks = 2 * self.most_hops
        self.body_bytes = sealed_bytes(self._payload)
        block_bytes = self.blocks * self.cipher.ciphertext_bytes
        self.onion_bytes = block_bytes + self.body_bytes
        numbers = 2 + 2 * self.blocks
        self.passage_bytes = block_bytes + self.blocks + numbers * group.exponent_bytes

    def __repr__(self) -> str:
        return f"<UniversalOnions: {len(self.publics)} nodes, {self.onion_bytes} bytes>"

    @staticmethod
    def context(name: str) -> bytes:
        """Return the context of a node's proof of possession."""
        return b"ccbps onion node\0" + name.encode()

    # -- making -------------------------------------------------------------------------------

    def make(
        self, path: Sequence[str], payload: bytes, randomness: Randomness = os.urandom
    ) -> Onion:
        """Return an onion for the first node of a path.

        Args:
            path: names of distinct nodes. The last one reads the payload.
            payload: up to `payload_bytes` bytes.
            randomness: source of uniform bytes.

        Raises:
            ParameterError: the path is empty, too long, has a node twice or an unknown one, or the
                payload is too long.
        """
        seeds = self._draw(len(path), randomness)
        blocks = self._blocks_of(path, seeds, None, randomness)
        body = self._seal(payload, seeds[-1])
        for seed in seeds:
            body = self.mask(body, seed)
        return Onion(tuple(_permuted(blocks, shuffled(range(self.blocks), randomness))), body)

    def fill(
        self, given: ReturnOnion, payload: bytes, randomness: Randomness = os.urandom
    ) -> Onion:
        """Return an onion made of a return onion, with a payload for its maker.

        Args:
            given: return onion of `return_from_bytes`, which checks its elements.
            payload: up to `payload_bytes` bytes.
            randomness: source of uniform bytes.
        """
        group = self.cipher.group
        (seed,) = self._draw(1, randomness)
        slot = whole("slot", given.slot, 0, self.blocks - 1)
        _, _, c, d = given.blocks[slot]
        r, s = group.random_exponents(2, randomness)
        masked, base, c, d = group.powers([c, d, c, d], [r, r, s, s])
        blocks = self.cipher.reencrypt(given.blocks, randomness)
        blocks[slot] = (group.multiply(seed, masked), base, c, d)
        body = self.mask(self._seal(payload, seed), seed)
        return Onion(tuple(_permuted(blocks, shuffled(range(self.blocks), randomness))), body)

    def _draw(self, count: int, randomness: Randomness) -> list[Element]:
        group = self.cipher.group
        return group.generator_powers(group.random_exponents(count, randomness))

    def _blocks_of(
        self,
        path: Sequence[str],
        seeds: Sequence[Element],
        label: Element | None,
        randomness: Randomness,
    ) -> list[Ciphertext]:
        """Return the blocks of a path, those of the last node first, and others to fill up."""
        whole("hops", len(path), 1, self.most_hops)
        if len({*path}) < len(path) or not {*path} <= self.publics.keys():
            raise ParameterError("path must have distinct nodes whose keys are known")
        group, key = self.cipher.group, self.cipher.group.identity
        named = [*(self._elements[name] for name in path[1:]), label]
        blocks: list[Ciphertext] = []
        for name, seed, element in zip(path, seeds, named, strict=True):
            key = group.multiply(key, self.publics[name])
            messages = [seed] if element is None else [seed, element]
            blocks[:0] = self.cipher.encrypt(key, messages, randomness)
        spare = self._draw(4 * (self.blocks - len(blocks)), randomness)
        return blocks + [tuple(spare[at : at + 4]) for at in range(0, len(spare), 4)]

    # -- bodies -------------------------------------------------------------------------------

    def mask(self, body: bytes, seed: Element) -> bytes:
        """Add or remove the mask of a seed."""
        stream = shake_256(b"ccbps onion body\0" + self.cipher.group.encode(seed)).digest(len(body))
        return bytes(np.frombuffer(body, np.uint8) ^ np.frombuffer(stream, np.uint8))

    def _key(self, seed: Element) -> bytes:
        return sha256(b"ccbps onion payload\0" + self.cipher.group.encode(seed)).digest()

    def _seal(self, payload: bytes, seed: Element) -> bytes:
        content = octets("payload", payload)
        if len(content) > self._payload:
            raise ParameterError(f"payload has at most {self._payload} bytes, got {len(content)}")
        return seal(content, self._key(seed), BOUND, pad_to=self._payload + 1)

    def unseal(self, body: bytes, seed: Element) -> bytes:
        """Return the payload of a body without masks.

        Raises:
            DecodeError: the body was changed, or has another key.
        """
        return open_sealed(body, self._key(seed), BOUND)

    # -- bytes --------------------------------------------------------------------------------

    def to_bytes(self, onion: Onion) -> bytes:
        """Return an onion as `onion_bytes` bytes."""
        return self.cipher.to_rows(onion.blocks).tobytes() + onion.body

    def from_bytes(self, data: bytes) -> Onion:
        """Read the bytes of `to_bytes`.

        Raises:
            DecodeError: there are more or fewer, or elements are none, or the identity.
        """
        if len(octets("data", data)) != self.onion_bytes:
            raise DecodeError(f"an onion has {self.onion_bytes} bytes, got {len(data)}")
        rows = np.frombuffer(data[: -self.body_bytes], np.uint8).reshape(self.blocks, -1)
        return Onion(tuple(self.cipher.from_rows(rows)), data[-self.body_bytes :])

    def passage_to_bytes(self, passage: Passage) -> bytes:
        """Return a passage as `passage_bytes` bytes."""
        width = self.cipher.group.exponent_bytes
        numbers = [passage.challenge, passage.peeling, *chain(*passage.encrypting)]
        return (
            self.cipher.to_rows(passage.peeled).tobytes()
            + bytes(passage.order)
            + b"".join(number.to_bytes(width, "big") for number in numbers)
        )

    def passage_from_bytes(self, data: bytes) -> Passage:
        """Read the bytes of `passage_to_bytes`. Whether the proof holds is up to `verify`.

        Raises:
            DecodeError: there are more or fewer, or elements are none, or the order is not one of
                all blocks, or numbers are not below the group's order.
        """
        if len(octets("data", data)) != self.passage_bytes:
            raise DecodeError(f"a passage has {self.passage_bytes} bytes, got {len(data)}")
        group, width = self.cipher.group, self.cipher.group.exponent_bytes
        end = self.blocks * self.cipher.ciphertext_bytes
        rows, one = np.frombuffer(data[:end], np.uint8), group.encode(group.identity)
        rows = rows.reshape(4 * self.blocks, -1)
        # Opened blocks hold the identity.
        elements = [
            group.identity if row.tobytes() == one else element
            for row, element in zip(rows, group.decode_many(rows), strict=True)
        ]
        order, end = (*data[end : end + self.blocks],), end + self.blocks
        numbers = [
            int.from_bytes(data[at : at + width], "big") for at in range(end, len(data), width)
        ]
        if (
            any(element is None for element in elements)
            or sorted(order) != [*range(self.blocks)]
            or max(numbers) >= group.order
        ):
            raise DecodeError("a passage holds what is no element, order or exponent")
        blocks = zip(*(elements[part::4] for part in range(4)), strict=True)
        pairs = zip(numbers[2::2], numbers[3::2], strict=True)
        return Passage((*blocks,), order, numbers[0], numbers[1], (*pairs,))

    def return_to_bytes(self, given: ReturnOnion) -> bytes:
        """Return a return onion as bytes, to be given out."""
        return self.cipher.to_rows(given.blocks).tobytes() + bytes([given.slot])

    def return_from_bytes(self, data: bytes) -> ReturnOnion:
        """Read the bytes of `return_to_bytes`, which anybody may have made.

        Raises:
            DecodeError: there are more or fewer, or elements are none, or the identity.
        """
        size = self.blocks * self.cipher.ciphertext_bytes
        if len(octets("data", data)) != size + 1 or data[size] >= self.blocks:
            raise DecodeError(f"a return onion has {size + 1} bytes, got {len(data)}, or no slot")
        rows = np.frombuffer(data[:size], np.uint8).reshape(self.blocks, -1)
        return ReturnOnion(tuple(self.cipher.from_rows(rows)), data[size])

    # -- rules that nodes and verifiers share -------------------------------------------------

    def bases(self, onion: Onion, peeled: Sequence[Ciphertext]) -> list[Ciphertext]:
        """Return the blocks that a node encrypts again: peeled ones, and hashes for opened ones."""
        group = self.cipher.group
        head = sha256(b"ccbps onion filling\0" + self.to_bytes(onion)).digest()
        return [
            tuple(group.hash_to_group(head + bytes([place, part])) for part in range(4))
            if block[2] == group.identity
            else block
            for place, block in enumerate(peeled)
        ]

    def opened(self, peeled: Sequence[Ciphertext]) -> tuple[list[str], list[Element]]:
        """Return names and other elements of the blocks that opened."""
        group = self.cipher.group
        elements = [block[0] for block in peeled if block[2] == group.identity]
        names = [self._names.get(group.encode(element)) for element in elements]
        others = [e for e, name in zip(elements, names, strict=True) if name is None]
        return [name for name in names if name is not None], others

    def prove(
        self,
        name: str,
        secret: int,
        onion: Onion,
        peeled: Sequence[Ciphertext],
        exponents: Sequence[tuple[int, int]],
        order: Sequence[int],
        after: Onion,
        randomness: Randomness,
    ) -> Passage:
        """Return the proof of a node that it followed the rules."""
        group, bases = self.cipher.group, self.bases(onion, peeled)
        nonces = group.random_exponents(1 + 2 * len(bases), randomness)
        k, pairs = nonces[0], [*zip(nonces[1::2], nonces[2::2], strict=True)]
        columns = _columns(onion.blocks)
        commitments = [group.generator_power(k), *group.powers(columns[1] + columns[3], k)]
        commitments += self._powers(bases, pairs)
        e = self._challenge(name, onion, peeled, order, after, commitments)
        q = group.order
        return Passage(
            tuple(peeled),
            tuple(order),
            e,
            int((k + e * secret) % q),
            tuple(
                (int((k0 + e * r0) % q), int((k1 + e * r1) % q))
                for (k0, k1), (r0, r1) in zip(pairs, exponents, strict=True)
            ),
        )

    def verify(self, name: str, before: Onion, step: Step) -> bool:
        """Tell whether a node followed the rules.

        Args:
            name: name of the node.
            before: onion that it received, from `from_bytes` or from a verified step.
            step: onion that the node sent, with its passage. No content of it raises an error.
        """
        # The node chose all of the step: numbers that are no elements, blocks of other lengths.
        with suppress(CcbpsError, TypeError, ValueError, IndexError, AttributeError):
            return self._verify(name, before, step)
        return False

    def _verify(self, name: str, before: Onion, step: Step) -> bool:
        passage, onion, group = step.passage, step.onion, self.cipher.group
        if passage is None or onion is None or name not in self.publics:
            return False
        peeled, count = passage.peeled, len(before.blocks)
        shapes = {len(peeled), len(passage.encrypting), len(onion.blocks), self.blocks}
        if shapes != {count} or sorted(passage.order) != [*range(count)]:
            return False
        if not all(self._are_members(blocks) for blocks in (before.blocks, peeled, onion.blocks)):
            return False
        if any(group.identity in block for block in onion.blocks):
            return False
        # The bases of both equations of a peeled block stay as they were.
        if any(
            old[1] != new[1] or old[3] != new[3]
            for old, new in zip(before.blocks, peeled, strict=True)
        ):
            return False
        names, seeds = self.opened(peeled)
        if names != [step.after] or len(seeds) != 1:
            return False
        if onion.body != self.mask(before.body, seeds[0]):
            return False
        e, s = passage.challenge, passage.peeling
        old, bare, bases = _columns(before.blocks), _columns(peeled), self.bases(before, peeled)
        made: list[Ciphertext] = [()] * count  # type: ignore[list-item]
        for place, block in zip(passage.order, onion.blocks, strict=True):
            made[place] = block
        new, base = _columns(made), _columns(bases)
        statements = [self.publics[name]]
        statements += group.quotients(old[0] + old[2], bare[0] + bare[2])
        statements += group.quotients(new[0] + new[1], base[0] + base[1]) + new[2] + new[3]
        left = [group.generator_power(s), *group.powers(old[1] + old[3], s)]
        left += self._powers(bases, passage.encrypting)
        commitments = group.quotients(left, group.powers(statements, e))
        return e == self._challenge(name, before, peeled, passage.order, onion, commitments)

    def _powers(
        self, bases: Sequence[Ciphertext], pairs: Sequence[tuple[int, int]]
    ) -> list[Element]:
        """Return c^r0, d^r0, c^r1 and d^r1 of all blocks."""
        _, _, c, d = _columns(bases)
        r0, r1 = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        return self.cipher.group.powers(c + d + c + d, r0 + r0 + r1 + r1)

    def _are_members(self, blocks: Sequence[Ciphertext]) -> bool:
        group = self.cipher.group
        elements = [element for block in blocks for element in block]
        decoded = group.decode_many(group.encode_many(elements))
        return all(
            one is not None or element == group.identity
            for one, element in zip(decoded, elements, strict=True)
        )

    def _challenge(
        self,
        name: str,
        onion: Onion,
        peeled: Sequence[Ciphertext],
        order: Sequence[int],
        after: Onion,
        commitments: Sequence[Element],
    ) -> int:
        group = self.cipher.group
        parts = [name.encode(), self.to_bytes(onion), self.cipher.to_rows(peeled).tobytes()]
        parts += [bytes(order), self.to_bytes(after), group.encode_many(commitments).tobytes()]
        digest = sha256(b"".join(sha256(part).digest() for part in parts)).digest()
        return int(group.hash_to_exponent(b"ccbps onion passage\0" + group.name.encode() + digest))


class OnionNode(Confined):
    """A node that passes onions on, and reads those that end here.

    Args:
        onions: the onions of its network.
        name: its name there.
        secret: its secret key x.
        randomness: source of uniform bytes.

    Raises:
        KeyMismatchError: the secret is not the one of the node's public key.
    """

    @confined
    def __init__(
        self,
        onions: UniversalOnions,
        name: str,
        secret: int,
        randomness: Randomness = os.urandom,
    ) -> None:
        if onions.publics.get(name) != onions.cipher.group.generator_power(secret):
            raise KeyMismatchError(f"this is not the secret of {name!r}")
        self._onions, self._name, self._secret = onions, name, secret
        self._random = randomness
        self._seen: set[bytes] = set()
        self._replies: dict[bytes, list[Element]] = {}

    def __repr__(self) -> str:
        return f"<OnionNode {self._name}>"

    def reply_onion(self, path: Sequence[str]) -> ReturnOnion:
        """Return a return onion that ends here, for one message.

        Args:
            path: names of the nodes before this one.
        """
        onions, group = self._onions, self._onions.cipher.group
        label, *seeds = onions._draw(1 + len(path), self._random)
        hops, messages = [*path, self._name], [*seeds, group.identity]
        blocks = onions._blocks_of(hops, messages, label, self._random)
        order = shuffled(range(onions.blocks), self._random)
        self._replies[group.encode(label)] = seeds
        return ReturnOnion(tuple(_permuted(blocks, order)), order.index(0))

    @confined
    def handle(self, onion: Onion) -> Step:
        """Remove the layer of an onion; re-randomize it for the next node, or read it.

        Args:
            onion: onion of `UniversalOnions.from_bytes`, which refuses elements outside the group.
                These would make the onion recognizable on later links.

        Raises:
            DecodeError: it has another form, or is not for this node, or was changed.
            ReplayError: it passed here before, in any encryption.
        """
        onions, cipher, group = self._onions, self._onions.cipher, self._onions.cipher.group
        if len(onion.blocks) != onions.blocks or len(onion.body) != onions.body_bytes:
            raise DecodeError("an onion of this network has other blocks or another body")
        if any(group.identity in block[2:] for block in onion.blocks):
            raise DecodeError("a block of an onion would stay recognizable: its c or d is 1")
        peeled = cipher.peel(self._secret, onion.blocks)
        names, others = onions.opened(peeled)
        masks: list[Element] = []
        label = next((e for e in map(group.encode, others) if e in self._replies), b"")
        if label:
            masks, others = self._replies[label], [e for e in others if group.encode(e) != label]
        if len(others) != 1 or len(names) > 1:
            raise DecodeError("an onion is not for this node, or blocks were changed on the way")
        seed = others[0]
        if (mark := sha256(group.encode(seed)).digest()) in self._seen:
            raise ReplayError("an onion with this seed passed here before")
        self._seen.add(mark)
        self._replies.pop(label, None)
        body = onions.mask(onion.body, seed)
        if not names:
            for mask in masks:
                body = onions.mask(body, mask)
            return Step(None, None, onions.unseal(body, seed), None)
        bases, count = onions.bases(onion, peeled), onions.blocks
        draws = group.random_exponents(2 * count, self._random)
        exponents = [*zip(draws[:count], draws[count:], strict=True)]
        powers = onions._powers(bases, exponents)
        columns = _columns(bases)
        fresh = group.products(columns[0] + columns[1], powers[: 2 * count])
        made: list[Ciphertext] = [
            *zip(
                fresh[:count],
                fresh[count:],
                powers[2 * count : 3 * count],
                powers[3 * count :],
                strict=True,
            )
        ]
        order = shuffled(range(count), self._random)
        after = Onion(tuple(_permuted(made, order)), body)
        passage = onions.prove(
            self._name, self._secret, onion, peeled, exponents, order, after, self._random
        )
        return Step(names[0], after, None, passage)


def _columns(blocks: Sequence[Ciphertext]) -> list[list[Element]]:
    return [[block[part] for block in blocks] for part in range(4)]


def _permuted(blocks: Sequence[Ciphertext], order: Sequence[int]) -> list[Ciphertext]:
    return [blocks[place] for place in order]
