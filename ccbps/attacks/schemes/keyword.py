"""Keywords by proxy encryption: tokens repeat, and the two halves of a user's key add up.

The broker turns trapdoors into tokens, which are equal for equal keywords of all users. Together
with one user it has x and s, and so a token for every keyword. A user alone, who has h and s, can
identify the keywords of tokens that were stolen from a broker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from ccbps.algebra.prime_order import prime_order_group
from ccbps.arrays import Bytes, Index
from ccbps.attacks.catalogue import Curve, Figure, Outcome, attack
from ccbps.attacks.schemes.oblivious_topic import make_oblivious, open_session, read_slots
from ccbps.attacks.schemes.views import View, guess_by_frequency, make_broken, watch
from ccbps.checks import number, whole
from ccbps.ciphers.proxy_search import MasterKey, ProxySearch, UserKey
from ccbps.matching.users.keyword import UNUSED, KeywordMatch
from ccbps.matching.users.users import USER_BYTES, keyword
from ccbps.predicates import Category, Schema

Equality = tuple[str, int]
"""An attribute and a code of it."""


def keywords_of(schema: Schema) -> dict[Equality, bytes]:
    """Return all keywords of a schema with attributes of at most 64 bits."""
    return {
        (name, code): keyword(name, code.to_bytes(8, "big"))
        for name in schema
        for code in range(schema[name].size)
    }


def read_tokens(matcher: KeywordMatch, view: View, bodies: Bytes) -> list[list[Any]]:
    """Return the tokens of messages with trapdoors, in the order of their slots.

    Args:
        matcher: matcher of the messages.
        view: view of the broker, whose key is used.
        bodies: bodies of the side that sends trapdoors.
    """
    scheme = ProxySearch(prime_order_group(matcher.group))
    tokens = []
    for body in bodies:
        half = int(view.key["users"][body[:USER_BYTES].tobytes().hex()], 16)
        slots = body[USER_BYTES:]
        if matcher.trapdoors == "interests":
            slots = slots.reshape(matcher.equalities, -1)
            slots = slots[slots[:, 0] != UNUSED, 1:]
        else:
            slots = slots.reshape(len(matcher.schema), -1)
        tokens.append(scheme.tokens(half, slots))
    return tokens


def find_contradictions(tokens: Sequence[Any], size: int) -> Index:
    """Return the subscriptions that never hold, if there are more tokens than values.

    Args:
        tokens: token of each subscription to one attribute.
        size: number of values of the attribute.
    """
    numbers: dict[Any, int] = {}
    index = np.array([numbers.setdefault(token, len(numbers)) for token in tokens])
    if len(numbers) <= size:
        return np.zeros(0, dtype=np.intp)
    return np.flatnonzero(np.bincount(index)[index] == 1)


def pool_keys(
    matcher: KeywordMatch, broker: Mapping[str, Any], user: Mapping[str, Any]
) -> MasterKey:
    """Return the master key from the keys of a broker and one user.

    Args:
        matcher: matcher of both.
        broker: data of the broker's key.
        user: data of the user's key.
    """
    x = int(user["x1"], 16) + int(broker["users"][user["user"]], 16)
    return MasterKey(x % prime_order_group(matcher.group).order, bytes.fromhex(user["s"]))


def read_messages(
    matcher: KeywordMatch, view: View, master: MasterKey
) -> tuple[list[list[Equality]], list[list[Equality]]]:
    """Read all events and subscriptions with the master key, by a dictionary of keywords.

    Args:
        matcher: matcher of the messages, whose subscriptions send trapdoors.
        view: view of the broker.
        master: master key.

    Returns:
        the equalities of each event, and of each subscription.
    """
    group = prime_order_group(matcher.group)
    scheme, words = ProxySearch(group), keywords_of(matcher.schema)
    names = list(words)
    sigmas = scheme.sigmas(master.s, list(words.values()))
    tokens = group.generator_powers([master.x * sigma % group.order for sigma in sigmas])
    halves = view.key["users"]
    events = []
    for body in view.events:
        rows = body[USER_BYTES:].reshape(len(matcher.schema), -1)
        half = int(halves[body[:USER_BYTES].tobytes().hex()], 16)
        results = scheme.search(scheme.re_encrypt(half, rows), tokens)
        events.append([names[at] for column in results.T for at in np.flatnonzero(column)])
    book = dict(zip(tokens, names, strict=True))
    interests = [
        [book[token] for token in each if token in book]
        for each in read_tokens(matcher, view, view.interests)
    ]
    return events, interests


def forge_interest(
    matcher: KeywordMatch,
    view: View,
    master: MasterKey,
    victim: Bytes,
    equalities: Sequence[Equality],
) -> Bytes:
    """Return a body of a user's subscription with other keywords.

    Args:
        matcher: matcher of the messages.
        view: view of the broker.
        master: master key.
        victim: body of a subscription of the user, with as many equalities.
        equalities: new equalities, in the order of attributes.
    """
    scheme, words = ProxySearch(prime_order_group(matcher.group)), keywords_of(matcher.schema)
    key = scheme.user_key(master, int(view.key["users"][victim[:USER_BYTES].tobytes().hex()], 16))
    forged = victim.copy()
    slots = forged[USER_BYTES:].reshape(matcher.equalities, -1)
    slots[: len(equalities), 1:] = scheme.trapdoors(key, [words[each] for each in equalities])
    return forged


def name_stolen_tokens(
    matcher: KeywordMatch, user: Mapping[str, Any], tokens: Sequence[Any]
) -> list[Equality]:
    """Name tokens stolen from a broker, with the key of one user.

    Args:
        matcher: matcher of the messages.
        user: data of the user's key.
        tokens: tokens of any users.
    """
    group = prime_order_group(matcher.group)
    key = UserKey(int(user["x1"], 16), bytes.fromhex(user["s"]), bytes.fromhex(user["h"]))
    words = keywords_of(matcher.schema)
    sigmas = ProxySearch(group).sigmas(key.s, list(words.values()))
    powers = group.table(group.decode(key.h)).powers(sigmas)
    book = dict(zip(powers, words, strict=True))
    return [book[token] for token in tokens if token in book]


# -- attacks --------------------------------------------------------------------------------------

GROUP: Final = "toy64"


def _draw(values: int, count: int, exponent: float, seed: int) -> tuple[list[str], Any, list[str]]:
    """Draw Zipf values; return the names, the place of each value among them, and its name."""
    random = np.random.default_rng(whole("seed", seed, 0))
    names = [f"v{place:04}" for place in range(whole("values", values, 2, 400))]
    weights = np.arange(1, values + 1) ** -number("exponent", exponent, 0)
    chosen = random.choice(values, whole("events", count, 10, 6000), p=weights / weights.sum())
    return names, chosen, [names[place] for place in chosen]


@attack(
    title="The broker and one user have the master key",
    goal="confidentiality",
    adversary="a broker with its key and messages, and one user, who may be revoked by now",
    defence="`ObliviousTopicMatch`: a subscriber has keys for its own topics only",
    source="[DRD08]",
)
def pool_user_keys(
    *, values: int = 40, events: int = 200, exponent: float = 1.0, seed: int = 7
) -> Outcome:
    """Read all events of the past with the halves of one user's key, by a dictionary of keywords.

    With the defence, the broker works with a subscriber that has asked for the most popular topic;
    an event that it cannot open is taken for the second one.

    Args:
        values: number of values, with Zipf frequencies.
        events: number of events, 10 or more.
        exponent: exponent of the frequencies.
        seed: seed of the events; keys are drawn anew.

    Example:
        >>> from ccbps.attacks import pool_user_keys
        >>> print(pool_user_keys(values=10)["events read"].undefended)
        1.0
    """
    names, chosen, sent = _draw(values, events, exponent, seed)
    matcher = make_broken(KeywordMatch, Schema(issue=Category(names)), group=GROUP)
    server = matcher.key_server()
    view = watch(matcher, {"issue": sent}, [f"issue = '{name}'" for name in names], server)
    mallory = server.subscriber_key("mallory").export_secret_data()
    view = View(server.broker_key().export_secret_data(), view.events, view.interests)
    events_read, interests_read = read_messages(
        matcher, view, pool_keys(matcher, view.key, mallory)
    )
    codes = np.array([each[0][1] if each else -1 for each in events_read])
    right = codes == chosen
    interests_right = np.mean(
        [each == [("issue", code)] for code, each in enumerate(interests_read)]
    )

    publisher, subscriber = open_session(
        make_oblivious(names), [f"topic = '{name}'" for name in names], [f"topic = '{names[0]}'"]
    )
    opened = subscriber.open(publisher.encode({"topic": sent})).matched[:, 0]
    guessed = np.where(opened, 0, 1) == chosen
    counts = (0, *(each for each in (1, 2, 5, 10, 20) if each < values), values)
    return Outcome(
        (
            Figure("events read", "", float(right.mean()), float(guessed.mean()), 1.0),
            Figure("subscriptions read", "", float(interests_right), expected=1.0),
        ),
        Curve(
            "keywords that are tried, the most popular first",
            "events read (share)",
            counts,
            {
                "without defence": tuple(
                    float(np.mean(right & (codes < count))) for count in counts
                ),
                "with ObliviousTopicMatch": tuple(
                    float(np.mean(guessed & (chosen < count))) for count in counts
                ),
            },
        ),
    )


@attack(
    title="Popular values are named by how often their tokens occur",
    goal="confidentiality",
    adversary="a broker with its key and messages that knows how often values occur",
    defence="`ObliviousTopicMatch`, whose events show no equality",
)
def rank_tokens(
    *, values: int = 12, events: int = 600, exponent: float = 1.0, seed: int = 5
) -> Outcome:
    """Name the values of events with trapdoors by the ranks of their tokens.

    A token that occurs once is taken for the most popular value.

    Args:
        values: number of values, with Zipf frequencies.
        events: number of events, 10 or more.
        exponent: exponent of the frequencies.
        seed: seed of the events; keys are drawn anew.

    Example:
        >>> from ccbps.attacks import rank_tokens
        >>> figure = rank_tokens()["events named"]
        >>> figure.undefended > 1.5 * figure.defended
        True
    """
    names, _, sent = _draw(values, events, exponent, seed)
    schema = Schema(issue=Category(names))
    matcher = make_broken(KeywordMatch, schema, group=GROUP, trapdoors="events")
    view = watch(matcher, {"issue": sent}, [])
    tokens = [each[0] for each in read_tokens(matcher, view, view.events)]
    oblivious = read_slots(sent, names, names[:1])

    def name(shown: Sequence[Any], count: int) -> float:
        guesses = guess_by_frequency(shown[:count], names)
        right = [guess == value for guess, value in zip(guesses, sent[:count], strict=True)]
        return float(np.mean(right))

    counts = (*(each for each in (10, 20, 50, 100, 200) if each < events), events)
    lines = {
        "without defence": tuple(name(tokens, count) for count in counts),
        "with ObliviousTopicMatch": tuple(name(oblivious, count) for count in counts),
    }
    plain, hidden = (line[-1] for line in lines.values())
    return Outcome(
        (Figure("events named", "", plain, hidden),),
        Curve("events that the broker has", "events named (share)", counts, lines),
    )
