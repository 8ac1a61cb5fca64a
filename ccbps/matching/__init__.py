"""Matchers: one file each, the same three roles and verbs."""

from ccbps.matching.branching import BranchingMatch

__all__ = ["BranchingMatch"]
