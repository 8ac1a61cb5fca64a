"""Roles on workers: kept from batch to batch, by matcher and key."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ccbps.keys.plain_key import ClientKey
from ccbps.keys.role_key import RoleKey
from ccbps.matching.contract.access import RoleName
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.scheme import Answers


@lru_cache(maxsize=64)
def kept_role(matcher: Matcher, role: RoleName, key: RoleKey | ClientKey | None) -> Any:
    """Return this worker's publisher, subscriber or broker, made once for each key."""
    return getattr(matcher, role)(key)


def for_subscribers(matcher: Matcher) -> bool:
    """Tell whether three brokers match, and none of them learns the answers."""
    return matcher.answers is Answers.TOGETHER and not matcher.leakage.answers
