"""Tests of everything that all schemes promise, for schemes of this library and of others.

The author of a scheme writes two lines in a file of their own tests::

    from ccbps.testing import conformance_tests

    TestMine = conformance_tests(MyMatch)

and runs pytest. The scheme's messages, keys, tables, rounds, texts and cards are tested against the
contract and the plaintext meaning of predicates. Where its card says perfect, so is that: over all
randomness of its smallest matchers, and by samples at the size of real messages.

Needs the extra ``testing``: ``pip install ccbps[testing]``.
"""

from __future__ import annotations

from ccbps.loading import need

pytest = need("ccbps.testing", "testing")

# Failed assertions say what the two sides were, as in test files.
for _name in ("key_checks", "message_checks", "secrecy", "server_checks"):
    pytest.register_assert_rewrite(f"ccbps.testing.{_name}")

from ccbps.testing.cases import OFFERS, SMALLEST, Case, Offer, cases  # noqa: E402
from ccbps.testing.secrecy import Subject, proofs  # noqa: E402
from ccbps.testing.suite import conformance_tests  # noqa: E402

__all__ = ["OFFERS", "SMALLEST", "Case", "Offer", "Subject", "cases", "conformance_tests", "proofs"]
