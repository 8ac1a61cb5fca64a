"""Matchers: one file each, the same three roles and verbs."""

from ccbps.matching.branching import BranchingMatch
from ccbps.matching.matcher import Broker, Matcher, Publisher, Subscriber

__all__ = ["BranchingMatch", "Broker", "Matcher", "Publisher", "Subscriber"]
