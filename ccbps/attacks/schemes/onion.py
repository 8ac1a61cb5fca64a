"""Attacks on onions for several nodes: rogue keys, and tags that survive re-encryption.

The adversary is one node, or two nodes of a path with honest nodes between them. The first node
changes an onion so that the second one recognizes it, which links the ends of the path.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from math import comb

import numpy as np

from ccbps.algebra.modular import jacobi
from ccbps.algebra.prime_order import Element, prime_order_group
from ccbps.arrays import Randomness
from ccbps.attacks.catalogue import Curve, Figure, Outcome, attack
from ccbps.checks import whole
from ccbps.ciphers.universal import Ciphertext, UniversalCipher
from ccbps.errors import DecodeError, KeyMismatchError
from ccbps.overlay.onion.universal_onion import Onion, OnionNode, Step, UniversalOnions


def rogue_key(
    cipher: UniversalCipher, others: Sequence[Element], randomness: Randomness = os.urandom
) -> tuple[int, Element]:
    """Return the key y = g^x / (product of others), and x, which opens a product of all alone.

    Args:
        cipher: the cipher.
        others: public keys of the other nodes.
        randomness: source of x.
    """
    group = cipher.group
    secret = group.random_exponent(randomness)
    product = reduce(group.multiply, others, group.identity)
    (public,) = group.quotients([group.generator_power(secret)], [product])
    return int(secret), public


def marked(cipher: UniversalCipher, block: Ciphertext, marker: Element) -> Ciphertext:
    """Replace the content of a block by a marker under the block's key, without knowing the key.

    Args:
        cipher: the cipher.
        block: a ciphertext.
        marker: an element.
    """
    group = cipher.group
    r, s = group.random_exponents(2)
    _, _, c, d = block
    masked, base, c, d = group.powers([c, d, c, d], [r, r, s, s])
    return group.multiply(marker, masked), base, c, d


def multiplied(cipher: UniversalCipher, block: Ciphertext, factor: Element) -> Ciphertext:
    """Multiply the content of a block by a factor.

    Args:
        cipher: the cipher.
        block: a ciphertext.
        factor: an element.
    """
    a, b, c, d = block
    return cipher.group.multiply(a, factor), b, c, d


def with_sign(cipher: UniversalCipher, block: Ciphertext) -> Ciphertext:
    """Multiply the content of a block by -1, which is not in the group.

    Args:
        cipher: the cipher, over a group of squares.
        block: a ciphertext.
    """
    a, b, c, d = block
    return _modulus(cipher) - a, b, c, d


def signs_of(cipher: UniversalCipher, blocks: Sequence[Ciphertext]) -> list[int]:
    """Return the Legendre symbols of blocks, which anybody can compute: -1 for a sign, else 1.

    Args:
        cipher: the cipher, over a group of squares.
        blocks: blocks of an onion.
    """
    return [jacobi(int(a), _modulus(cipher)) for a, *_ in blocks]


def _modulus(cipher: UniversalCipher) -> int:
    return int(cipher.group.modulus)  # type: ignore[attr-defined]


def with_copies(cipher: UniversalCipher, peeled: Sequence[Ciphertext]) -> list[Ciphertext]:
    """Put copies of other blocks in the places of those that opened.

    Args:
        cipher: the cipher.
        peeled: blocks without the layer of the attacker.
    """
    closed = [block for block in peeled if block[2] != cipher.group.identity]
    return cipher.reencrypt([*closed, *closed[: len(peeled) - len(closed)]])


def opened_by(cipher: UniversalCipher, secret: int, blocks: Sequence[Ciphertext]) -> list[Element]:
    """Return the contents of the blocks that a node can open.

    Args:
        cipher: the cipher.
        secret: secret key of the node.
        blocks: blocks of an onion.
    """
    return [element for element in cipher.decrypt(secret, blocks) if element is not None]


def _network(
    hops: int, random: np.random.Generator
) -> tuple[UniversalOnions, list[str], list[int]]:
    """Return a network of one path, with the names of its nodes and their secrets."""
    group = prime_order_group("toy64")
    cipher = UniversalCipher(group)
    path = [f"node {place}" for place in range(hops)]
    keys = [cipher.generate(random.bytes) for _ in path]
    nodes = {
        name: (public, cipher.proofs.prove(secret, UniversalOnions.context(name)))
        for name, (secret, public) in zip(path, keys, strict=True)
    }
    network = UniversalOnions(group, nodes, most_hops=hops, payload_bytes=16)
    return network, path, [secret for secret, _ in keys]


def _closed_places(network: UniversalOnions, secret: int, onion: Onion, step: Step) -> list[int]:
    """Return the places of a node's new onion with blocks that the node could not open."""
    assert step.passage is not None
    peeled = network.cipher.peel(secret, onion.blocks)
    closed = [block[2] != network.cipher.group.identity for block in peeled]
    return [place for place, came in enumerate(step.passage.order) if closed[came]]


# -- the catalogue ---------------------------------------------------------------------------------


@attack(
    title="A node makes its key of the others' and opens alone what is for all",
    goal="confidentiality",
    adversary="a node that publishes its key last",
    defence="proofs that each node knows its secret: `UniversalCipher.joint`",
    source="[RY07]",
)
def onion_rogue_key(*, nodes: int = 6, messages: int = 8, seed: int = 1) -> Outcome:
    """Open messages under the product of all keys with the secret of one node.

    In the product of all keys, the others cancel. With proofs, `joint` refuses the key, since its
    maker does not know its logarithm. It shows the proof of its own secret x, for want of another.

    Args:
        nodes: number of nodes, 2 or more.
        messages: number of messages, 1 or more.
        seed: seed of the messages.

    Example:
        >>> from ccbps.attacks import onion_rogue_key
        >>> print(onion_rogue_key()["messages opened"])
        Figure(name='messages opened', unit='', undefended=1.0, defended=0.0, expected=1.0)
    """
    whole("nodes", nodes, 2)
    whole("messages", messages, 1)
    random = np.random.default_rng(whole("seed", seed, 0))
    cipher = UniversalCipher(prime_order_group("toy64"))
    group, proofs = cipher.group, cipher.proofs
    texts = [group.hash_to_group(random.bytes(16)) for _ in range(messages)]
    keys = [cipher.generate() for _ in range(nodes - 1)]

    def opened(secret: int, public: Element) -> float:
        decrypted = cipher.decrypt(secret, cipher.encrypt(public, texts))
        return float(np.mean([a == b for a, b in zip(decrypted, texts, strict=True)]))

    without, defended = [], []
    counts = tuple(range(2, nodes + 1))
    for count in counts:
        some = keys[: count - 1]
        publics = [public for _, public in some]
        secret, rogue = rogue_key(cipher, publics)
        publics.append(rogue)
        without.append(opened(secret, reduce(group.multiply, publics)))
        names = [b"node %d" % place for place in range(count)]
        secrets = [*(own for own, _ in some), secret]
        shown = [proofs.prove(own, name) for own, name in zip(secrets, names, strict=True)]
        try:
            defended.append(opened(secret, cipher.joint(publics, shown, names)))
        except KeyMismatchError:  # the rogue key's proof does not hold: there is no onion
            defended.append(0.0)
    return Outcome(
        (Figure("messages opened", "", without[-1], defended[-1], 1.0),),
        Curve(
            "nodes",
            "messages opened (share)",
            counts,
            {"without defence": tuple(without), "with proofs": tuple(defended)},
        ),
    )


@attack(
    title="Markers in some blocks of an onion come through an honest node",
    goal="confidentiality",
    adversary="the first and the third node of a path, who work together",
    defence="a verifier of each step: `UniversalOnions.verify`; or circuits, `Circuit`",
    source="[GJJS04]",
)
def onion_markers(*, marks: int = 2, onions: int = 40, hops: int = 4, seed: int = 1) -> Outcome:
    """Link the ends of a path by markers in blocks that the first node cannot open.

    The first node replaces the contents of some blocks, drawn at random, by a marker. The honest
    node refuses the onion if the block with the name of the next node is among them. It does not
    notice a marker in place of its seed. If one of the third node's two blocks has a marker, that
    node finds it. A verifier refuses the first node's step.

    Args:
        marks: number of blocks with markers, 1 or more.
        onions: number of onions, 1 or more.
        hops: number of nodes of the path, 4 to 8.
        seed: seed of the places of markers.

    Example:
        >>> from ccbps.attacks import onion_markers
        >>> linked = onion_markers(onions=30)["onions linked"]
        >>> print(round(linked.expected, 3), linked.defended)
        0.467 0.0
    """
    whole("hops", hops, 4, 8)
    closed = 2 * hops - 2
    whole("marks", marks, 1, closed)
    whole("onions", onions, 1)
    random = np.random.default_rng(whole("seed", seed, 0))
    network, path, secrets = _network(hops, random)
    cipher = network.cipher
    marker = cipher.group.hash_to_group(b"marker")

    def linked(count: int, verified: bool) -> bool:
        """Send an onion with some markers, and tell whether the third node finds one."""
        onion = network.make(path, b"payload", random.bytes)
        step = OnionNode(network, path[0], secrets[0], random.bytes).handle(onion)
        assert step.onion is not None
        places = _closed_places(network, secrets[0], onion, step)
        blocks = list(step.onion.blocks)
        for place in random.choice(places, count, replace=False).tolist():
            blocks[place] = marked(cipher, blocks[place], marker)
        sent = Onion(tuple(blocks), step.onion.body)
        if verified and not network.verify(path[0], onion, replace(step, onion=sent)):
            return False
        try:
            after = OnionNode(network, path[1], secrets[1], random.bytes).handle(sent).onion
        except DecodeError:  # the name of the next node is gone
            return False
        assert after is not None
        return marker in opened_by(cipher, secrets[2], after.blocks)

    counts = tuple(range(1, closed + 1))
    without, verified = (
        {count: float(np.mean([linked(count, each) for _ in range(onions)])) for count in counts}
        for each in (False, True)
    )
    # The honest node's name block is left alone, and the third node's two blocks are not.
    expected = tuple(
        (comb(closed - 1, count) - comb(closed - 3, count)) / comb(closed, count)
        for count in counts
    )
    return Outcome(
        (Figure("onions linked", "", without[marks], verified[marks], expected[marks - 1]),),
        Curve(
            "blocks with markers",
            "onions linked (share)",
            counts,
            {
                "without defence": tuple(without.values()),
                "without defence, by the formula": expected,
                "with a verifier": tuple(verified.values()),
            },
        ),
    )


@attack(
    title="A sign in one block of an onion shows on every link",
    goal="confidentiality",
    adversary="the first node of a path, and somebody who watches links and has no key",
    defence="reading onions by `UniversalOnions.from_bytes`, which refuses elements of no group",
    source="[GJJS04]",
)
def onion_signs(*, nodes: int = 3, onions: int = 40, hops: int = 6, seed: int = 1) -> Outcome:
    """Follow an onion whose first node has multiplied one block by -1.

    The first node draws the block among those that it cannot open. Honest nodes encrypt it again,
    and keep the sign. The Legendre symbol shows it on every link, until a node opens the block. A
    node refuses the onion if the block is that with the name of the next node.

    Args:
        nodes: number of honest nodes that the onion passes before it is looked for, 1 or more.
        onions: number of onions, 1 or more.
        hops: number of nodes of the path, 4 to 10, and two more than `nodes` or more.
        seed: seed of the onions.

    Example:
        >>> from ccbps.attacks import onion_signs
        >>> followed = onion_signs(onions=30)["onions followed"]
        >>> followed.expected, followed.defended
        (0.4, 0.0)
    """
    whole("hops", hops, 4, 10)
    whole("nodes", nodes, 1, hops - 2)
    whole("onions", onions, 1)
    random = np.random.default_rng(whole("seed", seed, 0))
    network, path, secrets = _network(hops, random)
    cipher = network.cipher

    def followed(checked: bool) -> list[bool]:
        """Send an onion with a sign, and tell whether it shows behind each honest node."""
        first = network.make(path, b"payload", random.bytes)
        step = OnionNode(network, path[0], secrets[0], random.bytes).handle(first)
        assert step.onion is not None
        blocks = list(step.onion.blocks)
        places = _closed_places(network, secrets[0], first, step)
        place = int(random.choice(places))
        blocks[place] = with_sign(cipher, blocks[place])
        onion, seen = Onion(tuple(blocks), step.onion.body), []
        for name, secret in zip(path[1 : hops - 1], secrets[1 : hops - 1], strict=True):
            try:
                came = network.from_bytes(network.to_bytes(onion)) if checked else onion
                after = OnionNode(network, name, secret, random.bytes).handle(came).onion
            except DecodeError:
                break
            assert after is not None
            onion = after
            seen.append(-1 in signs_of(cipher, onion.blocks))
        return seen + [False] * (hops - 2 - len(seen))

    without, defended = (
        np.mean([followed(each) for _ in range(onions)], axis=0).tolist() for each in (False, True)
    )
    # The block must not be one of the two of a node on the way.
    expected = tuple(1 - passed / (hops - 1) for passed in range(1, hops - 1))
    return Outcome(
        (
            Figure(
                "onions followed",
                "",
                without[nodes - 1],
                defended[nodes - 1],
                expected[nodes - 1],
            ),
        ),
        Curve(
            "honest nodes passed",
            "onions followed (share)",
            tuple(range(1, hops - 1)),
            {
                "without defence": tuple(without),
                "without defence, by the formula": expected,
                "with checked bytes": tuple(defended),
            },
        ),
    )
