"""Access control of a guarded broker: four actions on content, judged by one version of a policy.

Clients *advertise*, *publish*, *subscribe* and *receive*. The broker at a client's edge has a
`Guard`, to which the client presents its token; all brokers have the authority's notices, and those
whose domain reads content the policies themselves, with their filters.

*Versions.* The owner signs the version of the policy into the `Stamp` of each message, so no broker
can change it. The edge takes the message only if that version is in force. Every broker judges an
event by this version, for both publisher and receivers, even if a later version is in force by
then. A broker that lacks the version lets the message wait, with all later messages of the same
link: it never guesses. Filters are judged by the newest version that a broker has, so revocation
ends them in all routing tables.

*Where filters hold.* Owners sign their subscriptions, so no broker can rewrite one. A subscription
is narrowed in one of two ways, which deliver the same events:

========  ==========================================================================================
"before"  each broker that reads content matches an event with the subscription AND the filters of
          its owner. Events that the owner may not receive are not passed on. A subscription covers
          others of its own owner only
"after"   brokers match with the subscription alone, and the edge tests the filters. Subscriptions
          cover those of all owners, and events travel to the edge in vain
========  ==========================================================================================

To advertise, a filter must imply the grants; to publish, the event must match them. Brokers that
cannot read content examine whether some grant allows the action at all. Only its owner may withdraw
a filter, and that takes no other right.

Hazards: the limits of a token beyond its user's roles, and its end, are examined at the edge only.
A bogus edge broker can take messages that were signed for an earlier version, until
`GuardedBroker.forget`. With "after", a client may lose events while a version spreads that ends
another client's filter which covered its own. A broker that misses a version in which an owner had
no right passes on filters of that owner that others have dropped.
Sources: [Survey] section 5.1, Table 5.1 (Tarkoma: verification at each broker).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, NoReturn, Self, TypeAlias

import numpy as np
from msgspec.structs import replace

from ccbps.access import Authority, Entitlement, Guard, Notice, Policy, Stamp
from ccbps.access.labels import VERSION, Subject
from ccbps.access.policy import ACTIONS, Action, Roles
from ccbps.arrays import Bools
from ccbps.checks import Printable, choice, flag, instance
from ccbps.ciphers.signatures import UNSIGNED, Signature, SignedMessage
from ccbps.errors import DecodeError, MissingKeyError, ParameterError, RefusedError, ReplayError
from ccbps.overlay.routing.relations import PlainRelation, Relation
from ccbps.predicates import Predicate
from ccbps.predicates.box import NotABox, is_within
from ccbps.predicates.codes import Intervals
from ccbps.wire import Kind

When: TypeAlias = Literal["before", "after"]
ACTION_OF: Final[Mapping[Subject, Action]] = {
    "advertisement": "advertise",
    "event": "publish",
    "subscription": "subscribe",
}
_PURPOSE: Final = b"ccbps policy of an overlay 1\0"


class OverlayPolicy(SignedMessage, frozen=True):
    """A version of a policy, as an authority sends it to brokers of an overlay.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.access import Authority, Grant, Guard, Policy
        >>> from ccbps.keys import SigningKey
        >>> from ccbps.overlay import OverlayPolicy, PlainRelation
        >>> from ccbps.overlay.rights import Rights
        >>> schema = Schema(age=UInt(7))
        >>> roles, grants = {"doctor": ["ann"]}, [Grant("doctor", ("receive",), "age > 17")]
        >>> policy = Policy(schema, version=1, roles=roles, grants=grants)
        >>> authority = Authority(SigningKey.generate(), policy)
        >>> rights = Rights(Guard(authority.identity), PlainRelation(schema))
        >>> rights.enact(OverlayPolicy.of(authority, content=True))    # as GuardedBroker.enact
        >>> rights
        <Rights before matching by <Guard with policy 1, 0 clients>>

    Attributes:
        notice: the notice (`ccbps.access.Notice`).
        policy: the policy, for brokers that read content; empty for others.
        signature: the authority's signature.
    """

    front: ClassVar[bytes] = bytes([Kind.DOMAIN, VERSION]) + b"P"
    what: ClassVar[str] = "a policy of an overlay"
    notice: bytes
    policy: bytes = b""
    signature: Signature = UNSIGNED

    @classmethod
    def of(cls, authority: Authority, *, content: bool) -> Self:
        """Return the policy in force.

        Args:
            authority: the authority.
            content: True for brokers whose domain reads content, which get the filters.
        """
        policy = authority.policy.to_bytes() if flag("content", content) else b""
        unsigned = cls(authority.notice().to_bytes(), policy)
        return replace(unsigned, signature=authority.sign(unsigned.signed))

    @property
    def signed(self) -> bytes:
        """Bytes that the authority signs."""
        return _PURPOSE + super().signed


class Rights(Printable):
    """The rights of owners of messages, by the policies that a broker knows.

    Arguments named `parsed` are contents as the relation read them, or None where the broker cannot
    read them.

    Args:
        guard: guard of this broker.
        relation: relation of the contents; a `PlainRelation` by all bits where the broker gets
            filters.
        when: whether subscriptions are narrowed "before" or "after" matching.
    """

    def __init__(self, guard: Guard, relation: Relation, when: When = "before") -> None:
        self.guard = instance("guard", guard, Guard)
        self.when: When = choice("when", when, ("before", "after"))
        self._relation, self._policies = relation, dict[int, Policy]()

    def __repr__(self) -> str:
        return f"<Rights {self.when} matching by {self.guard!r}>"

    # -- versions --------------------------------------------------------------------------------

    def enact(self, new: OverlayPolicy) -> None:
        """Put a version into force, or keep an earlier one for messages that were stamped with it.

        Raises:
            DecodeError: it is malformed, or not signed by the authority.
            ParameterError: the policy has another schema than the relation.
            ReplayError: its version was forgotten, or there is another policy of this version.
            UnsupportedPredicateError: a filter has more than 256 alternatives.
        """
        self.guard.check_signed(new.signed, new.signature)
        notice, policy = Notice.from_bytes(new.notice), None
        if new.policy:
            policy = self._read(new.policy, notice)
            if self._policies.get(notice.version, policy) != policy:
                raise ReplayError(f"there is another policy of version {notice.version}")
        try:
            newest = self.guard.stamp()
        except RefusedError:
            newest = -1
        if notice.version < newest:
            self.guard.keep(new.notice)
        else:
            self.guard.install(new.notice)
        if policy is not None:
            self._policies[notice.version] = policy

    def _read(self, message: bytes, notice: Notice) -> Policy:
        policy, relation = Policy.from_bytes(message), self._relation
        if policy.version != notice.version:
            raise DecodeError("the notice and the policy are of two versions")
        if not isinstance(relation, PlainRelation) or (
            (relation.schema, relation.bits) != (policy.schema, policy.schema.widths)
        ):
            raise ParameterError(
                "the policy's filters need a PlainRelation by all bits of its schema"
            )
        for one in notice.entitled:
            for action in ACTIONS:
                policy.test(one.roles, action)  # what is too wide for it is refused here
        return policy

    def forget(self, below: int) -> None:
        """Forget versions below one, of which no message is on its way any more."""
        self.guard.forget(below)
        for version in [one for one in self._policies if one < min(below, self.guard.stamp())]:
            del self._policies[version]

    def version(self, stamp: Stamp) -> int:
        """Return the version by which a message is judged.

        Raises:
            MissingKeyError: this broker lacks it.
            RefusedError: the message names none.
        """
        if stamp.policy is None:
            raise RefusedError("the message names no version of the policy", reason="version")
        if stamp.kind == "event":
            return stamp.policy
        try:
            newest = self.guard.stamp()
        except RefusedError:
            newest = -1
        if newest < stamp.policy:
            raise MissingKeyError(f"no notice of policy version {stamp.policy} yet")
        return newest

    def _known(self, stamp: Stamp, parsed: Any) -> tuple[Notice, Policy | None]:
        """Return notice and policy that judge a message; no policy where it cannot be read."""
        version = self.version(stamp)
        notice = self.guard.at(version)
        if parsed is None:
            return notice, None
        if version not in self._policies:
            raise MissingKeyError(f"no filters of policy version {version} yet")
        return notice, self._policies[version]

    # -- actions of owners -----------------------------------------------------------------------

    def accept(self, stamp: Stamp, parsed: Any) -> None:
        """Examine a message of a client of this broker, and charge its rate to publish.

        Raises:
            RefusedError: the client has no right to it, its rate is used up, or the message is
                signed for another version than that in force.
            MissingKeyError: this broker has no filters of the version in force.
        """
        in_force, action = self.guard.stamp(), ACTION_OF[stamp.kind]
        if stamp.policy != in_force:
            signed = "no version" if stamp.policy is None else f"version {stamp.policy}"
            raise RefusedError(
                f"policy version {in_force} is in force, and the message is signed for {signed}: "
                "sign it anew",
                reason="version",
            )
        notice, policy = self._known(stamp, parsed)
        self.guard.right(stamp.owner, action, notice)
        self._judge(stamp, self.guard.roles(stamp.owner, notice), notice, policy, parsed)
        if action == "publish":
            self.guard.require(stamp.owner, action, notice)

    def check(self, stamp: Stamp, parsed: Any, *, examine: bool = True) -> None:
        """Examine a message that came over a link.

        Args:
            stamp: its stamp.
            parsed: its content.
            examine: False to trust the neighbour, and only demand that the version is known.

        Raises:
            RefusedError: its owner had no right to it.
            MissingKeyError: this broker lacks its version.
        """
        notice, policy = self._known(stamp, parsed)
        if examine:
            self._judge(stamp, notice.roles_of(stamp.owner), notice, policy, parsed)

    def _judge(
        self, stamp: Stamp, roles: Roles, notice: Notice, policy: Policy | None, parsed: Any
    ) -> None:
        action = ACTION_OF[stamp.kind]
        allowed = notice.right(roles, action) is not None
        if allowed and policy is not None:
            if action == "publish":
                allowed = policy.test(roles, action)(self._codes(parsed))
            elif action == "advertise":
                allowed = self._is_box_within(parsed, policy.filter(roles, action))
        if not allowed:
            _refuse(action, stamp, notice)

    def _codes(self, parsed: Any) -> dict[str, int]:
        """Return the codes of an event; a relation with filters is a `PlainRelation`."""
        return dict(zip(self._relation.bits, parsed.tolist(), strict=True))  # type: ignore[attr-defined]

    def _is_box_within(self, parsed: Any, allowed: Predicate | None) -> bool:
        if allowed is None:
            return False
        low, high = parsed.tolist()
        ranges = zip(allowed.schema, low, high, strict=True)
        box: dict[str, Intervals] = {name: ((first, last),) for name, first, last in ranges}
        try:
            return is_within(allowed.schema, [box], allowed.alternatives())
        except NotABox:
            return False

    # -- receivers -------------------------------------------------------------------------------

    def may_receive(self, event: Stamp, parsed: Any, owners: Sequence[str]) -> Bools:
        """Tell which owners of subscriptions may receive an event, by its version."""
        notice, policy = self._known(event, parsed)
        codes = {} if policy is None else self._codes(parsed)
        known: dict[Roles, bool] = {}
        answers = []
        for owner in owners:
            roles = notice.roles_of(owner)
            if roles not in known:
                known[roles] = all(
                    notice.right(roles, action) is not None
                    and (policy is None or policy.test(roles, action)(codes))
                    for action in ACTIONS[2:]
                )
            answers.append(known[roles])
        return np.array(answers, dtype=np.bool_)

    def check_delivery(self, client: str, event: Stamp, parsed: Any) -> None:
        """Refuse the delivery of an event that a client of this broker may not receive.

        Args:
            client: name of the client.
            event: stamp of the event.
            parsed: its content, which the broker reads.

        Raises:
            RefusedError: by the event's version, or by its token now, it may not.
        """
        notice, policy = self._known(event, parsed)
        roles, codes = self.guard.roles(client, notice), self._codes(parsed)
        for action in ACTIONS[2:]:
            self.guard.right(client, action, notice)
            if policy is None or not policy.test(roles, action)(codes):
                raise RefusedError(
                    f"policy version {notice.version} lets {client} not {action} this event",
                    reason="receive",
                )

    def pause(self, client: str, event: Stamp) -> float:
        """Charge a client's rate to receive; return the seconds until it lets an event through."""
        right = self._receiving(client, event)
        if right is None or self.guard.spend(client, "receive", right, 1):
            return 0.0
        return self.guard.pause(client, "receive")

    def _receiving(self, client: str, event: Stamp) -> Entitlement | None:
        """Return a client's right to receive: that in force or, if it is over, the event's."""
        for notice in (self.guard.notice, self.guard.at(self.version(event))):
            try:
                return self.guard.right(client, "receive", notice)
            except RefusedError:
                continue
        return None


def _refuse(action: Action, stamp: Stamp, notice: Notice) -> NoReturn:
    content = "" if notice.roles_of(stamp.owner) else ": it has no role, or was revoked"
    raise RefusedError(
        f"policy version {notice.version} lets {stamp.owner} not {action} this{content}",
        reason=action,
    )
