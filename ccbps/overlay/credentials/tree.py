"""Credentials as nodes of a tree: rights to read events, to ask for a place, and to publish.

The events of a topic are leaves of a binary tree (`ccbps.forms.decomposition`), or of a trie of
strings (`ccbps.forms.trie`). A *credential* is a node, with the key of identity-based encryption
for the name of topic, node and epoch. A subscription is the few credentials that cover it.

Event
    For each prefix of its leaf, the empty one first, an encapsulation of one fresh key to the
    credential of that prefix. So the position equals the length of the credential, and its holder
    tries a single position. Leaf, number, payload, and the publisher's certificate and signature
    are in the body, which is sealed under the key.

Request
    The same D + 1 positions, for a newcomer with a credential: to each of its prefixes, an
    encapsulation of one nonce. The holder of a node opens its position iff its own node is a prefix
    of the newcomer's, and answers with a hash of the nonce. The newcomer's name is sealed inside,
    too, so nobody else can use a request by repeating it.

Positions beyond the end of a leaf or of a credential hold encapsulations to random names. (The
source has random bytes in their place, which are no elements of the group: everybody could count
the other positions, and so learn the length.) IBE messages do not show their names, so without keys
all positions are alike.

Certificate
    The issuer's signature of a publisher's identity and the nodes that it may publish to. An event
    is refused unless one of these is a prefix of its leaf.

Leak: the number of positions is that of the tree. Whoever opens an event reads its whole leaf. The
authority makes all keys. A holder of two credentials has their union, and no more: one tree binds
all attributes to one another. IBE keys of several trees, one for each attribute, do not: two users,
each with one of them, open events that neither may read.
Sources: [TKR14]; [BF01].
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Annotated, ClassVar, Final

from msgspec import Meta

from ccbps.arrays import Randomness
from ccbps.checks import Printable, instance, octets, text, whole
from ccbps.ciphers.payloads import PAD_TO, open_sealed, seal
from ccbps.ciphers.signatures import IDENTITY_BYTES, Signature, check_identity, signed_by
from ccbps.errors import CcbpsError, DecodeError, ParameterError
from ccbps.forms.decomposition import Node, covers
from ccbps.functional import Authority, Ibe, PublicKey, UserKey
from ccbps.keys import SigningKey
from ccbps.keys.secret import confined
from ccbps.records import Message, Number, SecretRecord, read, write
from ccbps.wire import Kind

KEY_BYTES: Final = 32
NAME_BYTES: Final = 16
TAG_BYTES: Final = 16
NO_TAG: Final = bytes(TAG_BYTES)
"""Tag of a request whose credential is not split."""
MOST_DEPTH: Final = 1 << 10
_LABEL: Final = b"ccbps credentials 1\0"
_REFUSED: Final = "not for this credential, or altered"

Capsules = Annotated[tuple[bytes, ...], Meta(min_length=2, max_length=MOST_DEPTH + 1)]
Identity = Annotated[bytes, Meta(min_length=IDENTITY_BYTES, max_length=IDENTITY_BYTES)]


class Certificate(Message, frozen=True):
    """Certificate of the nodes that a publisher may publish to, from `CredentialTree.certify`.

    Attributes:
        tree: name of the tree.
        epoch: epoch in which it holds.
        identity: identity of the publisher.
        nodes: nodes of the tree, which the publisher advertises.
        signature: signature of the issuer.
    """

    front: ClassVar[bytes] = bytes([Kind.CERTIFICATE, 1])
    what: ClassVar[str] = "a publisher's certificate"
    tree: bytes
    epoch: Number
    identity: Identity
    nodes: tuple[str, ...]
    signature: Signature

    @property
    def signed(self) -> bytes:
        """Bytes under the signature."""
        return _signed(b"certificate", self.tree, self.epoch, self.identity, self.nodes)


class _Event(Message, frozen=True):
    """An event on its way."""

    front: ClassVar[bytes] = bytes([Kind.CREDENTIAL_EVENT, 1])
    what: ClassVar[str] = "an event for holders of credentials"
    capsules: Capsules
    body: bytes


class _Body(SecretRecord, frozen=True):
    """The sealed part of an event."""

    leaf: str
    epoch: Number
    number: Number
    certificate: bytes
    signature: Signature
    payload: bytes


class _Request(Message, frozen=True):
    """A request to connect, on its way."""

    front: ClassVar[bytes] = bytes([Kind.CREDENTIAL_REQUEST, 1])
    what: ClassVar[str] = "a request to connect"
    capsules: Capsules


class _Challenge(SecretRecord, frozen=True):
    """The content of the positions of a request.

    Attributes:
        purpose: `_LABEL`. Without it, nodes would be decryption oracles for other messages.
        owner: hash of the newcomer's name.
        nonce: random nonce.
        tag: hash of the pseudonym of a split credential.
    """

    purpose: bytes
    owner: bytes
    nonce: Annotated[bytes, Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
    tag: Annotated[bytes, Meta(min_length=TAG_BYTES, max_length=TAG_BYTES)]


@dataclass(frozen=True, slots=True)
class CredentialEvent:
    """An event that was opened.

    Attributes:
        leaf: leaf of the event.
        publisher: identity of the publisher, 32 bytes.
        number: number that the publisher gave it.
        payload: the payload.
    """

    leaf: Node = field(repr=False)
    publisher: bytes
    number: int
    payload: bytes = field(repr=False)


class Credential(Printable):
    """A node of a tree and its key; `CredentialTree.issue` makes it.

    Attributes:
        node: the node, the subscriber's secret.
        epoch: epoch in which the key opens events and requests.
        key: user's key.
    """

    __slots__ = ("epoch", "key", "node")

    def __init__(self, node: Node, epoch: int, key: UserKey) -> None:
        self.node, self.epoch, self.key = node, epoch, key

    def __repr__(self) -> str:
        return f"<Credential {self.key.fingerprint} of epoch {self.epoch}>"


class CredentialTree(Printable):
    """The public part of a tree of credentials.

    Args:
        topic: name of the topic.
        depth: greatest length of a node.
        public: public key of an authority of `Ibe`.
        issuer: identity of the issuer of certificates.

    Raises:
        ParameterError: an argument does not fit.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.forms.decomposition import Decomposition
        >>> from ccbps.functional import Authority, Ibe
        >>> from ccbps.keys import SigningKey
        >>> from ccbps.overlay import CredentialTree
        >>> space = Decomposition(Schema(price=UInt(4)))
        >>> authority, issuer, exchange = (
        ...     Authority.generate(Ibe()), SigningKey.generate(), SigningKey.generate()
        ... )
        >>> tree = CredentialTree("quotes", space.depth, authority.public, issuer.identity)
        >>> certificate = tree.certify(issuer, exchange.identity, space.cover("price < 8"), epoch=7)
        >>> (leaf,) = space.leaves([{"price": 5}])
        >>> event = tree.seal_event(b"IBM", leaf, exchange, certificate, number=1)
        >>> (credential,) = tree.issue(authority, space.cover("price BETWEEN 4 AND 5"), epoch=7)
        >>> tree.open_event(event, credential).payload
        b'IBM'

    Attributes:
        topic: as given.
        depth: as given.
        public: as given.
        issuer: as given.
    """

    def __init__(self, topic: str, depth: int, public: PublicKey, issuer: bytes) -> None:
        self.topic = text("topic", topic)
        self.depth = whole("depth", depth, 1, MOST_DEPTH, unit="symbols")
        self.public = instance("public", public, PublicKey, hint="take Authority.public")
        if not isinstance(public.scheme, Ibe):
            raise ParameterError(f"public must be a key of Ibe, got {public.scheme!r}")
        self.issuer = check_identity(issuer)
        described = write((topic, self.depth, public.name, issuer))
        self.name = sha256(_LABEL + described).digest()[:NAME_BYTES]

    def __repr__(self) -> str:
        return f"<CredentialTree of {self.topic!r}: depth {self.depth}>"

    # -- the authority --------------------------------------------------------------------------

    def issue(self, authority: Authority, nodes: Iterable[Node], *, epoch: int) -> list[Credential]:
        """Issue credentials, in general those that cover a subscription.

        Raises:
            ParameterError: a node is longer than the tree is deep, or the authority is another one.
        """
        if authority.public != self.public:
            raise ParameterError("authority must be that of the tree, whose public key it has")
        return [
            Credential(node, epoch, authority.key(self._identity(node), epoch=epoch))
            for node in map(self._checked, nodes)
        ]

    def certify(
        self, issuer: SigningKey, identity: bytes, nodes: Iterable[Node], *, epoch: int
    ) -> Certificate:
        """Certify that a publisher may publish to some nodes.

        Args:
            issuer: signing key, of the identity `issuer`.
            identity: identity of the publisher.
            nodes: nodes that the publisher advertises.
            epoch: epoch in which the certificate holds.

        Raises:
            ParameterError: the key is not the issuer's, or a node is longer than the tree is deep.
        """
        if instance("issuer", issuer, SigningKey).identity != self.issuer:
            raise ParameterError("issuer must be the key of the tree's issuer")
        chosen = tuple(map(self._checked, nodes))
        content = _signed(b"certificate", self.name, epoch, check_identity(identity), chosen)
        return Certificate(self.name, epoch, identity, chosen, issuer.sign(content))

    # -- events ---------------------------------------------------------------------------------

    @confined
    def seal_event(
        self,
        payload: bytes,
        leaf: Node,
        key: SigningKey,
        certificate: Certificate,
        *,
        number: int,
        pad_to: int = PAD_TO,
        randomness: Randomness = os.urandom,
    ) -> bytes:
        """Seal an event for the holders of all prefixes of its leaf.

        Args:
            payload: any bytes.
            leaf: leaf of the event. Its length does not show.
            key: signing key of the publisher.
            certificate: certificate of the publisher, whose epoch is that of the event.
            number: number of the event, unique for the publisher in the epoch.
            pad_to: number of bytes. The body is padded to a multiple of it; 1 shows its length.
            randomness: source of uniform bytes.

        Raises:
            ParameterError: the certificate is not for this key, tree and leaf, or another argument
                does not fit. Members would drop the event.

        Cost: an encapsulation for each position, some 1 ms each.
        """
        self._require_certified(key, certificate, leaf)
        payload, leaf, epoch = octets("payload", payload), self._checked(leaf), certificate.epoch
        number = whole("number", number, 0, (1 << 63) - 1)
        signature = key.sign(_signed(b"event", self.name, epoch, leaf, number, payload))
        body = write(_Body(leaf, epoch, number, certificate.to_bytes(), signature, payload))
        content = randomness(KEY_BYTES)
        capsules = self._capsules(content, leaf, epoch, randomness)
        sealed = seal(body, content, _bound(capsules), pad_to=whole("pad_to", pad_to, 1))
        return _Event(capsules, sealed).to_bytes()

    def _require_certified(self, key: SigningKey, certificate: Certificate, leaf: Node) -> None:
        """Refuse a certificate of another key or tree, or one that does not cover a leaf."""
        instance("key", key, SigningKey)
        instance("certificate", certificate, Certificate, hint="CredentialTree.certify makes it")
        certified = (certificate.tree, certificate.identity) == (self.name, key.identity)
        if not certified or not any(
            covers(node, self._checked(leaf)) for node in certificate.nodes
        ):
            raise ParameterError(
                "certificate must be for the key and the tree, and have a node that is a prefix of "
                "the leaf"
            )

    @confined
    def open_event(self, message: bytes, credential: Credential) -> CredentialEvent:
        """Open an event, and check who published it.

        Raises:
            DecodeError: it is no event, is not for this credential or not of its epoch, was
                altered, or its publisher is not certified for its leaf.
        """
        parsed = _Event.from_bytes(message)
        key = self._opened(parsed.capsules, credential)
        if len(key) != KEY_BYTES:
            raise DecodeError(_REFUSED)
        content = open_sealed(parsed.body, key, _bound(parsed.capsules))
        body = read(_Body, content, refusal=_REFUSED)
        certificate = Certificate.from_bytes(body.certificate)
        if (certificate.tree, certificate.epoch, body.epoch) != (
            self.name,
            credential.epoch,
            credential.epoch,
        ) or not signed_by(self.issuer, certificate.signed, certificate.signature):
            raise DecodeError("the publisher has no certificate for this tree and epoch")
        if not covers(credential.node, body.leaf) or len(body.leaf) > self.depth:
            raise DecodeError("the event is sealed for credentials that do not cover its leaf")
        if not any(covers(node, body.leaf) for node in certificate.nodes):
            raise DecodeError("the publisher did not advertise the leaf of the event")
        signed = _signed(b"event", self.name, body.epoch, body.leaf, body.number, body.payload)
        if not signed_by(certificate.identity, signed, body.signature):
            raise DecodeError("the event does not have its publisher's signature")
        return CredentialEvent(body.leaf, certificate.identity, body.number, body.payload)

    # -- requests -------------------------------------------------------------------------------

    @confined
    def seal_request(
        self,
        credential: Credential,
        name: str,
        *,
        tag: bytes = NO_TAG,
        randomness: Randomness = os.urandom,
    ) -> tuple[bytes, bytes]:
        """Return a request that hides its credential, and its nonce.

        Args:
            credential: credential of the newcomer.
            name: name of the newcomer for other members.
            tag: `split_tag` of the newcomer's pseudonym for the parts of a split credential.
            randomness: source of uniform bytes.
        """
        nonce, tag = randomness(KEY_BYTES), octets("tag", tag, TAG_BYTES)
        challenge = _Challenge(_LABEL, _owner(name), nonce, tag)
        node = self._checked(credential.node)
        capsules = self._capsules(write(challenge), node, credential.epoch, randomness)
        return _Request(capsules).to_bytes(), nonce

    @confined
    def open_request(
        self, request: bytes, credential: Credential, name: str
    ) -> tuple[bytes, bytes] | None:
        """Open the request of a newcomer with a name, and return its nonce and tag.

        Returns:
            nonce and tag if the credential covers the request's and the request is of that
            newcomer; otherwise None, which reveals nothing else about the request's credential.

        Raises:
            DecodeError: it is no request.
        """
        parsed = _Request.from_bytes(request)
        try:
            content = self._opened(parsed.capsules, credential)
            challenge = read(_Challenge, content, refusal=_REFUSED)
        except CcbpsError:
            return None
        own = (challenge.purpose, challenge.owner) == (_LABEL, _owner(name))
        return (challenge.nonce, challenge.tag) if own else None

    # -- positions ------------------------------------------------------------------------------

    def _identity(self, node: Node) -> str:
        """Return the name of a credential."""
        return f"{self.name.hex()}|{node}"

    def _checked(self, node: Node) -> Node:
        return text("a node", node, self.depth) if node else node

    def _capsules(
        self, content: bytes, node: Node, epoch: int, randomness: Randomness
    ) -> tuple[bytes, ...]:
        """Encrypt a content for each prefix of a node, and for nobody at positions beyond."""
        names = [self._identity(node[:end]) for end in range(len(node) + 1)]
        names += [
            f"{self.name.hex()}-{randomness(KEY_BYTES).hex()}"
            for _ in range(self.depth - len(node))
        ]
        return tuple(
            self.public.seal(content, name, epoch=epoch, pad_to=1, randomness=randomness)
            for name in names
        )

    def _opened(self, capsules: tuple[bytes, ...], credential: Credential) -> bytes:
        """Open the position of a credential."""
        if len(capsules) != self.depth + 1:
            raise DecodeError(f"not of this tree, whose messages have {self.depth + 1} positions")
        with suppress(CcbpsError, IndexError):  # a credential of another tree may be longer
            return credential.key.open(capsules[len(credential.node)])
        raise DecodeError(_REFUSED)


def split_credential(node: Node, parts: int) -> list[Node]:
    """Split a node of a binary tree into parts that cover the same leaves.

    A parent that serves one of the parts learns that part only.

    Example:
        >>> from ccbps.overlay import split_credential
        >>> split_credential("1", 3)
        ['10', '110', '111']
    """
    ones = whole("parts", parts, 1) - 1
    return [*(node + "1" * count + "0" for count in range(ones)), node + "1" * ones]


def split_tag(pseudonym: bytes) -> bytes:
    """Return the tag of the parts of one split: a hash of a random pseudonym."""
    return sha256(_LABEL + b"split\0" + octets("pseudonym", pseudonym)).digest()[:TAG_BYTES]


def request_proof(nonce: bytes, name: str) -> bytes:
    """Return the proof of the member with a name that it opened a request."""
    return hmac.digest(nonce, _LABEL + b"opened\0" + name.encode(), "sha256")


def _owner(name: str) -> bytes:
    """Return the hash of a newcomer's name."""
    return sha256(_LABEL + b"owner\0" + text("name", name).encode()).digest()


def _bound(capsules: tuple[bytes, ...]) -> bytes:
    """Return a hash of all positions, which the body is bound to."""
    return sha256(_LABEL + write(capsules)).digest()


def _signed(kind: bytes, *fields: object) -> bytes:
    """Return the bytes under a signature."""
    return write(fields, _LABEL + kind + b"\0")
