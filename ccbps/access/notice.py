"""Notices: a policy as brokers see it, with names in place of filters, signed by the authority.

A broker that matches ciphertexts cannot evaluate a filter, and should not read it. So each filter
of a policy has a *name*: 16 bytes of a MAC of its text under a key of the authority. A notice gives
the roles of each user, and the name of the filter for each set of roles and action. The authority
encodes the filter itself as an interest under this name, like any subscription. So the broker
learns whether an event matches it, and whatever the matcher leaks about any interest. A filter that
is always TRUE has the empty name, and no interest.

A *permit* goes with a subscription that the authority narrowed (`Policy.narrow`): it names the
filters that are conjuncts of it. When a later policy has other filters for the client, the permit
is no longer valid, and the subscription ends.

Leak: users, roles, rates, and which roles have equal filters.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, ClassVar, Final

from msgspec import Meta

from ccbps.access.policy import ACTIONS, Action, Name, Rate, Roles
from ccbps.ciphers.signatures import UNSIGNED, Signature, SignedMessage, signed_by
from ccbps.errors import DecodeError
from ccbps.records import Number, Record
from ccbps.wire import Kind

NAME_BYTES: Final = 16
DIGEST_BYTES: Final = 32
EVERYTHING: Final = b""
"""Name of a filter that is TRUE for all events."""

FilterName = Annotated[bytes, Meta(max_length=NAME_BYTES)]
Digest = Annotated[bytes, Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]


class Entitlement(Record, frozen=True):
    """Right to an action on the events that match a filter.

    Attributes:
        name: name of the filter.
        rate: events a second; None for any number.
        burst: number of events at once; None for any number.
    """

    name: FilterName
    rate: Rate | None = None
    burst: Rate | None = None


class Entitled(Record, frozen=True):
    """Rights of all users with the same roles.

    Attributes:
        roles: names of the roles, sorted.
        rights: entitlements for each of `ccbps.access.policy.ACTIONS`; None for no right.
    """

    roles: tuple[Name, ...]
    rights: tuple[Entitlement | None, Entitlement | None, Entitlement | None, Entitlement | None]


class Notice(SignedMessage, frozen=True, dict=True):
    """A policy with names in place of its filters; made by `ccbps.access.Authority.notice`.

    Attributes:
        version: version of the policy.
        users: roles of each user, sorted.
        entitled: rights by roles.
        revoked: names of users that were revoked.
        tokens: numbers of tokens that were revoked (`ccbps.access.Token.numbers`).
        signature: the authority's signature.
    """

    front: ClassVar[bytes] = bytes([Kind.NOTICE, 1])
    what: ClassVar[str] = "a notice of a policy"
    version: Number
    users: Mapping[Name, tuple[Name, ...]]
    entitled: tuple[Entitled, ...]
    revoked: tuple[Name, ...]
    tokens: tuple[str, ...]
    signature: Signature = UNSIGNED

    @classmethod
    def verified(cls, message: bytes, authority: bytes) -> Notice:
        """Read a notice.

        Args:
            message: untrusted bytes.
            authority: identity of the authority's key.

        Raises:
            DecodeError: it is malformed, or not signed by this authority.
        """
        notice = cls.from_bytes(message)
        if not signed_by(authority, notice.signed, notice.signature):
            raise DecodeError("the notice is not signed by this authority")
        return notice

    @cached_property
    def _rights(self) -> dict[tuple[Roles, Action], Entitlement]:
        return {
            (one.roles, action): right
            for one in self.entitled
            for action, right in zip(ACTIONS, one.rights, strict=True)
            if right is not None
        }

    @cached_property
    def _revoked(self) -> frozenset[str]:
        return frozenset(self.revoked)

    @cached_property
    def revoked_tokens(self) -> frozenset[str]:
        """Numbers of tokens that were revoked."""
        return frozenset(self.tokens)

    def roles_of(self, user: str) -> Roles:
        """Return the roles of a user; none if it was revoked."""
        return () if user in self._revoked else self.users.get(user, ())

    def right(self, roles: Roles, action: Action) -> Entitlement | None:
        """Return the right of users with some roles to an action; None if they have none."""
        return self._rights.get((roles, action))

    def knows(self, roles: Roles) -> bool:
        """Tell whether the notice says what users with exactly these roles may do."""
        return any(one.roles == roles for one in self.entitled)

    @cached_property
    def filter_names(self) -> frozenset[bytes]:
        """Names of filters whose interests the broker needs."""
        return frozenset(right.name for right in self._rights.values()) - {EVERYTHING}


class Permit(SignedMessage, frozen=True):
    """The authority's statement that a subscription is no wider than the client's filters.

    Attributes:
        client: name of the client.
        subscription: SHA-256 of the subscription.
        names: names of the filters for "subscribe" and "receive" that are conjuncts of it.
        signature: the authority's signature.
    """

    front: ClassVar[bytes] = bytes([Kind.PERMIT, 1])
    what: ClassVar[str] = "a permit"
    client: Name
    subscription: Digest
    names: tuple[FilterName, FilterName]
    signature: Signature = UNSIGNED
