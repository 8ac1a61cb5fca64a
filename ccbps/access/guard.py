"""The guard of a broker: who may take which action now, by the authority's latest notice.

A client *presents* its token once in a session. From then on a decision is a few look-ups: the
token's time, its actions, the revocations and the right of the client's roles. The broker evaluates
the right's filter by matching (`ccbps.broker`) or, where it reads events, by `Policy.test`.

*Versions.* A broker judges a message by one notice from its arrival to its last delivery, in the
same way at each hop: `stamp` returns the version, and `at` the notice of a version. A broker that
lacks a version waits for it and never guesses. Notices of older versions are kept until `forget`.

Hazard: times are those of this broker's clock.
Source: [Survey] section 5.1; revocation also ends what exists already.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from threading import RLock
from typing import Final

from ccbps.access.notice import DIGEST_BYTES, Entitlement, Notice, Permit
from ccbps.access.policy import ACTIONS, Action, Roles
from ccbps.access.rates import Bucket
from ccbps.access.tokens import SESSION_BYTES, Presentation, Token, read_token
from ccbps.checks import Printable, octets, whole
from ccbps.ciphers.signatures import check_identity, signed_by
from ccbps.errors import DecodeError, MissingKeyError, RefusedError, ReplayError

MOST_SESSIONS: Final = 1 << 20


class Guard(Printable):
    """A guard.

    Args:
        authority: identity of the authority's key, 32 bytes.
        oldest: smallest version of a policy that is accepted. A guard that has just started knows
            no other bound, so it accepts any outdated policy from this version on.
        clock: source of seconds since 1970, for tokens.
        timer: source of seconds for rates.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.access import Authority, Grant, Guard, Policy, present_token
        >>> from ccbps.keys import SigningKey
        >>> policy = Policy(
        ...     Schema(age=UInt(7)),
        ...     version=1,
        ...     roles={"doctor": ["ann"]},
        ...     grants=[Grant("doctor", ("receive",))],
        ... )
        >>> authority, ann = Authority(SigningKey.generate(), policy), SigningKey.generate()
        >>> guard = Guard(authority.identity)
        >>> guard.install(authority.notice().to_bytes())
        >>> token = authority.issue("ann", ann.identity)
        >>> guard.present("ann", present_token(token, ann, guard.session, "ann", 1))
        >>> guard.require("ann", "receive").name                     # everything
        b''
        >>> guard.install(authority.revoke("ann").to_bytes())
        >>> guard.require("ann", "receive")
        Traceback (most recent call last):
        ccbps.errors.RefusedError: ann was revoked by policy version 2

    Attributes:
        session: 16 random bytes that presentations sign.
    """

    def __init__(
        self,
        authority: bytes,
        *,
        oldest: int = 0,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._oldest = whole("oldest", oldest, 0)
        self._authority, self._clock, self._timer = check_identity(authority), clock, timer
        self.session = os.urandom(SESSION_BYTES)
        self._lock = RLock()
        self._notices: dict[int, Notice] = {}
        self._notice: Notice | None = None
        self._tokens: dict[str, Token] = {}
        self._counters: dict[str, int] = {}
        # The last decision for each client and action, and the token and the notice behind it.
        self._decided: dict[tuple[str, Action], tuple[Token, Notice, Entitlement]] = {}
        self._buckets: dict[tuple[str, Action], tuple[Entitlement, Bucket]] = {}

    def __repr__(self) -> str:
        version = "no policy" if self._notice is None else f"policy {self._notice.version}"
        return f"<Guard with {version}, {len(self._tokens)} clients>"

    # -- versions --------------------------------------------------------------------------------

    def check_new(self, message: bytes) -> Notice:
        """Return a notice that may be put into force.

        Raises:
            DecodeError: it is malformed, or not signed by the authority.
            ReplayError: it is older than the one in force, or another one of its version.
        """
        notice, old = Notice.verified(message, self._authority), self._notice
        if notice.version < self._oldest:
            raise ReplayError(f"notice {notice.version} is older than {self._oldest}, the oldest")
        if old is not None and notice.version < old.version:
            raise ReplayError(f"notice {notice.version} is older than {old.version}, in force")
        if old is not None and notice.version == old.version and not _agree(old, notice):
            raise ReplayError(f"there is another notice {notice.version} in force")
        return notice

    def install(self, message: bytes) -> None:
        """Put a notice into force; errors are those of `check_new`.

        A notice of the version in force adds rights of further sets of roles.
        """
        with self._lock:
            notice, old = self.check_new(message), self._notice
            if old is not None and old.version == notice.version:
                notice = _joined(old, notice)
            self._notices[notice.version] = self._notice = notice

    def keep(self, message: bytes) -> None:
        """Keep a notice of an earlier version, for messages that were stamped with it.

        Raises:
            DecodeError: it is malformed, or not signed by the authority.
            ReplayError: its version was forgotten, or is not earlier than the one in force.
        """
        notice = Notice.verified(message, self._authority)
        with self._lock:
            if not self._oldest <= notice.version < self.notice.version:
                raise ReplayError(f"notice {notice.version} is none of an earlier version")
            self._notices.setdefault(notice.version, notice)

    @property
    def notice(self) -> Notice:
        """The notice in force.

        Raises:
            RefusedError: there is none yet, so nothing is allowed.
        """
        if self._notice is None:
            raise RefusedError("the broker has no policy yet: nothing is allowed", reason="policy")
        return self._notice

    def stamp(self) -> int:
        """Return the version in force, for a message that arrives now."""
        return self.notice.version

    def at(self, version: int) -> Notice:
        """Return the notice of a version that a message was stamped with.

        Raises:
            MissingKeyError: this broker does not have it: let the message wait until it does.
            RefusedError: it was forgotten.
        """
        with self._lock:
            notice = self._notices.get(version)
            if version < self._oldest and notice is None:
                raise RefusedError(f"policy version {version} is over", reason="version")
        if notice is None:
            raise MissingKeyError(f"no notice of policy version {version} yet")
        return notice

    def forget(self, below: int) -> None:
        """Forget notices of versions below one, of which no message is on its way any more."""
        with self._lock:
            self._oldest = max(self._oldest, min(below, self.notice.version))
            for version in [one for one in self._notices if one < self._oldest]:
                del self._notices[version]

    # -- clients ---------------------------------------------------------------------------------

    def present(self, client: str, presentation: Presentation) -> None:
        """Take a client's token, in place of its earlier one.

        Raises:
            DecodeError: the token is malformed, or not of the authority.
            RefusedError: the proof is missing; the token is another user's, not valid now, or
                revoked; or its user was revoked.
            ReplayError: the presentation is not new.
        """
        token = presentation.verified(self._authority, self.session, client, self._clock())
        with self._lock:
            if presentation.counter <= self._counters.get(client, -1):
                raise ReplayError("the presentation is not new: its counter must grow")
            self._check(token, self.notice)
            if token.policy > self.notice.version:
                raise RefusedError(
                    f"the token is of policy version {token.policy}, and the broker has version "
                    f"{self.notice.version}: bring it the new one",
                    reason="policy",
                )
            if len(self._tokens) >= MOST_SESSIONS and client not in self._tokens:
                raise RefusedError("the broker has too many sessions", reason="sessions")
            self._counters[client] = presentation.counter
            self._tokens[client] = token

    def leave(self, client: str) -> None:
        """End a client's session. Its counter stays, so that no old presentation counts."""
        with self._lock:
            self._tokens.pop(client, None)
            for action in ACTIONS:
                self._decided.pop((client, action), None)

    def check_signed(self, message: bytes, signature: bytes) -> None:
        """Refuse a message that the authority did not sign.

        Raises:
            DecodeError: the signature is not the authority's.
        """
        if not signed_by(self._authority, message, signature):
            raise DecodeError("the message is not signed by this authority")

    def token(self, client: str) -> Token | None:
        """Return the token of a client's session, which may have ended; None for no session."""
        return self._tokens.get(client)

    def restore(self, client: str, token: bytes) -> None:
        """Resume the session of a client whose token an earlier broker accepted and kept.

        Raises:
            DecodeError: it is no token of the authority for this client.
        """
        read = read_token(token, self._authority)
        if read.user != client:
            raise DecodeError(f"the token that was kept is not that of {client}")
        with self._lock:
            self._tokens[client] = read

    def ends(self, client: str) -> int | None:
        """Return the last second of a client's session, since 1970; None if it has none."""
        token = self._tokens.get(client)
        return None if token is None else token.ends

    @staticmethod
    def _check(token: Token, notice: Notice) -> Roles:
        """Return the roles that count: those of the token that its user still has."""
        user = token.user
        held = notice.roles_of(user)
        if not notice.revoked_tokens.isdisjoint(token.numbers):
            raise RefusedError(
                f"the token of {user} was revoked by policy version {notice.version}",
                reason="revoked",
            )
        if not held:
            what = "was revoked by" if user in notice.revoked else "has no role in"
            raise RefusedError(f"{user} {what} policy version {notice.version}", reason="revoked")
        if held == token.roles:
            return held
        return tuple(role for role in token.roles if role in held)

    def _live(self, client: str) -> Token:
        """Return the token of a client, if it has presented one that counts now."""
        token = self._tokens.get(client)
        if token is None:
            raise RefusedError(f"{client} has presented no token in this session", reason="token")
        now = self._clock()
        if not token.starts <= now <= token.ends:
            token.check_time(now)
        return token

    def roles(self, client: str, notice: Notice) -> Roles:
        """Return the roles of a client that count: those of its token that its user still has.

        Args:
            client: name of the client.
            notice: notice of the version that the message was stamped with.

        Raises:
            RefusedError: the client has presented no token, it ended or was revoked.
        """
        return self._check(self._live(client), notice)

    def right(self, client: str, action: Action, notice: Notice | None = None) -> Entitlement:
        """Return a client's right to an action, without charging its rate.

        Args:
            client: name of the client.
            action: the action.
            notice: notice of the version that the message was stamped with; None for the one in
                force.

        Raises:
            RefusedError: the client has presented no token, it ended or was revoked, it does not
                allow the action, or no grant does.
        """
        token = self._live(client)
        current = self.notice if notice is None else notice
        decided = self._decided.get((client, action))
        if decided is not None and decided[0] is token and decided[1] is current:
            return decided[2]
        roles = self._check(token, current)
        right = current.right(roles, action) if action in token.actions else None
        if right is None:
            if action not in token.actions:
                why = f"the token of {client} does not allow to {action}"
            elif not current.knows(roles):
                why = f"the roles of {client} have changed: have the token renewed"
            else:
                why = f"policy version {current.version} lets {client} not {action}"
            raise RefusedError(why, reason=action)
        self._decided[client, action] = token, current, right
        return right

    def require(self, client: str, action: Action, notice: Notice | None = None) -> Entitlement:
        """Return a client's right to an action, and charge its rate by one.

        Raises:
            RefusedError: as for `right`, or the rate is used up.
        """
        right = self.right(client, action, notice)
        if right.rate is not None and self.spend(client, action, right, 1) < 1:
            raise RefusedError(
                f"{client} may {action} {right.rate:g} events a second: wait", reason="rate"
            )
        return right

    def spend(self, client: str, action: Action, right: Entitlement, most: int) -> int:
        """Charge up to `most` events to a client's rate, and return the number charged."""
        if right.rate is None:
            return most
        with self._lock:
            key = client, action
            known = self._buckets.get(key)
            if known is None or known[0] != right:
                burst = max(1.0, right.burst or right.rate)
                new = Bucket(right.rate, burst, self._timer)
                if known is not None:  # another right gives no new burst
                    new.take(max(0.0, burst - known[1].level()))
                known = self._buckets[key] = right, new
            count = max(0, min(most, int(known[1].level())))
            known[1].take(count)
            return count

    def pause(self, client: str, action: Action) -> float:
        """Return the seconds until a client's rate lets an event through; 0 if it does now."""
        with self._lock:
            known = self._buckets.get((client, action))
            if known is None or (level := known[1].level()) >= 1:
                return 0.0
            return (1 - level) / (known[0].rate or 1.0)

    def allows(self, client: str, permit: Permit, subscription: bytes) -> None:
        """Accept a client's subscription by the authority's permit.

        Args:
            client: name of the client.
            permit: the permit.
            subscription: SHA-256 of the subscription, 32 bytes.

        Raises:
            RefusedError: as for `right`; or the permit is another client's or subscription's, not
                signed by the authority, or of filters that are not in force for the client.
        """
        octets("subscription", subscription, DIGEST_BYTES)
        if not signed_by(self._authority, permit.signed, permit.signature):
            raise RefusedError("the permit is not signed by the authority", reason="permit")
        if (permit.client, permit.subscription) != (client, subscription):
            raise RefusedError(
                f"the permit is for another subscription than this one of {client}",
                reason="permit",
            )
        self.check_permit(client, permit)

    def check_permit(self, client: str, permit: Permit) -> None:
        """Refuse a permit, accepted earlier, whose filters are not in force for the client now.

        Raises:
            RefusedError: as for `right`, or they are not in force.
        """
        names = tuple(self.right(client, action).name for action in ACTIONS[2:])
        if permit.names != names:
            raise RefusedError(
                f"policy version {self.notice.version} has other filters for {client}: have the "
                "subscription permitted anew",
                reason="permit",
            )


def _agree(old: Notice, new: Notice) -> bool:
    """Tell whether two notices of a version differ by sets of roles only."""
    same = (old.users, old.revoked, old.tokens) == (new.users, new.revoked, new.tokens)
    known = {one.roles: one for one in old.entitled}
    return same and all(known.get(one.roles, one) == one for one in new.entitled)


def _joined(old: Notice, new: Notice) -> Notice:
    """Return a notice with the rights of two that agree."""
    known = {one.roles: one for one in (*old.entitled, *new.entitled)}
    entitled = tuple(known[roles] for roles in sorted(known))
    return Notice(new.version, new.users, entitled, new.revoked, new.tokens, new.signature)
