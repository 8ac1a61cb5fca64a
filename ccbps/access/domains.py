"""Domains: groups of brokers that trust one another, with a key for each topic and epoch.

The domain that founds a topic owns it. Its manager draws a key for each topic and epoch, and grants
it to other domains: the *members*. An edge broker seals an event or a filter of its client under
the key; the `Stamp` stays in the clear. A broker whose domain is a member opens the message and
routes by content. All others route by topic: they pass each message on the topic to everybody who
has a subscription to it. Domains whose transit the topic forbids are left out of its routes, and
see nothing of it. Where no other route exists, clients are refused.

*Keys.* The key of a topic is derived from the manager's `EpochSeed`, which steps forward only. When
a domain leaves, the next epoch begins for all topics of the owner, and the domain gets no grant for
it. Messages of earlier epochs are then refused, and filters of earlier epochs match nothing, so
edge brokers seal their clients' filters again. A plain rotation keeps the epoch before for messages
on their way.

*Grants.* A manager wraps a topic's key for the public key of another domain (X25519, a fresh key
for each grant, HKDF-SHA256, AES-256-GCM) and signs it. The receiver knows the manager's identity
beforehand, and takes no grant of an earlier epoch than the newest it has. Notices, which tell
brokers of a topic's members, epoch and forbidden domains, are signed, too.

*Messages.* Each is sealed under a key of its own, derived from the topic's key and 24 random bytes,
with AES-256-GCM, and bound to its stamp and epoch. So no message opens on another topic, as another
number, for another owner, or in another epoch. Members check the content against the owner's
commitment. Any member can seal; only the owner can sign.

Leak: domains on the route that are no members learn topics, stamps (`ccbps.access.labels`), epochs,
sizes in steps of 256 bytes, times, how many filters each owner has, and on which links. From times
and sizes alone they may guess what an event is about. Members read everything on the topic. Domains
off the route see no message. A notice tells its reader a topic's name, its members, the forbidden
domains, and when a member left: managers need not send it to forbidden domains.
Hazards: brokers of a member domain may pass the key on. A domain that left keeps what it had read,
and opens what it recorded in its time. A broker that gets no notices goes by old ones. Whoever
withholds notices from it delays the end of a membership at that broker, but learns no key.
Sources: [Survey] section 5.2.2 (Bacon et al.).
"""

from __future__ import annotations

import hmac
import os
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Annotated, ClassVar, Final, Self

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from msgspec import Meta
from msgspec.structs import replace

from ccbps.access.hops import Connections
from ccbps.access.labels import VERSION, Body, Identity, Label, Name, Names, Stamp, WithSets
from ccbps.arrays import Randomness
from ccbps.checks import Printable, instance, octets
from ccbps.ciphers.payloads import PAD_TO, SEAL_BYTES, open_sealed, seal
from ccbps.ciphers.signatures import Signature, check_identity, signed_by
from ccbps.errors import DecodeError, ParameterError, RefusedError, ReplayError
from ccbps.keys.plain_key import ExchangeKey, SigningKey
from ccbps.keys.secret import Confined, confined
from ccbps.keys.seeds import EpochSeed
from ccbps.records import Message, Number, read, write
from ccbps.wire import Kind

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 24
MOST_SEALED: Final = 1 << 26
"""Bytes of a sealed content at most."""
_WRAPPED: Final = KEY_BYTES + 1 + SEAL_BYTES
_FRONT: Final = bytes([Kind.DOMAIN, VERSION])


class Topic(WithSets, Message, frozen=True):
    """A topic, as its manager announces it to all brokers.

    Attributes:
        name: name.
        owner: domain that founded it.
        members: domains that have its key; the owner is one.
        epoch: epoch of its key.
        oldest: first epoch whose messages are still taken.
        forbidden: domains that must not be on a route.
        outer: label of the existence of messages on this topic. Brokers of domains that are no
            members must be cleared for it.
    """

    front: ClassVar[bytes] = _FRONT + b"T"
    what: ClassVar[str] = "a topic"
    _sets: ClassVar[tuple[str, ...]] = ("members", "forbidden")
    name: Name
    owner: Name
    members: Names
    epoch: Number = 0
    oldest: Number = 0
    forbidden: Names = frozenset()
    outer: Label = Label()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.owner not in self.members or self.members & self.forbidden:
            raise ParameterError(
                "members must have the owner, and no domain whose transit is forbidden"
            )
        if self.oldest > self.epoch:
            raise ParameterError("oldest must be at most epoch")


class Notice(Message, frozen=True):
    """A manager's signed announcement of a topic, for all brokers on its routes.

    Attributes:
        topic: topic.
        signature: signature of the owner's manager.
    """

    front: ClassVar[bytes] = _FRONT + b"N"
    what: ClassVar[str] = "a notice of a topic"
    topic: Topic
    signature: Signature

    def signed(self) -> bytes:
        """Return the bytes that are signed."""
        return b"ccbps topic notice 1\0" + self.topic.to_bytes()


class KeyGrant(Message, frozen=True):
    """A topic's key, wrapped for a domain.

    Attributes:
        owner: domain that owns the topic.
        topic: name of the topic.
        epoch: epoch of the key.
        oldest: first epoch whose messages are still taken.
        recipient: domain that the key is for.
        public: public half of the key that serves this grant only.
        wrapped: the topic's key, sealed.
        signature: signature of the owner's manager.
    """

    front: ClassVar[bytes] = _FRONT + b"G"
    what: ClassVar[str] = "a grant of a topic's key"
    owner: Name
    topic: Name
    epoch: Number
    oldest: Number
    recipient: Name
    public: Identity
    wrapped: Annotated[bytes, Meta(min_length=_WRAPPED, max_length=_WRAPPED)]
    signature: Signature

    def signed(self) -> bytes:
        """Return the bytes that are signed."""
        return b"ccbps topic key grant 1\0" + write(replace(self, signature=bytes(64)))

    def bound(self) -> bytes:
        """Return the bytes that the wrapped key is bound to."""
        return write(replace(self, wrapped=bytes(_WRAPPED), signature=bytes(64)))


class DomainManager(Confined):
    """The manager of a domain, which founds topics and grants their keys.

    Its state is the seed and the topics. A manager restored with the seed's text and the same
    topics and members has the same keys.

    Args:
        domain: name of the domain.
        seed: seed of all keys of this domain's topics; the manager steps it.
        signing: key that signs grants.
        public: public half of the domain's own `ExchangeKey`.

    Attributes:
        identity: public half of the signing key, for other domains.
        topics: topics by name, with their members and epochs.
    """

    def __init__(self, domain: str, seed: EpochSeed, signing: SigningKey, public: bytes) -> None:
        self.domain = domain
        self._seed = instance("seed", seed, EpochSeed)
        self._signing = instance("signing", signing, SigningKey)
        self.identity = signing.identity
        self.topics: dict[str, Topic] = {}
        self._public = octets("public", public, KEY_BYTES)
        self._members: dict[str, dict[str, bytes]] = {}

    def __repr__(self) -> str:
        return f"<DomainManager of {self.domain!r}: {len(self.topics)} topics>"

    def found(
        self, topic: str, *, forbidden: Iterable[str] = (), outer: Label | None = None
    ) -> bytes:
        """Found a topic; return the grant of its key for the own brokers.

        Args:
            topic: name of the topic, which no other domain uses.
            forbidden: domains that must not be on a route.
            outer: label of the existence of messages on this topic; None for no tags.

        Raises:
            ParameterError: there is the topic already, or the domain forbids itself.
        """
        if topic in self.topics:
            raise ParameterError(f"topic {topic!r} was founded before")
        epoch = self._seed.epoch
        self.topics[topic] = Topic(
            topic,
            self.domain,
            frozenset([self.domain]),
            epoch,
            epoch,
            frozenset(forbidden),
            Label() if outer is None else outer,
        )
        self._members[topic] = {self.domain: self._public}
        return self._grant(topic, self.domain)

    def admit(self, topic: str, domain: str, public: bytes) -> bytes:
        """Make a domain a member; return the grant for it. It opens messages from this epoch on.

        Args:
            topic: name of the topic.
            domain: name of the domain.
            public: public half of the domain's `ExchangeKey`, over an authenticated connection.

        Raises:
            ParameterError: there is no such topic, or its routes must not lead through the domain.
            DecodeError: the bytes are no public half.
        """
        self._require(topic)
        members = self.topics[topic].members | {domain}
        changed = replace(self.topics[topic], members=members)
        key = octets("public", public, KEY_BYTES)
        ExchangeKey.generate().agree(key)  # refused here, and not when an epoch begins
        self.topics[topic] = changed
        self._members[topic][domain] = key
        return self._grant(topic, domain)

    def remove(self, topic: str, domain: str) -> list[bytes]:
        """End a domain's membership; return the grants of the next epoch for all others.

        Raises:
            ParameterError: the domain is no member, or is the owner.
        """
        self._require(topic)
        if domain == self.domain or domain not in self._members[topic]:
            raise ParameterError(f"{domain!r} is no other member of {topic!r}")
        del self._members[topic][domain]
        self.topics[topic] = replace(
            self.topics[topic], members=self.topics[topic].members - {domain}
        )
        return self._next_epoch(keep=0)

    def rotate(self) -> list[bytes]:
        """Begin the next epoch; return its grants.

        Messages of the epoch before are taken, and its filters match, until another epoch begins.
        """
        return self._next_epoch(keep=1)

    def notice(self, topic: str) -> bytes:
        """Return the signed notice of a topic, for `DomainMap.take`.

        Raises:
            ParameterError: there is no such topic.
        """
        self._require(topic)
        unsigned = Notice(self.topics[topic], bytes(64))
        return replace(unsigned, signature=self._signing.sign(unsigned.signed())).to_bytes()

    def _next_epoch(self, keep: int) -> list[bytes]:
        self._seed = self._seed.step()
        epoch = self._seed.epoch
        for name, topic in self.topics.items():
            self.topics[name] = replace(topic, epoch=epoch, oldest=max(topic.oldest, epoch - keep))
        return [self._grant(name, domain) for name in self.topics for domain in self._members[name]]

    def _require(self, topic: str) -> None:
        if topic not in self.topics:
            raise ParameterError(f"there is no topic {topic!r}: found it first")

    @confined
    def _grant(self, topic: str, domain: str) -> bytes:
        place, public = self.topics[topic], self._members[topic][domain]
        fresh = ExchangeKey.generate()
        grant = KeyGrant(
            self.domain,
            topic,
            place.epoch,
            place.oldest,
            domain,
            fresh.public,
            bytes(_WRAPPED),
            bytes(64),
        )
        info = b"ccbps 1 topic key\0" + write([self.domain, topic, place.epoch])
        key = HKDF(SHA256(), KEY_BYTES, None, info).derive(self._seed.export_secret())
        wrapping = _wrapping_key(fresh.agree(public), fresh.public + public)
        grant = replace(grant, wrapped=seal(key, wrapping, grant.bound(), pad_to=1))
        return replace(grant, signature=self._signing.sign(grant.signed())).to_bytes()


class KeyRing(Confined):
    """The keys of topics that a domain's brokers hold.

    Args:
        domain: name of the domain.
        key: the domain's key, by which it opens grants.
        managers: identities of the managers whose grants it takes, by domain.
    """

    def __init__(self, domain: str, key: ExchangeKey, managers: Mapping[str, bytes]) -> None:
        self.domain = domain
        self._key = instance("key", key, ExchangeKey)
        self._managers = _identities(managers)
        self._keys: dict[tuple[str, str], dict[int, bytes]] = {}

    def __repr__(self) -> str:
        return f"<KeyRing of {self.domain!r}: {len(self._keys)} topics>"

    @confined
    def take(self, grant: bytes) -> tuple[str, int]:
        """Take a grant, and forget the keys of epochs that are over; return topic and epoch.

        Raises:
            ReplayError: there is a newer grant.
            DecodeError: it is no grant, not for this domain, or not of a known manager.
        """
        fields = KeyGrant.from_bytes(grant)
        identity = self._managers.get(fields.owner)
        if (
            fields.recipient != self.domain
            or identity is None
            or not signed_by(identity, fields.signed(), fields.signature)
        ):
            raise DecodeError("not a grant for this domain by a manager that it knows")
        own = self._keys.setdefault((fields.owner, fields.topic), {})
        if fields.epoch < max(own, default=0):
            raise ReplayError(f"a newer grant of the key of {fields.topic!r} was taken before")
        wrapping = _wrapping_key(self._key.agree(fields.public), fields.public + self._key.public)
        own[fields.epoch] = open_sealed(fields.wrapped, wrapping, fields.bound())
        for epoch in [epoch for epoch in own if epoch < fields.oldest]:
            del own[epoch]
        return fields.topic, fields.epoch

    def key(self, topic: Topic, epoch: int) -> bytes | None:
        """Return the key of a topic and epoch; None if it is not held, or the epoch is over."""
        own = self._keys.get((topic.owner, topic.name), {})
        return own.get(epoch) if epoch >= topic.oldest else None

    def newest(self, topic: Topic) -> int | None:
        """Return the newest epoch whose key is held; None if there is none."""
        return max(self._keys.get((topic.owner, topic.name), {}), default=None)


class SealedMessage(Message, frozen=True):
    """An event or a filter on its way: the stamp in the clear, the rest sealed.

    Attributes:
        stamp: stamp.
        epoch: epoch of the topic's key.
        nonce: 24 random bytes.
        sealed: the `Body`, sealed.
    """

    front: ClassVar[bytes] = _FRONT + b"M"
    what: ClassVar[str] = "a message between domains"
    stamp: Stamp
    epoch: Number
    nonce: Annotated[bytes, Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
    sealed: Annotated[bytes, Meta(max_length=MOST_SEALED)]

    @classmethod
    @confined
    def seal(
        cls,
        stamp: Stamp,
        body: Body,
        epoch: int,
        key: bytes,
        *,
        pad_to: int = PAD_TO,
        randomness: Randomness = os.urandom,
    ) -> Self:
        """Seal a body under the key of its topic.

        Args:
            stamp: stamp of the body.
            body: content and payload.
            epoch: epoch of the key.
            key: key of the topic (`KeyRing.key`).
            pad_to: number of bytes. The body is padded to a multiple of it.
            randomness: source of uniform bytes.

        Raises:
            ParameterError: the stamp is another body's.
        """
        if stamp.commitment != body.commitment:
            raise ParameterError("stamp must be the stamp of this body")
        empty = cls(stamp, epoch, randomness(NONCE_BYTES), b"")
        sealed = seal(write(body), empty._own_key(key), empty._bound(), pad_to=pad_to)
        return replace(empty, sealed=sealed)

    @confined
    def open(self, key: bytes) -> Body:
        """Open the body.

        Raises:
            DecodeError: it was not sealed with this key, for this stamp and epoch, or it is not
                what the owner signed.
        """
        content = open_sealed(self.sealed, self._own_key(key), self._bound())
        body = read(Body, content, refusal="not the body of a message between domains")
        if not hmac.compare_digest(body.commitment, self.stamp.commitment):
            raise DecodeError("the content is not what the owner signed")
        return body

    def _bound(self) -> bytes:
        # Changes of the label stay out: brokers on the way make them, and sign them.
        return write([self.stamp.bound(), self.epoch, self.nonce])

    def _own_key(self, key: bytes) -> bytes:
        return hmac.digest(key, b"ccbps message key 1\0" + self.nonce, "sha256")


class DomainMap(Printable):
    """Brokers, their domains, the links that they may have, and the routes of topics.

    All brokers on a topic's routes have the same map, so they agree on them.

    Args:
        domains: domain of each broker.
        links: pairs of brokers between which there could be a link.
        connections: pairs of domains that may be linked.
        managers: identities of the managers whose notices are taken, by domain.

    Attributes:
        domains: domain of each broker.
        links: pairs of brokers that may be linked; links that `connections` refuse are left out.
        topics: topics by name.

    Example:
        >>> from ccbps.access import Connections, DomainMap, Topic
        >>> ring = [("a1", "b1"), ("b1", "c1"), ("c1", "d1"), ("d1", "a1")]
        >>> open_to_all = Connections((("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")))
        >>> domains = DomainMap({f"{name}1": name for name in "abcd"}, ring, open_to_all)
        >>> domains.update(Topic("vitals", "a", {"a", "c"}, forbidden={"b"}))
        >>> domains.route("vitals", "a1", "c1")
        ['a1', 'd1', 'c1']
        >>> domains.update(Topic("trial", "a", {"a", "c"}, forbidden={"b", "d"}))
        >>> domains.route("trial", "a1", "c1")
        Traceback (most recent call last):
            ...
        ccbps.errors.RefusedError: no route of 'trial' leads to 'c1' and avoids domains b, d
    """

    def __init__(
        self,
        domains: Mapping[str, str],
        links: Iterable[tuple[str, str]],
        connections: Connections,
        managers: Mapping[str, bytes] | None = None,
    ) -> None:
        self._managers = _identities(managers or {})
        self.domains, self.connections = dict(domains), connections
        self.topics: dict[str, Topic] = {}
        self.links: list[tuple[str, str]] = []
        self._neighbours: dict[str, set[str]] = {broker: set() for broker in self.domains}
        for one, other in links:
            if self.may_link(one, other):
                self.links.append((one, other))
                self._neighbours[one].add(other)
                self._neighbours[other].add(one)
        self._trees: dict[str, dict[str, str | None]] = {}

    def __repr__(self) -> str:
        return (
            f"<DomainMap of {len(self.domains)} brokers, {len(self.links)} links and "
            f"{len(self.topics)} topics>"
        )

    def domain(self, broker: str) -> str:
        """Return the domain of a broker.

        Raises:
            ParameterError: there is no such broker.
        """
        if broker not in self.domains:
            raise ParameterError(f"{broker!r} is no broker of this map")
        return self.domains[broker]

    def may_link(self, one: str, other: str) -> bool:
        """Tell whether two brokers may be linked."""
        return one != other and self.connections.allow(self.domain(one), self.domain(other))

    def take(self, notice: bytes) -> Topic:
        """Take a manager's notice, and return its topic.

        Raises:
            DecodeError: it is no notice, or not of the owner's manager.
            RefusedError: it is older than the last, or of another owner.
        """
        fields = Notice.from_bytes(notice)
        identity = self._managers.get(fields.topic.owner)
        if identity is None or not signed_by(identity, fields.signed(), fields.signature):
            raise DecodeError("not a notice by the manager of the topic's owner")
        self.update(fields.topic)
        return fields.topic

    def update(self, topic: Topic) -> None:
        """Take a topic from a trusted place, such as this broker's own configuration.

        Raises:
            RefusedError: the notice is older than the last, or of another owner.
        """
        last = self.topics.get(topic.name)
        if last is not None and (
            topic.owner != last.owner or topic.epoch < last.epoch or topic.oldest < last.oldest
        ):
            raise RefusedError(
                f"the notice of {topic.name!r} is older than the last, or of another owner",
                reason="domain",
            )
        self.topics[topic.name] = topic
        self._trees.pop(topic.name, None)

    def topic(self, name: str) -> Topic:
        """Return a topic.

        Raises:
            RefusedError: no manager has announced it.
        """
        if name not in self.topics:
            raise RefusedError(f"no manager has told of a topic {name!r}", reason="domain")
        return self.topics[name]

    def is_member(self, topic: str, broker: str) -> bool:
        """Tell whether a broker's domain has the key of a topic."""
        return self.domain(broker) in self.topic(topic).members

    def tree(self, topic: str) -> dict[str, str | None]:
        """Return the tree of a topic's routes: the parent of each broker, None for the root.

        The root is the owner domain's first broker by name. The tree is built breadth first, over
        allowed links and without forbidden domains. Brokers that it lacks cannot be reached.
        """
        if topic not in self._trees:
            place = self.topic(topic)
            roots = [name for name, domain in self.domains.items() if domain == place.owner]
            before: dict[str, str | None] = dict.fromkeys(sorted(roots)[:1])
            waiting = deque(before)
            while waiting:
                broker = waiting.popleft()
                for neighbour in sorted(self._neighbours[broker]):
                    if neighbour not in before and self.domains[neighbour] not in place.forbidden:
                        before[neighbour] = broker
                        waiting.append(neighbour)
            self._trees[topic] = before
        return self._trees[topic]

    def neighbours(self, topic: str, broker: str) -> list[str]:
        """List the brokers with which a broker exchanges messages on a topic."""
        tree = self.tree(topic)
        own = tree.get(broker)
        return sorted(
            other
            for other in self._neighbours.get(broker, ())
            if other == own or tree.get(other) == broker
        )

    def route(self, topic: str, source: str, target: str) -> list[str]:
        """List the brokers on the way of a topic's messages from one broker to another.

        Raises:
            RefusedError: every way leads through a forbidden domain, or there is none.
        """
        up, down = self._way(topic, source), self._way(topic, target)
        shared = 0
        while shared < min(len(up), len(down)) and up[shared] == down[shared]:
            shared += 1
        return up[shared - 1 :][::-1] + down[shared:]

    def _way(self, topic: str, broker: str) -> list[str]:
        """List the brokers from the first of the tree to one of them."""
        self.domain(broker)
        tree, way = self.tree(topic), [broker]
        if broker not in tree:
            forbidden = ", ".join(sorted(self.topics[topic].forbidden)) or "nothing"
            raise RefusedError(
                f"no route of {topic!r} leads to {broker!r} and avoids domains {forbidden}",
                reason="domain",
            )
        while (parent := tree[way[-1]]) is not None:
            way.append(parent)
        return way[::-1]


def _identities(managers: Mapping[str, bytes]) -> dict[str, bytes]:
    return {name: check_identity(identity) for name, identity in managers.items()}


def _wrapping_key(agreed: bytes, publics: bytes) -> bytes:
    return HKDF(SHA256(), KEY_BYTES, None, b"ccbps 1 topic key grant\0" + publics).derive(agreed)
