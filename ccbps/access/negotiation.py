"""Negotiation: the owner of events and the manager of a network agree on what a role may do.

Each side makes *offers*: a filter, actions, roles and a rate. An offer names the offer that it
answers, so a negotiation is one chain. When both sides have made an offer, either may *accept* by
signing the pair of last offers. Once both have signed the same pair, the conjunction of the two
offers is in force: events that both filters match, actions and roles that both name, and the
smaller rate. Either side may withdraw, which is a new version of the policy without the grants.

Source: [Survey] sections 5.1.2 and 5.1.3 (Bacon et al.; Pallickara et al.).
"""

from __future__ import annotations

from hashlib import sha256
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from msgspec import Meta, structs

from ccbps.access.notice import Digest
from ccbps.access.policy import Action, Grant, Name, Policy, Rate, Text
from ccbps.checks import Printable, instance
from ccbps.ciphers.signatures import (
    UNSIGNED,
    Signature,
    SignedMessage,
    check_identity,
    signed_by,
)
from ccbps.errors import ParameterError, RefusedError
from ccbps.keys import SigningKey
from ccbps.predicates import Schema
from ccbps.predicates.bound import bound_predicate
from ccbps.wire import Kind

Side: TypeAlias = Literal["owner", "manager"]
_PURPOSE: Final = b"ccbps agreement 1\0"
FIRST: Final = bytes(32)
"""Digest that the first offer answers, 32 zero bytes."""


class Offer(SignedMessage, frozen=True):
    """Terms of one side.

    Attributes:
        by: side that makes the offer.
        answers: SHA-256 of the offer that it answers; `FIRST` for the first one.
        roles: roles that may act.
        actions: actions that they may take.
        filter: predicate of the events.
        rate: events a second; None for any number.
        signature: signature of the side's key.
    """

    front: ClassVar[bytes] = bytes([Kind.PROPOSAL, 1])
    what: ClassVar[str] = "an offer"
    by: Side
    answers: Digest
    roles: Annotated[tuple[Name, ...], Meta(min_length=1)]
    actions: Annotated[tuple[Action, ...], Meta(min_length=1)]
    filter: Text
    rate: Rate | None = None
    signature: Signature = UNSIGNED

    @property
    def digest(self) -> bytes:
        """SHA-256 of the offer."""
        return sha256(self.to_bytes()).digest()


class Negotiation(Printable):
    """A negotiation between an owner and a manager, as one of them or anybody else follows it.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.access import Negotiation
        >>> from ccbps.keys import SigningKey
        >>> owner, manager = SigningKey.generate(), SigningKey.generate()
        >>> talk = Negotiation(Schema(age=UInt(7)), owner.identity, manager.identity)
        >>> talk.offer(owner, "owner", ("doctor",), ("receive",), "age > 17", rate=9.0)
        >>> talk.offer(manager, "manager", ("doctor",), ("receive",), "age < 65", rate=5.0)
        >>> talk.accept(owner, "owner"), talk.accept(manager, "manager")
        (None, None)
        >>> talk.grants()[0].filter, talk.grants()[0].rate
        ('(age > 17) AND (age < 65)', 5.0)

    Args:
        schema: attributes of the events.
        owner: identity of the owner's key.
        manager: identity of the manager's key.

    Attributes:
        last: last offer of each side.
    """

    def __init__(self, schema: Schema, owner: bytes, manager: bytes) -> None:
        self._schema = instance("schema", schema, Schema)
        self._keys = {"owner": check_identity(owner), "manager": check_identity(manager)}
        if owner == manager:
            raise ParameterError("owner and manager must have different keys")
        self.last: dict[str, Offer] = {}
        self._newest = FIRST
        self._signatures: dict[str, bytes] = {}

    def offer(
        self,
        key: SigningKey,
        by: Side,
        roles: tuple[str, ...],
        actions: tuple[Action, ...],
        filter: str,
        *,
        rate: float | None = None,
    ) -> None:
        """Make an offer, which answers the newest one and cancels earlier acceptances.

        Raises:
            RefusedError: the key is not that side's.
            PredicateError: the filter does not parse.
        """
        offer = Offer(by, self._newest, roles, actions, filter, rate)
        self.take(structs.replace(offer, signature=key.sign(offer.signed)).to_bytes())

    def take(self, message: bytes) -> None:
        """Take an offer of either side.

        Raises:
            DecodeError: it is malformed.
            RefusedError: it is not signed by that side, or does not answer the newest offer.
            PredicateError: the filter does not parse.
        """
        offer = Offer.from_bytes(message)
        if not signed_by(self._keys[offer.by], offer.signed, offer.signature):
            raise RefusedError(f"the offer is not signed by the {offer.by}", reason="offer")
        if offer.answers != self._newest:
            raise RefusedError("the offer does not answer the newest one", reason="offer")
        bound_predicate(self._schema, offer.filter, "filter")
        self.last[offer.by], self._newest = offer, offer.digest
        self._signatures.clear()

    def newest(self) -> bytes:
        """Return the newest offer's bytes, for the other side.

        Raises:
            ParameterError: there is none.
        """
        for offer in self.last.values():
            if offer.digest == self._newest:
                return offer.to_bytes()
        raise ParameterError("there is no offer yet")

    def _pair(self) -> bytes:
        if len(self.last) < len(self._keys):
            missing = next(side for side in self._keys if side not in self.last)
            raise ParameterError(f"the {missing} has made no offer yet")
        return _PURPOSE + self.last["owner"].digest + self.last["manager"].digest

    def accept(self, key: SigningKey, by: Side) -> None:
        """Sign the pair of last offers.

        Raises:
            ParameterError: a side has made no offer yet.
            RefusedError: the key is not that side's.
        """
        self.accepted(by, key.sign(self._pair()))

    def accepted(self, by: Side, signature: bytes) -> None:
        """Take a side's signature of the pair of last offers.

        Raises:
            RefusedError: it is not that side's, or signs other offers.
        """
        if by not in self._keys or not signed_by(self._keys[by], self._pair(), signature):
            raise RefusedError(f"the {by} did not sign the last two offers", reason="offer")
        self._signatures[by] = signature

    @property
    def in_force(self) -> bool:
        """Whether both sides have signed the last two offers."""
        return len(self._signatures) == len(self._keys)

    def withdraw(self, by: Side) -> None:
        """Withdraw a side's offer. Nothing is in force until that side has made another one."""
        self.last.pop(by, None)
        self._signatures.clear()

    def grants(self) -> list[Grant]:
        """Return the grants in force: none until both sides have signed."""
        if not self.in_force:
            return []
        owner, manager = self.last["owner"], self.last["manager"]
        actions = tuple(one for one in owner.actions if one in manager.actions)
        rates = [one.rate for one in (owner, manager) if one.rate is not None]
        text = f"({owner.filter}\n) AND ({manager.filter}\n)"
        if "--" not in text:
            text = text.replace("\n", "")
        roles = [role for role in owner.roles if role in manager.roles]
        if not actions:
            return []
        return [Grant(role, actions, text, min(rates, default=None)) for role in roles]

    def enacted(self, policy: Policy, earlier: tuple[Grant, ...] = ()) -> Policy:
        """Return the next version of a policy, with the grants in force.

        Args:
            policy: the policy in force.
            earlier: grants of this negotiation in that policy, which the new ones replace.

        Raises:
            ParameterError: a grant names a role that the policy does not have.
            PredicateError: the two filters together are too long.
        """
        kept = [grant for grant in policy.grants if grant not in earlier]
        return policy.following(grants=[*kept, *self.grants()])
