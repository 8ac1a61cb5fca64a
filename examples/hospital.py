"""A hospital exchange: who may do what, though no broker reads an alert or a subscription.

A laboratory publishes health alerts. Doctors, a doctor of a delegated clinic and a researcher
subscribe. Three domains run the brokers: the clinic, a carrier and the registry. Two of the brokers
match ciphertexts (TagMatch), and enforce the policy below.

1. The authority gives out tokens, and encodes subscriptions, narrowed by the roles of their users.
2. The owner of the alerts delegates surgery to Lakeside, a clinic, which delegates to Dr Eva.
3. After a third of the alerts Dr Bob is revoked; after another third the owner's delegation is.
4. Alerts of oncology go round the carrier. All others pass through it, sealed.

The policy explains each decision, and brokers explain their refusals. At the end all deliveries are
compared with the policy in plaintext.

    python examples/hospital.py --events 600
"""

from __future__ import annotations

import argparse
import random
from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

from cryptography.fernet import Fernet

from ccbps import EpochSeed, access
from ccbps.broker import MatchingBroker, Publication, Subscription
from ccbps.broker.enforcement import Enforcement, enactment, permitted
from ccbps.errors import ParameterError, RefusedError
from ccbps.keys import ExchangeKey, SigningKey
from ccbps.matching import TagMatch

POLICY = """\
version = 1
schema = 'ward=Category(["cardiology", "oncology", "surgery"]), age=UInt(7), severity=UInt(3)'
grants = [
  {role = "laboratory", actions = ["publish"], filter = "severity >= 1"},
  {role = "doctor", actions = ["subscribe", "receive"]},
  {role = "guest", actions = ["subscribe", "receive"], filter = "ward = 'surgery'"},
  {role = "researcher", actions = ["subscribe", "receive"]},
]
rules = [{name = "no minors", by = "owner", deny = "age < 18", roles = ["researcher"]}]
[roles]
laboratory = ["lab"]
doctor = ["ann", "bob"]
guest = ["eva"]                       # of Lakeside, to which the owner delegates
researcher = ["rita"]
"""
BROKERS = ["clinic-1", "carrier-1", "registry-1", "registry-2", "clinic-2"]  # in a ring
DOMAINS = {name: name.partition("-")[0] for name in BROKERS}
PAIRS = (("clinic", "carrier"), ("carrier", "registry"), ("clinic", "registry"))
HOMES = {"ann": "clinic-1", "bob": "clinic-1", "eva": "clinic-1", "rita": "registry-1"}
WISHES = {"ann": "ward = 'cardiology'", "bob": "age >= 65", "rita": "severity >= 2"}


class Network:
    """The brokers between domains, which pass sealed alerts on, by routes of their topics."""

    def __init__(self, lab: SigningKey) -> None:
        self.lab, self.seen, self.routes = lab, defaultdict(list), {}
        keys = {domain: ExchangeKey.generate() for domain in ("clinic", "registry")}
        seed, signing = EpochSeed.generate(), SigningKey.generate()
        manager = access.DomainManager("clinic", seed, signing, keys["clinic"].public)
        managers = {"clinic": manager.identity}
        ring = pairwise([*BROKERS, BROKERS[0]])
        self.map = access.DomainMap(DOMAINS, ring, access.Connections(PAIRS), managers)
        self.rings = {name: access.KeyRing(name, key, managers) for name, key in keys.items()}
        for topic, forbidden in (("alerts", []), ("oncology", ["carrier"])):
            self.rings["clinic"].take(manager.found(topic, forbidden=forbidden))
            grant = manager.admit(topic, "registry", keys["registry"].public)
            self.rings["registry"].take(grant)
            self.map.take(manager.notice(topic))
            self.routes[topic] = self.map.route(topic, "clinic-1", "registry-1")
            print(f"route of {topic:<9} {' -> '.join(self.routes[topic])}")

    def carry(self, topic: str, publication: Publication) -> Publication:
        """Seal a publication at the clinic, pass it on, and open it at the registry."""
        place, body = self.map.topic(topic), access.Body.of(publication.to_bytes())
        stamp = access.Stamp.sign(self.lab, "event", "lab", publication.number, topic, body)
        key = self.rings["clinic"].key(place, place.epoch)
        message = access.SealedMessage.seal(stamp, body, place.epoch, key).to_bytes()
        for broker in self.routes[topic][1:]:
            self.seen[broker].append(message)
        arrived = access.SealedMessage.from_bytes(message)
        arrived.stamp.check({"lab": access.Party(self.lab.identity)})
        key = self.rings["registry"].key(place, arrived.epoch)
        return Publication.from_bytes(arrived.open(key).content)


class Exchange:
    """The authority, and the two brokers that match: of the clinic and of the registry."""

    def __init__(self, policy: access.Policy) -> None:
        self.authority = access.Authority(SigningKey.generate(), policy)
        matcher = TagMatch(policy.schema)
        server = matcher.key_server()
        self.encode = matcher.subscriber(server.subscriber_key("authority")).encode
        self.publisher = matcher.publisher(server.publisher_key())
        self.payloads = Fernet(Fernet.generate_key())  # whole_story.py has keys for groups
        self.keys = {user: SigningKey.generate() for user in ("lab", *HOMES)}
        self.network, key = Network(self.keys["lab"]), server.broker_key()
        guards = {name: access.Guard(self.authority.identity) for name in HOMES.values()}
        self.brokers = {
            name: MatchingBroker(matcher.broker(key), access=Enforcement(guard))
            for name, guard in guards.items()
        }
        self.enact()
        for user, own in self.keys.items():
            token = self.authority.issue(user, own.identity)
            for name in [HOMES[user]] if user in HOMES else self.brokers:
                presented = access.present_token(token, own, guards[name].session, user, 1)
                self.brokers[name].present(user, presented)

    def enact(self) -> None:
        for broker in self.brokers.values():
            broker.enact(enactment(self.authority, "before", self.encode))

    def subscribe(self, user: str, wish: str) -> None:
        """Let the authority narrow, encode and permit a subscription, and register it."""
        policy = self.authority.policy
        roles = policy.roles_of(user)
        narrowed = policy.narrow(roles, wish)
        wanted = Subscription("wish", self.encode(wish if narrowed is None else narrowed))
        if narrowed is not None:
            print(f"{user} subscribes to {wish}\n  narrowed to {narrowed.text}")
            wanted = permitted(self.authority, user, wanted, roles, policy=policy)
        self.brokers[HOMES[user]].subscribe(user, wanted)

    def publish(self, number: int, record: dict[str, Any]) -> None:
        """Encrypt an alert, and let both brokers match it."""
        payload = self.payloads.encrypt(text_of(record))
        event = self.publisher.encode([record])[0].tobytes()
        publication = Publication(number, event, payload)
        self.brokers["clinic-1"].publish("lab", publication)
        self.network.seen["clinic-1"].append(publication.to_bytes())
        topic = "oncology" if record["ward"] == "oncology" else "alerts"
        self.brokers["registry-1"].publish("lab", self.network.carry(topic, publication))

    def received(self, user: str) -> dict[int, bytes]:
        """Return the alerts that a user gets, decrypted, by number; none if the broker refuses."""
        broker, got = self.brokers[HOMES[user]], dict[int, bytes]()
        try:
            while deliveries := broker.take(user):
                got |= {one.number: self.payloads.decrypt(one.payload) for one in deliveries}
                broker.acknowledge(user, deliveries[-1].sequence)
        except RefusedError as error:
            print(f"  broker to {user}: {error}")
        return got


def main(arguments: list[str] | None = None) -> int:
    """Run the exchange, and return the number of differences from the policy in plaintext."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--events", type=int, default=600, help="alerts (default: 600)")
    count = parser.parse_args(arguments).events
    print(POLICY)
    exchange = Exchange(access.Policy.from_toml(POLICY))
    authority, wishes = exchange.authority, dict(WISHES)
    print("\n-- a delegated clinic")
    owner, lakeside = SigningKey.generate(), SigningKey.generate()
    schema, eva = authority.policy.schema, exchange.keys["eva"].identity
    chain = access.Delegation.grant(schema, owner, lakeside.identity, "ward = 'surgery'", depth=1)
    told(ParameterError, "Lakeside delegates age >= 60", chain.delegate, lakeside, eva, "age >= 60")
    chain = chain.delegate(lakeside, eva, "ward = 'surgery' AND age >= 60")
    wishes["eva"] = chain.verify(owner.identity).text
    print(f"Lakeside delegates {wishes['eva']} to eva: allowed")
    print("\n-- subscriptions")
    for user, wish in wishes.items():
        exchange.subscribe(user, wish)
    child = {"ward": "cardiology", "age": 7, "severity": 5}
    explain(authority.policy, "rita", "receive", child)
    explain(authority.policy, "ann", "receive", child)
    explain(authority.policy, "eva", "subscribe", "age >= 60")
    explain(authority.policy, "lab", "publish", {**child, "severity": 0})
    told(RefusedError, "lab publishes it", exchange.publish, count, {**child, "severity": 0})

    draw, wards = random.Random(35), ["cardiology", "oncology", "surgery"]
    alerts = [
        {"ward": draw.choice(wards), "age": draw.randrange(100), "severity": draw.randint(1, 7)}
        for _ in range(count)
    ]
    got, policies = {user: dict[int, bytes]() for user in HOMES}, list[access.Policy]()
    for third, leaver in enumerate([None, "bob", "eva"]):
        if leaver is not None:
            print(f"\n-- {leaver} is revoked")
            if leaver == "eva":
                numbers = {chain.numbers[0]}  # the owner revokes its link to Lakeside
                told(RefusedError, "eva's chain", chain.verify, owner.identity, revoked=numbers)
            authority.revoke(leaver)
            exchange.enact()
            explain(authority.policy, leaver, "receive", child)
            print(f"  broker to {leaver}: {exchange.brokers[HOMES[leaver]].notices(leaver)[0]}")
            told(RefusedError, "a second try", exchange.subscribe, leaver, wishes[leaver])
        for number in range(third * count // 3, (third + 1) * count // 3):
            exchange.publish(number, alerts[number])
            policies.append(authority.policy)
        for user in HOMES:
            got[user] |= exchange.received(user)
    print("\n-- decisions to receive, of alerts that match the subscription in plaintext")
    differences, reasons = 0, Counter[str]()
    for user, wish in wishes.items():
        expected = {}
        for number in schema.parse(wish).evaluate(alerts).nonzero()[0].tolist():
            decision = policies[number].decide(user, "receive", alerts[number])
            reasons[f"{user:<5}{verdict(decision)}"] += 1
            if decision.allowed:
                expected[number] = text_of(alerts[number])
        differences += len(expected.items() ^ got[user].items())
    for reason, times in sorted(reasons.items()):
        print(f"{times:>6}  {reason}")
    print(f"differences                 {differences:>10}")
    print("\n-- what each broker saw")
    for broker in BROKERS:
        seen = exchange.network.seen[broker]
        given = [f"{len(got[user])} to {user}" for user, home in HOMES.items() if home == broker]
        read = sum(b"severity" in message for message in seen)
        gave = ", ".join(given) or "nothing"
        print(f"{broker:<11}{len(seen):>5} alerts, {read} readable, gave {gave}")
    return differences


def text_of(record: dict[str, Any]) -> bytes:
    return f"{record['ward']}: age {record['age']}, severity {record['severity']}".encode()


def explain(policy: access.Policy, user: str, action: Any, content: Any) -> None:
    decision = policy.decide(user, action, content)
    shown = content if isinstance(content, str) else text_of(content).decode()
    print(f"{user} {action} [{shown}]: {verdict(decision)}")


def verdict(decision: access.Decision) -> str:
    return f"{'allowed' if decision.allowed else 'refused'}, {decision.reason}"


def told(error: Any, attempt: str, call: Any, *arguments: Any, **options: Any) -> None:
    """Print the refusal of an attempt that must fail."""
    try:
        call(*arguments, **options)
    except error as refusal:
        print(f"  {attempt}: refused, {refusal}")
        return
    raise AssertionError(f"{attempt} was not refused")


if __name__ == "__main__":
    raise SystemExit(1 if main() else 0)
