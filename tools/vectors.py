"""Write the test vectors of all schemes, vectors/*.json, for other implementations to check.

    python tools/vectors.py            # those of schemes that have none
    python tools/vectors.py --all      # all anew, after a change of formats

Messages of most one-time matchers follow from the seed and the round, so that their bytes can be
made again. Other clients draw nonces: there the keys and the messages are given, and the answers
can be made again. A file has

- ``scheme``: name of the scheme, and ``matcher``: its public parameters, as `Matcher.to_json` does;
- ``keying``: how keys come about, and ``keys``: the secret keys of the roles, as texts;
- ``events`` and ``interests``: plaintexts, an event as values by name, an interest as SQL or as
  values of the template's constants;
- ``messages``: hex. With rounds, row e * I + i belongs to event e and interest i of I, in the round
  of that number; else there is a row for each event, and one for each interest;
- ``answers``: match bits by event and interest;
- ``reproducible``: whether the bytes of all messages follow from the seed and the rounds.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from ccbps import BrokenSchemeWarning, SharedSeed
from ccbps.keys import from_text
from ccbps.matching import SCHEMES, Matcher, from_json
from ccbps.matching.contract.parties import Party
from ccbps.matching.contract.scheme import Answers, Keying
from ccbps.shares.clients import BrokerKey
from ccbps.testing.cases import Case, cases

FOLDER = Path(__file__).resolve().parent.parent / "vectors"
SEED = SharedSeed(bytes(range(32)))
MOST_MATCHERS, MOST_EVENTS, MOST_INTERESTS = 2, 3, 3
MOST_BYTES = 4096
"""Bytes of an interest from which on a matcher of a smaller schema is taken, if there is one."""


def vectors_of(scheme: type[Matcher]) -> list[dict[str, Any]]:
    """Return the vectors of a scheme: for matchers of different schemas, one each."""
    some = [case for case in cases(scheme) if case.interests and case.records]
    some.sort(key=lambda case: len(case.interests) < 2)  # first those that have several
    chosen: dict[Any, Case] = {}
    for case in some:
        chosen.setdefault(case.matcher.schema, case)
    few = [case for case in chosen.values() if case.matcher.interest_bytes < MOST_BYTES]
    return [vector_of(case) for case in (few or [*chosen.values()])[:MOST_MATCHERS]]


def vector_of(case: Case) -> dict[str, Any]:
    """Return the vector of a matcher."""
    # Tests compute in a transparent model of pairings; vectors have real ones.
    text = case.matcher.to_json().replace('"transparent"', '"bls12-381"')
    matcher = from_json(text)
    some = Case(matcher, case.interests[:MOST_INTERESTS], case.records[:MOST_EVENTS])
    party = some.party
    messages, keys = written(some, party)
    return {
        "scheme": matcher.name,
        "matcher": json.loads(matcher.to_json()),
        "keying": matcher.keying.name.lower(),
        "keys": keys,
        "events": some.records,
        "interests": some.interests,
        "messages": {name: hexes(rows) for name, rows in messages.items()},
        "answers": some.meaning.astype(int).tolist(),
        "reproducible": reproducible(some, messages),
    }


def reproducible(case: Case, messages: dict[str, Any]) -> bool:
    """Tell whether the roles make the same messages again."""
    if case.matcher.keying is not Keying.ROUNDS:
        return False
    again = seeded(case.matcher).pairs(case.records, case.interests)
    return all(map(np.array_equal, again, messages.values()))


def written(case: Case, party: Party) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the messages of all roles by kind, and the keys by role."""
    matcher = case.matcher
    if matcher.keying is Keying.ROUNDS:
        party = seeded(matcher)
        events, interests = party.pairs(case.records, case.interests)
        return {"events": events, "interests": interests}, {"seed": SEED.to_text()}
    if matcher.keying is Keying.BROKERS:
        brokers = {f"broker {n}": key.to_text() for n, key in enumerate(party.broker._keys)}
        hellos = {
            f"hellos of the {name}": [np.frombuffer(hello, np.uint8) for hello in role.hellos]
            for name, role in (("publisher", party.publisher), ("subscriber", party.subscriber))
        }
        events, interests = case.sides()
        return {**hellos, "events": events, "interests": interests}, brokers
    events = party.publisher.encode(case.records)
    keys = {name: key.to_text() for name, key in party.keys.items()}
    if matcher.answers is Answers.SUBSCRIBER:
        return {"events": events}, keys
    return {"events": events, "interests": party.subscriber.encode(case.interests)}, keys


def seeded(matcher: Matcher) -> Party:
    """Return the roles of a one-time matcher under the seed of the vectors."""
    party = Party(matcher)
    party.publisher, party.subscriber = matcher.publisher(SEED), matcher.subscriber(SEED)
    return party


def answers_of(vector: dict[str, Any]) -> Any:
    """Return the answers that the library gives to the messages of a vector.

    Raises:
        AssertionError: the messages of a one-time matcher are not what its roles make.
    """
    matcher: Any = from_json(json.dumps(vector["matcher"]))
    records, interests = vector["events"], vector["interests"]
    sent = {name: rows_of(hexes) for name, hexes in vector["messages"].items()}
    read = BrokerKey.from_text if matcher.keying is Keying.BROKERS else from_text
    keys = {name: read(text) for name, text in vector["keys"].items()}
    if matcher.keying is Keying.ROUNDS:
        party = seeded(matcher)
        made = party.pairs(records, interests)
        if vector["reproducible"]:
            assert all(map(np.array_equal, made, sent.values())), "the messages are others"
        found = party.broker.match(sent["events"], sent["interests"])
    elif matcher.keying is Keying.BROKERS:
        brokers = matcher.local()
        brokers._keys = [keys[f"broker {number}"] for number in range(3)]
        brokers.public = tuple(key.public for key in brokers._keys)
        for name in ("hellos of the publisher", "hellos of the subscriber"):
            brokers.greet([bytes.fromhex(text) for text in vector["messages"][name]])
        found = brokers.match_messages(sent["events"], sent["interests"])
    elif matcher.answers is Answers.SUBSCRIBER:
        found = matcher.subscriber(keys["subscriber"]).open(sent["events"]).matched
    else:
        found = matcher.broker(keys["broker"]).match_all(sent["events"], sent["interests"])
    return np.asarray(found).reshape(len(records), len(interests))


def hexes(rows: Any) -> list[str]:
    """Return messages as texts."""
    return [bytes(row).hex() for row in rows]


def rows_of(texts: list[str]) -> Any:
    """Return messages of one length as an array."""
    if len({len(text) for text in texts}) > 1:
        return [np.frombuffer(bytes.fromhex(text), np.uint8) for text in texts]
    return np.array([list(bytes.fromhex(text)) for text in texts], dtype=np.uint8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="write those that exist anew")
    parser.add_argument("--only", nargs="*", help="names of schemes")
    options = parser.parse_args()
    warnings.simplefilter("ignore", BrokenSchemeWarning)
    FOLDER.mkdir(exist_ok=True)
    for scheme in tqdm(SCHEMES, unit="scheme"):
        path = FOLDER / f"{scheme.name.lower().replace(' ', '_')}.json"
        wanted = scheme.name in options.only if options.only else True
        if not wanted or (path.exists() and not options.all):
            continue
        found = vectors_of(scheme)
        assert found, f"{scheme.name} has no case"
        for vector in found:
            assert np.array_equal(answers_of(vector), vector["answers"]), scheme.name
        path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
