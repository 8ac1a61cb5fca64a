"""AccessTreeMatch: trees of AND, OR and at_least over single bits, by searchable encryption.

An event is the list of its bits, each encrypted as the keyword "bit = value"; an interest is a tree
over bits (`ccbps.forms.bit_tree`) whose leaves are trapdoors. The broker finds out which leaves
hold by `ccbps.ciphers.proxy_search` and evaluates the tree bottom up. Comparisons, intervals,
prefixes and IN become trees over bits.

A bit has two values, hence two tokens: however many interests there are, an event costs at most two
products and hashes for each bit, and the rest is Boolean work on bytes.

Hazard: broken. The tree is in the clear, with the positions of its bits. In a comparison, the
sequence of AND and OR spells the constant, and all leaves ask for the same value of their bits: a
dozen comparisons tell the broker what every token stands for, and so every event and every
interest, with nothing known before. One known event suffices as well. The broker and one user
together read everything. It is here for comparison.
Source: [IRC12]; bags of bits are those of [BSW07] section 4.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bools, Bytes
from ccbps.ciphers.proxy_search import SearchTokens
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import CcbpsError, ParameterError, UnsupportedPredicateError
from ccbps.forms.bit_tree import FALSE, TRUE, BitNode, Literal, Threshold, bit_tree
from ccbps.forms.bits import event_bits
from ccbps.leakage import LeakageCard
from ccbps.matching.broken.postfix import LEAF, Steps, evaluate, sound
from ccbps.matching.contract.bodies import Draw, Sizes
from ccbps.matching.contract.costs import Cost, Operation
from ccbps.matching.contract.interests import bound_predicate
from ccbps.matching.contract.kinds import Side
from ccbps.matching.users.users import (
    NO_VALUE,
    USER_BYTES,
    OpenEvents,
    ProxySearchMatcher,
    distinct_rows,
    keyword,
)
from ccbps.predicates import Events, Predicate, Schema
from ccbps.wire import Cause

POSITION_BYTES: Final = 2
MAX_LEAVES: Final = 1 << 14
MAX_PARTS: Final = 255


@dataclass(frozen=True, slots=True, repr=False)
class _Tree:
    """One subscription: leaves as (position, keyword), and the tree in postfix order."""

    leaves: list[tuple[int, bytes]]
    steps: Steps


@dataclass(frozen=True, slots=True, repr=False)
class _Table:
    """Interests after the tokens were computed.

    Attributes:
        senders: the interests' users.
        tokens: for each position in use, its different tokens.
        trees: for each interest, its steps and the number of each leaf among all tokens.
    """

    senders: list[str]
    tokens: dict[int, SearchTokens]
    trees: list[tuple[Steps, tuple[int, ...]]]


class AccessTreeMatch(ProxySearchMatcher):
    """AND, OR and at_least over bits; leaves are encrypted, the tree's shape is public.

    Example:
        >>> from ccbps import Category, Schema, UInt
        >>> from ccbps.matching.broken import AccessTreeMatch
        >>> schema = Schema(issue=Category(["AAPL", "IBM"]), price=UInt(8))
        >>> matcher = AccessTreeMatch(schema, group="modp2048")
        >>> server = matcher.key_server()
        >>> publisher = matcher.publisher(server.publisher_key())
        >>> subscriber = matcher.subscriber(server.subscriber_key("alice"))
        >>> broker = matcher.broker(server.broker_key())
        >>> events = publisher.encode({"issue": ["IBM", "AAPL"], "price": [119, 121]})
        >>> interests = subscriber.encode(["price < 120 OR issue = 'IBM'", "price > 120"])
        >>> broker.match_all(events, interests)
        array([[ True, False],
               [False,  True]])
    """

    name = "access tree"
    operators = ("=", "<", "interval", "prefix", "in", "and", "or", "not", "at_least", "hamming")

    def __init__(
        self, schema: Schema, *, leaves: int | None = None, group: str = "secp256k1"
    ) -> None:
        """
        Args:
            schema: at most 65,535 bits.
            leaves: slots of an interest; by default twice the schema's bits, which is enough for
                one interval on each attribute.
            group: name of a group, see `ccbps.algebra.named_groups`.

        Raises:
            ParameterError: a parameter is out of range, or the group needs a library that is not
                installed.
        """
        slots = min(2 * schema.bits, MAX_LEAVES) if leaves is None else leaves
        if schema.bits >= 1 << 16:
            raise ParameterError(f"at most 65,535 bits, got {schema.bits}")
        if type(slots) is not int or not 1 <= slots <= MAX_LEAVES:
            raise ParameterError(f"leaves must be 1..{MAX_LEAVES}, got {slots!r}")
        self.group, self.leaves = group, slots
        self._slot = POSITION_BYTES + self._cipher.trapdoor_bytes
        self._first_bits = schema.first_bits
        event = USER_BYTES + schema.bits * self._cipher.ciphertext_bytes
        self._set_up(schema, Sizes(event, USER_BYTES + slots * (self._slot + 4)))

    def parameters(self) -> dict[str, Any]:
        """Group, and slots of an interest."""
        return {"group": self.group, "leaves": self.leaves}

    @classmethod
    def propose(cls, schema: Schema, wanted: Predicate) -> Iterator[AccessTreeMatch]:
        """With the usual number of leaves, or as many as the predicate takes if that is more."""
        with suppress(CcbpsError):
            made = cls(schema)
            leaves = len(made._tree(bound_predicate(schema, wanted)).leaves)
            yield made if leaves <= made.leaves else cls(schema, leaves=leaves)

    @property
    def leakage(self) -> LeakageCard:
        """What the broker learns."""
        return LeakageCard(
            scheme="AccessTreeMatch",
            adversary="the broker, which follows the protocol and keeps all it sees",
            hides=(
                "bits of events for which no interest has a leaf, and which no other bit implies",
            ),
            protects=frozenset(),
            learns=(
                "the tree of every interest and the positions of its bits; for a comparison, "
                "that gives the constant and the bit that each leaf asks for",
                "which leaves hold for which event: the values of all bits that some leaf asks "
                "for, or their mirror image",
                "which leaves are equal, across all users",
                "who sent each message",
            ),
            security="broken",
            assumption=f"decisional Diffie-Hellman in {self.group}, SHA-256 as a random oracle, "
            "HMAC-SHA256 pseudorandom; nobody uses comparisons, and the broker colludes with no "
            "user, not even a revoked one",
            reuse="reusable",
            hazards=("any user can write and read under every other user's keywords",),
            attacks=(
                "tree shapes: 12 comparisons give every event and every interest, exactly if "
                "the attribute is nullable, otherwise up to a mirror image",
                "leaf results: one known event gives, of all other events, the bits that tokens "
                "cover",
                "broker and one user: together they have x and s, and find every value by "
                "trying a dictionary",
            ),
        )

    @property
    def costs(self) -> tuple[Cost, ...]:
        """Operations of each role."""
        bits, leaves, group, most = self.schema.bits, self.leaves, self.group, "at most"
        return (
            Cost("publisher", "event", Operation.FIXED_BASE, 3 * bits, group),
            Cost("subscriber", "interest", Operation.FIXED_BASE, 3 * leaves, group, most),
            Cost("broker", "event", Operation.EXPONENTIATION, bits, group, most),
            Cost("broker", "event", Operation.MODULAR_PRODUCT, 2 * bits, group, most),
            Cost("broker", "event", Operation.HASH_BLOCK, 2 * bits, note=most),
            Cost("broker", "interest", Operation.EXPONENTIATION, leaves, group, most),
            Cost("broker", "pair", Operation.BIT, leaves, note=most),
        )

    # -- clients ------------------------------------------------------------------------------

    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        """See `Scheme.encode_events`."""
        pairs = [
            (_literal_word(name, at, 0), _literal_word(name, at, 1))
            for name in self.schema
            for at in range(self.schema[name].bits)
        ]
        words = [
            pair[bit]
            for record in event_bits(events).tolist()
            for pair, bit in zip(pairs, record, strict=True)
        ]
        rows = self._cipher.encrypt(self._user(key), words, draw.fresh)
        self._sign(key, out)[:] = rows.reshape(len(out), -1)

    def prepare(self, interest: Any) -> _Tree:
        """See `Scheme.prepare`: leaves, and how they are joined."""
        predicate = bound_predicate(self.schema, interest)
        tree = self._tree(predicate)
        if len(tree.leaves) > self.leaves:
            raise UnsupportedPredicateError(
                f"the predicate takes {len(tree.leaves)} bit leaves, this matcher has "
                f"{self.leaves}; make it with more leaves",
                text=predicate.text,
            )
        return tree

    def _tree(self, predicate: Predicate) -> _Tree:
        """The tree of a predicate, however many leaves it has."""
        tree = bit_tree(self.schema, predicate.true_form())
        leaves: list[tuple[int, bytes]] = []
        steps: list[tuple[int, int]] = []
        if tree is FALSE:  # one leaf that never holds
            first = self.schema.names[0]
            leaves, steps = [(0, keyword(f"{first}[0]", NO_VALUE))], [LEAF]
        elif tree is not TRUE:
            try:
                self._write(tree, leaves, steps)
            except ParameterError as problem:
                raise UnsupportedPredicateError(str(problem), text=predicate.text) from None
        return _Tree(leaves, tuple(steps))

    def _write(
        self, node: BitNode, leaves: list[tuple[int, bytes]], steps: list[tuple[int, int]]
    ) -> None:
        if isinstance(node, Literal):
            place = self._first_bits[node.attribute] + node.position
            leaves.append((place, _literal_word(node.attribute, node.position, node.value)))
            steps.append(LEAF)
            return
        assert isinstance(node, Threshold)
        least, parts = node.least, node.parts
        while len(parts) > MAX_PARTS:  # a number of parts is one byte
            if least not in (1, len(parts)):
                raise ParameterError(f"at_least takes at most {MAX_PARTS} parts, got {len(parts)}")
            groups = [parts[at : at + MAX_PARTS] for at in range(0, len(parts), MAX_PARTS)]
            every = least > 1
            parts = tuple(
                Threshold(len(some) if every else 1, some) if len(some) > 1 else some[0]
                for some in groups
            )
            least = len(parts) if every else 1
        for part in parts:
            self._write(part, leaves, steps)
        steps.append((least, len(parts)))

    def encode_interests(
        self, key: Mapping[str, Any], interests: DictionaryColumn[_Tree], draw: Draw, out: Bytes
    ) -> None:
        """See `Scheme.encode_interests`."""
        sent = [interests.values[number] for number in interests.index.tolist()]
        words = [word for tree in sent for _, word in tree.leaves]
        rows = self._cipher.trapdoors(self._user(key), words, draw.fresh)
        slots, steps = self._split(self._sign(key, out))
        slots[:], steps[:] = 0, 0
        slots[:, :, :POSITION_BYTES] = 255
        used = 0
        for slot, step, tree in zip(slots, steps, sent, strict=True):
            count = len(tree.leaves)
            places = np.array([place for place, _ in tree.leaves], dtype="<u2")
            slot[:count, :POSITION_BYTES] = places.view(np.uint8).reshape(-1, POSITION_BYTES)
            slot[:count, POSITION_BYTES:] = rows[used : used + count]
            step[: len(tree.steps)] = np.array(tree.steps, dtype=np.uint8).reshape(-1, 2)
            used += count

    def _split(self, rest: Bytes) -> tuple[Bytes, Bytes]:
        """Views of the leaf slots, shape (interests, leaves, slot), and the steps, (interests,
        2 leaves, 2), of what follows the identifiers."""
        end = self.leaves * self._slot
        slots = rest[:, :end].reshape(len(rest), self.leaves, self._slot)
        return slots, rest[:, end:].reshape(len(rest), 2 * self.leaves, 2)

    # -- the broker ---------------------------------------------------------------------------

    def check(self, key: Mapping[str, Any], side: Side, bodies: Bytes) -> Bytes:
        """See `Scheme.check`."""
        return (self._check_events if side == "event" else self._check_interests)(key, bodies)

    def _check_events(self, key: Mapping[str, Any], bodies: Bytes) -> Bytes:
        slots = bodies[:, USER_BYTES:].reshape(len(bodies), self.schema.bits, -1)
        causes = self._refused(key, bodies, slots)
        absent = ~np.all(slots.any(axis=2), axis=1)
        causes[absent & (causes == Cause.NONE)] = Cause.VALUE
        return causes

    def _check_interests(self, key: Mapping[str, Any], bodies: Bytes) -> Bytes:
        slots, steps = self._split(bodies[:, USER_BYTES:])
        trapdoors = slots[:, :, POSITION_BYTES:]
        causes = self._refused(key, bodies, trapdoors)
        used = np.asarray(trapdoors.any(axis=2))
        places = _places(slots)
        wrong = np.where(used, places >= self.schema.bits, places != 0xFFFF).any(axis=1)
        wrong |= (used[:, 1:] & ~used[:, :-1]).any(axis=1)
        wrong |= ~sound(steps, used.sum(axis=1))
        causes[wrong & (causes == Cause.NONE)] = Cause.VALUE
        return causes

    def table(self, key: Mapping[str, Any], bodies: Bytes) -> _Table:
        """See `TableScheme.table`. Interests of users that were forgotten meanwhile may be among
        them."""
        slots, steps = self._split(bodies[:, USER_BYTES:])
        places, trapdoors = _places(slots), slots[:, :, POSITION_BYTES:]
        used = np.asarray(trapdoors.any(axis=2))
        halves = self._halves(key, bodies)
        used[[row not in halves for row in range(len(bodies))]] = False
        rows, columns = np.nonzero(used)
        tokens = self._cipher.tokens(
            [halves[row] for row in rows.tolist()], trapdoors[rows, columns]
        )
        found = list(zip(places[rows, columns].tolist(), tokens, strict=True))
        distinct, index = distinct_rows(found)
        by_place: dict[int, list[Any]] = {}
        numbers: dict[tuple[int, Any], int] = {}
        for place in sorted({place for place, _ in distinct}):
            by_place[place] = [token for at, token in distinct if at == place]
            for token in by_place[place]:
                numbers[place, token] = len(numbers)
        renamed = [numbers[item] for item in distinct]
        leaves: list[list[int]] = [[] for _ in range(len(bodies))]
        for row, number in zip(rows.tolist(), index, strict=True):
            leaves[row].append(renamed[number])
        trees = [
            (tuple((int(k), int(n)) for k, n in own if n), tuple(mine))
            for own, mine in zip(steps.tolist(), leaves, strict=True)
        ]
        ready = {place: self._cipher.prepared(tokens) for place, tokens in by_place.items()}
        return _Table(self._senders(bodies), ready, trees)

    def open_events(self, key: Mapping[str, Any], bodies: Bytes) -> OpenEvents:
        """Of each bit a `SearchForm`."""
        rows = bodies[:, USER_BYTES:].reshape(len(bodies), self.schema.bits, -1)
        halves = self._halves(key, bodies)
        x2 = [halves[row] for row in range(len(bodies))]
        return OpenEvents.of(len(bodies), lambda place: self._cipher.re_encrypt(x2, rows[:, place]))

    def leaf_results(self, events: OpenEvents, table: _Table) -> Bools:
        """Which leaves hold for which events, shape (different tokens, events): what a broker
        learns beyond the answers."""
        parts = [np.zeros((0, events.count), dtype=np.bool_)]
        for place, tokens in table.tokens.items():
            parts.append(self._cipher.search(events.slot(place), tokens))
        return np.concatenate(parts)

    def match(self, key: Mapping[str, Any], events: OpenEvents, table: _Table) -> Bools:
        """See `TableScheme.match`."""
        held = self.leaf_results(events, table)
        out = np.zeros((events.count, len(table.senders)), dtype=np.bool_)
        known: dict[tuple[Steps, tuple[int, ...]], Bools] = {}
        for column, (user, tree) in enumerate(zip(table.senders, table.trees, strict=True)):
            if user not in key["users"]:
                continue
            if tree not in known:
                known[tree] = evaluate(*tree, held)
            out[:, column] = known[tree]
        return out


def _literal_word(name: str, at: int, value: int) -> bytes:
    return keyword(f"{name}[{at}]", bytes([value]))


def _places(slots: Bytes) -> NDArray[np.uint16]:
    """Positions of slots, shape (interests, leaves)."""
    shape = slots.shape[:2]
    return np.ascontiguousarray(slots[:, :, :POSITION_BYTES]).view("<u2").reshape(shape)
