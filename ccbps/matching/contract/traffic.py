"""Bytes that a scheme's messages take on each link, for any number of events and subscriptions."""

from __future__ import annotations

from dataclasses import dataclass

from ccbps.matching.contract.access import message_bytes
from ccbps.matching.contract.scheme import Answers, Scheme


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes by link. Keys, payloads and what a transport adds are not counted.

    Example:
        >>> from ccbps.matching import Traffic
        >>> Traffic(publisher=800, subscriber=200).total
        1000

    Attributes:
        publisher: bytes from the publisher to the broker.
        subscriber: bytes from all subscribers to the broker.
        brokers: bytes between brokers.
        deliveries: bytes from the broker to all subscribers, where these learn the answers.
    """

    publisher: int
    subscriber: int
    brokers: int = 0
    deliveries: int = 0

    @property
    def total(self) -> int:
        """Bytes on all links."""
        return self.publisher + self.subscriber + self.brokers + self.deliveries


def traffic_of(scheme: Scheme, events: int, subscriptions: int) -> Traffic:
    """Return the traffic of a scheme with one broker, which answers.

    Args:
        scheme: the scheme.
        events: number of events.
        subscriptions: number of subscriptions that each event meets.
    """
    event, interest = message_bytes(scheme, "event"), message_bytes(scheme, "interest")
    pairs = events * subscriptions
    messages = {
        Answers.PAIRS: (pairs, pairs),
        Answers.ROUND: (events, pairs),
        Answers.ALL: (events, subscriptions),
    }[scheme.answers]
    return Traffic(messages[0] * event, messages[1] * interest)
