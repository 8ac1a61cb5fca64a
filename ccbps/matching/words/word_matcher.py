"""What KeywordFilterMatch and KeywordDictionaryMatch have in common: a vocabulary, and two keys.

Clients have a secret key for words and the key of a permutation, for nonces; a broker has the
second. Events start with a nonce of 16 bytes.

Hazard: a range by partitions is the list of the cells that it touches. Ranges that overlap share
cells, and so a few hundred of them show all cells in order: see `WordMatcher.leakage`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bools, Randomness
from ccbps.ciphers.word_prf import KEY_BYTES
from ccbps.errors import CcbpsError, ParameterError
from ccbps.forms.words import Vocabulary, codes_from_json
from ccbps.keys.role_key import Role
from ccbps.leakage import LeakageCard
from ccbps.matching.contract.interests import bound_predicate
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import ServerScheme, TableScheme
from ccbps.predicates import Events, Predicate, Schema
from ccbps.predicates.box import Box

NONCE_BYTES: Final = 16


class WordMatcher(Matcher, ServerScheme, TableScheme):
    """A matcher of conjunctions that a vocabulary says in words.

    Attributes:
        vocabulary: which words there are.
        named: what a word is in a subscription.
        answered: what the broker's results may have in addition.
        never: what subscriptions that never hold have in common.
        repeated: what a nonce that is used twice shows.
        listed: which parameters list values by attribute.
    """

    operators = ("=", "<", "interval", "prefix", "and")
    covering = True
    vocabulary: Vocabulary
    named: ClassVar[str]
    answered: ClassVar[str] = ""
    never: ClassVar[str]
    repeated: ClassVar[str]
    listed: ClassVar[tuple[str, ...]] = ("points",)

    @classmethod
    def from_parameters(cls, schema: Schema, parameters: Mapping[str, Any]) -> Self:
        """See `Scheme.from_parameters`."""
        values = {name: codes_from_json(name, parameters.get(name)) for name in cls.listed}
        made = cls(schema, **{**parameters, **values})
        if made.parameters() != parameters:
            raise ParameterError(f"the parameters are not those of a {cls.__name__}")
        return made

    @classmethod
    def propose(cls, schema: Schema, wanted: Predicate) -> Iterator[Self]:
        """With points all over the domain where `wanted` has a range, which is widened to them.
        Where they lie tells nothing of its constants."""
        try:
            made = cls.suited(schema, bound_predicate(schema, wanted).box())
            made.prepare(wanted)
        except CcbpsError:
            return
        yield made

    @classmethod
    @abstractmethod
    def suited(cls, schema: Schema, box: Box) -> Self:
        """A matcher that takes boxes with ranges and equalities of the same attributes."""

    @property
    def leakage(self) -> LeakageCard:
        """What the broker learns; more where ranges have points or partitions."""
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
        return LeakageCard(
            scheme=type(self).__name__,
            adversary="the broker, which follows the protocol and keeps all it sees",
            hides=(
                "which value other than NULL a word of an attribute without ranges stands for, "
                "from anyone who knows no event, no subscription and no frequency",
                "words of an event that nobody has subscribed to and that no other words imply",
                "which events are equal, beyond what the results of words that are subscribed "
                "to show",
                "the number of an event's words, beyond what the schema and the results of "
                "words tell",
            ),
            protects=frozenset(),
            learns=tuple(learns),
            security="broken" if self.vocabulary.cells else "computational",
            assumption="AES-128 as a pseudorandom function and as a random public permutation",
            reuse="reusable",
            hazards=(
                "any client has the keys and can read all events and subscriptions",
                f"two events with the same nonce show {self.repeated}",
            ),
            attacks=tuple(attacks),
        )

    def widened(self, interest: Any) -> Box:
        """The box that a predicate is widened to; plaintext, for the subscriber."""
        return self.vocabulary.widened(bound_predicate(self.schema, interest))

    def meaning(self, interest: Any, events: Events) -> Bools:
        """See `Scheme.meaning`: the widened box."""
        return self.widened(interest).evaluate(events)

    def generate(self, randomness: Randomness) -> dict[str, Any]:
        """See `ServerScheme.generate`."""
        return {
            "words": randomness(KEY_BYTES).hex(),
            "permutation": randomness(KEY_BYTES).hex(),
        }

    def issue(
        self,
        master: dict[str, Any],
        role: Role,
        name: str,
        randomness: Randomness,
    ) -> dict[str, Any]:
        """See `ServerScheme.issue`."""
        return {"permutation": master["permutation"]} if role == "broker" else dict(master)

    @abstractmethod
    def clauses_of(self, table: Any) -> tuple[NDArray[Any], Bools]:
        """What clauses of a table are told apart by, shape (interests, clauses, numbers); and which
        of them there are, shape (interests, clauses)."""

    def covers(self, key: Mapping[str, Any], wide: Any, narrow: Any) -> Bools:
        """Where all clauses of the wide one are among the narrow one's: never wrongly true."""
        (mine, used), (others, _) = self.clauses_of(wide), self.clauses_of(narrow)
        out = np.ones((len(mine), len(others)), dtype=np.bool_)
        for clause in range(mine.shape[1]):
            same = np.asarray((mine[:, None, None, clause] == others[None]).all(axis=3))
            out &= same.any(axis=2) | ~used[:, clause, None]
        return out
