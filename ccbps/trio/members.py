"""Public information on the three brokers, the same at each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ccbps.checks import whole
from ccbps.errors import KeyMismatchError, ParameterError
from ccbps.keys.plain_key import PARTIES, OperatorKey
from ccbps.network.channel import split_address
from ccbps.shares.operators import Operator, broker_key
from ccbps.shares.public_clients import Authority

WORKERS: Final = 64
"""Largest number of worker processes of a broker."""


@dataclass(frozen=True)
class Trio:
    """All three brokers.

    Brokers 1 and 2 take orders at the port of their address. Worker w of each broker listens w + 1
    ports above it.

    Attributes:
        operators: public sides of the operators of brokers 0, 1 and 2.
        workers: number of worker processes of each broker, the same at all three.
        authority: client that gives grants; None if the matcher demands none.
    """

    operators: tuple[Operator, Operator, Operator]
    workers: int = 1
    authority: Authority | None = None

    def __post_init__(self) -> None:
        if len({operator.certificate for operator in self.operators}) != PARTIES:
            raise ParameterError("operators must be three with different certificates")
        whole("workers", self.workers, 1, WORKERS)
        for party in range(PARTIES):
            if self.place(party, WORKERS)[1] >= 1 << 16:
                raise ParameterError(
                    f"the address of broker {party} must leave {WORKERS} ports above its own for "
                    f"workers, got {self.operators[party].address}"
                )

    def place(self, party: int, above: int = 0) -> tuple[str, int]:
        """Return host and port of a broker, or of a listener `above` ports above it."""
        host, port = split_address(self.operators[party % PARTIES].address)
        return host, port + above

    @property
    def authority_name(self) -> bytes:
        """Public name of the authority; empty for none."""
        return b"" if self.authority is None else self.authority.name

    def hello(self, party: int) -> bytes | None:
        """Return the authority's hello for a broker; None where there is no authority."""
        return None if self.authority is None else self.authority.hellos[party]

    def check(self, party: int, key: OperatorKey, matcher: Any) -> None:
        """Refuse a key that is not that of a broker, and a matcher that the service cannot run.

        Raises:
            KeyMismatchError: the broker's operator has another key.
            ParameterError: the matcher's brokers do not learn the answers; or it demands grants and
                there is no authority of this matcher, or the other way round.
            DecodeError: the authority's hello is not for this broker.
        """
        if matcher.grants != (self.authority is not None):
            raise ParameterError(
                "this matcher demands grants, and the three brokers know no authority: name it"
                if matcher.grants
                else "the three brokers know an authority, and this matcher demands no grants: "
                "make it with grants=True"
            )
        if matcher.reveal != "brokers":
            raise ParameterError(
                "these brokers deliver by the answers, which they learn: take a matcher with "
                'reveal="brokers"; for the others, ThreeBrokerMatch.broker makes the brokers'
            )
        if broker_key(key).public != self.operators[party].public:
            raise KeyMismatchError(f"the key is not that of the operator of broker {party}")
        if self.authority is not None:
            if self.authority.matcher != matcher.digest:
                raise ParameterError("the authority's public side was made for another matcher")
            broker_key(key).open(party, self.authority.hellos[party], matcher.digest)
