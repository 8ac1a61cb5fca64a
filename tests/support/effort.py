"""How many random examples a property gets: by default a twelfth, with slow tests all of them."""

from __future__ import annotations

everything = False
"""Whether slow tests run, too; `tests.conftest` sets it before any test is imported."""


def examples(many: int) -> int:
    """`many` where slow tests run, otherwise a twelfth, at least 10."""
    return many if everything else min(many, max(10, -(-many // 12)))
