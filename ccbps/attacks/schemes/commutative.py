"""Layers of commutative encryption: attacks with all keys, without keys, and by Legendre symbols.

An entry of a broker's table is a word under r - 1 layers, so any holder of their keys can try
words. A party that can send guesses needs no key: equal words are equal entries. If words are not
encoded as squares, the Legendre symbol of a word passes through all layers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any, Final

import numpy as np

from ccbps.arrays import Bools
from ccbps.attacks.catalogue import Curve, Figure, Outcome, attack
from ccbps.attacks.schemes.oblivious_topic import make_oblivious
from ccbps.checks import whole
from ccbps.ciphers.pohlig_hellman import TOY_PRIME_64, LayerKey, PohligHellman
from ccbps.matching.session.layout import SIGNED
from ccbps.overlay.commutative_tree import PUBLISHER, LayeredNode, LayeredTree


def pool_layer_keys(nodes: Iterable[LayeredNode]) -> list[LayerKey]:
    """Return the distinct keys that nodes hold together."""
    keys: list[LayerKey] = []
    for node in nodes:
        keys += [key for key in node.keys.values() if key not in keys]
    return keys


def read_table(
    chain: LayeredTree, node: LayeredNode, keys: Sequence[LayerKey], words: Sequence[bytes]
) -> dict[int, bytes]:
    """Read the entries of a broker's table with pooled keys, by a dictionary of words.

    Args:
        chain: network, of which the cipher and the number of layers are public.
        node: broker whose table is read.
        keys: keys of the colluding nodes.
        words: words to try.

    Returns:
        the word of each entry that is one of the words under r - 1 of the keys.
    """
    guesses = {int(chain.cipher.encode(word)): word for word in words}
    read: dict[int, bytes] = {}
    for entry in node.table:
        bare = [(entry, 0)]  # an element, and the first key that may still come off
        for _ in range(chain.layers - 1):
            bare = [
                (int(value), place)
                for place, key in enumerate(keys)
                for value in chain.cipher.remove([x for x, first in bare if first <= place], key)
            ]
        if match := guesses.keys() & {value for value, _ in bare}:
            read[entry] = guesses[min(match)]
    return read


def try_filters(
    chain: LayeredTree, subscriber: str, node: LayeredNode, words: Iterable[bytes]
) -> dict[int, bytes]:
    """Subscribe to guesses, and find the entries at a broker that they equal.

    Args:
        chain: network.
        subscriber: name of the colluding subscriber.
        node: colluding broker, r hops above the subscriber or higher.
        words: guesses, in order.

    Returns:
        the words of entries that were there before.
    """
    victims = set(node.table)
    matches: dict[int, bytes] = {}
    for word in words:
        chain.subscribe(subscriber, word)
        for entry in victims - matches.keys():
            if any(trail[0] == subscriber for trail in node.table[entry]):
                matches[entry] = word
    return matches


def try_notifications(chain: LayeredTree, words: Iterable[bytes]) -> dict[str, dict[int, bytes]]:
    """Publish guesses, and find the entries at every broker that they match.

    Args:
        chain: chain of brokers with all subscribers at its end.
        words: guesses, in order.

    Returns:
        the words of the entries of each broker, by the broker's name. Each broker sees only its
        own, and colludes with the publisher.
    """
    publisher = chain.nodes[PUBLISHER]
    seen: dict[str, dict[int, bytes]] = {
        name: {} for name, node in chain.nodes.items() if node.table
    }
    for word in words:
        waiting = [
            publisher.encrypt_notification(word, trail, chain.layers) for trail in chain.trails
        ]
        while waiting:
            message = waiting.pop()
            if message.to not in seen:
                continue
            node = chain.nodes[message.to]
            entry, matching = node.secure_look_up(message)
            if matching:
                seen[node.name][entry] = word
            waiting += node.forward(message)
    return seen


def read_symbols(elements: Iterable[int], prime: int) -> Bools:
    """Tell which elements are squares modulo a prime, by Euler's criterion."""
    powers = [pow(int(each), (prime - 1) // 2, prime) for each in elements]
    return np.array([power == 1 for power in powers], dtype=np.bool_)


def hash_unsquared(word: bytes, prime: int) -> int:
    """Return H(w) without squaring, unlike the library."""
    return int.from_bytes(sha256(word).digest(), "big") % prime


def add_unsquared(elements: Iterable[int], keys: Iterable[LayerKey], prime: int) -> list[int]:
    """Add layers to elements that need not be squares."""
    layered = [int(each) for each in elements]
    for key in keys:
        exponent = pow(int.from_bytes(key.export_secret(), "big"), -1, prime - 1)
        layered = [pow(each, exponent, prime) for each in layered]
    return layered


# -- attacks --------------------------------------------------------------------------------------

CIPHER: Final = PohligHellman(TOY_PRIME_64)
BROKERS: Final = 6
LAYERS: Final = (2, 3, 4)


def _chain(layers: int, filters: Sequence[bytes]) -> LayeredTree:
    """Make a chain of six brokers, and send filters of one subscriber up to its top."""
    homes = {"alice": 1, "mallory": 1}
    chain = LayeredTree.chain(BROKERS, homes, layers=layers, cipher=CIPHER)
    for word in filters:
        chain.subscribe("alice", word)
    return chain


def _draw(words: int, filters: int, seed: int) -> tuple[list[bytes], list[bytes]]:
    """Draw words and the secret filters among them."""
    random = np.random.default_rng(whole("seed", seed, 0))
    book = [f"word {place}".encode() for place in range(whole("words", words, 1, 400))]
    chosen = random.choice(words, whole("filters", filters, 1, words), replace=False)
    return book, [book[place] for place in chosen]


@attack(
    title="As many brokers in a row as there are layers read all filters",
    goal="confidentiality",
    adversary="brokers in a row that pool their keys, and a dictionary of words",
    defence="more layers, where brokers are run by different parties; they do not help against the "
    "last broker and the publisher",
    source="[SOM09]",
)
def pool_layers(*, words: int = 40, filters: int = 4, seed: int = 7) -> Outcome:
    """Read filters in a chain of six brokers with the keys of some in a row.

    The colluding brokers are the lowest ones, and read the table of the lowest. Two of them face
    two layers without the defence, and four layers with it.

    Args:
        words: number of words of the dictionary.
        filters: number of secret filters among the words.
        seed: seed of the filters; keys are drawn anew.

    Example:
        >>> from ccbps.attacks import pool_layers
        >>> figure = pool_layers()["filters read by two brokers"]
        >>> figure.undefended, figure.defended
        (1.0, 0.0)
    """
    book, secret = _draw(words, filters, seed)
    counts = tuple(range(1, BROKERS + 1))
    lines, top = {}, {}
    for layers in LAYERS:
        chain = _chain(layers, secret)
        lowest = chain.nodes["broker 1"]

        def read(node: LayeredNode, others: Iterable[str], chain: LayeredTree = chain) -> float:
            keys = pool_layer_keys([node, *(chain.nodes[name] for name in others)])
            recovered = read_table(chain, node, keys, book)
            return len(set(recovered.values()) & set(secret)) / len(secret)

        label = "with 4 layers" if layers == max(LAYERS) else f"{layers} layers"
        lines[label] = tuple(
            read(lowest, [f"broker {place}" for place in range(2, count + 1)]) for count in counts
        )
        top[layers] = read(chain.nodes[f"broker {BROKERS}"], [PUBLISHER])
    few, *_, most = lines.values()
    return Outcome(
        (
            Figure("filters read by two brokers", "", few[1], most[1], 1.0),
            Figure(
                "filters read by the last broker and the publisher",
                "",
                top[min(LAYERS)],
                top[max(LAYERS)],
                1.0,
            ),
        ),
        Curve("brokers in a row that pool their keys", "filters read (share)", counts, lines),
    )


@attack(
    title="Guesses as subscriptions or events find filters without a key",
    goal="confidentiality",
    adversary="a subscriber and the broker r hops above it, or the publisher and any broker; no "
    "layer's key is used",
    defence="`ObliviousTopicMatch`, where equal requests do not look equal",
    source="[SOM09]",
)
def guess_filters(*, words: int = 40, filters: int = 4, layers: int = 4, seed: int = 7) -> Outcome:
    """Find filters in a chain of six brokers by subscribing to guesses, or publishing them.

    With the defence, the subscriber makes requests for guesses, and the relay looks for elements
    that stand in the requests of others as well.

    Args:
        words: number of words that are guessed.
        filters: number of secret filters among the words.
        layers: number r of layers, 2 to 6.
        seed: seed of the filters; keys are drawn anew.

    Example:
        >>> from ccbps.attacks import guess_filters
        >>> figure = guess_filters(layers=2)["filters found by a subscriber"]
        >>> figure.undefended, figure.defended
        (1.0, 0.0)
    """
    book, secret = _draw(words, filters, seed)
    chain = _chain(whole("layers", layers, 2, BROKERS), secret)
    published = try_notifications(chain, book)[f"broker {BROKERS}"]
    subscribed = try_filters(chain, "mallory", chain.nodes[f"broker {layers}"], book)

    names = [word.decode() for word in book]
    matcher = make_oblivious(names)
    alice, mallory = matcher.new_subscriber(), matcher.new_subscriber()
    asked = alice.encode([f"topic = '{word.decode()}'" for word in secret])
    guesses = mallory.encode([f"topic = '{name}'" for name in names])
    seen = _elements(asked, matcher)
    alike = [bool(seen & _elements(guess[None], matcher)) for guess in guesses]
    order = {word: place for place, word in enumerate(book)}
    counts = tuple(range(0, words + 1, max(1, words // 10)))

    def share(matches: Iterable[bytes], count: int) -> float:
        return sum(order[word] < count for word in set(matches) & set(secret)) / len(secret)

    matched = [word for word, same in zip(book, alike, strict=True) if same]
    hidden = share(matched, words)
    return Outcome(
        (
            Figure(
                "filters found by a subscriber", "", share(subscribed.values(), words), hidden, 1.0
            ),
            Figure(
                "filters found by the publisher", "", share(published.values(), words), hidden, 1.0
            ),
        ),
        Curve(
            "guesses",
            "filters found (share)",
            counts,
            {
                "without defence, subscriber": tuple(
                    share(subscribed.values(), count) for count in counts
                ),
                "without defence, publisher": tuple(
                    share(published.values(), count) for count in counts
                ),
                "with ObliviousTopicMatch": tuple(share(matched, count) for count in counts),
            },
        ),
    )


def _elements(requests: Any, matcher: Any) -> set[bytes]:
    """Return the elements that stand in requests."""
    parts = requests[:, SIGNED : SIGNED + matcher._layout.transfer.request_bytes]
    return {part.tobytes() for part in parts.reshape(-1, matcher.group.element_bytes)}


@attack(
    title="The Legendre symbol of a word passes through all layers",
    goal="confidentiality",
    adversary="anyone who sees elements, without a key",
    defence="squares: `PohligHellman.encode` takes H(w)^2",
    source="[PH78]",
)
def read_legendre(*, words: int = 200, layers: int = 5, seed: int = 5) -> Outcome:
    """Tell one bit of every word from its element under layers.

    Where all symbols are equal, each word is taken for one of a square.

    Args:
        words: number of words.
        layers: greatest number of layers.
        seed: seed of the words; keys are drawn anew.

    Example:
        >>> from ccbps.attacks import read_legendre
        >>> print(read_legendre(words=50)["bits read"].undefended)
        1.0
    """
    random = np.random.default_rng(whole("seed", seed, 0))
    book = [random.bytes(8) for _ in range(whole("words", words, 1, 2000))]
    prime = CIPHER.prime
    bare = [hash_unsquared(word, prime) for word in book]
    truth = read_symbols(bare, prime)
    counts = tuple(range(1, whole("layers", layers, 1, 50) + 1))
    keys = [CIPHER.generate() for _ in counts]
    plain, squared = [], []
    for count in counts:
        plain.append(
            float(np.mean(read_symbols(add_unsquared(bare, keys[:count], prime), prime) == truth))
        )
        elements = CIPHER.add([CIPHER.encode(word) for word in book], *keys[:count])
        squared.append(float(np.mean(read_symbols(elements, prime) == truth)))
    return Outcome(
        (Figure("bits read", "", plain[-1], squared[-1], 1.0),),
        Curve(
            "layers",
            "words whose symbol is read (share)",
            counts,
            {"without defence": tuple(plain), "with squares": tuple(squared)},
        ),
    )
