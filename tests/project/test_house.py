"""A rule of the house that no linter states: a file holds one idea."""

from __future__ import annotations

from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "ccbps"
MOST = 700
"""Lines that a file may have. Most have far fewer; a class is not cut in two for the number."""


def too_long(package: Path) -> list[str]:
    """List files of more than `MOST` lines, by their path in the package."""
    return sorted(
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if len(path.read_text("utf-8").splitlines()) > MOST
    )


def test_files_hold_one_idea() -> None:
    assert len([*PACKAGE.rglob("*.py")]) > 100
    assert too_long(PACKAGE) == []


@pytest.mark.parametrize(("lines", "names"), [(MOST, []), (MOST + 1, ["room/long.py"])])
def test_a_long_file_is_noticed(tmp_path: Path, lines: int, names: list[str]) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "long.py").write_text("x = 1\n" * lines, "utf-8")
    assert too_long(tmp_path) == names
