"""The authority: it holds the policy, issues tokens, and signs notices for brokers.

Brokers and clients trust it with policies and predicates; it never sees an event. It signs with one
key, and derives from it the key that names filters.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Final

from msgspec import structs

from ccbps.access.notice import (
    DIGEST_BYTES,
    EVERYTHING,
    NAME_BYTES,
    Entitled,
    Entitlement,
    Notice,
    Permit,
)
from ccbps.access.policy import ACTIONS, Action, Policy, Roles
from ccbps.access.tokens import Presentation, attenuate_token, issue_token
from ccbps.checks import instance, octets
from ccbps.errors import ParameterError, RefusedError, ReplayError
from ccbps.keys import SigningKey
from ccbps.keys.secret import Confined
from ccbps.predicates import Predicate

TOKEN_SECONDS: Final = 3600.0
LEEWAY: Final = 60.0
"""Seconds by which a token is valid before its issue, for brokers whose clocks are late."""
_NAMING: Final = b"ccbps names of filters 1\0"


class Authority(Confined):
    """An authority.

    Args:
        key: its signing key.
        policy: the policy in force.
        clock: source of seconds since 1970.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.access import Authority, Grant, Policy
        >>> from ccbps.keys import SigningKey
        >>> policy = Policy(
        ...     Schema(age=UInt(7)),
        ...     version=1,
        ...     roles={"doctor": ["ann"]},
        ...     grants=[Grant("doctor", ("receive",), "age > 17")],
        ... )
        >>> authority, ann = Authority(SigningKey.generate(), policy), SigningKey.generate()
        >>> token = authority.issue("ann", ann.identity)
        >>> notice = authority.notice()
        >>> notice.right(notice.roles_of("ann"), "publish") is None
        True
        >>> [predicate.text for predicate, _ in authority.filters().values()]
        ['age > 17']

    Attributes:
        identity: public half of its key, 32 bytes, for brokers.
        policy: the policy in force.
        session: 16 bytes that presentations to the authority sign.
    """

    def __init__(
        self, key: SigningKey, policy: Policy, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._key = instance("key", key, SigningKey)
        self.policy, self._clock = instance("policy", policy, Policy), clock
        self.identity = key.identity
        self.session = sha256(b"ccbps session of an authority\0" + self.identity).digest()[:16]
        self._naming = hmac.digest(key.export_secret(), _NAMING, "sha256")
        self._issued, self._counters = set[Roles](), dict[str, int]()
        self._last = 0

    def __repr__(self) -> str:
        return f"<Authority with {self.policy!r}>"

    def sign(self, message: bytes) -> bytes:
        """Return the authority's signature of a message that names its purpose."""
        return self._key.sign(message)

    def count(self) -> int:
        """Return a number that is greater than those before it, by the clock."""
        self._last = max(self._last + 1, int(self._clock() * 1e6))
        return self._last

    # -- policies --------------------------------------------------------------------------------

    def enact(self, policy: Policy) -> Notice:
        """Put another policy into force, and return its notice for brokers.

        Raises:
            ParameterError: its version is not greater, or it has another schema.
        """
        if instance("policy", policy, Policy).version <= self.policy.version:
            raise ParameterError(
                f"version must be greater than {self.policy.version}, got {policy.version}"
            )
        if policy.schema != self.policy.schema:
            raise ParameterError("policy must have the schema of the one in force")
        self.policy = policy
        return self.notice()

    def revoke(self, *users: str, tokens: Iterable[str] = ()) -> Notice:
        """Revoke users or single tokens by a new version of the policy, and return its notice.

        Args:
            *users: names of users.
            tokens: numbers of tokens (`Token.numbers`). A token's first number also revokes all
                attenuations of it.
        """
        old = self.policy
        return self.enact(
            old.following(
                revoked={*old.revoked, *users}, revoked_tokens={*old.revoked_tokens, *tokens}
            )
        )

    def notice(self) -> Notice:
        """Return the policy in force as brokers see it."""
        policy = self.policy
        users = {
            user: roles
            for held in policy.roles.values()
            for user in held
            if (roles := policy.roles_of(user))
        }
        notice = Notice(
            policy.version,
            users,
            tuple(
                self._entitled(policy, roles) for roles in sorted({*users.values(), *self._issued})
            ),
            tuple(sorted(policy.revoked)),
            tuple(sorted(policy.revoked_tokens)),
        )
        return structs.replace(notice, signature=self._key.sign(notice.signed))

    def _entitled(self, policy: Policy, roles: Roles) -> Entitled:
        advertise, publish, subscribe, receive = (
            self._right(policy, roles, action) for action in ACTIONS
        )
        return Entitled(roles, (advertise, publish, subscribe, receive))

    def _right(self, policy: Policy, roles: Roles, action: Action) -> Entitlement | None:
        allowed = policy.filter(roles, action)
        if allowed is None:
            return None
        return Entitlement(self._name(allowed), *(policy.rate(roles, action) or (None, None)))

    def _name(self, allowed: Predicate) -> bytes:
        if allowed.text == "TRUE":
            return EVERYTHING
        return hmac.digest(self._naming, allowed.text.encode(), "sha256")[:NAME_BYTES]

    def filters(self) -> dict[bytes, tuple[Predicate, list[Predicate]]]:
        """Return the filters whose interests brokers need, by their names.

        Each filter comes with its parts (`Policy.parts`), for matchers that take no OR.

        Hazard: they are for a `ccbps.matching.Subscriber` of the authority, not for brokers.
        """
        policy, found = self.policy, dict[bytes, tuple[Predicate, list[Predicate]]]()
        for one in self.notice().entitled:
            for action in ACTIONS:
                allowed = policy.filter(one.roles, action)
                if allowed is not None and (name := self._name(allowed)) != EVERYTHING:
                    found[name] = allowed, policy.parts(one.roles, action)
        return found

    # -- clients ---------------------------------------------------------------------------------

    def issue(
        self,
        user: str,
        key: bytes,
        *,
        seconds: float = TOKEN_SECONDS,
        roles: Iterable[str] | None = None,
    ) -> bytes:
        """Return a token for a user with a role.

        Args:
            user: name of the user.
            key: identity of the user's key.
            seconds: seconds for which the token is valid.
            roles: roles of the user that the token grants; None for all.

        Raises:
            RefusedError: the user was revoked, has no role, or lacks one of `roles`.
            ImportError: biscuit-python, the extra ``access``, is missing.
        """
        held = self.policy.roles_of(user)
        if not held:
            reason = "was revoked" if user in self.policy.revoked else "has no role"
            raise RefusedError(f"{user} {reason}", reason="revoked")
        chosen = held if roles is None else tuple(sorted(set(roles)))
        if not {*chosen} <= {*held}:
            raise RefusedError(f"{user} does not have all of these roles", reason="roles")
        self._issued.add(chosen)
        now = self._clock()
        early = min(LEEWAY, now)  # clocks of brokers may be late
        return issue_token(
            self._key,
            user,
            key,
            chosen,
            policy=self.policy.version,
            starts=now - early,
            seconds=seconds + early,
        )

    def renew(self, presentation: Presentation, *, seconds: float = TOKEN_SECONDS) -> bytes:
        """Return a new token in place of one that has not ended, for the holder of its key.

        The new token allows no more than the old one, for a longer time. A token whose time an
        attenuation limits is not renewed.

        Args:
            presentation: the old token, presented for `session`.
            seconds: seconds for which the new token is valid.

        Raises:
            DecodeError: the old token is malformed, or not of this authority.
            RefusedError: the proof is missing; the token ended, was revoked, or is limited in time
                by an attenuation; or its user has none of its roles any more.
            ReplayError: the presentation is not new.
        """
        now = self._clock()
        user = presentation.user(self.identity)
        old = presentation.verified(self.identity, self.session, user, now)
        if presentation.counter <= self._counters.get(user, -1):
            raise ReplayError("the presentation is not new: its counter must grow")
        if not self.policy.revoked_tokens.isdisjoint(old.numbers):
            raise RefusedError(f"the token of {user} was revoked", reason="revoked")
        if old.is_limited:
            raise RefusedError(f"the token of {user} was attenuated to end", reason="attenuated")
        roles = {*old.roles} & {*self.policy.roles_of(user)}
        if not roles:
            raise RefusedError(f"{user} has none of the token's roles any more", reason="revoked")
        self._counters[user] = presentation.counter
        token = self.issue(user, old.key, seconds=seconds, roles=roles)
        if old.actions != {*ACTIONS}:
            token = attenuate_token(token, self.identity, actions=old.actions)
        return token

    def permit(self, client: str, roles: Roles, subscription: bytes, *, policy: Policy) -> Permit:
        """Sign a subscription that `Policy.narrow` narrowed for a client's roles.

        Args:
            client: name of the client.
            roles: roles by which it was narrowed.
            subscription: SHA-256 of the subscription.
            policy: policy by which it was narrowed.

        Raises:
            RefusedError: the client does not have these roles, or may not subscribe and receive, or
                another policy is in force.
        """
        octets("subscription", subscription, DIGEST_BYTES)
        if policy is not self.policy:
            raise RefusedError(
                f"the subscription was narrowed by policy version {policy.version}, and version "
                f"{self.policy.version} is in force: narrow it anew",
                reason="version",
            )
        if not {*roles} <= {*self.policy.roles_of(client)}:
            raise RefusedError(f"{client} does not have all of these roles", reason="roles")
        rights = [self._right(policy, roles, action) for action in ("subscribe", "receive")]
        names = [right.name for right in rights if right is not None]
        if len(names) < len(rights):
            raise RefusedError(f"no grant lets {client} subscribe and receive", reason="grant")
        self._issued.add(roles)
        permit = Permit(client, subscription, (names[0], names[1]))
        return structs.replace(permit, signature=self._key.sign(permit.signed))
