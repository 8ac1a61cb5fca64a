"""Chains of delegation: an owner delegates part of its events, and delegates may pass part on.

A chain starts with the owner. Each link names the key that acts next, a scope (a predicate over
events), the number of links that may follow, and the hash of the link before it; the key of the
link before signs it. A chain is valid iff

- the first link is signed by the owner, and each other one by the key that the link before names;
- each scope implies that of the link before;
- the number of further links falls at each link, and does not fall below 0;
- no link was revoked.

So revoking a link ends all that are below it. The chain grants the events of its last scope.

A domain's manager delegates to agents by the same chains (`ccbps.access.domains`).
Leak: whoever reads a chain reads all scopes. A link binds one schema, of which it has the digest.
Source: [Survey] sections 5.1.3 and 5.2 (Opyrchal et al.; Bacon et al.).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import sha256
from typing import Annotated, ClassVar, Final

from msgspec import Meta, structs

from ccbps.access.notice import Digest
from ccbps.access.policy import Text
from ccbps.checks import Printable, instance, whole
from ccbps.ciphers.signatures import UNSIGNED, Signature, check_identity, signed_by
from ccbps.errors import ParameterError, PredicateError, RefusedError
from ccbps.keys import SigningKey
from ccbps.predicates import Predicate, Schema
from ccbps.predicates.bound import bound_predicate
from ccbps.records import Message, Record
from ccbps.wire import Kind

DEEPEST: Final = 32
"""Greatest number of links of a chain."""
Identity = Annotated[bytes, Meta(min_length=32, max_length=32)]


class Link(Record, frozen=True):
    """Link of a chain.

    Attributes:
        schema: SHA-256 of the schema's JSON text.
        parent: `Link.digest` of the link before; 32 zero bytes in the first link.
        key: identity of the key that may act, and sign the next link.
        scope: predicate of the events on which it may act.
        depth: number of links that may follow.
        signature: signature by the owner, or by the key of the link before.
    """

    schema: Digest
    parent: Digest
    key: Identity
    scope: Text
    depth: Annotated[int, Meta(ge=0, le=DEEPEST)]
    signature: Signature = UNSIGNED


class _Links(Message, frozen=True):
    front: ClassVar[bytes] = bytes([Kind.DELEGATION, 1])
    what: ClassVar[str] = "a chain of delegation"
    links: Annotated[tuple[Link, ...], Meta(min_length=1, max_length=DEEPEST)]


class Delegation(Printable):
    """A chain of delegation; `grant` begins one, and `delegate` adds a link.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.access import Delegation
        >>> from ccbps.keys import SigningKey
        >>> schema = Schema(age=UInt(7))
        >>> owner, clinic, doctor = (SigningKey.generate() for _ in range(3))
        >>> chain = Delegation.grant(schema, owner, clinic.identity, "age > 17", depth=1)
        >>> chain = chain.delegate(clinic, doctor.identity, "age > 64")
        >>> chain.verify(owner.identity).text
        'age > 64'
        >>> chain.verify(owner.identity, revoked={chain.numbers[0]})
        Traceback (most recent call last):
        ccbps.errors.RefusedError: link 0 of the delegation was revoked

    Attributes:
        schema: attributes of the events.
        links: links, the owner's first.
        numbers: SHA-256 of each link, by which it is revoked.
    """

    def __init__(self, schema: Schema, links: Sequence[Link]) -> None:
        self.schema, self.links = instance("schema", schema, Schema), tuple(links)
        self.numbers = tuple(_number(link) for link in self.links)

    def __repr__(self) -> str:
        return f"<Delegation of {len(self.links)} links>"

    @classmethod
    def grant(
        cls, schema: Schema, owner: SigningKey, key: bytes, scope: str, *, depth: int = 0
    ) -> Delegation:
        """Begin a chain.

        Args:
            schema: attributes of the events.
            owner: key of the owner of the events.
            key: identity of the key that may act.
            scope: predicate of the events.
            depth: number of links that may follow.

        Raises:
            PredicateError: the scope does not parse.
        """
        return cls(schema, [])._with(owner, key, scope, depth)

    def delegate(
        self, holder: SigningKey, key: bytes, scope: str, *, depth: int | None = None
    ) -> Delegation:
        """Return a chain with one link more.

        Args:
            holder: signing key that the last link names.
            key: identity of the key that may act.
            scope: predicate of the events, which implies the last scope.
            depth: number of links that may follow; one less than now by default.

        Raises:
            ParameterError: no link may follow, or not so many, or the scope is wider than the
                last one, or the key is not the last link's.
            PredicateError: the scope does not parse.
        """
        last = self.links[-1]
        if holder.identity != last.key:
            raise ParameterError("holder must be the key that the last link names")
        if last.depth < 1:
            raise ParameterError("the last link lets nobody delegate further: depth is 0")
        depth = last.depth - 1 if depth is None else whole("depth", depth, 0, last.depth - 1)
        if not self._scope(scope).implies(self._scope(last.scope)):
            raise ParameterError(f"scope must imply the last scope, {last.scope}")
        return self._with(holder, key, scope, depth)

    def _with(self, signer: SigningKey, key: bytes, scope: str, depth: int) -> Delegation:
        self._scope(scope)
        parent = self.numbers[-1] if self.links else bytes(32)
        depth = whole("depth", depth, 0, DEEPEST - 1)
        link = Link(_schema_digest(self.schema), parent, check_identity(key), scope, depth)
        signed = structs.replace(link, signature=signer.sign(_signed(link)))
        return type(self)(self.schema, [*self.links, signed])

    def _scope(self, text: str) -> Predicate:
        return bound_predicate(self.schema, text, "scope")

    def to_bytes(self) -> bytes:
        """Return the bytes of the chain."""
        return _Links(self.links).to_bytes()

    @classmethod
    def from_bytes(cls, schema: Schema, message: bytes) -> Delegation:
        """Read a chain; nothing is verified.

        Raises:
            DecodeError: it is malformed.
        """
        return cls(schema, _Links.from_bytes(message).links)

    def verify(self, owner: bytes, *, revoked: Collection[bytes] = ()) -> Predicate:
        """Verify all links, and return the scope of the last one.

        Args:
            owner: identity of the owner's key.
            revoked: numbers of links that were revoked.

        Raises:
            RefusedError: the chain is not valid; the text says which link, and why.
        """
        signer, depth, parent, scope = check_identity(owner), DEEPEST, bytes(32), None
        schema = _schema_digest(self.schema)
        for place, (link, number) in enumerate(zip(self.links, self.numbers, strict=True)):
            if number in revoked:
                _refuse(place, "was revoked")
            if link.schema != schema:
                _refuse(place, "is of another schema")
            if link.parent != parent:
                _refuse(place, "does not follow the one before")
            if not signed_by(signer, _signed(link), link.signature):
                _refuse(place, "is not signed by the key before it")
            if link.depth >= depth:
                _refuse(place, "lets more links follow than the one before")
            try:
                narrower = self._scope(link.scope)
                inside = scope is None or narrower.implies(scope)
            except (PredicateError, ParameterError):
                inside = False
            if not inside:
                _refuse(place, "has a scope that does not imply the one before")
            signer, depth, parent, scope = link.key, link.depth, number, narrower
        if scope is None:
            raise RefusedError("the delegation has no link", reason="delegation")
        return scope

    def holder(self) -> bytes:
        """Return the identity of the key that may act."""
        return self.links[-1].key


def _refuse(place: int, why: str) -> None:
    raise RefusedError(f"link {place} of the delegation {why}", reason="delegation")


def _schema_digest(schema: Schema) -> bytes:
    return sha256(schema.to_json().encode()).digest()


def _signed(link: Link) -> bytes:
    return _Links((structs.replace(link, signature=UNSIGNED),)).to_bytes()


def _number(link: Link) -> bytes:
    return sha256(_Links((link,)).to_bytes()).digest()
