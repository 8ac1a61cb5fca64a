"""How many random examples a property gets: by default an eighth, with slow tests all of them."""

from __future__ import annotations

everything = False
"""Whether slow tests run, too; `tests.conftest` sets it before any test is imported."""


def examples(many: int) -> int:
    """`many` where slow tests run, otherwise an eighth, at least 10."""
    return many if everything else min(many, max(10, -(-many // 8)))
