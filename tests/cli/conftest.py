"""An empty folder for each test of the command line, and a shell in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import Shell


@pytest.fixture(autouse=True)
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    monkeypatch.chdir(tmp_path)
    return Shell(capsys)
