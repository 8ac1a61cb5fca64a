"""Malformed and altered messages, from strangers and from clients with keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

import numpy as np

from ccbps.arrays import Bools, Bytes, Randomness
from ccbps.attacks.catalogue import Curve, Figure, Outcome, Taxonomy, attack
from ccbps.broker.matching_broker import MatchingBroker
from ccbps.broker.messages import Subscription
from ccbps.broker.quotas import Quota
from ccbps.checks import number, whole
from ccbps.ciphers.row_mac import RowMac
from ccbps.errors import DecodeError
from ccbps.keys.role_key import RoleKey, hex_bytes
from ccbps.keys.seeds import SharedSeed
from ccbps.matching.contract.access import MAC_BYTES
from ccbps.matching.contract.broker import Broker
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import Side
from ccbps.matching.one_time.branching import BranchingMatch
from ccbps.matching.one_time.formula import FormulaMatch
from ccbps.matching.reusable import ReusableMatcher
from ccbps.matching.tag.tag import TagMatch
from ccbps.matching.words.words import KeywordFilterMatch
from ccbps.overlay.routing.relations import MatcherRelation
from ccbps.overlay.routing.router import Router
from ccbps.predicates import Schema, UInt
from ccbps.wire import Cause

SCHEMA: Final = Schema(price=UInt(8), volume=UInt(8))
GENEROUS: Final = Quota(rate=1e9, burst=1e9, cost=1e9, patience=1e9, subscriptions=10**9)
"""Limits that are never reached, so every message is read."""

SIDES: Final[tuple[Side, Side]] = ("event", "interest")


@dataclass(frozen=True, slots=True)
class Pair:
    """A true event and a true interest of a matcher, and the broker that reads them.

    Attributes:
        broker: broker.
        messages: messages of each side, uint8, shape (1, bytes).
        macs: keys of clients that sign the messages of each side; none for one-time matchers.
    """

    broker: Broker
    messages: Mapping[Side, Bytes]
    macs: Mapping[Side, RowMac]

    @classmethod
    def of(cls, matcher: Matcher, randomness: Randomness) -> Self:
        """Make keys, an event that matches and its interest, all from one source."""
        rounds, keys = None, dict[Side, RoleKey]()
        if isinstance(matcher, ReusableMatcher):
            server = matcher.key_server(randomness=randomness)
            broker = matcher.broker(server.broker_key())
            keys = {"event": server.publisher_key(), "interest": server.subscriber_key("client")}
        else:
            rounds, broker = [0], matcher.broker()
        seed = SharedSeed(randomness(SharedSeed.length))
        publisher = matcher.publisher(keys.get("event", seed), randomness=randomness)
        subscriber = matcher.subscriber(keys.get("interest", seed), randomness=randomness)
        event = publisher.encode([{"price": 70, "volume": 3}], rounds)
        interest = subscriber.encode("price < 100 AND volume = 3", rounds)
        macs: dict[Side, RowMac] = {
            side: RowMac(
                hex_bytes(key.export_secret_data()["macs"][side.upper()]), tag_bytes=MAC_BYTES
            )
            for side, key in keys.items()
        }
        return cls(broker, {"event": event, "interest": interest}, macs)

    def read(self, side: Side, message: Bytes) -> Bools:
        """Return the broker's answer to a message in place of the true one of its side.

        Args:
            side: side of the message.
            message: bytes, uint8, shape (any length,).

        Raises:
            DecodeError: the broker refuses it.
        """
        rows = {**self.messages, side: message[None]}
        return self.broker.match(rows["event"], rows["interest"])

    def signed(self, side: Side, message: Bytes) -> Bytes:
        """Return a message with the MAC of a client, unless it is too short for one."""
        out = message.copy()
        if len(out) > MAC_BYTES:
            out[-MAC_BYTES:] = self.macs[side].tags(out[None, :-MAC_BYTES])[0]
        return out


def altered(message: Bytes, random: np.random.Generator) -> Bytes:
    """Alter a message: flip a bit, overwrite a part, cut it, or make it longer.

    Args:
        message: bytes, uint8, shape (length,).
        random: source of the alteration.

    Returns:
        uint8, shape (any length,); never the same message.
    """
    out, at = message.copy(), int(random.integers(len(message)))
    end = int(random.integers(at, len(message))) + 1
    match int(random.integers(6)):
        case 0:
            out[at] ^= 1 << int(random.integers(8))
        case 1:
            out[at:end] = np.frombuffer(random.bytes(end - at), dtype=np.uint8)
        case 2:
            out[at:end] = 0
        case 3:
            out[at:end] = 255
        case 4:
            out = out[:at]
        case _:
            out = np.concatenate([out, np.frombuffer(random.bytes(end - at), dtype=np.uint8)])
    return altered(message, random) if np.array_equal(out, message) else out


@attack(
    title="Somebody sends bytes that are no messages",
    goal="availability",
    adversary="somebody between clients and their broker; or a client, whose key signs what it "
    "alters",
    defence="decoding that raises nothing but `DecodeError`, and that refuses the rows of a batch "
    "one by one (`Broker.examine_all`)",
    source="[WCJ07]",
    taxonomy=Taxonomy(
        "implementation", "client", "broker", "single-hop", "stateless", "independent"
    ),
)
def malformed_messages(
    *,
    alterations: int = 150,
    batch: int = 32,
    share: float = 0.05,
    batches: int = 200,
    seed: int = 1,
) -> Outcome:
    """Alter true messages of several matchers, and hand them to their brokers.

    A broker refuses an altered message, or takes it: then its answers are of no use, as they would
    be for a client that encodes other values. Any other error would be a fault, and one that is not
    caught ends the broker. The brokers are those of `TagMatch`, `KeywordFilterMatch`,
    `FormulaMatch` and `BranchingMatch`, a `MatchingBroker` that reads whole subscriptions, and a
    `Router` that keeps encrypted filters, and must still deliver true events afterwards.

    Some messages of a batch are altered. `Broker.match_all` then refuses the batch,
    and `Broker.examine_all`, with the defence, refuses these messages only.

    Args:
        alterations: number of altered messages for each kind of message.
        batch: number of events in a batch.
        share: share of events that are altered, for the figures.
        batches: number of batches.
        seed: seed of keys, messages and alterations.

    Example:
        >>> from ccbps.attacks import malformed_messages
        >>> outcome = malformed_messages(alterations=40, batches=10)
        >>> outcome["errors other than DecodeError"].undefended
        0.0
        >>> outcome["true messages of a batch that are answered"].defended
        1.0
    """
    whole("alterations", alterations, 1)
    whole("batch", batch, 1, 1 << 12)
    number("share", share, 0, 1)
    whole("batches", batches, 1)
    random = np.random.default_rng(whole("seed", seed, 0))
    refused, came, faults = Counter[str](), Counter[str](), 0

    def alter(kind: str, message: Bytes, read: Callable[[Bytes], object]) -> None:
        nonlocal faults
        for _ in range(alterations):
            came[kind] += 1
            sent = altered(message, random)
            try:
                read(sent)
            except DecodeError:
                refused[kind] += 1
            except Exception:
                faults += 1

    keyed = [
        Pair.of(matcher, random.bytes)
        for matcher in (TagMatch(SCHEMA), KeywordFilterMatch(SCHEMA, points={"price": [100]}))
    ]
    one_time = [
        Pair.of(scheme.box(SCHEMA), random.bytes) for scheme in (FormulaMatch, BranchingMatch)
    ]
    for side in SIDES:
        for pair in keyed:
            alter("altered on the way", pair.messages[side][0], partial(pair.read, side))
            alter(
                "altered by a client",
                pair.messages[side][0],
                lambda sent, pair=pair, side=side: pair.read(side, pair.signed(side, sent)),  # type: ignore[misc]
            )
        for pair in one_time:
            alter("altered, of one-time matchers", pair.messages[side][0], partial(pair.read, side))
    tags, words = keyed
    service = MatchingBroker(tags.broker, quota=GENEROUS)
    subscription = Subscription("cheap", tags.messages["interest"]).to_bytes()
    alter(
        "altered subscriptions of a service",
        np.frombuffer(subscription, dtype=np.uint8),
        lambda sent: service.subscribe("adversary", sent.tobytes()),
    )
    delivered: list[str] = []
    router = Router(
        MatcherRelation(words.broker),
        lambda *_: None,
        lambda client, _: delivered.append(client),
        advertise=False,
    )
    interest = words.messages["interest"][0]
    router.add("subscription", "honest", 0, interest.tobytes())
    alter(
        "altered filters of a router, by a client",
        interest,
        lambda sent: router.add(
            "subscription", "adversary", came.total(), words.signed("interest", sent).tobytes()
        ),
    )
    router.publish("feed", 0, words.messages["event"].tobytes())
    faults += "honest" not in delivered  # a filter that was taken makes the router refuse events

    events = np.repeat(tags.messages["event"], batch, axis=0)
    table = tags.broker.prepare(tags.messages["interest"])

    def answered(share: float) -> tuple[float, float]:
        """Return the shares of true messages that are answered: in whole batches, row by row."""
        whole_batches = by_row = true = 0
        for _ in range(batches):
            bad, sent = random.random(batch) < share, events.copy()
            sent[bad, -1] ^= 1
            true += batch - int(bad.sum())
            _, causes = tags.broker.examine_all(sent, table)
            by_row += int(np.count_nonzero(causes[~bad] == Cause.NONE))
            with suppress(DecodeError):
                whole_batches += len(tags.broker.match_all(sent, table))
        return whole_batches / max(1, true), by_row / max(1, true)

    shares = sorted({0.0, 0.01, 0.02, 0.1, share})
    runs = [answered(each) for each in shares]
    naive, safe = runs[shares.index(share)]
    return Outcome(
        (
            Figure("errors other than DecodeError", "", float(faults), None, 0.0),
            *(
                Figure(
                    f"refused: {kind}",
                    "",
                    refused[kind] / came[kind],
                    None,
                    1.0 if kind == "altered on the way" else None,
                )
                for kind in came
            ),
            Figure(
                "true messages of a batch that are answered",
                "",
                naive,
                safe,
                (1 - share) ** (batch - 1),
            ),
        ),
        Curve(
            "share of altered messages",
            "true messages that are answered (share)",
            tuple(shares),
            {
                "without defence": tuple(run[0] for run in runs),
                "with refusals by row": tuple(run[1] for run in runs),
            },
        ),
    )
