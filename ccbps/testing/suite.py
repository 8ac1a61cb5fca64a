"""A class of tests, one for each scheme and check."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

# Each registers its checks.
import ccbps.testing.key_checks
import ccbps.testing.message_checks
import ccbps.testing.server_checks  # noqa: F401
from ccbps.matching import SCHEMES, Matcher
from ccbps.testing.cases import CHECKS, Offer
from ccbps.testing.secrecy import SCHEME_CHECKS, Subject

OF_THE_CATALOGUE = "the catalogue finds it by its text"


def conformance_tests(
    *schemes: type[Matcher], offers: Sequence[Offer] = (), thorough: bool = False
) -> Any:
    """Return a class of tests of everything that all schemes promise.

    Example:
        >>> from ccbps.matching import FormulaMatch
        >>> from ccbps.testing import conformance_tests
        >>> TestFormulaMatch = conformance_tests(FormulaMatch)     # in a file that pytest collects

    Args:
        schemes: classes that derive from `ccbps.matching.Matcher`.
        offers: schemas, predicates and records for schemes that take none of `OFFERS`. A scheme
            whose card says perfect needs a matcher of little randomness for one of them, or for
            one of `SMALLEST`.
        thorough: True to test only the promises of cards, with more matchers and more views: for
            the tests that run less often.

    Returns:
        a class. Bind it to a name that begins with ``Test``.
    """

    @cache
    def subject_of(scheme: type[Matcher]) -> Subject:
        return Subject(scheme, tuple(offers), thorough)

    pairs = [
        (scheme, name)
        for scheme in schemes
        for name in CHECKS
        if scheme in SCHEMES or name != OF_THE_CATALOGUE
    ]

    class TestConformance:
        @pytest.mark.parametrize("name", SCHEME_CHECKS)
        @pytest.mark.parametrize("scheme", schemes, ids=_name)
        def test_scheme(self, scheme: type[Matcher], name: str) -> None:
            SCHEME_CHECKS[name](subject_of(scheme))

        if not thorough:

            @pytest.mark.parametrize(("scheme", "name"), pairs, ids=_name)
            def test_cases(self, scheme: type[Matcher], name: str) -> None:
                for case in subject_of(scheme).cases:
                    CHECKS[name](case)

    return TestConformance


def _name(value: type[Matcher] | str) -> str:
    return value if isinstance(value, str) else value.__name__
