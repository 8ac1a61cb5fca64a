"""The public side of every matcher: roles, sizes, text form, pickling, explanation.

Example::

    matcher = FormulaMatch.box(schema)                         # rounds: a shared seed
    events = matcher.publisher(seed).encode(records, rounds)
    interests = matcher.subscriber(seed).encode(predicates, rounds)
    matcher.broker().match(events, interests)                  # bool (pairs,)

    matcher = TagMatch(schema)                                 # a key server
    server = matcher.key_server()
    events = matcher.publisher(server.publisher_key()).encode(records)
    interests = matcher.subscriber(server.subscriber_key("alice")).encode(predicates)
    matcher.broker(server.broker_key()).match_all(events, interests)   # bool (events, interests)

A matcher whose card says "broken" warns when it is made, and its repr says it, too.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Self

from ccbps.arrays import Randomness
from ccbps.checks import other_version, whole
from ccbps.errors import BrokenSchemeWarning, DecodeError, ParameterError, PredicateError
from ccbps.keys.randomness import RandomnessSource
from ccbps.keys.role_key import RoleKey
from ccbps.leakage import LeakageCard, Protects
from ccbps.matching.contract.access import MAC_BYTES, header_bytes, message_bytes, round_bytes
from ccbps.matching.contract.roles import Publisher, Subscriber
from ccbps.matching.contract.scheme import Keying, Scheme, ServerScheme, Sizes
from ccbps.predicates import Schema
from ccbps.predicates.described import from_text as read_description
from ccbps.predicates.described import to_text, types_of

if TYPE_CHECKING:
    from ccbps.matching.contract.broker import Broker
    from ccbps.matching.contract.estimate import Estimate
    from ccbps.matching.contract.key_server import KeyServer
    from ccbps.matching.contract.traffic import Traffic

MATCHER_FIELDS: Final = {"scheme", "scheme_version", "schema", "parameters"}
MAX_TEXT: Final = 1 << 24
"""Greatest number of characters of a matcher's text."""
MAX_TEXT_BYTES: Final = 1 << 26
"""Greatest number of bytes of a message of a matcher that is made from a text."""
ANSWERS_ONLY: Final = frozenset(
    {Protects.EVENT, Protects.EQUALITY_OF_EVENTS, Protects.EQUALITY_OF_INTERESTS}
)
"""Data that every scheme protects whose broker learns only the answers."""
_again: ContextVar[bool] = ContextVar("_again", default=False)
"""True while a matcher is made again: a warning that it is broken was given the first time."""
_from_text: ContextVar[bool] = ContextVar("_from_text", default=False)
"""True while a matcher is made from a text, which is untrusted."""


@contextmanager
def making(*, again: bool = False, from_text: bool = False) -> Iterator[None]:
    """Tell constructors of matchers, while the block runs, the purpose of their call.

    Args:
        again: True to give no warnings of broken schemes.
        from_text: True to apply the limits of texts.
    """
    tokens = _again.set(again or _again.get()), _from_text.set(from_text)
    try:
        yield
    finally:
        _again.reset(tokens[0])
        _from_text.reset(tokens[1])


def from_text() -> bool:
    """Return True while a matcher is made from a text, which must not cost much."""
    return _from_text.get()


def within_text(size: int) -> None:
    """Refuse a text whose matcher would have messages that are too long.

    A text is untrusted, and a few bytes of it can ask for very long messages. Schemes call this and
    `from_text` before they build anything large.

    Args:
        size: bytes of a message.

    Raises:
        ParameterError: `size` exceeds `MAX_TEXT_BYTES`, and the matcher is made from a text.
    """
    if from_text() and size > MAX_TEXT_BYTES:
        raise ParameterError(
            f"messages would have {size:,} bytes, and at most {MAX_TEXT_BYTES:,} where a text "
            "says so; if such messages are what you want, call the constructor"
        )


def matcher_fields(text: str) -> dict[str, Any]:
    """Return the fields of a text of `Matcher.to_json`.

    Raises:
        DecodeError: the text is not a matcher's.
    """
    fields = read_description("matcher", text, MATCHER_FIELDS, most=MAX_TEXT)
    if not isinstance(fields["parameters"], dict):
        raise DecodeError("the parameters of a matcher are an object of JSON")
    return fields


_SHOWN: Final = (
    "broker",
    "costs",
    "estimate",
    "event_bytes",
    "explain",
    "fingerprint",
    "interest_bytes",
    "leakage",
    "private_names",
    "publisher",
    "randomness_bytes",
    "schema",
    "subscriber",
    "to_json",
)


class Matcher(Scheme):
    """Public parameters of a scheme, which make its roles.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.matching import FormulaMatch, Matcher
        >>> matcher = FormulaMatch.box(Schema(price=UInt(16)))
        >>> isinstance(matcher, Matcher), matcher.keying.value, matcher.answers.value
        (True, 'rounds', 'pairs')
        >>> matcher.event_bytes, matcher.interest_bytes, matcher.randomness_bytes
        (24, 25, 40)
        >>> matcher.leakage.security, matcher.leakage.reuse
        ('perfect', 'one-time')
        >>> print(matcher.explain())
        FormulaMatch over price (16 bits)
        ...
        >>> FormulaMatch.from_json(matcher.to_json()) == matcher
        True

    Attributes:
        event_bytes: bytes of one event message, header and MAC included.
        interest_bytes: bytes of one interest message, header and MAC included.
        randomness_bytes: bytes of shared randomness that one round uses.
        fingerprint: hash of these public parameters, 64 hexadecimal digits.
    """

    def _set_up(self, schema: Schema, sizes: Sizes) -> None:
        """Set schema and sizes, and warn of a broken scheme, at the end of a constructor."""
        self.schema, self.sizes = schema, sizes
        card = self.leakage
        if card.security == "broken" and not _again.get():
            warnings.warn(
                f"{card.scheme} is broken: its broker can read the data. Known attack: "
                f"{card.attacks[0]}. Take {self.instead}. All attacks: print(matcher.leakage)",
                BrokenSchemeWarning,
                stacklevel=3,
            )

    @property
    def event_bytes(self) -> int:
        """Bytes of one event message, header and MAC included."""
        return message_bytes(self, "event")

    @property
    def interest_bytes(self) -> int:
        """Bytes of one interest message, header and MAC included."""
        return message_bytes(self, "interest")

    @property
    def randomness_bytes(self) -> int:
        """Bytes of shared randomness that one round uses; 0 where there are no rounds."""
        return round_bytes(self)

    def traffic(self, events: int, subscriptions: int, *, topics: int | None = None) -> Traffic:
        """Return the bytes on each link, where every event meets every subscription.

        Args:
            events: number of events.
            subscriptions: number of subscriptions.
            topics: number of a publisher's topics, where the matcher has sessions.
        """
        from ccbps.matching.contract.traffic import traffic_of  # here, since few ask for it

        return traffic_of(self, events, subscriptions)

    def estimate(
        self,
        *,
        events: int,
        subscriptions: int,
        interest: Any = None,
        topics: int | None = None,
    ) -> Estimate:
        """Count bytes, and estimate seconds by running all roles for about a tenth of a second.

        Example:
            >>> from ccbps import Schema, UInt
            >>> from ccbps.matching import FormulaMatch
            >>> matcher = FormulaMatch.box(Schema(price=UInt(16)))
            >>> estimate = matcher.estimate(events=1000, subscriptions=10)
            >>> estimate.traffic.total == 10_000 * (matcher.event_bytes + matcher.interest_bytes)
            True
            >>> estimate.rounds, estimate.seconds
            (10000, None)

        Args:
            events: number of events.
            subscriptions: number of subscriptions that each event meets.
            interest: a subscription to try, as `Subscriber.encode` takes it; None to count bytes
                only. Its constants do not leave the process.
            topics: number of a publisher's topics, where the matcher has sessions.

        Raises:
            ParameterError: a number is not positive, or `interest` has a wrong type.
            PredicateError: the matcher does not take the interest.
        """
        from ccbps.matching.contract import estimate

        whole("events", events, 1)
        whole("subscriptions", subscriptions, 1)
        seconds = None
        if interest is not None:
            self.prepare(interest)
            rates = estimate.measured_rates(self, interest, subscriptions, topics or 1)
            seconds = estimate.seconds_of(rates, events, subscriptions)
        return estimate.Estimate(
            self.traffic(events, subscriptions, topics=topics),
            seconds,
            estimate.rounds_of(self, events, subscriptions),
        )

    def __dir__(self) -> list[str]:
        # Names for users; authors of schemes know the others from the contract.
        role = "key_server" if isinstance(self, ServerScheme) else "deferred"
        roles = [role] if hasattr(type(self), role) else []
        return [*_SHOWN, *roles, *(name for name in super().__dir__() if name.startswith("_"))]

    def __repr__(self) -> str:
        broken = " [broken]" if self.leakage.security == "broken" else ""
        return f"<{type(self).__name__}{broken} over {', '.join(self.schema)}>"

    # -- roles ----------------------------------------------------------------------------------

    def key_server(
        self, key: RoleKey | None = None, *, randomness: Randomness = os.urandom
    ) -> KeyServer:
        """Make a key server with a fresh master key, or with the one from `KeyServer.key`.

        Args:
            key: master key; None for a fresh one.
            randomness: source of a fresh key: the operating system, unless a test says otherwise.

        Raises:
            ParameterError: the matcher has no key server.
            KeyMismatchError: the key is not a master key of this matcher.
        """
        if not isinstance(self, ServerScheme):
            raise ParameterError(
                f"{type(self).__name__} has no key server: publisher and subscriber share a seed"
            )
        from ccbps.matching.contract.key_server import KeyServer  # here, since few schemes have one

        return KeyServer(self, key, randomness)

    def publisher(
        self,
        key: RandomnessSource | RoleKey,
        *,
        ledger: str | os.PathLike[str] | None = None,
        randomness: Randomness = os.urandom,
    ) -> Publisher:
        """Make the role that encodes events.

        Args:
            key: with rounds, the seed that is shared with the subscriber, or a master of many
                pairs; with a key server, `KeyServer.publisher_key`.
            ledger: with rounds, path of a file that records used rounds across roles, processes
                and restarts (`ccbps.rounds.disk_ledger`), created if missing; None to record them
                in memory, for the lifetime of the role.
            randomness: source of random bytes: the operating system, unless a test says otherwise.

        Raises:
            KeyMismatchError: the key belongs to another matcher or role.
            LedgerError: the file cannot be used.
        """
        return Publisher(self, key, ledger, randomness)

    def subscriber(
        self,
        key: RandomnessSource | RoleKey,
        *,
        ledger: str | os.PathLike[str] | None = None,
        randomness: Randomness = os.urandom,
    ) -> Subscriber:
        """Make the role that encodes predicates; arguments as for `publisher`."""
        return Subscriber(self, key, ledger, randomness)

    def broker(self, key: RoleKey | None = None) -> Broker:
        """Make the role that matches.

        Args:
            key: with a key server, `KeyServer.broker_key`: MAC keys, and the data that the scheme
                lets a broker know, often none. With rounds, None.
        """
        from ccbps.matching.contract.broker import Broker  # here, since other parties have none

        return Broker(self, key)

    # -- as text --------------------------------------------------------------------------------

    def to_json(self) -> str:
        """Return all public parameters as text, which is safe to read where a pickle is not."""
        fields = {
            "scheme": self.name,
            "scheme_version": self.version,
            "schema": self.schema.describe(),
            "parameters": self.parameters(),
        }
        return to_text("matcher", fields)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Make the matcher of a text from `to_json`; `ccbps.matching.from_json` takes any scheme's.

        Raises:
            DecodeError: the text is not a matcher's, or describes another scheme.
            ParameterError: the parameters are not possible, or messages would have more than
                64 MiB, which only a constructor may ask for.
        """
        if getattr(cls, "name", None) is None:
            raise ParameterError(
                f"{cls.__name__} is no scheme: ccbps.matching.from_json(text) finds the scheme"
            )
        fields = matcher_fields(text)
        scheme, version = fields["scheme"], fields["scheme_version"]
        if scheme != cls.name:
            raise DecodeError(
                f"the text describes the scheme {scheme!r:.60}, and {cls.__name__} is "
                f"{cls.name!r}: ccbps.matching.from_json(text) finds the scheme"
            )
        if json.dumps(version) != json.dumps(cls.version):
            raise DecodeError(
                other_version(f"the {cls.__name__} of the text", version, cls.version)
            )
        schema, problem = Schema(types_of(fields["schema"])), ""
        matcher: Self | None = None
        try:
            with making(from_text=True):
                matcher = cls.from_parameters(schema, fields["parameters"])
                within_text(max(matcher.event_bytes, matcher.interest_bytes))
        except TypeError:
            pass
        except PredicateError as error:
            problem = error.summary
        if problem:
            raise DecodeError(f"the template does not parse: {problem}")
        # As text: to Python, 1 is True and 1.0. Omitted parameters would follow later defaults.
        given = json.dumps(fields["parameters"], sort_keys=True)
        if matcher is None or json.dumps(matcher.parameters(), sort_keys=True) != given:
            raise DecodeError(f"the parameters are not those of a {cls.__name__}")
        return matcher

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_again, (type(self), self.schema, json.dumps(self.parameters()))

    def explain(self) -> str:
        """Return parameters, bytes of each side, operations and leakage card, as text."""
        return self._explain([])

    def _explain(self, lines: Iterable[tuple[str, str]]) -> str:
        """Return the text of `explain`: title, the scheme's own lines, then the common lines."""
        reusable = "one-time" if self.keying is Keying.ROUNDS else "reusable"
        covering = ", covering" if self.covering else ""
        mac = f", {MAC_BYTES} MAC" if self.keying is Keying.SERVER else ""
        common = [
            ("operators", ", ".join(self.operators)),
            (
                "messages",
                f"{self.event_bytes:,} bytes per event, {self.interest_bytes:,} bytes per interest "
                f"({header_bytes(self)} of them header{mac}); {reusable}{covering}",
            ),
        ]
        if self.randomness_bytes:
            blocks = -(-self.randomness_bytes // 16)
            common.append(
                ("randomness", f"{self.randomness_bytes:,} bytes per round ({blocks:,} AES blocks)")
            )
        common += [(cost.role, f"per {cost.per}: {cost}") for cost in self.costs]
        rows = [f"  {name + ':':<13}{text}" for name, text in (*lines, *common)]
        title = f"{type(self).__name__} over {', '.join(self.schema)} ({self.schema.bits} bits)"
        card = ["  " + line for line in str(self.leakage).splitlines()]
        return "\n".join([title, *rows, *card])

    def _card(self, **fields: Any) -> LeakageCard:
        """Return a leakage card, with the fields that are the same for most matchers."""
        shared: dict[str, Any] = {
            "scheme": type(self).__name__,
            "adversary": "the broker, which follows the protocol and keeps all it sees",
            "protects": frozenset(),
            "reuse": "one-time" if self.keying is Keying.ROUNDS else "reusable",
        }
        return LeakageCard(**{**shared, **fields})

    def _perfect(self, public: str, hidden: str, protects: Iterable[Protects]) -> LeakageCard:
        """Return the card of a matcher whose broker learns the answers and nothing else.

        Args:
            public: the public parameters, in words.
            hidden: the hidden facts about a subscription, in words.
            protects: the same facts as members of `Protects`.
        """
        return self._card(
            hides=("every attribute of the event, beyond what the answer says about it", hidden),
            protects=ANSWERS_ONLY.union(protects),
            learns=(
                "whether the event matches the predicate",
                f"public parameters: {public}",
                "which messages belong to one pair and round",
                "over many pairs, which of them belong to one event or one subscription, as far "
                "as labels and rounds tell",
            ),
            security="perfect",
            assumption=(
                "each round's randomness is uniform, known only to the pair and used once; with "
                "SharedSeed instead of OneTimePad, it comes from AES-256-CTR and HKDF-SHA256"
            ),
            hazards=(
                "a round is used for two events or two predicates",
                "the broker colludes with one of the two clients",
            ),
            with_client="pairs",
        )


@lru_cache(maxsize=64)
def _made_again(cls: type[Matcher], schema: Schema, parameters: str) -> Matcher:
    """Make a matcher that was pickled or copied, without a warning.

    A worker that receives the same matcher with every task builds it once.
    """
    with making(again=True):
        return cls.from_parameters(schema, json.loads(parameters))
