"""What publishers and subscribers send, by where a matcher's randomness comes from.

With a key server a message is made once and is for all. With rounds a publication's number is its
round: subscribers encode for the rounds to come, ahead, and an event is one message for all of them
(BroadcastMatch), or one for each subscription, whose label ``client/name`` names its seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ccbps.broker import Publication, Subscription
from ccbps.errors import ParameterError
from ccbps.keys.sources import FileKey, master, role_key, seeds
from ccbps.matching import Matcher
from ccbps.matching.contract.roles import Publisher, Subscriber
from ccbps.matching.contract.scheme import Answers, Keying

_SESSIONS: Final = (
    "{}'s publishers and subscribers talk first, and keep what they agreed on: write a program "
    "for them; docs/matchers/oblivious_topic.md says how"
)


def _access(matcher: Matcher, key: str, ledger: str | None) -> tuple[Any, dict[str, Any]]:
    """The key of a role, and the role's options.

    Raises:
        ParameterError: rounds need a ledger; or the matcher has sessions.
    """
    name = type(matcher).__name__
    if matcher.keying is Keying.SESSION:
        raise ParameterError(_SESSIONS.format(name))
    if matcher.keying is Keying.SERVER:
        return role_key(FileKey(key)), {"ledger": ledger}
    if ledger is None:
        raise ParameterError(
            f"{name} uses each round once: --ledger FILE, made if it is not there, remembers them"
        )
    return seeds(FileKey(key)), {"ledger": ledger}


class Outgoing:
    """A publisher's messages."""

    def __init__(
        self, matcher: Matcher, key: str, ledger: str | None, labels: Sequence[str]
    ) -> None:
        """
        Args:
            matcher: the public parameters.
            key: path of the publisher's key, or of its seed.
            ledger: path, where there are rounds.
            labels: ``client/name`` of the subscriptions, where each has events of its own.
        """
        loaded, options = _access(matcher, key, ledger)
        own = matcher.answers is Answers.PAIRS
        if own != bool(labels):
            raise ParameterError(
                "--to client/name, for each subscription, is needed where each has a seed of its "
                "own, as with FormulaMatch, and only there"
            )
        if own:
            loaded = master(FileKey(key))
        self._publisher: Publisher = matcher.publisher(loaded, **options)
        self._rounds, self._labels = matcher.keying is Keying.ROUNDS, [*labels]

    def publications(
        self,
        records: Sequence[dict[str, Any]],
        numbers: range,
        payloads: Sequence[bytes],
        tokens: Sequence[bytes | None],
    ) -> list[Publication]:
        """A publication for each record.

        Raises:
            EventError: a record does not fit the schema.
            RandomnessReuseError: a round was used for something else; nothing is encoded.
        """
        labels, rounds = self._labels, [*numbers] if self._rounds else None
        events: list[bytes | None] = [None] * len(records)
        own: list[dict[str, bytes]] = [{} for _ in records]
        if not labels:
            events = [row.tobytes() for row in self._publisher.encode(records, rounds)]
        else:
            rows = self._publisher.encode(
                [record for record in records for _ in labels],
                [number for number in numbers for _ in labels],
                pairs=labels * len(records),
            ).reshape(len(records), len(labels), -1)
            for place, some in enumerate(rows):
                own[place] = {label: row.tobytes() for label, row in zip(labels, some, strict=True)}
        return [
            Publication(
                number,
                events[place],
                payloads[place],
                tokens[place],
                number if self._rounds else None,
                own[place],
            )
            for place, number in enumerate(numbers)
        ]


def subscription(
    matcher: Matcher,
    key: str,
    interest: Any,
    client: str,
    name: str,
    *,
    token: bytes | None = None,
    ledger: str | None = None,
    publisher: str | None = None,
    rounds: range | None = None,
) -> Subscription:
    """What a client sends to get what matches an interest.

    Raises:
        PredicateError: the interest cannot be used.
        ParameterError: there are rounds, and they or their publisher are not named; or there are
            none.
    """
    loaded, options = _access(matcher, key, ledger)
    subscriber: Subscriber = matcher.subscriber(loaded, **options)
    if (matcher.keying is Keying.ROUNDS) != (rounds is not None and publisher is not None):
        raise ParameterError(
            "--publisher NAME and --rounds FIRST:COUNT are needed where messages are one-time, and "
            "only there"
        )
    if rounds is None:
        return Subscription(name, subscriber.encode(interest), token)
    pairs = [f"{client}/{name}"] * len(rounds) if matcher.answers is Answers.ROUND else None
    rows = subscriber.encode(interest, rounds, pairs=pairs)
    return Subscription(name, rows, token, publisher, rounds.start)
