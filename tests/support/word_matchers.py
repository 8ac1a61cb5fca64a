"""The two matchers of words, for tests that both must pass."""

from __future__ import annotations

from typing import TypeAlias

import pytest

from ccbps.matching import KeywordDictionaryMatch, KeywordFilterMatch

Both: TypeAlias = type[KeywordFilterMatch] | type[KeywordDictionaryMatch]
both = pytest.mark.parametrize("kind", [KeywordFilterMatch, KeywordDictionaryMatch])
