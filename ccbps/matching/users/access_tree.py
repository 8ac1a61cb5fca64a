"""AccessTreeMatch: trees of AND, OR and at_least over single bits, by searchable encryption.

An event is the list of its bits, each encrypted as the keyword "bit = value"; an interest is a tree
over bits (`ccbps.inputs.bit_tree`) whose leaves are trapdoors. The broker finds out which leaves
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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bools, Bytes, Randomness
from ccbps.ciphers.proxy_search import SearchTokens
from ccbps.errors import ParameterError, UnsupportedPredicateError
from ccbps.inputs.bit_tree import FALSE, TRUE, BitNode, Literal, Threshold, bit_tree
from ccbps.leakage import LeakageCard
from ccbps.matching.parameters import Cost
from ccbps.matching.users.postfix import LEAF, Steps, evaluate, sound
from ccbps.matching.users.users import (
    NO_VALUE,
    USER_BYTES,
    ProxySearchMatcher,
    distinct_rows,
    keyword,
)
from ccbps.predicates import Schema
from ccbps.predicates.schema import Events
from ccbps.wire import Cause

__all__ = ["AccessTreeMatch"]


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
        users: the interests' senders.
        tokens: for each position in use, its different tokens.
        trees: for each interest, its steps and the number of each leaf among all tokens.
    """

    users: list[str]
    tokens: dict[int, SearchTokens]
    trees: list[tuple[Steps, tuple[int, ...]]]


class AccessTreeMatch(ProxySearchMatcher):
    """AND, OR and at_least over bits; leaves are encrypted, the tree's shape is public.

    Example:
        >>> from ccbps import Category, Schema, UInt
        >>> from ccbps.matching import AccessTreeMatch
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

    scheme = "access tree"
    operators = ("=", "<", "interval", "prefix", "in", "and", "or", "at_least")

    def __init__(
        self, schema: Schema, *, leaves: int | None = None, group: str = "secp256k1"
    ) -> None:
        """
        Args:
            schema: at most 65,535 bits.
            leaves: slots of an interest; by default twice the schema's bits, which is enough for
                one interval on each attribute.
            group: name of a group, see `ccbps.algebra.prime_order`.

        Raises:
            ParameterError: a parameter is out of range, or the group needs a library that is not
                installed.
        """
        slots = min(2 * schema.bits, MAX_LEAVES) if leaves is None else leaves
        if schema.bits >= 1 << 16:
            raise ParameterError(f"at most 65,535 bits, got {schema.bits}")
        if not isinstance(slots, int) or not 1 <= slots <= MAX_LEAVES:
            raise ParameterError(f"leaves must be 1..{MAX_LEAVES}, got {slots!r}")
        self.group, self.leaves = group, slots
        self._slot = POSITION_BYTES + self._cipher.trapdoor_bytes
        widths = [schema[name].bits for name in schema]
        starts = np.cumsum([0, *widths[:-1]]).tolist()
        self._starts: dict[str, int] = dict(zip(schema, starts, strict=True))
        self._set_up(
            schema,
            USER_BYTES + schema.bits * self._cipher.ciphertext_bytes,
            USER_BYTES + slots * (self._slot + 4),
            {"group": group, "leaves": slots},
        )

    def __reduce__(self) -> tuple[Callable[..., AccessTreeMatch], tuple[Any, ...]]:
        return _rebuild, (self.schema, self.leaves, self.group)

    @property
    def leakage(self) -> LeakageCard:
        """What the broker learns."""
        return LeakageCard(
            scheme="AccessTreeMatch",
            adversary="the broker, which follows the protocol and keeps all it sees",
            hides=(
                "bits of events for which no interest has a leaf, and which no other bit implies",
            ),
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
        bits, leaves = self.schema.bits, self.leaves
        return (
            Cost("publisher", "event", "fixed-base exponentiation", 3 * bits),
            Cost("subscriber", "interest", "fixed-base exponentiation (at most)", 3 * leaves),
            Cost("broker", "event", "exponentiation (at most)", bits),
            Cost("broker", "event", "product and SHA-256 of a block (at most)", 2 * bits),
            Cost("broker", "interest", "exponentiation (at most)", leaves),
            Cost("broker", "pair", "Boolean operation (at most)", leaves),
        )

    # -- clients ------------------------------------------------------------------------------

    def _encode_events(
        self, key: Mapping[str, Any], events: Events, out: Bytes, randomness: Randomness
    ) -> None:
        columns: list[list[bytes]] = []
        for name in self.schema:
            bits = self.schema[name].bits
            for at in range(bits):
                limb, shift = divmod(bits - 1 - at, 64)
                word = events.codes[name][-1 - limb] >> np.uint64(shift) & np.uint64(1)
                pair = _literal_word(name, at, 0), _literal_word(name, at, 1)
                columns.append([pair[bit] for bit in word.tolist()])
        words = [word for record in zip(*columns, strict=True) for word in record]
        rows = self._cipher.encrypt(self._user(key), words, randomness)
        self._sign(key, out)[:] = rows.reshape(len(out), -1)

    def _prepare(self, interest: Any) -> _Tree:
        predicate = self._predicate(interest)
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
        if len(leaves) > self.leaves:
            raise UnsupportedPredicateError(
                f"the predicate takes {len(leaves)} bit leaves, this matcher has {self.leaves}; "
                "make it with more leaves",
                text=predicate.text,
            )
        return _Tree(leaves, tuple(steps))

    def _write(
        self, node: BitNode, leaves: list[tuple[int, bytes]], steps: list[tuple[int, int]]
    ) -> None:
        if isinstance(node, Literal):
            place = self._starts[node.attribute] + node.position
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

    def _encode_interests(
        self,
        key: Mapping[str, Any],
        interests: Sequence[_Tree],
        out: Bytes,
        randomness: Randomness,
    ) -> None:
        words = [word for tree in interests for _, word in tree.leaves]
        rows = self._cipher.trapdoors(self._user(key), words, randomness)
        slots, steps = self._split(self._sign(key, out))
        slots[:, :, :POSITION_BYTES] = 255
        used = 0
        for slot, step, tree in zip(slots, steps, interests, strict=True):
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

    def _table(self, key: Mapping[str, Any], bodies: Bytes) -> _Table:
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
        return _Table(self._users(bodies), ready, trees)

    def leaf_results(self, key: Mapping[str, Any], events: Bytes, table: _Table) -> Bools:
        """Which leaves hold for which events, shape (different tokens, events): what a broker
        learns beyond the answers."""
        rows = events[:, USER_BYTES:].reshape(len(events), self.schema.bits, -1)
        parts = [np.zeros((0, len(events)), dtype=np.bool_)]
        halves = self._halves(key, events)
        served, x2 = list(halves), list(halves.values())
        for place, tokens in table.tokens.items():
            hits = np.zeros((len(tokens), len(events)), dtype=np.bool_)
            form = self._cipher.re_encrypt(x2, rows[served, place])
            hits[:, served] = self._cipher.search(form, tokens)
            parts.append(hits)
        return np.concatenate(parts)

    def _match_all(self, key: Mapping[str, Any], events: Bytes, table: _Table) -> Bools:
        held = self.leaf_results(key, events, table)
        out = np.zeros((len(events), len(table.users)), dtype=np.bool_)
        known: dict[tuple[Steps, tuple[int, ...]], Bools] = {}
        for column, (user, tree) in enumerate(zip(table.users, table.trees, strict=True)):
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


def _rebuild(schema: Schema, leaves: int, group: str) -> AccessTreeMatch:
    return AccessTreeMatch(schema, leaves=leaves, group=group)
