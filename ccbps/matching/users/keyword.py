"""KeywordMatch: conjunctions of equalities by searchable encryption with many users.

An event is a list of keywords "attribute = value", one for each attribute. An interest is a
conjunction of up to m equalities: one keyword in each of m slots, with the attribute's number in
the clear. The broker re-encrypts every message once with its half of the sender's key
(`ccbps.ciphers.proxy_search`) and then compares any event with any interest at the cost of one
product and one hash per equality.

Which side is encrypted and which makes trapdoors? [DRD08] and [IRC12] encrypt events, and
subscribers make trapdoors; [N1] prints it the other way round and says that both work. The side
that sends trapdoors shows which of its values are equal. There are more events than interests, and
they say more, so `trapdoors="interests"` is the default; ``"events"`` is there for comparison.

Hazard: the broker and one user together read everything. Attribute numbers and the number of
equalities are in the clear. Not constant time.
Source: [DRD08]; [IRC12]; [N1] section 3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bools, Bytes, Randomness
from ccbps.ciphers.proxy_search import SearchForm
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import CcbpsError, ParameterError, UnsupportedPredicateError
from ccbps.leakage import LeakageCard
from ccbps.matching.contract.bodies import Draw, Sizes
from ccbps.matching.contract.costs import Cost, Operation
from ccbps.matching.contract.interests import bound_predicate
from ccbps.matching.contract.kinds import Side
from ccbps.matching.users.users import (
    USER_BYTES,
    OpenEvents,
    ProxySearchMatcher,
    distinct_rows,
    event_values,
    keyword,
    no_keyword,
)
from ccbps.predicates import Events, Predicate, Schema
from ccbps.predicates.expression import attributes_of
from ccbps.predicates.types import EMPTY
from ccbps.wire import Cause

Equality = tuple[int, bytes | None]
"""(number of the attribute, keyword); None for one that no event has"""

UNUSED: Final = 255


@dataclass(frozen=True, slots=True, repr=False)
class _Table:
    """Interests after re-encryption.

    Attributes:
        senders: the interests' users.
        entries: for each attribute, its different entries: `SearchTokens`, or a `SearchForm`.
        places: int64, shape (interests, slots): the entry a slot stands for, -1 where unused.
        attributes: uint8, the same shape: the slot's attribute.
    """

    senders: list[str]
    entries: list[Any]
    places: NDArray[np.int64]
    attributes: Bytes


class KeywordMatch(ProxySearchMatcher):
    """Equalities and AND, by ElGamal proxy searchable encryption; revocation at the broker.

    Example:
        >>> from ccbps import Category, Schema, UInt
        >>> from ccbps.matching import KeywordMatch
        >>> schema = Schema(issue=Category(["AAPL", "IBM"]), price=UInt(8))
        >>> matcher = KeywordMatch(schema, group="modp2048")
        >>> server = matcher.key_server()
        >>> publisher = matcher.publisher(server.publisher_key())
        >>> subscriber = matcher.subscriber(server.subscriber_key("alice"))
        >>> broker = matcher.broker(server.broker_key())
        >>> events = publisher.encode({"issue": ["IBM", "AAPL"], "price": [119, 121]})
        >>> interests = subscriber.encode(["issue = 'IBM'", "issue = 'AAPL' AND price = 121"])
        >>> broker.match_all(events, interests)
        array([[ True, False],
               [False,  True]])
    """

    name = "keyword"
    operators = ("=", "and")

    def __init__(
        self,
        schema: Schema,
        *,
        equalities: int | None = None,
        group: str = "secp256k1",
        trapdoors: Literal["interests", "events"] = "interests",
    ) -> None:
        """
        Args:
            schema: at most 255 attributes.
            equalities: m, the slots of an interest; by default as many as attributes.
            group: name of a group, see `ccbps.algebra.named_groups`.
            trapdoors: which side sends trapdoors, "interests" or "events".

        Raises:
            ParameterError: a parameter is out of range, or the group needs a library that is not
                installed.
        """
        slots = len(schema) if equalities is None else equalities
        if len(schema) > UNUSED:
            raise ParameterError(f"at most {UNUSED} attributes, got {len(schema)}")
        if type(slots) is not int or not 1 <= slots <= len(schema):
            raise ParameterError(
                f"equalities must be 1..{len(schema)}, the number of attributes, got {slots!r}"
            )
        if trapdoors not in ("interests", "events"):
            raise ParameterError(f"trapdoors must be 'interests' or 'events', got {trapdoors!r}")
        self.group, self.equalities, self.trapdoors = group, slots, trapdoors
        cipher = self._cipher
        event, interest = cipher.ciphertext_bytes, cipher.trapdoor_bytes
        if trapdoors == "events":
            event, interest = interest, event
        self._set_up(
            schema,
            Sizes(USER_BYTES + len(schema) * event, USER_BYTES + slots * (1 + interest)),
        )

    def parameters(self) -> dict[str, Any]:
        """Group, slots of an interest, and which side sends trapdoors."""
        return {"group": self.group, "equalities": self.equalities, "trapdoors": self.trapdoors}

    @classmethod
    def propose(cls, schema: Schema, wanted: Predicate) -> Iterator[KeywordMatch]:
        """With as many slots as the predicate has equalities."""
        with suppress(CcbpsError):
            equalities = cls(schema).prepare(wanted)
            yield cls(schema, equalities=max(1, len(equalities)))

    @property
    def leakage(self) -> LeakageCard:
        """What the broker learns."""
        shown, hidden = "interests", "events"
        never: tuple[str, ...] = (
            "which interests can never hold, if an attribute has more tokens than values, or if "
            "the tokens of other interests repeat",
        )
        if self.trapdoors == "events":
            shown, hidden, never = hidden, shown, ()
        secure = self._cipher.group.security > 0
        toy = () if secure else ("the group is a toy: anybody takes logarithms in it",)
        return LeakageCard(
            scheme="KeywordMatch",
            adversary="the broker, which follows the protocol and keeps all it sees",
            hides=(
                "which value a keyword stands for, from anyone who knows no event, no interest "
                "and no frequency",
                f"which {hidden} are equal, beyond what the results of single equalities show",
            ),
            protects=frozenset(),
            learns=(
                "which attribute of an event equals which constant of an interest, even where "
                "the interest as a whole does not match",
                f"which {shown} hold equal values, across all users",
                *never,
                "which attributes an interest names",
                "who sent each message",
            ),
            security="computational" if secure else "broken",
            assumption=f"decisional Diffie-Hellman in {self.group}, SHA-256 as a random oracle, "
            "HMAC-SHA256 pseudorandom; the broker colludes with no user, not even a revoked one",
            reuse="reusable",
            hazards=("any user can write and read under every other user's keywords",),
            attacks=(
                *toy,
                "frequency: the most frequent token is the most frequent value",
                "broker and one user: together they have x and s, and find every value by "
                "trying a dictionary",
            ),
        )

    @property
    def costs(self) -> tuple[Cost, ...]:
        """Operations of each role."""
        n, m, group, most = len(self.schema), self.equalities, self.group, "at most"
        return (
            Cost("publisher", "event", Operation.FIXED_BASE, 3 * n, group),
            Cost("subscriber", "interest", Operation.FIXED_BASE, 3 * m, group, most),
            Cost("broker", "event", Operation.EXPONENTIATION, n, group, most),
            Cost("broker", "interest", Operation.EXPONENTIATION, m, group, most),
            Cost("broker", "pair", Operation.MODULAR_PRODUCT, m, group, most),
            Cost("broker", "pair", Operation.HASH_BLOCK, m, note=most),
        )

    # -- clients ------------------------------------------------------------------------------

    def _encode(
        self, side: str, key: Mapping[str, Any], words: Sequence[bytes], randomness: Randomness
    ) -> Bytes:
        cipher, user = self._cipher, self._user(key)
        write = cipher.trapdoors if side == self.trapdoors else cipher.encrypt
        return write(user, words, randomness)

    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        """See `Scheme.encode_events`."""
        columns = [
            [keyword(name, value) for value in event_values(events, name)] for name in self.schema
        ]
        words = [word for record in zip(*columns, strict=True) for word in record]
        rows = self._encode("events", key, words, draw.fresh)
        self._sign(key, out)[:] = rows.reshape(len(out), -1)

    def prepare(self, interest: Any) -> list[Equality]:
        """See `Scheme.prepare`: a keyword for each equality."""
        predicate = bound_predicate(self.schema, interest)
        if EMPTY in predicate.box().ranges.values():
            return self._contradiction(attributes_of(predicate.expression))
        found: list[Equality] = []
        for number, (name, (low, high)) in enumerate(predicate.box().ranges.items()):
            kind = self.schema[name]
            if (low, high) == (0, kind.size - 1):
                continue
            if high > low:
                raise UnsupportedPredicateError(
                    f"attribute {name!r} needs a range; accepted are equalities joined by AND",
                    text=predicate.text,
                )
            width = 8 * -(-kind.bits // 64)
            found.append((number, keyword(name, int(low).to_bytes(width, "big"))))
        if len(found) > self.equalities:
            raise UnsupportedPredicateError(
                f"{len(found)} equalities; this matcher takes {self.equalities}",
                text=predicate.text,
            )
        return found

    def _contradiction(self, named: Sequence[str]) -> list[Equality]:
        """What nothing fulfils, with the slots of an interest in what its text names."""
        numbers = [number for number, name in enumerate(self.schema) if name in named]
        return [(number, None) for number in numbers[: self.equalities] or [0]]

    def encode_interests(
        self,
        key: Mapping[str, Any],
        interests: DictionaryColumn[list[Equality]],
        draw: Draw,
        out: Bytes,
    ) -> None:
        """See `Scheme.encode_interests`."""
        sent = [interests.values[number] for number in interests.index.tolist()]
        words = [
            no_keyword(self.schema.names[number], draw.fresh) if word is None else word
            for interest in sent
            for number, word in interest
        ]
        rows = self._encode("interests", key, words, draw.fresh)
        slots = self._sign(key, out).reshape(len(out), self.equalities, -1)
        slots[:] = 0
        slots[:, :, 0] = UNUSED
        used = 0
        for slot, interest in zip(slots, sent, strict=True):
            count = len(interest)
            slot[:count, 0] = [number for number, _ in interest]
            slot[:count, 1:] = rows[used : used + count]
            used += count

    # -- the broker ---------------------------------------------------------------------------

    def check(self, key: Mapping[str, Any], side: Side, bodies: Bytes) -> Bytes:
        """See `Scheme.check`."""
        return (self._check_events if side == "event" else self._check_interests)(key, bodies)

    def _check_events(self, key: Mapping[str, Any], bodies: Bytes) -> Bytes:
        slots = bodies[:, USER_BYTES:].reshape(len(bodies), len(self.schema), -1)
        causes = self._refused(key, bodies, slots)
        absent = ~np.all(slots.any(axis=2), axis=1)
        causes[absent & (causes == Cause.NONE)] = Cause.VALUE
        return causes

    def _check_interests(self, key: Mapping[str, Any], bodies: Bytes) -> Bytes:
        slots = bodies[:, USER_BYTES:].reshape(len(bodies), self.equalities, -1)
        numbers, used = slots[:, :, 0], slots[:, :, 1:].any(axis=2)
        causes = self._refused(key, bodies, slots[:, :, 1:])
        wrong = np.where(used, numbers >= len(self.schema), numbers != UNUSED).any(axis=1)
        causes[wrong & (causes == Cause.NONE)] = Cause.VALUE
        return causes

    def _read(self, side: str, key: Mapping[str, Any], bodies: Bytes, rows: Bytes) -> list[Any]:
        """Tokens, or (c1, c2), of rows, shape (len(bodies), slots, width); None where the slot is
        unused or the user is not served."""
        count, slots, width = rows.shape
        out: list[Any] = [None] * (count * slots)
        halves, flat = self._halves(key, bodies), rows.reshape(-1, width)
        used = np.flatnonzero(flat.any(axis=1)).tolist()
        places = [place for place in used if place // slots in halves]
        x2 = [halves[place // slots] for place in places]
        if side == self.trapdoors:
            read: Sequence[Any] = self._cipher.tokens(x2, flat[places])
        else:
            form = self._cipher.re_encrypt(x2, flat[places])
            read = list(zip(form.c1, (c2.tobytes() for c2 in form.c2), strict=True))
        for place, value in zip(places, read, strict=True):
            out[place] = value
        return out

    def table(self, key: Mapping[str, Any], bodies: Bytes) -> _Table:
        """See `TableScheme.table`. Interests of users that were forgotten meanwhile may be among
        them."""
        slots = bodies[:, USER_BYTES:].reshape(len(bodies), self.equalities, -1)
        senders, numbers = self._senders(bodies), np.array(slots[:, :, 0])
        numbers[[user not in key["users"] for user in senders]] = UNUSED
        read = self._read("interests", key, bodies, slots[:, :, 1:])
        places = np.full(numbers.size, -1, dtype=np.int64)
        entries: list[Any] = []
        for number in range(len(self.schema)):
            at = np.flatnonzero(numbers.reshape(-1) == number)
            distinct, index = distinct_rows([read[place] for place in at.tolist()])
            places[at] = index
            ready: Any = self._cipher.prepared if self.trapdoors == "interests" else _form
            entries.append(ready(distinct))
        return _Table(senders, entries, places.reshape(numbers.shape), numbers)

    def open_events(self, key: Mapping[str, Any], bodies: Bytes) -> OpenEvents:
        """Of each attribute a `SearchForm`; or different tokens, and which each event has."""
        rows = bodies[:, USER_BYTES:].reshape(len(bodies), len(self.schema), -1)
        ready: Any = _form if self.trapdoors == "interests" else distinct_rows

        def slot(number: int) -> Any:
            return ready(self._read("events", key, bodies, rows[:, number : number + 1]))

        return OpenEvents.of(len(bodies), slot)

    def match(self, key: Mapping[str, Any], events: OpenEvents, table: _Table) -> Bools:
        """See `TableScheme.match`."""
        out = np.ones((events.count, len(table.senders)), dtype=np.bool_)
        out[:, [user not in key["users"] for user in table.senders]] = False
        for number in np.unique(table.attributes[table.places >= 0]).tolist():
            entries = table.entries[number]
            if self.trapdoors == "interests":
                hits = self._cipher.search(events.slot(number), entries).T
            else:
                distinct, index = events.slot(number)
                hits = self._cipher.search(entries, distinct)[index]
            for slot in range(self.equalities):
                with_it = np.flatnonzero(table.attributes[:, slot] == number)
                out[:, with_it] &= hits[:, table.places[with_it, slot]]
        return out


def _form(read: Sequence[tuple[Any, bytes]]) -> SearchForm:
    """(c1, c2) of several ciphertexts as one value."""
    digests = np.frombuffer(b"".join([c2 for _, c2 in read]), dtype=np.uint8).reshape(-1, 16)
    return SearchForm([c1 for c1, _ in read], digests)
