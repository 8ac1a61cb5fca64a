"""Calls in the middle of other calls, as another thread or process would make them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


class Meanwhile:
    """Does something in the middle of what a method does: behind it, or before it."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, of: Any, name: str, *, before: bool = False
    ) -> None:
        self.todo: list[Callable[[], object]] = []
        method = getattr(of, name)

        def interrupted(*arguments: Any) -> Any:
            if before:
                self._do()
            result = method(*arguments)
            if not before:
                self._do()
            return result

        monkeypatch.setattr(of, name, interrupted)

    def _do(self) -> None:
        while self.todo:
            self.todo.pop(0)()
