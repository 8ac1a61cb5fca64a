"""What tells schemes apart: where randomness comes from, who answers, what predicates may use."""

from __future__ import annotations

from enum import Enum
from typing import Literal


class Keying(Enum):
    """Where a scheme's randomness comes from.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.matching import Keying, TagMatch
        >>> TagMatch(Schema(price=UInt(8))).keying is Keying.SERVER
        True
    """

    ROUNDS = "rounds"
    """A seed that publisher and subscriber share; each round of it is used once."""
    SERVER = "server"
    """A key server; messages are made once and used again and again."""
    SESSION = "session"
    """Messages between publisher and subscriber, before there are events."""


class Answers(Enum):
    """Who learns what matches, and of which messages.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.matching import Answers, FormulaMatch
        >>> FormulaMatch.box(Schema(price=UInt(8))).answers is Answers.PAIRS
        True
    """

    PAIRS = "pairs"
    """The broker, for an event and an interest that were made for each other."""
    ROUND = "round"
    """The broker, for the event of a round and every interest of it: one event serves all."""
    ALL = "all"
    """The broker, for every event and every interest."""
    SUBSCRIBER = "subscriber"
    """The subscriber, for its own interests."""


Side = Literal["event", "interest"]

Operator = Literal["=", "<", "interval", "prefix", "in", "and", "or", "not", "at_least", "hamming"]
