"""Labels of information flow: secrecy tags, integrity tags, and who may change them.

A *secrecy tag* names what a message may tell, such as "patient". Whoever reads the message must be
cleared for all of its tags. An *integrity tag* names a check that a message went through, such as
"laboratory". Whoever demands a tag reads only messages that have it. So information with label m
may flow to a party with label n if and only if::

    secrecy of m is a subset of secrecy of n,  and  integrity of n is a subset of integrity of m

What is derived from several messages gets the *join* of their labels: all secrecy tags, and the
integrity tags that all have. It is the least label that all of them may flow to. To drop a secrecy
tag is to *declassify*, and takes the right t- for this tag. To add an integrity tag is to
*endorse*, and takes the right t+. A filter is data, too, so subscriptions and advertisements carry
labels.

*Stamps.* A label beside a message is worth nothing if the next broker can take another. A message
therefore has a `Stamp`: its owner, a number, the topic, the label, the privacy level and a
commitment to the content, signed by the owner. Each later change of the label is a `Step`, signed
by the party that made it. Everybody who takes the message in examines all signatures and rights, by
its own list of parties, which comes from a trusted service and never from the message.

The commitment is the SHA-256 of the content and 32 random bytes that travel sealed with the
content. So brokers that cannot read the content verify the owner's signature, and cannot test
guesses.

*Own messages.* A party that is cleared for a tag, and lacks the right to drop it, signs no message
of its own without it. So a broker that strips the label of an event, and sends the content as an
event of its own, is refused by the next honest broker.

Leak: whoever sees a stamp learns the topic, the label, the privacy level, the owner and the number
of the message, its size and its time, and which parties changed the label. Owners may be
pseudonyms.
Hazards: tags are clear text. Labels bind the brokers that route, not a party's memory: a party can
pass on what it has read outside of the overlay. The last steps of a stamp can be cut off, which
leaves an earlier valid label. So a broker that does not know of a step that *raised* the label does
not keep to it; give each border a rule that raises it again (`ccbps.access.hops`).
Sources: [Survey] section 5.2.1 (DEFCon); Myers and Liskov, SOSP 1997.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import reduce
from hashlib import sha256
from typing import Annotated, Any, ClassVar, Final, Literal, NoReturn, Self, TypeAlias

from msgspec import Meta
from msgspec.structs import force_setattr, replace

from ccbps.arrays import Randomness
from ccbps.checks import instance
from ccbps.ciphers.signatures import IDENTITY_BYTES, Hash, Signature, signed_by
from ccbps.errors import ParameterError, RefusedError
from ccbps.keys.plain_key import SigningKey
from ccbps.records import Message, Number, Record, SecretRecord, write
from ccbps.wire import Kind

VERSION: Final = 1
MOST_TAGS: Final = 64
MOST_STEPS: Final = 16
"""Largest number of changes of one label: each costs a verification at every hop."""
SALT_BYTES: Final = 32
_ORIGIN: Final = b"ccbps labelled message 1\0"
_STEP: Final = b"ccbps label step 1\0"
_COMMITMENT: Final = b"ccbps labelled content 1\0"

Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=128)]
"""Name of a party, a broker, a domain or a topic."""
Names: TypeAlias = Annotated[AbstractSet[Name], Meta(max_length=4096)]
Tags: TypeAlias = Annotated[
    AbstractSet[Annotated[str, Meta(min_length=1, max_length=64)]], Meta(max_length=MOST_TAGS)
]
Identity: TypeAlias = Annotated[bytes, Meta(min_length=IDENTITY_BYTES, max_length=IDENTITY_BYTES)]
Subject: TypeAlias = Literal["advertisement", "subscription", "event"]
"""Kind of a routed message."""


class WithSets(Record, frozen=True):
    """Base of records with sets, which nobody can change once they are in a record."""

    _sets: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, (list, tuple, set)) and name in self._sets:
                with suppress(TypeError):  # of an element that has no hash: refused below
                    force_setattr(self, name, frozenset(value))
        super().__post_init__()


class Label(WithSets, Message, frozen=True):
    """A label: secrecy tags and integrity tags.

    Attributes:
        secrecy: tags that a reader must be cleared for.
        integrity: tags of checks that the content went through; of a party, tags that it demands.

    Example:
        >>> from ccbps.access import Label
        >>> report = Label({"patient"}, {"laboratory"})
        >>> report.flows_to(Label({"patient", "billing"})), report.flows_to(Label())
        (True, False)
        >>> report.join(Label({"billing"}))
        <Label: secrecy billing, patient; integrity nothing>
    """

    front: ClassVar[bytes] = bytes([Kind.DOMAIN, VERSION]) + b"L"
    what: ClassVar[str] = "a label"
    _sets: ClassVar[tuple[str, ...]] = ("secrecy", "integrity")
    secrecy: Tags = frozenset()
    integrity: Tags = frozenset()

    def __repr__(self) -> str:
        return f"<Label: secrecy {_listed(self.secrecy)}; integrity {_listed(self.integrity)}>"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("secrecy", sorted(self.secrecy)), ("integrity", sorted(self.integrity))]

    def flows_to(self, other: Label) -> bool:
        """Tell whether information with this label may flow to a place with another one."""
        return self.secrecy <= other.secrecy and other.integrity <= self.integrity

    def join(self, other: Label) -> Label:
        """Return the least label that both may flow to."""
        return Label(self.secrecy | other.secrecy, self.integrity & other.integrity)

    @classmethod
    def derived(cls, inputs: Iterable[Label]) -> Label:
        """Return the label of what was computed from inputs with these labels.

        Raises:
            ParameterError: there is no input.
        """
        labels = [*inputs]
        if not labels:
            raise ParameterError("inputs must be at least one label, got none")
        return reduce(Label.join, labels)


class Party(WithSets, frozen=True):
    """A client's or broker's identity and rights, as a trusted service knows them.

    Attributes:
        identity: public half of the party's `SigningKey`.
        label: secrecy tags that it may read, and integrity tags that it demands.
        declassify: secrecy tags t with the right t-.
        endorse: integrity tags t with the right t+.

    Example:
        >>> from ccbps.access import Label, Party
        >>> from ccbps.keys import SigningKey
        >>> identity = SigningKey.generate().identity
        >>> clerk = Party(identity, Label({"patient"}), declassify={"patient"})
        >>> clerk.check_change(Label({"patient"}), Label())
        >>> clerk.check_change(Label({"trial"}), Label())
        Traceback (most recent call last):
            ...
        ccbps.errors.RefusedError: to drop secrecy tag trial takes the right to declassify it
    """

    _sets: ClassVar[tuple[str, ...]] = ("declassify", "endorse")
    identity: Identity
    label: Label = Label()
    declassify: Tags = frozenset()
    endorse: Tags = frozenset()

    def check_read(self, label: Label, reader: str = "this party") -> None:
        """Check that information with a label may flow to this party.

        Raises:
            RefusedError: it may not.
        """
        if not label.flows_to(self.label):
            secret, unchecked = (
                label.secrecy - self.label.secrecy,
                self.label.integrity - label.integrity,
            )
            _refuse(
                f"{reader} is not cleared for secrecy {_listed(secret)}, or demands integrity "
                f"{_listed(unchecked)}"
            )

    def check_change(self, old: Label, new: Label) -> None:
        """Check that this party may change the label of information from `old` to `new`.

        Adding secrecy tags and dropping integrity tags takes no right.

        Raises:
            RefusedError: a right is missing.
        """
        if dropped := old.secrecy - new.secrecy - self.declassify:
            _refuse(f"to drop secrecy tag {_listed(dropped)} takes the right to declassify it")
        if added := new.integrity - old.integrity - self.endorse:
            _refuse(f"to add integrity tag {_listed(added)} takes the right to endorse it")


class Step(Record, frozen=True):
    """A change of a label.

    Attributes:
        label: new label.
        signer: name of the party that made the change.
        signature: its signature, which binds the signature before.
    """

    label: Label
    signer: Name
    signature: Signature


class Body(SecretRecord, frozen=True):
    """The content of a labelled message.

    Attributes:
        salt: 32 random bytes.
        content: bytes of the event or the filter.
        payload: bytes that brokers pass on.
    """

    salt: Annotated[bytes, Meta(min_length=SALT_BYTES, max_length=SALT_BYTES)]
    content: bytes
    payload: bytes = b""

    @classmethod
    def of(cls, content: bytes, payload: bytes = b"", randomness: Randomness = os.urandom) -> Self:
        """Return a body with fresh random bytes."""
        return cls(randomness(SALT_BYTES), content, payload)

    @property
    def commitment(self) -> bytes:
        """Commitment to content and payload, 32 bytes, which tells nothing of them."""
        return sha256(_COMMITMENT + write(self)).digest()


class Stamp(Record, frozen=True):
    """The signed part of a labelled message, in the clear.

    Attributes:
        kind: "advertisement", "subscription" or "event".
        owner: name of the client.
        number: number of the message, among those of the owner.
        topic: topic.
        origin: label that the owner gave it.
        privacy: privacy level of an event: subscribers below do not get it.
        commitment: commitment to the content (`Body.commitment`).
        signature: signature of the owner.
        steps: later changes of the label.
        policy: version of the access policy by which the message is judged, at all brokers alike;
            None where there is none (`ccbps.overlay.rights`).

    Example:
        >>> from ccbps.access import Body, Label, Party, Stamp
        >>> from ccbps.keys import SigningKey
        >>> key = SigningKey.generate()
        >>> parties = {"ward": Party(key.identity)}
        >>> body = Body.of(b"pulse 70")
        >>> stamp = Stamp.sign(key, "event", "ward", 1, "vitals", body, Label({"patient"}))
        >>> stamp.check(parties)
        <Label: secrecy patient; integrity nothing>
    """

    kind: Subject
    owner: Name
    number: Number
    topic: Name
    origin: Label
    privacy: Number
    commitment: Hash
    signature: Signature
    steps: Annotated[tuple[Step, ...], Meta(max_length=MOST_STEPS)] = ()
    policy: Number | None = None

    @classmethod
    def sign(
        cls,
        key: SigningKey,
        kind: Subject,
        owner: str,
        number: int,
        topic: str,
        body: Body,
        label: Label | None = None,
        *,
        privacy: int = 0,
        policy: int | None = None,
    ) -> Self:
        """Sign a message as its owner.

        Args:
            key: key of the owner.
            kind: "advertisement", "subscription" or "event".
            owner: name of the owner.
            number: number of the message, which the owner never uses twice for one kind.
            topic: topic.
            body: content.
            label: label of the content; None for no tags.
            privacy: privacy level that a subscriber must have.
            policy: version of the access policy that is in force at the owner's broker.
        """
        instance("key", key, SigningKey)
        origin = Label() if label is None else label
        unsigned = cls(
            kind, owner, number, topic, origin, privacy, body.commitment, bytes(64), (), policy
        )
        return replace(unsigned, signature=key.sign(unsigned._signed()))

    @property
    def label(self) -> Label:
        """Label after all changes, which only `check` verifies."""
        return self.steps[-1].label if self.steps else self.origin

    def relabel(self, signer: str, key: SigningKey, label: Label) -> Stamp:
        """Return the stamp with one more change of the label.

        The rights of the signer are examined by whoever takes the message in.

        Raises:
            ParameterError: the label was changed too often.
        """
        step = Step(label, signer, key.sign(self._signed_step(len(self.steps), label, signer)))
        return replace(self, steps=(*self.steps, step))

    def check(self, parties: Mapping[str, Party]) -> Label:
        """Examine all signatures and rights, and return the label.

        Args:
            parties: rights of all clients and brokers, from a trusted service.

        Raises:
            RefusedError: a party is unknown, a signature is wrong, or a right is missing.
        """
        owner = _known(parties, self.owner)
        if not signed_by(owner.identity, self._signed(), self.signature):
            _refuse(f"the message is not signed by {self.owner!r}, or was altered")
        owner.check_change(owner.label, self.origin)
        label = self.origin
        for place, step in enumerate(self.steps):
            signer = _known(parties, step.signer)
            signed = self._signed_step(place, step.label, step.signer)
            if not signed_by(signer.identity, signed, step.signature):
                _refuse(f"the label was not changed by {step.signer!r}")
            signer.check_change(label, step.label)
            label = step.label
        return label

    def bound(self) -> bytes:
        """Return the bytes that the owner signed, followed by the signature."""
        return write(replace(self, steps=()))

    def _signed(self) -> bytes:
        return _ORIGIN + write(replace(self, signature=bytes(64), steps=()))

    def _signed_step(self, place: int, label: Label, signer: str) -> bytes:
        before = self.steps[place - 1].signature if place else self.signature
        return _STEP + write([before, label, signer])


def _known(parties: Mapping[str, Party], name: str) -> Party:
    if name not in parties:
        _refuse(f"{name!r} is no party that is known here")
    return parties[name]


def _listed(tags: AbstractSet[str]) -> str:
    return ", ".join(sorted(tags)) or "nothing"


def _refuse(text: str) -> NoReturn:
    raise RefusedError(text, reason="label")
