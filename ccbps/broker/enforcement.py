"""Access control at a matching broker, which reads neither events nor filters.

A broker enforces a policy in one of two ways, which deliver the same events:

*before matching*
    The authority encodes each subscription, narrowed by the filters of the client's roles, and adds
    a permit. The broker takes no other subscriptions. A new filter ends the subscriptions that were
    narrowed by the old one.
*after matching*
    Clients encode their own subscriptions. The authority gives the broker one interest for each
    filter, and a delivery needs three matches: the subscription's, and those of the client's
    filters for "subscribe" and "receive". A new filter takes effect for all subscriptions at once.

In both ways the filter for "publish" is an interest that an event must match, if the filter is not
TRUE. A publication is judged by the policy that was in force when it arrived, for its publisher and
all its receivers. A subscription's permit must also be one of that policy.

A client gets deliveries while its token is valid. Deliveries that wait when the token ends are kept
until the client presents its next token.

Where all subscriptions have one event message, the broker judges the event that subscribers get.

Hazard: a publisher can lie about its events. Where each subscription has an event message of its
own (`Publication.events`), a publisher can also show the filters another event than the
subscribers. A decision is as exact as the matcher: its card's statement on false matches holds for
filters, too. A broker that starts without a file takes any policy that the authority ever signed,
if it is not older than `Guard`'s `oldest`.

Leak: beside the leaks of any interest that the matcher's card names, the broker learns users,
roles, rates, which filters are equal, and which events match the filters that it has interests for.
With enforcement before matching, it has interests for the "publish" filters only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, ClassVar, Final, Literal

from msgspec import structs

from ccbps.access import Authority, Entitlement, Guard, Notice, Permit, Policy, Presentation
from ccbps.access.notice import EVERYTHING
from ccbps.access.policy import Action
from ccbps.broker.mailbox import Matched
from ccbps.broker.messages import Delivery, Subscription
from ccbps.checks import Printable, choice, instance
from ccbps.ciphers.signatures import UNSIGNED, Signature, SignedMessage
from ccbps.errors import (
    DecodeError,
    ParameterError,
    RefusedError,
    ReplayError,
    UnsupportedPredicateError,
)
from ccbps.predicates import Predicate
from ccbps.records import Number
from ccbps.wire import Kind

When = Literal["before", "after"]
MOST_ENDED: Final = 256
"""Largest number of ended subscriptions that a client is notified of, the latest ones."""
AUTHORITY: Final = "authority"
"""Name of the client whose subscriptions are the filters."""


class Enactment(SignedMessage, frozen=True):
    """A policy for a broker: the notice, and an interest for each filter that it must match.

    Attributes:
        notice: the notice.
        filters: subscriptions of the authority by the filter's name in hexadecimal; several where
            each publisher has one of its own.
        number: number that grows with each enactment, as a version may have several.
        signature: the authority's signature.
    """

    front: ClassVar[bytes] = bytes([Kind.ENACTMENT, 1])
    what: ClassVar[str] = "a policy for a broker"
    notice: bytes
    filters: Mapping[str, tuple[bytes, ...]]
    number: Number
    signature: Signature = UNSIGNED


def enactment(
    authority: Authority,
    when: When = "before",
    encode: Callable[[Predicate], Any] | None = None,
    *,
    subscriptions: Callable[[str, Predicate], Sequence[Subscription]] | None = None,
) -> Enactment:
    """Return the authority's policy for brokers of one matcher.

    A filter that the matcher does not take as a whole is encoded in parts, one for each grant.

    Args:
        authority: the authority.
        when: whether brokers enforce "before" or "after" matching.
        encode: function that encodes a predicate for all publishers: `Subscriber.encode` of a
            subscriber that the authority owns.
        subscriptions: function, in place of `encode`, from a name and a predicate to subscriptions,
            such as one for each publisher with its rounds. Their names are the given name, or begin
            with it and a dot.

    Raises:
        ParameterError: there is a filter to encode, and neither function.
        UnsupportedPredicateError: the matcher takes neither the filter nor its parts.
    """
    if subscriptions is None:

        def subscriptions(name: str, predicate: Predicate) -> Sequence[Subscription]:
            if encode is None:
                raise ParameterError("encode must be given, as the policy has filters to match")
            return [Subscription(name, encode(predicate))]

    notice, predicates = authority.notice(), authority.filters()
    filters: dict[str, tuple[bytes, ...]] = {}
    for key in sorted(needed(notice, choice("when", when, ("before", "after")))):
        name, (whole, parts) = key.hex(), predicates[key]
        try:
            made = [*subscriptions(name, whole)]
        except UnsupportedPredicateError:
            if len(parts) < 2:
                raise
            made = [
                one
                for place, part in enumerate(parts)
                for one in subscriptions(f"{name}.{place}", part)
            ]
        filters[name] = tuple(one.to_bytes() for one in made)
    unsigned = Enactment(notice.to_bytes(), filters, authority.count())
    return structs.replace(unsigned, signature=authority.sign(unsigned.signed))


def permitted(
    authority: Authority,
    client: str,
    subscription: Subscription,
    roles: tuple[str, ...],
    *,
    policy: Policy,
) -> Subscription:
    """Return a subscription with the authority's permit.

    Hazard: the authority must have encoded it itself, from a predicate that `Policy.narrow` gave
    for these roles.

    Args:
        authority: the authority.
        client: client that may use it.
        subscription: the subscription.
        roles: roles of the client by which it was narrowed.
        policy: policy by which it was narrowed.

    Raises:
        RefusedError: the client does not have these roles, or may not subscribe and receive, or
            another policy is in force.
    """
    permit = authority.permit(client, roles, _digest(subscription), policy=policy)
    return structs.replace(subscription, permit=permit.to_bytes())


def needed(notice: Notice, when: When) -> set[bytes]:
    """Return the names of the filters for which a broker needs interests."""
    actions: list[Action] = ["publish"]
    if when == "after":
        actions += ["subscribe", "receive"]
    rights = (notice.right(one.roles, action) for one in notice.entitled for action in actions)
    return {right.name for right in rights if right is not None and right.name}


class Enforcement(Printable):
    """Access control for one `MatchingBroker`.

    At three brokers the authority says hello (`MatchingBroker.greet`) before it brings a policy.
    Subscriptions that it encodes for clients (before matching) are under its own keys, so these
    clients need not say hello.

    Args:
        guard: guard of this broker.
        when: whether it enforces "before" or "after" matching.
        owner: name of the client whose subscriptions the filters are; nobody else may use it.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.access import Authority, Grant, Guard, Policy, present_token
        >>> from ccbps.broker import Enforcement, MatchingBroker, Publication, enactment, permitted
        >>> from ccbps.broker import Subscription
        >>> from ccbps.keys import SigningKey
        >>> from ccbps.matching import TagMatch
        >>> schema = Schema(age=UInt(7))
        >>> policy = Policy(
        ...     schema,
        ...     version=1,
        ...     roles={"doctor": ["ann"], "lab": ["bob"]},
        ...     grants=[
        ...         Grant("doctor", ("subscribe", "receive"), "age > 17"),
        ...         Grant("lab", ("publish",)),
        ...     ],
        ... )
        >>> authority = Authority(SigningKey.generate(), policy)
        >>> matcher = TagMatch(schema)
        >>> keys = matcher.key_server()
        >>> guard = Guard(authority.identity)
        >>> broker = MatchingBroker(matcher.broker(keys.broker_key()), access=Enforcement(guard))
        >>> broker.enact(enactment(authority))
        >>> for number, user in enumerate(["ann", "bob"]):
        ...     key = SigningKey.generate()
        ...     token = authority.issue(user, key.identity)
        ...     broker.present(user, present_token(token, key, guard.session, user, number))
        >>> subscriber = matcher.subscriber(keys.subscriber_key("authority"))
        >>> narrowed = policy.narrow(("doctor",), "age < 65")
        >>> wanted = Subscription("adults", subscriber.encode(narrowed))
        >>> wanted = permitted(authority, "ann", wanted, ("doctor",), policy=policy)
        >>> broker.subscribe("ann", wanted)
        >>> lab = matcher.publisher(keys.publisher_key())
        >>> for number, event in enumerate(lab.encode({"age": [12, 40, 80]})):
        ...     receipt = broker.publish("bob", Publication(number, event.tobytes(), b"sealed"))
        >>> [one.number for one in broker.take("ann")]
        [1]

    Attributes:
        guard: as given.
        when: as given.
        owner: as given.
    """

    def __init__(self, guard: Guard, when: When = "before", *, owner: str = AUTHORITY) -> None:
        self.guard = instance("guard", guard, Guard)
        self.when: When = choice("when", when, ("before", "after"))
        self.owner = owner
        self._permits: dict[tuple[str, str], Permit] = {}
        self._ended: dict[str, dict[str, str]] = {}
        self._charged: dict[str, int] = {}
        self._limited = set[str]()
        # Versions whose filters are registered, the last two, and number of the last enactment.
        self._lasting: list[tuple[int, set[str]]] = []
        self._number = -1

    def __repr__(self) -> str:
        return f"<Enforcement {self.when} matching by {self.guard!r}>"

    # -- policies --------------------------------------------------------------------------------

    def read(self, new: Enactment) -> list[Subscription]:
        """Verify a policy, and return the subscriptions of its filters.

        Raises:
            DecodeError: it is malformed, or not signed by the authority.
            ReplayError: it is older than the one in force.
        """
        self.guard.check_signed(new.signed, new.signature)
        notice = self.guard.check_new(new.notice)
        if self._lasting and (notice.version, new.number) < (self._lasting[-1][0], self._number):
            raise ReplayError(f"a later policy of version {notice.version} is in force")
        if missing := {name.hex() for name in needed(notice, self.when)} - new.filters.keys():
            raise DecodeError(f"the policy lacks the interests of {len(missing)} filters")
        subscriptions = []
        for name, messages in new.filters.items():
            for message in messages:
                one = Subscription.from_bytes(message)
                if one.name.partition(".")[0] != name or one.token is not None:
                    raise DecodeError("a filter of the policy is registered under another name")
                subscriptions.append(one)
        return subscriptions

    @staticmethod
    def has_filters(new: Enactment) -> bool:
        """Tell whether a policy that `read` verified depends on what events say."""
        return bool(Notice.from_bytes(new.notice).filter_names)

    def install(self, new: Enactment, filters: Sequence[Subscription]) -> None:
        """Put a policy that `read` verified into force.

        Args:
            new: the policy.
            filters: result of `read`.
        """
        self.guard.install(new.notice)
        version, names = self.guard.stamp(), {one.name for one in filters}
        self.guard.forget(version)  # publications have the notice itself
        before = [pair for pair in self._lasting if pair[0] != version]
        # Another authority's process may have named filters for further roles.
        names.update(*(same for one, same in self._lasting if one == version))
        self._lasting, self._number = [*before[-1:], (version, names)], new.number

    @property
    def lasting(self) -> set[str]:
        """Names of the filters that must stay registered.

        They are those of the policy in force and the one before, by which publications may still be
        judged.
        """
        return set().union(*(names for _, names in self._lasting))

    def load(self, message: bytes, tokens: Iterable[tuple[str, bytes]]) -> list[Subscription]:
        """Resume the policy and the tokens that an earlier broker kept.

        Returns:
            the filters' subscriptions.

        Raises:
            DecodeError: they are not of this authority.
        """
        policy = Enactment.from_bytes(message)
        filters = self.read(policy)
        self.install(policy, filters)
        for client, token in tokens:
            self.guard.restore(client, token)
        return filters

    def ending(self, subscriptions: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
        """Return the subscriptions that the policy in force ends, by client; record the reasons.

        Args:
            subscriptions: clients and names.
        """
        notice, ending = self.guard.notice, dict[str, list[str]]()
        for client, name in subscriptions:
            if client == self.owner:
                continue
            rights = self._rights(client, notice)
            if rights is None:
                why = f"policy version {notice.version} lets {client} not subscribe and receive"
            elif self.when == "before" and self._names(client, name) != rights:
                why = f"policy version {notice.version} has other filters for {client}"
            else:
                continue
            ending.setdefault(client, []).append(name)
            ended = self._ended.setdefault(client, {})
            ended[name] = f"subscription {name} ended: {why}"
            if len(ended) > MOST_ENDED:
                del ended[next(iter(ended))]
        return ending

    def _rights(self, client: str, notice: Notice) -> tuple[bytes, bytes] | None:
        """Return the names of a client's filters by its roles, whether or not it is here now."""
        token = self.guard.token(client)
        held = notice.roles_of(client)
        roles = held if token is None else tuple(one for one in token.roles if one in held)
        rights = [notice.right(roles, action) for action in ("subscribe", "receive")]
        names = [right.name for right in rights if right is not None]
        return (names[0], names[1]) if len(names) == len(rights) else None

    def _names(self, client: str, name: str) -> tuple[bytes, bytes] | None:
        permit = self._permits.get((client, name))
        return None if permit is None else permit.names

    def notices(self, client: str) -> list[str]:
        """Return the reasons why subscriptions of a client ended, until it registers them anew."""
        return [*self._ended.get(client, {}).values()]

    # -- requests --------------------------------------------------------------------------------

    def encoder(self, client: str) -> str:
        """Return the name of the client whose keys encode the subscriptions of a client."""
        return self.owner if self.when == "before" else client

    def check_client(self, client: str) -> None:
        """Refuse requests under the authority's name."""
        if client == self.owner:
            raise RefusedError(f"{client} is the name of the policy's filters", reason="owner")

    def check(self, client: str, subscription: Subscription) -> None:
        """Refuse a subscription that the policy does not allow.

        Raises:
            DecodeError: its permit is malformed.
            RefusedError: the client has no right to subscribe, or the permit is missing or wrong.
        """
        self.check_client(client)
        self.guard.right(client, "subscribe")
        if self.when == "before":
            if not subscription.permit:
                raise RefusedError(
                    f"the subscription of {client} has no permit: the authority encodes it",
                    reason="permit",
                )
            permit = Permit.from_bytes(subscription.permit)
            self.guard.allows(client, permit, _digest(subscription))

    def enter(self, client: str, subscription: Subscription) -> None:
        """Record a subscription that was checked and registered."""
        if self.when == "before":
            permit = Permit.from_bytes(subscription.permit)
            self._permits[client, subscription.name] = permit
        self._ended.get(client, {}).pop(subscription.name, None)

    def leave(self, client: str, names: Iterable[str]) -> None:
        """Forget subscriptions."""
        for name in names:
            self._permits.pop((client, name), None)

    def forget(self, client: str, names: Iterable[str]) -> None:
        """Forget a client that was shut out: its token, its subscriptions and their ends."""
        self.guard.leave(client)
        self.leave(client, names)
        for known in (self._ended, self._charged):
            known.pop(client, None)
        self._limited.discard(client)

    def is_current(self, stamp: tuple[Notice, Entitlement]) -> bool:
        """Tell whether the policy that a publication was stamped with is still in force."""
        return stamp[0].version == self.guard.stamp()

    def begin(self, publisher: str) -> tuple[Notice, Entitlement]:
        """Decide whether a publisher may publish now, and charge its rate.

        Returns:
            notice by which the publication is judged from here on, and the publisher's right.

        Raises:
            RefusedError: the publisher has no right, or its rate is used up.
        """
        self.check_client(publisher)
        notice = self.guard.notice
        return notice, self.guard.require(publisher, "publish", notice)

    def judge(
        self, publisher: str, stamp: tuple[Notice, Entitlement], matched: Matched
    ) -> tuple[Matched, int]:
        """Return the clients that may receive a publication, of those that match.

        Args:
            publisher: its publisher.
            stamp: result of `begin`.
            matched: clients and subscriptions that match, the filters among them.

        Returns:
            clients, each with the matching subscriptions that it may use; and the number of clients
            that match but may not receive.

        Raises:
            RefusedError: the event does not match the publisher's filter; or two policies came
                while it was matched.
        """
        notice, right = stamp
        is_known = any(version == notice.version for version, _ in self._lasting)
        if not is_known and (right.name or self.when == "after"):
            raise RefusedError(
                f"policy version {notice.version} was replaced twice while this publication was "
                "matched: publish it again",
                reason="version",
            )
        filters = {
            bytes.fromhex(name.partition(".")[0])
            for client, names in matched
            if client == self.owner
            for name in names
        } | {EVERYTHING}
        if right.name not in filters:
            raise RefusedError(
                f"policy version {notice.version} lets {publisher} not publish this event",
                reason="publish",
            )
        passed, count = [], 0
        for client, names in matched:
            if client == self.owner:
                continue
            count += 1
            try:
                subscribe = self.guard.right(client, "subscribe", notice)
                receive = self.guard.right(client, "receive", notice)
            except RefusedError:
                continue
            if self.when == "after":
                both = subscribe.name in filters and receive.name in filters
                allowed = names if both else ()
            else:
                wanted = subscribe.name, receive.name
                allowed = tuple(one for one in names if self._names(client, one) == wanted)
            if allowed:
                passed.append((client, allowed))
        return passed, count - len(passed)

    def check_deliver(self, publisher: str) -> None:
        """Refuse payloads of a publisher that may not publish now."""
        self.guard.right(publisher, "publish")

    def release(
        self, client: str, waiting: Sequence[Delivery], after: Callable[[int], Sequence[Delivery]]
    ) -> Sequence[Delivery]:
        """Return the deliveries that a client may have now, and charge its rate for new ones.

        Each delivery is charged once and in order, wherever the client asks from.

        Args:
            client: name of the client.
            waiting: deliveries that it asks for.
            after: function that returns the deliveries that follow a sequence number.

        Raises:
            RefusedError: the client has no right to receive now.
        """
        right = self.guard.right(client, "receive")
        if right.rate is None:
            self._limited.discard(client)
            return waiting
        last = self._charged.get(client, -1)
        if not waiting or waiting[-1].sequence <= last:
            return waiting
        new = after(last)
        taken = self.guard.spend(client, "receive", right, len(new))
        if taken:
            last = self._charged[client] = new[taken - 1].sequence
        if waiting[-1].sequence > last:
            self._limited.add(client)
        else:
            self._limited.discard(client)
        return [one for one in waiting if one.sequence <= last]

    def pause(self, client: str) -> float:
        """Return the seconds until a client's rate lets its next delivery through.

        The result is 0 if the rate held nothing back at the client's last request.
        """
        return self.guard.pause(client, "receive") if client in self._limited else 0.0

    @property
    def session(self) -> bytes:
        """Random bytes for which tokens are presented."""
        return self.guard.session

    def present(self, client: str, presentation: Presentation) -> None:
        """Take a client's token; see `Guard.present`."""
        self.check_client(client)
        self.guard.present(client, presentation)


class NoEnforcement:
    """Access control of a broker without a policy: everybody may do everything."""

    session, owner = b"", ""

    def encoder(self, client: str) -> str:
        """Return the client itself."""
        return client

    def is_current(self, stamp: object) -> bool:
        """Return True."""
        return True

    def pause(self, client: str) -> float:
        """Return 0."""
        return 0.0

    def judge(self, publisher: str, stamp: object, matched: Matched) -> tuple[Matched, int]:
        """Return all clients that match."""
        return matched, 0

    def release(
        self, client: str, waiting: Sequence[Delivery], after: object
    ) -> Sequence[Delivery]:
        """Return all deliveries."""
        return waiting

    def notices(self, client: str) -> list[str]:
        """Return nothing."""
        return []

    def __getattr__(self, name: str) -> Any:
        return _do_nothing


def _do_nothing(*_: object) -> None:
    pass


def _digest(subscription: Subscription) -> bytes:
    return sha256(structs.replace(subscription, permit=b"").to_bytes()).digest()
