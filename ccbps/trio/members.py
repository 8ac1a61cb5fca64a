"""The three brokers as each of them knows them: addresses and pinned certificates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ccbps.checks import whole
from ccbps.errors import ParameterError
from ccbps.network import Certificate
from ccbps.network.channel import split_address
from ccbps.shares.replicated import PARTIES

WORKERS: Final = 64
"""Most worker processes of a broker."""


@dataclass(frozen=True)
class Member:
    """One of the three brokers.

    Its orders come in at the port of its address, and worker w listens w + 1 ports above it.

    Attributes:
        address: ``host:port``.
        certificate: certificate of its network identity.
    """

    address: str
    certificate: Certificate

    def __post_init__(self) -> None:
        _, port = self.place
        if port + WORKERS >= 1 << 16:
            raise ParameterError(
                f"address must leave {WORKERS} ports above its own for workers, got {self.address}"
            )

    @property
    def place(self) -> tuple[str, int]:
        """Host and port."""
        return split_address(self.address)

    def worker_place(self, worker: int) -> tuple[str, int]:
        """Return host and port of a worker."""
        host, port = self.place
        return host, port + 1 + worker


@dataclass(frozen=True)
class Trio:
    """All three brokers.

    Attributes:
        members: brokers 0, 1 and 2.
        workers: worker processes of each broker; the same at all three.
    """

    members: tuple[Member, Member, Member]
    workers: int = 1

    def __post_init__(self) -> None:
        if len({member.certificate.der for member in self.members}) != PARTIES:
            raise ParameterError("members must be three brokers with different certificates")
        whole("workers", self.workers, 1, WORKERS)

    def below(self, party: int) -> Member:
        """Return the broker that another one sends to."""
        return self.members[(party - 1) % PARTIES]

    def above(self, party: int) -> Member:
        """Return the broker that another one receives from."""
        return self.members[(party + 1) % PARTIES]
