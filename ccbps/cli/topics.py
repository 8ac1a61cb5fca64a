"""Topics, which everybody but the broker sees: it sees their tokens."""

from __future__ import annotations

import argparse
from argparse import Namespace

from ccbps.cli.command import Parser
from ccbps.errors import ParameterError
from ccbps.filters.tokens import TopicTokens
from ccbps.keys.sources import FileKey, filter_key


def add_topic(parser: Parser) -> argparse._MutuallyExclusiveGroup:
    """The arguments that `tokens_of` takes; returns those that name a topic."""
    names = parser.add_mutually_exclusive_group()
    names.add_argument("--topic", metavar="TEXT", help="the topic; all topics if left out")
    parser.add_argument(
        "--filter", metavar="FILE", help="key of topics, so that the broker does not see them"
    )
    return names


def tokens_of(arguments: Namespace, wanted: bool) -> TopicTokens | None:
    """What makes tokens; None where there are no topics.

    Raises:
        ParameterError: there is a topic without a key, or a key without a topic.
    """
    if wanted != (arguments.filter is not None):
        raise ParameterError("a topic needs the key of topics, --filter FILE, and it needs a topic")
    return TopicTokens(filter_key(FileKey(arguments.filter))) if wanted else None
