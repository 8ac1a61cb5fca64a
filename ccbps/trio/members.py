"""The three brokers as each of them knows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ccbps.checks import whole
from ccbps.errors import KeyMismatchError, ParameterError
from ccbps.keys.plain_key import PARTIES, OperatorKey
from ccbps.network.channel import split_address
from ccbps.shares.operators import Operator, broker_key

WORKERS: Final = 64
"""Most worker processes of a broker."""


@dataclass(frozen=True)
class Trio:
    """All three brokers.

    Brokers 1 and 2 take orders at the port of their address. Worker w of each broker listens w + 1
    ports above it.

    Attributes:
        operators: public sides of the operators of brokers 0, 1 and 2.
        workers: worker processes of each broker; the same at all three.
    """

    operators: tuple[Operator, Operator, Operator]
    workers: int = 1

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
        """Return host and port of a broker, or of what listens so many ports above it."""
        host, port = split_address(self.operators[party % PARTIES].address)
        return host, port + above

    def check(self, party: int, key: OperatorKey, matcher: Any) -> None:
        """Refuse a key that is not that of a broker, and a matcher that the service cannot run.

        Raises:
            KeyMismatchError: its operator has another one.
            ParameterError: the matcher's brokers do not learn the answers, or it demands grants.
        """
        if matcher.grants:
            raise ParameterError(
                "these services take no grants of an authority: take a matcher without "
                "grants=True; for the others, ThreeBrokerMatch.broker makes the brokers"
            )
        if matcher.reveal != "brokers":
            raise ParameterError(
                "these brokers deliver by the answers, which they learn: take a matcher with "
                'reveal="brokers"; for the others, ThreeBrokerMatch.broker makes the brokers'
            )
        if broker_key(key).public != self.operators[party].public:
            raise KeyMismatchError(f"the key is not that of the operator of broker {party}")
