"""A new scheme gets roles, key files, a row in the leakage table and conformance for free.

It needs its file and its line in the catalogue; outside, its file and two lines. In a scratch copy
of the package, two schemes are added: one that is perfect, and one that only its card calls
perfect. The tests of the catalogue take them as they are. Spark functions of a new scheme are in
`tests.spark.test_all_pairs`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ccbps import Category, Schema, SharedSeed, UInt
from ccbps.keys.sources import FileKey
from ccbps.matching import BranchingMatch, BroadcastMatch, FormulaMatch
from ccbps.matching.contract.access import header_bytes
from ccbps.matching.contract.parties import Party
from ccbps.matching.contract.scheme import PairScheme
from ccbps.testing import conformance_tests
from tests.support import toy_scheme
from tests.support.toy_scheme import ToyMatch

SCHEMA = Schema(issue=Category(["AAPL", "IBM"]), price=UInt(8))
ROOT = Path(__file__).resolve().parents[2]
AFFINE = ROOT / "tests" / "support" / "affine_scheme.py"
FALSE = (
    ("class AffineMatch", "class ShiftedMatch"),
    ('name = "affine"', 'name = "shifted"'),
    ("(a * codes + b)", "(codes + b)"),
)
"""Changes that make a scheme of it that is perfect by its card only."""


def test_the_toy_scheme_is_short() -> None:
    text = Path(toy_scheme.__file__).read_text("utf-8").split("class ToyMatch")[1]
    assert len([line for line in text.splitlines() if line.strip()]) < 60


TestToyMatch = conformance_tests(ToyMatch)


@pytest.mark.parametrize("kind", [FormulaMatch, BranchingMatch, BroadcastMatch])
@pytest.mark.parametrize("front", [0, 1, 8, 23])
def test_the_fast_path_past_headers_answers_as_match_pairs(
    kind: type[FormulaMatch | BranchingMatch | BroadcastMatch], front: int
) -> None:
    matcher, seed, rounds = kind.box(SCHEMA), SharedSeed.generate(), range(300)
    prices = {"issue": ["IBM"] * 300, "price": [number % 256 for number in rounds]}
    events = matcher.publisher(seed).encode(prices, rounds=rounds)
    interests = matcher.subscriber(seed).encode("price < 100", rounds=rounds)
    events[7] ^= 0xFF
    interests[8] ^= 0xFF
    bodies = [messages[:, header_bytes(matcher) :] for messages in (events, interests)]
    headers = np.random.default_rng(3).integers(0, 256, (2, 300, front), dtype=np.uint8)
    whole = [np.hstack(pair) for pair in zip(headers, bodies, strict=True)]
    expected = matcher.match_pairs(*(np.ascontiguousarray(rows) for rows in bodies))
    assert 0 < expected[0].sum() < 300
    heads = np.zeros_like(headers)
    for answers in (
        matcher.match_pairs(*bodies),
        matcher.match_behind(*whole, heads),
        PairScheme.match_behind(matcher, *whole, np.zeros_like(headers)),
    ):
        assert all(map(np.array_equal, answers, expected))
    assert np.array_equal(heads, headers)


def test_the_toy_schemes_keys_go_through_files(tmp_path: Path) -> None:
    matcher, roles = ToyMatch(SCHEMA), {}
    for role, key in Party(matcher).keys.items():
        (tmp_path / role).write_text(key.to_text())
        roles[role] = getattr(matcher, role)(FileKey(tmp_path / role).load())
    events = roles["publisher"].encode({"issue": ["IBM", "AAPL"], "price": [3, 4]})
    interests = roles["subscriber"].encode(["issue = 'IBM' AND price = 3"])
    assert roles["broker"].match_all(events, interests).tolist() == [[True], [False]]


def test_the_toy_scheme_gets_its_row_and_card_in_the_leakage_table() -> None:
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        from leakage_table import card_of, row_of
    finally:
        sys.path.pop(0)
    matcher = ToyMatch(SCHEMA)
    assert row_of(matcher, None)[:2] == ["[ToyMatch](#toymatch): computational, reusable", "=, and"]
    assert "- which messages are equal" in card_of(matcher)


def shifted() -> str:
    text = AFFINE.read_text("utf-8")
    for before, after in FALSE:
        assert text.count(before) == 1
        text = text.replace(before, after)
    return text


def run_pytest(folder: Path, *arguments: str, path: Path) -> tuple[set[str], set[str], str]:
    """Run pytest in a folder; the tests that failed and those that passed, and the output."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(path)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    found = {
        how: {
            re.sub(r".*::", "", name)
            for name in re.findall(rf"^{how} (.*?)(?: - .*)?$", done.stdout, re.MULTILINE)
        }
        for how in ("FAILED", "PASSED", "ERROR")
    }
    assert not found["ERROR"], done.stdout + done.stderr
    return found["FAILED"], found["PASSED"], done.stdout


@pytest.mark.slow
def test_a_file_and_a_line_of_the_catalogue_are_enough(tmp_path: Path) -> None:
    # Other processes compile modules and kernels meanwhile: their files of a moment are left out.
    passing = shutil.ignore_patterns("*.pyc.*", "*.tmp.*")
    shutil.copytree(ROOT / "ccbps", tmp_path / "ccbps", ignore=passing)
    for name in ("tests", "docs", "pyproject.toml"):
        (tmp_path / name).symlink_to(ROOT / name)
    room = tmp_path / "ccbps" / "matching" / "one_time"
    (room / "affine.py").write_bytes(AFFINE.read_bytes())
    (room / "shifted.py").write_text(shifted(), "utf-8")
    with (tmp_path / "ccbps" / "matching" / "catalogue.py").open("a", encoding="utf-8") as file:
        for word in ("affine", "shifted"):
            name = f"{word.title()}Match"
            file.write(f"    from ccbps.matching.one_time.{word} import {name} as {name}\n")
    failed, passed, said = run_pytest(
        tmp_path,
        "tests/matching/test_conformance.py",
        "-k",
        "Affine or Shifted or lists_each",
        path=tmp_path,
    )
    promised = {
        "test_scheme[ShiftedMatch-over all randomness a view depends on the answer only]",
        "test_scheme[ShiftedMatch-samples of views depend on the answer only]",
    }
    assert failed == {*promised, "test_the_catalogue_lists_each_scheme_once_with_a_page"}, said
    assert len([name for name in passed if "AffineMatch" in name]) > 45
    assert "the two messages tell apart inputs with the same answer" in said
    assert "AffineMatch has no page: write docs/matchers/affine.md" in said


def test_a_scheme_of_another_project_is_tested_by_two_lines(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_bytes(AFFINE.read_bytes())
    (tmp_path / "test_mine.py").write_text(
        "from ccbps.testing import conformance_tests\n"
        "from mine import AffineMatch\n"
        "TestMine = conformance_tests(AffineMatch)\n",
        "utf-8",
    )
    failed, passed, said = run_pytest(tmp_path, "test_mine.py", path=ROOT)
    assert not failed, said
    assert len(passed) > 45
    assert any("over all randomness" in name for name in passed)


def test_without_pytest_the_extra_is_named() -> None:
    code = (
        "import sys\n"
        "sys.modules['pytest'] = None\n"
        "try:\n"
        "    import ccbps.testing\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    assert done.stdout.strip() == ("ccbps.testing needs pytest: pip install 'ccbps[testing]'")
