"""Texts of `ThreeBrokerMatch`'s leakage cards: by the party that learns answers, and on grants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ccbps.leakage import Protects

FOR_BROKERS: Final[Mapping[str, Any]] = {
    "event": "every attribute of the event, beyond what the answers say about it",
    "hides": (),
    "protects": (),
    "learns": ("whether each event matches each subscription",),
    "assumption": "",
    "hazards": ("a broker does not follow the protocol: it may change answers",),
    "integrity": "a broker that deviates may change answers",
}
"""Where the brokers learn the answers."""

FOR_SUBSCRIBERS: Final[Mapping[str, Any]] = {
    "event": "every attribute of the event",
    "hides": ("whether an event matches a subscription",),
    "protects": (Protects.MATCH,),
    "learns": (),
    "assumption": "SHA-256 as a commitment, ",
    "hazards": (
        "payloads are sent to matching subscribers only, or fetched by them: the traffic "
        "shows who matches",
        "subscribers show others which answers do not fit a commitment: a publisher may "
        "make wrong commitments, which only matching subscribers notice",
        "a broker does not follow the protocol: it may flip answers, so that subscribers get an "
        "event that does not match, or miss one that does",
    ),
    "integrity": "a subscriber refuses an answer that does not fit the event's commitment, "
    "so no broker makes up a key; a broker that deviates may still flip answers",
    "answers": False,
}
"""Where the subscriber learns the answers."""

GRANTS: Final[Mapping[str, tuple[str, ...]]] = {
    "hides": (
        "which events a grant allows, and whether a subscription asks for more, beyond what the "
        "answers to both together say",
    ),
    "learns": ("which client is the authority, which clients have a grant, and when each got one",),
    "hazards": (
        "the authority gives a grant to the name of another client than it means",
        "brokers that lost all grants accept an earlier one again",
        "clients pass on what they may see",
    ),
}
"""Further lines where clients need grants."""
