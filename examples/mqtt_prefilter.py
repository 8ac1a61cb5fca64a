"""Encrypted topics and encrypted conditions over MQTT: who gets what, and what the broker saw.

Everything runs on this machine: an MQTT server, the matching broker as one of its clients, three
subscribers and a publisher, each with a connection of its own. Four schemes take turns:

- TagMatch and KeywordMatch: keys come from a key server, a message can be matched again and again;
- FormulaMatch and BroadcastMatch: publisher and subscriber share a seed, each round is used once,
  and the broker learns nothing but who matches.

Topics are tokens, PRF_K(topic). An event on a topic that nobody subscribed to is stopped by the
broker's filter, before anything is matched. Payloads are encrypted by the publisher.

    python examples/mqtt_prefilter.py
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ccbps import Category, Schema, SharedSeed, UInt
from ccbps.broker import MatchingBroker, Publication, Subscription
from ccbps.filters import FilterKey, TopicTokens
from ccbps.matching import Answers, BroadcastMatch, FormulaMatch, KeywordMatch, Matcher, TagMatch
from ccbps.mqtt import LocalServer, MqttClient, MqttService, MqttUrl

SCHEMA = Schema(ward=Category(["heart", "lung", "child"]), pulse=UInt(8))
WORDS = Schema(ward=Category(["heart", "lung", "child"]), alarm=Category(["no", "low", "high"]))
TOPIC, OTHER = "clinic/north/alerts", "clinic/south/alerts"
EVENTS = [("heart", 150), ("lung", 80), ("child", 190), ("heart", 70)]
ALARMS = {150: "high", 80: "no", 190: "high", 70: "low"}

CONDITIONS = {
    "alice": "ward = 'heart' AND pulse > 120",
    "bob": "pulse BETWEEN 60 AND 100",
    "carol": "ward IN ('child')",
}
KEYWORDS = {
    "alice": "ward = 'heart' AND alarm = 'high'",
    "bob": "alarm = 'no'",
    "carol": "ward = 'child'",
}
MATCHERS: list[tuple[Matcher, dict[str, str]]] = [
    (TagMatch(SCHEMA), CONDITIONS),
    (KeywordMatch(WORDS), KEYWORDS),
    (FormulaMatch.box(SCHEMA), CONDITIONS),
    (BroadcastMatch.box(SCHEMA), CONDITIONS),
]
CLIENTS = [*CONDITIONS]
ROUNDS = len(EVENTS) + 1


def main() -> int:
    """Run all schemes, and return the number of wrong deliveries."""
    passwords = {name: secrets.token_hex(8) for name in ("broker", "clinic", *CLIENTS)}
    differences = 0
    with LocalServer(passwords) as server:
        print(f"an MQTT server at {server.url}; events of {TOPIC!r}, and one of {OTHER!r}:")
        print("  " + ", ".join(f"{ward} {pulse}" for ward, pulse in EVENTS) + "\n")
        urls = {name: MqttUrl(server.url, name, word) for name, word in passwords.items()}
        for matcher, conditions in MATCHERS:
            differences += run(matcher, conditions, urls)
    print(f"differences                          {differences}")
    return differences


def run(matcher: Matcher, conditions: dict[str, str], urls: dict[str, MqttUrl]) -> int:
    """Subscribe, publish and compare deliveries in one scheme; return the differences."""
    tokens = TopicTokens(FilterKey.generate())  # publishers and subscribers share its key
    payload_key = AESGCM(AESGCM.generate_key(256))  # and this one; see whole_story.py for more
    parties = Parties(matcher)
    with everybody(MatchingBroker(parties.broker), urls) as (clients, clinic, broker):
        for client in CLIENTS:
            clients[client].subscribe(
                parties.subscription(client, conditions[client], tokens.one(TOPIC))
            )
        for number, (ward, pulse) in enumerate([*EVENTS, EVENTS[0]]):
            topic = OTHER if number == len(EVENTS) else TOPIC
            nonce = secrets.token_bytes(12)
            payload = nonce + payload_key.encrypt(nonce, f"{ward} {pulse}".encode(), None)
            record = {"ward": ward, "pulse": pulse, "alarm": ALARMS[pulse]}
            clinic.publish(parties.publication(number, record, payload, tokens.one(topic)))
        print(type(matcher).__name__)
        differences = 0
        for client in CLIENTS:
            wanted = wants(matcher, conditions[client])
            found = [clients[client].receive(10).payload for _ in wanted]
            got = [payload_key.decrypt(one[:12], one[12:], None).decode() for one in found]
            differences += got != wanted
            print(f"  {client:<6}{conditions[client]:<36}{', '.join(got)}")
        counts = dict(line.split() for line in broker.metrics().splitlines() if "#" not in line)
        tested, stopped = (
            int(float(counts[f"ccbps_{name}_total"])) for name in ("pairs_tested", "prefiltered")
        )
        print(f"  the broker tested {tested} pairs, and stopped {stopped} event by its topic")
        print(f"  and learned: {matcher.leakage.learns[0]}\n")
    return differences


class Parties:
    """Publisher and subscribers of a matcher, with their keys."""

    def __init__(self, matcher: Matcher) -> None:
        self.matcher, self.seed = matcher, SharedSeed.generate()
        self.one_time = matcher.keying.value == "rounds"
        if self.one_time:
            self.broker = matcher.broker()
            self.publisher: Any = matcher.publisher(self.seed)
        else:
            self.server = matcher.key_server()
            self.keys = {client: self.server.subscriber_key(client) for client in CLIENTS}
            self.publisher = matcher.publisher(self.server.publisher_key())
            # Last: a broker's key may say which users it serves.
            self.broker = matcher.broker(self.server.broker_key())

    def subscription(self, client: str, condition: str, token: bytes) -> Subscription:
        """Return a client's subscription: one message, or one for each of the coming rounds."""
        if not self.one_time:
            subscriber = self.matcher.subscriber(self.keys[client])
            return Subscription("mine", subscriber.encode(condition), token)
        label = f"{client}/mine"
        if self.matcher.answers is Answers.ROUND:
            # One event is for all, so all have the seed, and trust one another with it.
            subscriber = self.matcher.subscriber(self.seed)
            pairs = [label] * ROUNDS
            interests = subscriber.encode(condition, rounds=range(ROUNDS), pairs=pairs)
        else:
            # A subscriber has the seed of its own label, and of no other.
            subscriber = self.matcher.subscriber(self.seed.pair(label))
            interests = subscriber.encode(condition, rounds=range(ROUNDS))
        return Subscription("mine", interests, token, "clinic", first_round=0)

    def publication(
        self, number: int, record: dict[str, Any], payload: bytes, token: bytes
    ) -> Publication:
        """Return the clinic's publication: one event for all, or one for each subscription."""
        record = {name: record[name] for name in self.matcher.schema}
        if not self.one_time:
            return Publication(number, self.publisher.encode([record])[0].tobytes(), payload, token)
        if self.matcher.answers is Answers.ROUND:
            event = self.publisher.encode([record], rounds=[number])[0].tobytes()
            return Publication(number, event, payload, token, round=number)
        labels = [f"{client}/mine" for client in CLIENTS]
        rows = self.publisher.encode(
            [record] * len(labels), rounds=[number] * len(labels), pairs=labels
        )
        events = {label: row.tobytes() for label, row in zip(labels, rows, strict=True)}
        return Publication(number, None, payload, token, round=number, events=events)


def wants(matcher: Matcher, condition: str) -> list[str]:
    """Return the deliveries of a client by the plaintext meaning of its condition."""
    predicate = matcher.schema.parse(condition)
    found = []
    for ward, pulse in EVENTS:
        record = {"ward": ward, "pulse": pulse, "alarm": ALARMS[pulse]}
        if predicate.evaluate([{name: record[name] for name in matcher.schema}])[0]:
            found.append(f"{ward} {pulse}")
    return found


@contextmanager
def everybody(
    broker: MatchingBroker, urls: dict[str, MqttUrl]
) -> Iterator[tuple[dict[str, MqttClient], MqttClient, MatchingBroker]]:
    """Connect the subscribers and the clinic with a broker."""
    with ExitStack() as stack:
        stack.enter_context(MqttService(broker, urls["broker"]))
        clients = {name: stack.enter_context(MqttClient(urls[name])) for name in CLIENTS}
        yield clients, stack.enter_context(MqttClient(urls["clinic"])), broker


if __name__ == "__main__":
    raise SystemExit(main())
