"""Events whose routable attributes brokers read, and whose secret ones travel sealed.

The attributes of a `ccbps.predicates.Split` are routable or secret. An event is two parts::

    routable: codes of the routable attributes, in the clear
    body:     sealed: the routable codes again, the secret codes, the payload

A broker matches the routable part with any index, against predicates that `Split.weaken` made. The
subscriber opens the body and checks that both copies of the routable part are equal, so no broker
can put the body of one event behind the attributes of another. Then it evaluates its whole
predicate. So it gets exactly the events that match and that its key opens.

The body is sealed by one of the sealers of `ccbps.delivery`:

=================================  ============================================================
sealer                             who opens a body
=================================  ============================================================
`RangeKey`                         holders of keys of a box of routable attributes
`PolicySealer` of `KpAbe`          holders of keys of a policy over the routable attributes
`PolicySealer` of `HiddenVectors`  holders of keys of a policy over all attributes
`PolicySealer` of `CpAbe`, `Ibe`   those that satisfy a policy, or have a name, such as a group's
=================================  ============================================================

Messages of `RangeKey` and `KpAbe` show the record that they are sealed for, so these two are
refused where their schema has a secret attribute.

Leak: brokers read the routable attributes of events and the weakened predicates with their
constants, and so which of them match. Bodies show the padded length, and whatever their sealer
shows: bodies that CpAbe or Ibe seals in one call show that they belong together. Whoever opens a
body reads all secret attributes of the event, even if its own predicate does not hold. A routable
attribute that depends on a secret one leaks it.
Sources: [Survey] sections 4.4 and 8.1.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final

from ccbps.arrays import Randomness
from ccbps.checks import instance
from ccbps.ciphers.payloads import PAD_TO, as_bytes
from ccbps.delivery.key_tree import RangeKey
from ccbps.delivery.policies import PolicyOpener, PolicySealer
from ccbps.errors import DecodeError, KeyMismatchError, ParameterError
from ccbps.functional import CpAbe, HiddenVectors, Ibe, KpAbe, UserKey
from ccbps.keys.secret import Confined, confined
from ccbps.predicates import Events, Predicate, Split
from ccbps.predicates.bound import bound_predicate
from ccbps.predicates.split import code_bytes, from_code_bytes
from ccbps.records import Message, SecretRecord, read, write
from ccbps.wire import Kind

_ALTERED: Final = "the body is not of these routable attributes, or was altered"
_UNMATCHED: Final = "the record does not satisfy the predicate"


class _Event(Message, frozen=True):
    """An event on its way.

    Attributes:
        routable: codes of the routable attributes.
        body: sealed `_Body`.
    """

    front: ClassVar[bytes] = bytes([Kind.ROUTABLE, 1])
    what: ClassVar[str] = "an event with routable attributes"
    routable: bytes
    body: bytes


class _Body(SecretRecord, frozen=True):
    """The sealed part of an event."""

    routable: bytes
    secret: bytes
    payload: bytes


class RoutableSealer(Confined):
    """Sealer of events with routable and secret attributes.

    Args:
        split: the attributes.
        sealer: key of a tree or sealer by policy, for the bodies.

    Raises:
        ParameterError: messages of the sealer would show secret attributes, or its schema is
            another one.

    Example:
        >>> from ccbps import Category, Schema, UInt
        >>> from ccbps.delivery import (
        ...     KeyTree, RoutableOpener, RoutableSealer, TreeKey, read_routable
        ... )
        >>> split = Schema(issue=Category(["AAPL", "IBM"]), price=UInt(8)).split(routable=["issue"])
        >>> tree, secret = KeyTree(split.routable, "quotes"), TreeKey.generate()
        >>> sealer = RoutableSealer(split, tree.publisher_key(secret, epoch=7))
        >>> prices = [{"issue": "IBM", "price": 119}, {"issue": "IBM", "price": 121}]
        >>> sealed = sealer.seal([b"200 shares", b"5 shares"], prices)

        >>> weak = split.weaken("issue = 'IBM' AND price < 120")         # for the broker
        >>> weak.evaluate(read_routable(split, sealed))
        array([ True,  True])

        >>> key = tree.subscriber_key(secret, weak, epoch=7)
        >>> RoutableOpener(split, key, "issue = 'IBM' AND price < 120").examine(sealed)
        ([b'200 shares', None], {1: 'the record does not satisfy the predicate'})
    """

    def __init__(self, split: Split, sealer: RangeKey | PolicySealer) -> None:
        self.split = instance("split", split, Split, hint="take Schema.split")
        instance("sealer", sealer, (RangeKey, PolicySealer))
        self._sealer = sealer
        shown = None
        if isinstance(sealer, RangeKey):
            shown = sealer.tree.space.schema
        elif isinstance(sealer.public.scheme, KpAbe):
            shown = sealer.public.scheme.schema
        elif isinstance(sealer.public.scheme, HiddenVectors) and (
            sealer.public.scheme.schema != split.schema
        ):
            raise ParameterError("sealer must have the schema split.schema: it hides records")
        if shown is not None and shown != split.routable:
            raise ParameterError(
                "sealer must have the schema split.routable, since its messages show the records "
                "that they are sealed for"
            )

    def __repr__(self) -> str:
        return f"<RoutableSealer of {self.split!r}>"

    @confined
    def seal(
        self,
        payloads: Sequence[bytes],
        records: Any,
        *,
        to: Any = None,
        epoch: int | None = None,
        pad_to: int = PAD_TO,
        randomness: Randomness = os.urandom,
    ) -> list[bytes]:
        """Seal events.

        Args:
            payloads: payloads, one for each record.
            records: records of the whole schema.
            to: policy (CpAbe) or name (Ibe); None for the other sealers.
            epoch: epoch whose keys open the bodies, for sealers by policy; a key of a tree has an
                epoch of its own.
            pad_to: number of bytes. Bodies are padded to a multiple of it; 1 shows their lengths.
            randomness: source of uniform bytes.

        Raises:
            ParameterError: the numbers of payloads and records differ, or an argument does not fit.
            PredicateError: a policy does not parse, or nobody can satisfy it.
            EventError: a record does not fit the schema.
            KeyMismatchError: a record is outside of the ranges of a key of a tree.

        Cost: with KpAbe and HiddenVectors an encapsulation for each record.
        """
        payloads = as_bytes("payloads", payloads)
        routable, secret = self.split.divide(records)
        if len(payloads) != routable.count:
            raise ParameterError(f"{routable.count} records need as many payloads: {len(payloads)}")
        shown = code_bytes(routable)
        parts = zip(shown, code_bytes(secret), payloads, strict=True)
        bodies = [write(_Body(*part)) for part in parts]
        sealer = self._sealer
        by_record = isinstance(sealer, RangeKey) or not isinstance(
            sealer.public.scheme, (CpAbe, Ibe)
        )
        if by_record != (to is None):
            raise ParameterError(
                "to is for sealers of CpAbe and Ibe, and must be given there: the others seal for "
                "the records"
            )
        if isinstance(sealer, RangeKey):
            if epoch is not None:
                raise ParameterError("epoch is for sealers by policy: this key has its own")
            sealed = sealer.seal(bodies, routable, pad_to=pad_to, randomness=randomness)
        elif not by_record:
            sealed = sealer.seal(bodies, to, epoch=epoch, pad_to=pad_to, randomness=randomness)
        else:
            hidden = isinstance(sealer.public.scheme, HiddenVectors)
            events = self.split.join(routable, secret) if hidden else routable
            sealed = []
            for row, body in enumerate(bodies):
                sealed += sealer.seal(
                    [body], events.take([row]), epoch=epoch, pad_to=pad_to, randomness=randomness
                )
        return [_Event(*part).to_bytes() for part in zip(shown, sealed, strict=True)]


class RoutableOpener(Confined):
    """Opener of events with routable and secret attributes, and the subscriber's own filter.

    Args:
        split: the attributes.
        key: key of a tree, or user's key.
        predicate: SQL text or predicate of the whole schema.

    Raises:
        PredicateError: the predicate does not parse.

    Example:
        >>> from ccbps import Category, Schema, UInt
        >>> from ccbps.delivery import PolicySealer, RoutableOpener, RoutableSealer
        >>> from ccbps.functional import Authority, Ibe
        >>> split = Schema(issue=Category(["AAPL", "IBM"]), price=UInt(8)).split(routable=["issue"])
        >>> authority = Authority.generate(Ibe())
        >>> sealer = RoutableSealer(split, PolicySealer(authority.public))
        >>> sealed = sealer.seal([b"x"], [{"issue": "IBM", "price": 119}], to="traders")
        >>> RoutableOpener(split, authority.key("traders"), "price < 120").examine(sealed)
        ([b'x'], {})
        >>> RoutableOpener(split, authority.key("others"), "price < 120").examine(sealed)
        ([None], {0: 'not a message for this key, or one that was altered'})
    """

    def __init__(self, split: Split, key: RangeKey | UserKey, predicate: str | Predicate) -> None:
        self.split = instance("split", split, Split, hint="take Schema.split")
        instance("key", key, (RangeKey, UserKey))
        self._key = key if isinstance(key, RangeKey) else PolicyOpener(key)
        self._predicate = bound_predicate(split.schema, predicate, "a predicate")

    def __repr__(self) -> str:
        return f"<RoutableOpener of {self.split!r}>"

    @confined
    def examine(self, messages: Sequence[bytes]) -> tuple[list[bytes | None], dict[int, str]]:
        """Return the payloads of events that match, and a cause for each other event.

        Args:
            messages: messages of `RoutableSealer.seal`, of which some may be altered, or for other
                users.

        Returns:
            payloads, None for an event that does not match or cannot be opened; and causes by row.
        """
        causes: dict[int, str] = {}
        parsed: dict[int, _Event] = {}
        for row, message in enumerate(as_bytes("messages", messages)):
            try:
                parsed[row] = _Event.from_bytes(message)
            except DecodeError as error:
                causes[row] = str(error)
        bodies: dict[int, _Body] = {}
        for row, content in self._opened(parsed, causes).items():
            with suppress(DecodeError):
                body = read(_Body, content, refusal=_ALTERED)
                if body.routable == parsed[row].routable:
                    bodies[row] = body
            if row not in bodies:
                causes[row] = _ALTERED
        payloads: list[bytes | None] = [None] * len(messages)
        matched = self._predicate.evaluate(self._joined(bodies, causes)).tolist()
        for (row, body), held in zip(bodies.items(), matched, strict=True):
            if held:
                payloads[row] = body.payload
            else:
                causes[row] = _UNMATCHED
        return payloads, dict(sorted(causes.items()))

    def _opened(self, events: dict[int, _Event], causes: dict[int, str]) -> dict[int, bytes]:
        """Return the bodies that the key opens; note causes for the others."""
        rows, sealed = [*events], [event.body for event in events.values()]
        if isinstance(self._key, PolicyOpener):
            opened, failed = self._key.examine(sealed)
            causes.update({rows[at]: cause for at, cause in failed.items()})
            pairs = zip(rows, opened, strict=True)
            return {row: content for row, content in pairs if content is not None}
        contents = {}
        for row, body in zip(rows, sealed, strict=True):
            try:
                (contents[row],) = self._key.open([body])
            except (DecodeError, KeyMismatchError) as error:
                causes[row] = str(error).removeprefix("row 0: ")
        return contents

    def _joined(self, bodies: dict[int, _Body], causes: dict[int, str]) -> Events:
        """Return the records of bodies; remove those that hold none, and note causes for them."""
        while True:
            rows, held = [*bodies], bodies.values()
            try:
                routable = from_code_bytes(self.split.routable, [body.routable for body in held])
                secret = from_code_bytes(self.split.secret, [body.secret for body in held])
                return self.split.join(routable, secret)
            except DecodeError as error:
                for at in error.rows:
                    causes[rows[at]] = _ALTERED
                    del bodies[rows[at]]


def read_routable(split: Split, messages: Sequence[bytes]) -> Events:
    """Read the routable attributes of events, as a broker does.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.delivery import KeyTree, RoutableSealer, TreeKey, read_routable
        >>> split = Schema(price=UInt(8), volume=UInt(8)).split(routable=["price"])
        >>> key = KeyTree(split.routable, "quotes").publisher_key(TreeKey.generate(), epoch=7)
        >>> sealed = RoutableSealer(split, key).seal([b"IBM"], [{"price": 119, "volume": 5}])
        >>> split.weaken("price < 120 AND volume < 3").evaluate(read_routable(split, sealed))
        array([ True])

    Args:
        split: the attributes.
        messages: messages of `RoutableSealer.seal`.

    Raises:
        DecodeError: a message is malformed.
    """
    events = [_Event.from_bytes(message) for message in as_bytes("messages", messages)]
    schema = instance("split", split, Split, hint="take Schema.split").routable
    return from_code_bytes(schema, [event.routable for event in events])
