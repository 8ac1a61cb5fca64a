"""The base of KeywordFilterMatch and KeywordDictionaryMatch: a vocabulary, and two keys.

Clients have a secret key for words and the key of a permutation, for nonces; a broker has the
second. Events start with a nonce of 16 bytes.

Hazard: a range by partitions is the list of the cells that it touches. Ranges that overlap share
cells, and so a few hundred of them show all cells in order: see `WordMatcher.leakage`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bools, Bytes, Randomness, Words
from ccbps.ciphers.word_prf import KEY_BYTES, NonceHash, to_blocks
from ccbps.errors import ParameterError
from ccbps.forms.words import Vocabulary, codes_from_json
from ccbps.leakage import LeakageCard
from ccbps.matching.contract.clauses import Alternatives
from ccbps.matching.contract.scheme import bound_predicate
from ccbps.matching.reusable import BOXES, ReusableMatcher
from ccbps.predicates import Events, Schema
from ccbps.predicates.box import Box

NONCE_BYTES: Final = 16
Table: TypeAlias = tuple[NDArray[Any], Words]
"""Interests: slots of alternatives, (clauses, slots, interests); keys, (..., interests, 2)."""
_PAIRS: Final = 1 << 14
"""Pairs of an event and an interest looked at together."""


class WordMatcher(ReusableMatcher):
    """A matcher of conjunctions that a vocabulary says in words.

    Attributes:
        vocabulary: the words of the schema.
        named: noun for a word in a subscription.
        answered: qualification of the broker's results.
        never: clause on subscriptions that never hold.
        repeated: noun phrase for the leakage of a nonce that is used twice.
        listed: names of the parameters that list values by attribute.
        look_up: class of `Alternatives`, made of hash, nonces, bits, slots and keys.
    """

    operators = BOXES
    covering = True
    shown = ("permutation",)
    vocabulary: Vocabulary
    named: ClassVar[str]
    answered: ClassVar[str] = ""
    never: ClassVar[str]
    repeated: ClassVar[str]
    listed: ClassVar[tuple[str, ...]] = ("points",)
    look_up: ClassVar[Callable[..., Alternatives]]

    @classmethod
    def from_parameters(cls, schema: Schema, parameters: Mapping[str, Any]) -> Self:
        values = {name: codes_from_json(name, parameters.get(name)) for name in cls.listed}
        matcher = cls(schema, **{**parameters, **values})
        if matcher.parameters() != parameters:
            raise ParameterError(f"the parameters are not those of a {cls.__name__}")
        return matcher

    @property
    def leakage(self) -> LeakageCard:
        """Leakage card; it lists more where ranges have points or partitions."""
        learns = [
            f"every match of a predicate widened to the vocabulary{self.answered}",
            f"the result of each word of each subscription{self.answered}",
            "the number of words in a subscription, and which subscriptions share words",
            "which words belong to one attribute, and to which one, from their number and results",
            "which words stand for NULL and its opposite, where somebody asks for both",
            f"which subscriptions never hold, over many events: {self.never}",
        ]
        attacks = [
            f"equal {self.named}: which subscriptions want the same word",
            "frequency: how often a word is found is how often it occurs; known frequencies "
            "tell which word is which",
        ]
        if self.vocabulary.points:
            learns.append(
                "the order of points, or its reverse, and between which two of them an event lies"
            )
            attacks.append(
                "containment of answers: it puts points in order, and every event between two "
                "of them"
            )
        if self.vocabulary.cells:
            learns += [
                "the number of cells of a range, and so its width to within two cells",
                "the order of all cells of a partition, or its reverse, from ranges alone; and "
                "the cell of each event",
            ]
            attacks = [
                "ranges alone: 150 give all cells of a partition in order; 200 and their "
                "results place every event within 1.3 % of the domain, or all of them reflected",
                *attacks,
                "clauses and results: they tell the attribute of each word",
            ]
        return self._card(
            hides=(
                "which value other than NULL a word of an attribute without ranges stands for, "
                "from anyone who knows no event, no subscription and no frequency",
                "words of an event that nobody has subscribed to and that no other words imply",
                "which events are equal, beyond what the results of words that are subscribed "
                "to show",
                "the number of an event's words, beyond what the schema and the results of "
                "words tell",
            ),
            learns=tuple(learns),
            security="broken" if self.vocabulary.cells else "computational",
            assumption="AES-128 as a pseudorandom function and as a random public permutation",
            hazards=(
                "any client has the keys and can read all events and subscriptions",
                f"two events with the same nonce show {self.repeated}",
            ),
            attacks=tuple(attacks),
        )

    def widened(self, interest: Any) -> Box:
        """Return the box that a predicate is widened to; plaintext, for the subscriber."""
        return self.vocabulary.widened(bound_predicate(self.schema, interest))

    def meaning(self, interest: Any, events: Events) -> Bools:
        return self.widened(interest).evaluate(events)

    def generate(self, randomness: Randomness) -> dict[str, Any]:
        return {name: randomness(KEY_BYTES).hex() for name in ("words", "permutation")}

    def match(self, key: Mapping[str, Any], events: Bytes, table: Table) -> Bools:
        hashed = NonceHash(bytes.fromhex(key["permutation"]))
        slots, keys = table
        interests = slots.shape[2]
        out = np.empty((len(events), interests), dtype=np.bool_)
        step = max(1, _PAIRS // interests)
        for start in range(0, len(events), step):
            rows = events[start : start + step]
            nonces = to_blocks(rows[:, :NONCE_BYTES].tobytes())
            bits = np.ascontiguousarray(rows[:, NONCE_BYTES:])
            for low in range(0, interests, _PAIRS):
                columns = slice(low, low + _PAIRS)
                some = slots[..., columns], keys[..., columns, :]
                look_up = self.look_up(hashed, nonces, bits, *some)
                out[start : start + step, columns] = look_up.answers()
        return out

    @abstractmethod
    def clauses_of(self, table: Table) -> tuple[NDArray[Any], Bools]:
        """Return what tells the clauses of a table apart, and the clauses in use.

        Returns:
            numbers, shape (interests, clauses, n); bool, shape (interests, clauses).
        """

    def covers(self, key: Mapping[str, Any], wide: Table, narrow: Table) -> Bools:
        """Return the pairs in which the narrow interest has all clauses of the wide one.

        Never wrongly true. See `TableScheme.covers`.
        """
        (mine, used), (others, _) = self.clauses_of(wide), self.clauses_of(narrow)
        out = np.ones((len(mine), len(others)), dtype=np.bool_)
        for clause in range(mine.shape[1]):
            same = np.asarray((mine[:, None, None, clause] == others[None]).all(axis=3))
            out &= same.any(axis=2) | ~used[:, clause, None]
        return out
