"""AccessTreeMatch: trees of AND, OR and at_least over single bits, by searchable encryption.

An event is the list of its bits, each encrypted as the keyword "bit = value"; an interest is a tree
over bits (`ccbps.forms.bit_tree`) whose leaves are trapdoors. The broker finds out which leaves
hold by `ccbps.ciphers.proxy_search` and evaluates the tree bottom up. Comparisons, intervals,
prefixes and IN become trees over bits.

A tree stands in a message in postfix order. A step is a pair of bytes: (0, 1) takes the next leaf,
(k, n) with n > 1 replaces the last n results by one that holds if at least k of them do, (0, 0)
fills up the end. No step at all is a tree that always holds.

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

from ccbps.arrays import Bools, Bytes, Index
from ccbps.checks import whole
from ccbps.ciphers.proxy_search import SearchTokens
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import CcbpsError, ParameterError, UnsupportedPredicateError
from ccbps.forms.bit_tree import FALSE, TRUE, BitNode, Literal, Threshold, bit_tree
from ccbps.forms.bits import event_bits
from ccbps.leakage import LeakageCard
from ccbps.matching.contract.scheme import Cost, Draw, Operation, Side, Sizes
from ccbps.matching.users.users import (
    NO_VALUE,
    USER_BYTES,
    OpenEvents,
    ProxySearchMatcher,
    by_number,
    keyword,
)
from ccbps.predicates import Events, Predicate, Schema
from ccbps.predicates.bound import bound_predicate
from ccbps.predicates.codes import conjunction, disjunction
from ccbps.wire import Cause

POSITION_BYTES: Final = 2
MAX_LEAVES: Final = 1 << 14
MAX_PARTS: Final = 255
LEAF: Final = (0, 1)

Steps = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, repr=False)
class _Tree:
    """One subscription: leaves as (position, keyword), and the tree in postfix order."""

    leaves: list[tuple[int, bytes]]
    steps: Steps


@dataclass(frozen=True, slots=True, repr=False)
class _Table:
    """Interests after the tokens were computed.

    Attributes:
        senders: users of the interests.
        tokens: different tokens of each position in use.
        trees: steps of each interest, and the number of each leaf among all tokens.
    """

    senders: list[str]
    tokens: dict[int, SearchTokens]
    trees: list[tuple[Steps, tuple[int, ...]]]


class AccessTreeMatch(ProxySearchMatcher):
    """AND, OR and at_least over bits; leaves are encrypted, the tree's shape is public.

    Args:
        schema: at most 65,535 bits.
        leaves: slots of an interest; by default twice the schema's bits, which is enough for
            one interval on each attribute.
        group: name of a group, see `ccbps.algebra.prime_order`.

    Raises:
        ParameterError: a parameter is out of range, or the group needs a library that is not
            installed.

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
        whole("schema.bits", schema.bits, 1, 65_535, unit="bits")
        default = min(2 * schema.bits, MAX_LEAVES)
        slots = whole("leaves", default if leaves is None else leaves, 1, MAX_LEAVES)
        self.group, self.leaves = group, slots
        self._slot = POSITION_BYTES + self._cipher.trapdoor_bytes
        self._first_bits, self._event_slots = schema.first_bits, schema.bits
        event = USER_BYTES + schema.bits * self._cipher.ciphertext_bytes
        self._set_up(schema, Sizes(event, USER_BYTES + slots * (self._slot + 4)))

    def parameters(self) -> dict[str, Any]:
        return {"group": self.group, "leaves": self.leaves}

    @classmethod
    def propose(cls, schema: Schema, predicate: Predicate) -> Iterator[AccessTreeMatch]:
        """Yield a matcher with the usual number of leaves, or more if the predicate takes more."""
        with suppress(CcbpsError):
            usual = cls(schema)
            leaves = len(usual._tree(bound_predicate(schema, predicate)).leaves)
            yield usual if leaves <= usual.leaves else cls(schema, leaves=leaves)

    @property
    def leakage(self) -> LeakageCard:
        return self._card(
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
            hazards=(
                "users distrust one another: each can write and read under the keywords of all "
                "others",
            ),
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
        """Return the tree of a predicate, however many leaves it has."""
        tree = bit_tree(self.schema, predicate.true_form())
        leaves: list[tuple[int, bytes]] = []
        steps: list[tuple[int, int]] = []
        if tree is FALSE:  # One leaf that never holds.
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
        """Append the leaves and steps of a node."""
        if isinstance(node, Literal):
            place = self._first_bits[node.attribute] + node.position
            leaves.append((place, _literal_word(node.attribute, node.position, node.value)))
            steps.append(LEAF)
            return
        assert isinstance(node, Threshold)
        least, parts = node.least, node.parts
        while len(parts) > MAX_PARTS:  # A number of parts is one byte.
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
        sent = [interests.values[number] for number in interests.index.tolist()]
        places = np.array([place for tree in sent for place, _ in tree.leaves], dtype="<u2")
        words = [word for tree in sent for _, word in tree.leaves]
        rows = self._cipher.trapdoors(self._user(key), words, draw.fresh)
        slots, steps = self._split(self._sign(key, out))
        numbers = places.view(np.uint8).reshape(-1, POSITION_BYTES)
        self._fill(slots, [len(tree.leaves) for tree in sent], numbers, rows)
        steps[:] = 0
        for step, tree in zip(steps, sent, strict=True):
            step[: len(tree.steps)] = np.array(tree.steps, dtype=np.uint8).reshape(-1, 2)

    def _split(self, rest: Bytes) -> tuple[Bytes, Bytes]:
        """Return views of the slots and the steps of interests, without their identifiers.

        Returns:
            shape (interests, leaves, bytes); and (interests, 2 leaves, 2).
        """
        end = self.leaves * self._slot
        slots = rest[:, :end].reshape(len(rest), self.leaves, self._slot)
        return slots, rest[:, end:].reshape(len(rest), 2 * self.leaves, 2)

    # -- the broker ---------------------------------------------------------------------------

    def _slots(self, bodies: Bytes) -> tuple[NDArray[Any], Bytes]:
        slots = self._split(bodies[:, USER_BYTES:])[0]
        places = np.ascontiguousarray(slots[:, :, :POSITION_BYTES]).view("<u2")
        return places.reshape(slots.shape[:2]), slots[:, :, POSITION_BYTES:]

    def check(self, key: Mapping[str, Any], side: Side, bodies: Bytes) -> Bytes:
        out = super().check(key, side, bodies)
        if side == "interest":
            used = np.asarray(self._slots(bodies)[1].any(axis=2))
            wrong = (used[:, 1:] & ~used[:, :-1]).any(axis=1)
            wrong |= ~sound(self._split(bodies[:, USER_BYTES:])[1], used.sum(axis=1))
            out[wrong & (out == Cause.NONE)] = Cause.VALUE
        return out

    def table(self, key: Mapping[str, Any], bodies: Bytes) -> _Table:
        row, _, places, tokens = self._read(key, bodies)
        leaves, count = np.zeros(len(row), dtype=np.intp), 0
        by_place = {}
        for place, chosen, distinct, index in by_number(places, tokens):
            leaves[chosen] = np.array(index) + count
            by_place[place] = self._cipher.prepared(distinct)
            count += len(distinct)
        of_rows = np.split(leaves, np.searchsorted(row, np.arange(1, len(bodies))))
        steps = self._split(bodies[:, USER_BYTES:])[1].tolist()
        trees = [
            (tuple((k, n) for k, n in tree if n), tuple(numbers.tolist()))
            for tree, numbers in zip(steps, of_rows, strict=True)
        ]
        return _Table(self._senders(bodies), by_place, trees)

    def leaf_results(self, events: OpenEvents, table: _Table) -> Bools:
        """Return the leaves that hold, shape (different tokens, events).

        This is what a broker learns beyond the answers.
        """
        parts = [np.zeros((0, events.count), dtype=np.bool_)]
        for place, tokens in table.tokens.items():
            parts.append(self._cipher.search(events.slot(place), tokens))
        return np.concatenate(parts)

    def match(self, key: Mapping[str, Any], events: OpenEvents, table: _Table) -> Bools:
        held = self.leaf_results(events, table)
        out = np.zeros((events.count, len(table.senders)), dtype=np.bool_)
        answers: dict[tuple[Steps, tuple[int, ...]], Bools] = {}
        for column, (user, tree) in enumerate(zip(table.senders, table.trees, strict=True)):
            if user not in key["users"]:
                continue
            if tree not in answers:
                answers[tree] = evaluate(*tree, held)
            out[:, column] = answers[tree]
        return out


def _literal_word(name: str, at: int, value: int) -> bytes:
    return keyword(f"{name}[{at}]", bytes([value]))


def sound(steps: Bytes, leaves: Index) -> Bools:
    """Return the rows of steps that are trees over so many leaves, each used once and in order."""
    least, parts = steps[:, :, 0].astype(np.int64), steps[:, :, 1].astype(np.int64)
    unused, leaf = parts == 0, parts == 1
    fits = np.where(leaf | unused, least == 0, (least >= 1) & (least <= parts))
    good = np.asarray(fits.all(axis=1))
    good &= ~(unused[:, :-1] & ~unused[:, 1:]).any(axis=1)
    good &= leaf.sum(axis=1) == leaves
    depth = np.cumsum(np.where(unused, 0, np.where(leaf, 1, 1 - parts)), axis=1)
    good &= (unused | (depth >= 1)).all(axis=1)
    good &= (depth[:, -1] == 1) | unused.all(axis=1)
    return good


def evaluate(steps: Steps, leaves: tuple[int, ...], held: Bools) -> Bools:
    """Return the answers of one sound tree, shape (events,).

    Args:
        steps: the tree.
        leaves: row in `held` of each leaf, in order.
        held: True where a leaf holds, shape (different leaves, events).
    """
    if not steps:
        return np.ones(held.shape[1], dtype=np.bool_)
    stack: list[Bools] = []
    numbers = iter(leaves)
    for least, parts in steps:
        if parts == 1:
            stack.append(held[next(numbers)])
            continue
        taken = stack[-parts:]
        del stack[-parts:]
        if least == parts:
            stack.append(conjunction(taken))
        elif least == 1:
            stack.append(disjunction(taken))
        else:
            stack.append(np.asarray(np.sum(taken, axis=0, dtype=np.int64) >= least))
    return stack[0]
