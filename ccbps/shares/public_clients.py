"""Public sides of the clients of three brokers, for grants: of the authority, and of grantees.

The operators get the authority's hellos. Each opens for one broker only, so their file may be
public. The authority gets the names of clients, which derive from their keys and the matcher.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from ccbps.errors import ParameterError
from ccbps.shares.clients import CLIENT_BYTES, hello_bytes
from ccbps.shares.operators import PublicSide

Digest = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]


class PublicClient(PublicSide, frozen=True):
    """The name of a client, for an authority.

    Attributes:
        matcher: digest of the public parameters that the name follows from.
        name: public name of the client, 16 bytes.

    Example:
        >>> from ccbps.shares.public_clients import PublicClient
        >>> client = PublicClient(bytes(32), bytes(16))
        >>> PublicClient.from_text(client.to_text()) == client
        True
    """

    front = b"\x01PC"
    what = "the public side of a client of three brokers"
    text = "ccbps-client:"

    matcher: Digest
    name: Annotated[bytes, msgspec.Meta(min_length=CLIENT_BYTES, max_length=CLIENT_BYTES)]


class Authority(PublicSide, frozen=True):
    """The hellos of an authority, by which three brokers know its grants.

    Attributes:
        matcher: digest of the public parameters that the hellos are bound to.
        hellos: hellos for brokers 0, 1 and 2.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.matching import ThreeBrokerMatch
        >>> from ccbps.shares.public_clients import Authority
        >>> matcher = ThreeBrokerMatch.box(Schema(price=UInt(8)), grants=True)
        >>> role = matcher.authority(matcher.local().public)
        >>> authority = Authority(matcher.digest, role.hellos)
        >>> authority.name == role.client
        True
        >>> Authority.from_text(authority.to_text()) == authority
        True
    """

    front = b"\x01PA"
    what = "the public side of an authority"
    text = "ccbps-authority:"

    matcher: Digest
    hellos: tuple[bytes, bytes, bytes]

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes = [len(hello) for hello in self.hellos]
        names = {hello[:CLIENT_BYTES] for hello in self.hellos}
        if sizes != [hello_bytes(party) for party in range(len(sizes))] or len(names) != 1:
            raise ParameterError("hellos must be those of one client, for brokers 0, 1 and 2")

    @property
    def name(self) -> bytes:
        """Public name of the authority, 16 bytes."""
        return self.hellos[0][:CLIENT_BYTES]
