"""What tests of the running broker share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.broker_world import World


@pytest.fixture(scope="module")
def world() -> World:
    return World()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "broker.db"
