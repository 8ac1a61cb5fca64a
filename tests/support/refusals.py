"""Refusals: the error that a call raises, in one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def refused(
    error: Any, message: str, call: Callable[..., Any], *arguments: Any, **options: Any
) -> Any:
    """Check that a call raises an error, and return the error.

    Args:
        error: class of the error, or several.
        message: regular expression that is found in its text; "" for any text.
        call: function to call.
        arguments: positional arguments.
        options: keyword arguments.
    """
    with pytest.raises(error, match=message or None) as caught:
        call(*arguments, **options)
    return caught.value
