"""The base of CommutativeMatch and MaskedTopicMatch, which compare topics."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from ccbps.arrays import Bytes, Words
from ccbps.dictionary import DictionaryColumn
from ccbps.forms.topic import topic_codes, topic_of
from ccbps.matching.contract.bodies import Draw
from ccbps.matching.contract.interests import bound_predicate
from ccbps.matching.reusable import ReusableMatcher
from ccbps.predicates import Events


class TopicMatcher(ReusableMatcher):
    """A matcher whose subscriptions name one value for each attribute of the topic.

    Attributes:
        attributes: names of the topic's attributes.
    """

    operators = ("=", "and")
    covering = True
    attributes: tuple[str, ...]

    @abstractmethod
    def _bodies(self, key: Mapping[str, Any], topics: Words) -> Bytes:
        """Return a body for each topic, a row of codes; both sides have the same bodies."""

    def _encoded(self, key: Mapping[str, Any], topics: Words) -> Bytes:
        # Topics repeat, and texts that differ may name one topic: each is encoded once.
        distinct, index = np.unique(topics, axis=0, return_inverse=True)
        return self._bodies(key, distinct)[index.reshape(-1)]

    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        out[:] = self._encoded(key, topic_codes(events, self.attributes))

    def prepare(self, interest: Any) -> Words:
        return topic_of(bound_predicate(self.schema, interest), self.attributes)

    def encode_interests(
        self, key: Mapping[str, Any], interests: DictionaryColumn[Words], draw: Draw, out: Bytes
    ) -> None:
        out[:] = self._encoded(key, np.stack(interests.values))[interests.index]
