"""TagMatch's leakage card: the same whatever the schema, the topics and the groups."""

from __future__ import annotations

from typing import Final

from ccbps.leakage import LeakageCard

CARD: Final = LeakageCard(
    scheme="TagMatch",
    adversary="the broker, which follows the protocol and keeps all it sees",
    hides=(
        "those parts of an event that no key fits: two events that no key fits look "
        "alike, whether they are equal, close or far apart",
        "for an interval with two bounds that does not hold: on which side of it a "
        "value lies, and how far away, unless other intervals show it",
        "the results of single intervals, where an event's topic is not the one asked for",
        "before there are events: everything about one subscription, taken by itself; "
        "and whether two of different groups, taken by themselves, are alike",
    ),
    protects=frozenset(),
    learns=(
        "for each pair, which of the subscription's intervals hold, within its topic",
        "for an interval that holds, which of its prefixes does: that is, which events "
        "lie in the same part of a subscription's interval",
        "over many events, how often each key fits; hence, where the distribution of "
        "values is known, the constants",
        "from many subscriptions and some events, with nothing known beforehand, the "
        "constants, up to one reflection: a key that ever fits is not a decoy",
        "within a group and epoch, from subscriptions alone: which ask for the same topic",
        "within a group, epoch and topic, from subscriptions alone: which bounds of an "
        "attribute begin with the same bits, and with how many; which intervals are "
        "equal; which are equalities, are open, or never hold; for an interval with two "
        "bounds, the bit at which they part",
        "public parameters: the schema, the topics' names, the number of groups",
    ),
    security="computational",
    assumption="AES-128 as a pseudorandom function and as a random public permutation; "
    "SHAKE256 and HMAC-SHA-256 with a key as pseudorandom functions",
    reuse="reusable",
    hazards=(
        "anyone who has a group's key, that is, any client of it, can, together with "
        "the broker, read the events that reach the group and the group's "
        "subscriptions, and can make both",
        "two events with the same nonce show their common prefixes",
    ),
    attacks=(
        "frequency: one in 2^n uniform values has a given prefix of n bits, so counting "
        "hits gives the lengths of an interval's prefixes, and these give its width: "
        "100 events give the c of x < c to about 2 % of the domain, 1,000 to 0.2 %",
        "hits, nothing known: a key that fits even once shows the last bit of its "
        "prefix; 30 events and 300 subscriptions x < c of one group and epoch give c to "
        "about 1 % of the domain, 100 events to 0.5 %, or all of them reflected",
        "frequency: how often a prefix is found is how often it occurs; subscriptions "
        "to all values of an attribute, taken together, sort events by its value",
        "subscriptions only: the most frequent topic, or equality, is the most popular one",
        "subscriptions only: bounds with a known uneven distribution are recognized by "
        "how many begin alike; if its density falls by a factor of e over 40 % of the "
        "domain, 30 of one group and epoch give c to about 5 % of the domain, 300 to 3 "
        "%, 3,000 to 1 %",
        "subscriptions only, nothing known: a domain whose size is not a power of two "
        "shows first bits, and bounds that fill a domain show their highest bit",
        "subscriptions only: at the first bit in which the two bounds of an interval "
        "differ, the upper one has the 1; 30 such intervals of one group and epoch, "
        "with random bounds, give the upper bounds of all subscriptions to about 4 % of "
        "the domain, 300 to 1 %, or all of them reflected",
    ),
)
