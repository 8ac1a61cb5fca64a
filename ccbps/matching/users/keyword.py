"""KeywordMatch: conjunctions of equalities by searchable encryption with many users.

An event is a list of keywords "attribute = value", one for each attribute. An interest is a
conjunction of up to m equalities: one keyword in each of m slots, with the attribute's number in
the clear. The broker re-encrypts every message once with its half of the sender's key
(`ccbps.ciphers.proxy_search`) and then compares any event with any interest at the cost of one
product and one hash per equality.

Which side is encrypted and which makes trapdoors? [DRD08] and [IRC12] encrypt events, and
subscribers make trapdoors; [N1] describes the reverse and says that both work. The side that sends
trapdoors shows which of its values are equal. There are more events than interests, and events say
more, so `trapdoors="interests"` is the default; ``"events"`` is there for comparison.

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
from ccbps.checks import choice, whole
from ccbps.ciphers.proxy_search import SearchForm
from ccbps.dictionary import DictionaryColumn
from ccbps.errors import CcbpsError, UnsupportedPredicateError
from ccbps.leakage import LeakageCard
from ccbps.matching.contract.scheme import Cost, Draw, Operation, Side, Sizes
from ccbps.matching.users.users import (
    NO_VALUE,
    USER_BYTES,
    OpenEvents,
    ProxySearchMatcher,
    by_number,
    distinct_rows,
    keyword,
)
from ccbps.predicates import Events, Predicate, Schema
from ccbps.predicates.bound import bound_predicate
from ccbps.predicates.expression import attributes_of
from ccbps.predicates.types import EMPTY

Equality = tuple[int, bytes | None]
"""(number of the attribute, keyword); None for one that no event has"""

UNUSED: Final = 255
NO_VALUE_BYTES: Final = 16


@dataclass(frozen=True, slots=True, repr=False)
class _Table:
    """Interests after re-encryption.

    Attributes:
        senders: users of the interests.
        entries: different entries of each attribute in use: `SearchTokens`, or a `SearchForm`.
        places: int64, shape (interests, slots): the entry a slot stands for, -1 where unused.
        attributes: uint8, the same shape: the slot's attribute, 255 where unused.
    """

    senders: list[str]
    entries: dict[int, Any]
    places: NDArray[np.int64]
    attributes: Bytes


class KeywordMatch(ProxySearchMatcher):
    """Equalities and AND, by ElGamal proxy searchable encryption; revocation at the broker.

    Args:
        schema: at most 255 attributes.
        equalities: number m of an interest's slots; by default as many as attributes.
        group: name of a group, see `ccbps.algebra.prime_order`.
        trapdoors: the side that sends trapdoors, "interests" or "events".

    Raises:
        ParameterError: a parameter is out of range, or the group needs a library that is not
            installed.

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
        count = whole("the number of attributes", len(schema), 1, UNUSED)
        slots = whole("equalities", count if equalities is None else equalities, 1, count)
        choice("trapdoors", trapdoors, ("interests", "events"))
        self.group, self.equalities, self.trapdoors = group, slots, trapdoors
        self._event_slots, cipher = count, self._cipher
        event, interest = cipher.ciphertext_bytes, cipher.trapdoor_bytes
        if trapdoors == "events":
            event, interest = interest, event
        self._set_up(schema, Sizes(USER_BYTES + count * event, USER_BYTES + slots * (1 + interest)))

    def parameters(self) -> dict[str, Any]:
        return {"group": self.group, "equalities": self.equalities, "trapdoors": self.trapdoors}

    @classmethod
    def propose(cls, schema: Schema, predicate: Predicate) -> Iterator[KeywordMatch]:
        """Yield a matcher with as many slots as the predicate has equalities."""
        with suppress(CcbpsError):
            equalities = cls(schema).prepare(predicate)
            yield cls(schema, equalities=max(1, len(equalities)))

    @property
    def leakage(self) -> LeakageCard:
        shown, hidden = "interests", "events"
        never: tuple[str, ...] = (
            "which interests can never hold, if an attribute has more tokens than values, or if "
            "the tokens of other interests repeat",
        )
        if self.trapdoors == "events":
            shown, hidden, never = hidden, shown, ()
        secure = self._cipher.group.security > 0
        toy = () if secure else ("the group is a toy: anybody takes logarithms in it",)
        return self._card(
            hides=(
                "which value a keyword stands for, from anyone who knows no event, no interest "
                "and no frequency",
                f"which {hidden} are equal, beyond what the results of single equalities show",
            ),
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
            hazards=(
                "users distrust one another: each can write and read under the keywords of all "
                "others",
            ),
            attacks=(
                *toy,
                "frequency: the most frequent token is the most frequent value",
                "broker and one user: together they have x and s, and find every value by "
                "trying a dictionary",
            ),
        )

    @property
    def costs(self) -> tuple[Cost, ...]:
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
        write = self._cipher.trapdoors if side == self.trapdoors else self._cipher.encrypt
        return write(self._user(key), words, randomness)

    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        columns = []
        for name in self.schema:
            # Codes as whole words, most significant byte first.
            codes = np.ascontiguousarray(events.codes[name].T).astype(">u8")
            columns.append([keyword(name, code.tobytes()) for code in codes])
        words = [word for record in zip(*columns, strict=True) for word in record]
        rows = self._encode("events", key, words, draw.fresh)
        self._sign(key, out)[:] = rows.reshape(len(out), -1)

    def prepare(self, interest: Any) -> list[Equality]:
        predicate = bound_predicate(self.schema, interest)
        if EMPTY in predicate.box().ranges.values():
            # An interest that never holds has slots for the attributes that its text names.
            named = attributes_of(predicate.expression)
            places = [place for place, name in enumerate(self.schema) if name in named]
            return [(place, None) for place in places[: self.equalities] or [0]]
        equalities: list[Equality] = []
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
            equalities.append((number, keyword(name, int(low).to_bytes(width, "big"))))
        if len(equalities) > self.equalities:
            raise UnsupportedPredicateError(
                f"{len(equalities)} equalities; this matcher takes {self.equalities}",
                text=predicate.text,
            )
        return equalities

    def encode_interests(
        self,
        key: Mapping[str, Any],
        interests: DictionaryColumn[list[Equality]],
        draw: Draw,
        out: Bytes,
    ) -> None:
        sent = [interests.values[number] for number in interests.index.tolist()]
        equalities = [equality for interest in sent for equality in interest]
        # A keyword that no event and no other interest has, where an interest never holds.
        words = [
            keyword(self.schema.names[number], NO_VALUE + draw.fresh(NO_VALUE_BYTES))
            if word is None
            else word
            for number, word in equalities
        ]
        rows = self._encode("interests", key, words, draw.fresh)
        slots = self._sign(key, out).reshape(len(out), self.equalities, -1)
        numbers = np.array([number for number, _ in equalities], dtype=np.uint8)
        self._fill(slots, [len(interest) for interest in sent], numbers[:, None], rows)

    # -- the broker ---------------------------------------------------------------------------

    def _slots(self, bodies: Bytes) -> tuple[NDArray[Any], Bytes]:
        slots = bodies[:, USER_BYTES:].reshape(len(bodies), self.equalities, -1)
        return slots[:, :, 0], slots[:, :, 1:]

    def _opened(self, side: Side, x2: list[int], rows: Bytes) -> Any:
        if self.trapdoors == "interests":
            return super()._opened(side, x2, rows)
        return (
            distinct_rows(self._cipher.tokens(x2, rows))
            if side == "event"
            else (self._cipher.re_encrypt(x2, rows))
        )

    def table(self, key: Mapping[str, Any], bodies: Bytes) -> _Table:
        row, slot, numbers, items = self._read(key, bodies)
        ready: Any = self._cipher.prepared
        if self.trapdoors == "events":
            items = list(zip(items.c1, (c2.tobytes() for c2 in items.c2), strict=True))
            ready = _form
        places = np.full((len(bodies), self.equalities), -1, dtype=np.int64)
        attributes = np.full(places.shape, UNUSED, dtype=np.uint8)
        attributes[row, slot] = numbers
        entries = {}
        for number, chosen, distinct, index in by_number(numbers, items):
            places[row[chosen], slot[chosen]] = index
            entries[number] = ready(distinct)
        return _Table(self._senders(bodies), entries, places, attributes)

    def match(self, key: Mapping[str, Any], events: OpenEvents, table: _Table) -> Bools:
        out = np.ones((events.count, len(table.senders)), dtype=np.bool_)
        out[:, [user not in key["users"] for user in table.senders]] = False
        for number, entries in table.entries.items():
            if self.trapdoors == "interests":
                hits = self._cipher.search(events.slot(number), entries).T
            else:
                distinct, index = events.slot(number)
                hits = self._cipher.search(entries, distinct)[index]
            for slot in range(self.equalities):
                with_it = np.flatnonzero(table.attributes[:, slot] == number)
                out[:, with_it] &= hits[:, table.places[with_it, slot]]
        return out


def _form(pairs: Sequence[tuple[Any, bytes]]) -> SearchForm:
    """Return several ciphertexts (c1, c2) as one value."""
    digests = np.frombuffer(b"".join([c2 for _, c2 in pairs]), dtype=np.uint8).reshape(-1, 16)
    return SearchForm([c1 for c1, _ in pairs], digests)
