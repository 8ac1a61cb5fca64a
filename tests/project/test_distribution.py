"""How tests are handed out to processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import SECONDS, scope


@pytest.mark.parametrize(
    ("nodeid", "together"),
    [
        ("tests/spark/test_stores.py::test_a", "tests/spark"),
        ("tests/spark/test_pipeline.py::test_b[x::y]", "tests/spark"),
        ("tests/spark/test_connect.py::test_c", "tests/spark/test_connect.py"),
        ("tests/keys/test_keys.py::test_d", "tests/keys/test_keys.py"),
        ("tests/security/test_e.py::test_f", "tests/security/test_e.py"),
    ],
)
def test_one_process_has_the_spark_session(nodeid: str, together: str) -> None:
    assert scope(nodeid) == together


def test_long_scopes_are_there() -> None:
    assert [name for name in SECONDS if not (Path(__file__).parents[2] / name).exists()] == []
    assert list(SECONDS.values()) == sorted(SECONDS.values(), reverse=True)
