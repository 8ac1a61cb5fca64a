"""The public side of every matcher: roles, sizes, text form, equality, pickling, explanation.

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
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Self

from ccbps.arrays import Randomness
from ccbps.errors import BrokenSchemeWarning, DecodeError, ParameterError
from ccbps.keys.randomness import RandomnessSource
from ccbps.keys.role_key import RoleKey
from ccbps.leakage import LeakageCard, Protects
from ccbps.matching.contract.access import MAC_BYTES, header_bytes, message_bytes, round_bytes
from ccbps.matching.contract.bodies import Sizes
from ccbps.matching.contract.broker import Broker
from ccbps.matching.contract.key_server import KeyServer
from ccbps.matching.contract.kinds import Keying
from ccbps.matching.contract.roles import Publisher, Subscriber
from ccbps.matching.contract.scheme import Scheme, ServerScheme
from ccbps.matching.contract.texts import matcher_fields, quietly, warns, within_text, written
from ccbps.predicates import Schema
from ccbps.predicates.described import to_text, types_of


class Matcher(Scheme):
    """Public parameters of a scheme. Makes its roles.

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
        randomness_bytes: bytes of shared randomness one round uses.
        fingerprint: 32 bytes that name these public parameters.
    """

    def _set_up(self, schema: Schema, sizes: Sizes) -> None:
        """To be called at the end of the constructor, when the card can be made."""
        self.schema, self.sizes = schema, sizes
        card = self.leakage
        if card.security == "broken" and warns():
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
        """Bytes of shared randomness one round uses; 0 where there are no rounds."""
        return round_bytes(self)

    def __repr__(self) -> str:
        broken = " [broken]" if self.leakage.security == "broken" else ""
        return f"<{type(self).__name__}{broken} over {', '.join(self.schema)}>"

    # -- roles ----------------------------------------------------------------------------------

    def key_server(self, key: RoleKey | None = None) -> KeyServer:
        """A key server with a fresh master key, or with the one that `KeyServer.key` gave out.

        Raises:
            ParameterError: the matcher has none.
            KeyMismatchError: the key is not a master key of this matcher.
        """
        if not isinstance(self, ServerScheme):
            raise ParameterError(
                f"{type(self).__name__} has no key server: publisher and subscriber share a seed"
            )
        return KeyServer(self, key)

    def publisher(
        self,
        key: RandomnessSource | RoleKey,
        *,
        ledger: str | os.PathLike[str] | None = None,
        randomness: Randomness = os.urandom,
    ) -> Publisher:
        """The role that encodes events.

        Args:
            key: with rounds, the seed that is shared with the subscriber, or a master of many
                pairs; with a key server, `KeyServer.publisher_key`.
            ledger: with rounds, path of a file that remembers them across roles, processes and
                restarts (`ccbps.rounds.disk_ledger`), created if missing; None to remember them in
                memory, as long as the role lives.
            randomness: the operating system's, unless a test says otherwise.

        Raises:
            KeyMismatchError: it is another matcher's or role's key.
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
        """The role that encodes predicates; arguments as for `publisher`."""
        return Subscriber(self, key, ledger, randomness)

    def broker(self, key: RoleKey | None = None) -> Broker:
        """The role that matches. With rounds it has no key; a key server's holds what it checks
        messages with, and what the scheme lets a broker know, often nothing more."""
        return Broker(self, key)

    # -- as text --------------------------------------------------------------------------------

    def to_json(self) -> str:
        """All public parameters as text, for parties who do not trust one another's pickles."""
        fields = {
            "scheme": self.name,
            "scheme_version": self.version,
            "schema": self.schema.describe(),
            "parameters": self.parameters(),
        }
        return to_text("matcher", fields)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The matcher that `to_json` described; `ccbps.matching.from_json` takes any scheme's.

        Raises:
            DecodeError: it is not such a text, or another scheme's.
            ParameterError: the parameters are not possible, or messages would have more than
                64 MiB, which only a constructor may ask for.
        """
        if getattr(cls, "name", None) is None:
            raise ParameterError(
                f"{cls.__name__} is no scheme: ccbps.matching.from_json(text) finds the scheme"
            )
        fields = matcher_fields(text)
        scheme, version = fields["scheme"], fields["scheme_version"]
        if json.dumps([scheme, version]) != json.dumps([cls.name, cls.version]):
            raise DecodeError(
                f"the text describes {scheme!r} {version!r}, wanted {cls.name!r} {cls.version}"
            )
        schema = Schema(types_of(fields["schema"]))
        try:
            with written(by_anybody=True):
                made = cls.from_parameters(schema, fields["parameters"])
                within_text(max(made.event_bytes, made.interest_bytes))
        except TypeError:
            made = None
        # As text: to Python, 1 is True and 1.0. What is left out would follow later defaults.
        given = json.dumps(fields["parameters"], sort_keys=True)
        if made is None or json.dumps(made.parameters(), sort_keys=True) != given:
            raise DecodeError(f"the parameters are not those of a {cls.__name__}")
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_again, (type(self), self.schema, json.dumps(self.parameters()))

    def explain(self) -> str:
        """What it is, bytes per side, operations and the leakage card, as text."""
        return self._explain([])

    def _explain(self, lines: Iterable[tuple[str, str]]) -> str:
        """`explain`'s text: title, the scheme's own lines, then what all matchers say."""
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

    def _perfect(self, public: str, hidden: str, protects: Iterable[Protects]) -> LeakageCard:
        """The card of a matcher whose broker learns the answers and nothing else.

        Args:
            public: the public parameters, in words.
            hidden: what is hidden of a subscription, in words.
            protects: what of a subscription that is.
        """
        return LeakageCard(
            scheme=type(self).__name__,
            adversary="the broker, which follows the protocol and keeps all it sees",
            hides=("every attribute of the event, beyond what the answer says about it", hidden),
            protects=frozenset(
                {Protects.EVENT, Protects.EQUALITY_OF_EVENTS, Protects.EQUALITY_OF_INTERESTS}
            )
            | frozenset(protects),
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
            reuse="one-time",
            hazards=(
                "a round is used for two events or two predicates",
                "the broker colludes with one of the two clients",
            ),
        )


@lru_cache(maxsize=64)
def _made_again(cls: type[Matcher], schema: Schema, parameters: str) -> Matcher:
    """What was pickled or copied. A worker that receives the same matcher with every task builds it
    once, and nobody is warned again."""
    with quietly(), written(by_anybody=False):
        return cls.from_parameters(schema, json.loads(parameters))
