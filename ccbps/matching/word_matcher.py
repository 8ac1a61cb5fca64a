"""What KeywordFilterMatch and KeywordDictionaryMatch have in common: a vocabulary, and two keys.

Clients have a secret key for words and the key of a permutation, for nonces; a broker has the
second. Events start with a nonce of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ccbps.ciphers.word_prf import KEY_BYTES
from ccbps.matching.keywords import Vocabulary
from ccbps.matching.reusable import ReusableMatcher
from ccbps.matching.reusable_roles import Randomness
from ccbps.matching.role_keys import Role
from ccbps.predicates.box import Box

__all__ = ["NONCE_BYTES", "WordMatcher"]

NONCE_BYTES: Final = 16


class WordMatcher(ReusableMatcher):
    """A matcher of conjunctions that a vocabulary says in words.

    Attributes:
        vocabulary: which words there are.
    """

    operators = ("=", "<", "interval", "prefix", "and")
    covering = True
    vocabulary: Vocabulary

    def widened(self, interest: Any) -> Box:
        """The box that a predicate is widened to; plaintext, for the subscriber."""
        return self.vocabulary.widened(self._predicate(interest))

    def _generate(self, randomness: Randomness) -> dict[str, Any]:
        return {
            "words": randomness(KEY_BYTES).hex(),
            "permutation": randomness(KEY_BYTES).hex(),
        }

    def _issue(
        self, master: Mapping[str, Any], role: Role, name: str, randomness: Randomness
    ) -> dict[str, Any]:
        return {"permutation": master["permutation"]} if role == "broker" else dict(master)
