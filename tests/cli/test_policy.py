"""``ccbps policy``: what a reviewer is told, in words and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ccbps.cli.program import main

POLICY = """
version = 7
schema = 'ward=Category(["A", "B"]), age=UInt(7)'
[roles]
doctor = ["ann", "bob"]
researcher = ["cem"]
[[grants]]
role = "doctor"
actions = ["subscribe", "receive"]
filter = "ward = 'A'"
[[grants]]
role = "researcher"
actions = ["subscribe", "receive"]
[[rules]]
name = "no minors"
by = "owner"
deny = "age < 18"
roles = ["researcher"]
"""


@pytest.fixture
def ward(tmp_path: Path) -> str:
    path = tmp_path / "ward.toml"
    path.write_text(POLICY)
    return str(path)


def test_check_lists_what_to_look_at(
    ward: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["policy", "check", ward]) == 0
    assert capsys.readouterr().out == "policy 7: 2 roles, 2 grants, 1 rules\nnothing to remark\n"
    worse = tmp_path / "worse.toml"
    worse.write_text(POLICY.replace('["cem"]', "[]"))
    assert main(["policy", "check", str(worse), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told == {"version": 7, "problems": ["role researcher: no users"]}
    worse.write_text(POLICY.replace("age < 18", "size < 18"))
    assert main(["policy", "check", str(worse)]) == 2
    assert "size" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "status", "first"),
    [
        (["cem", "receive", '{"ward": "A", "age": 7}'], 1, "refused: the owner's rule 'no minors'"),
        (["ann", "receive", '{"ward": "A", "age": 7}'], 0, "allowed: grant 0 of doctor allows it"),
        (["ann", "subscribe", "ward = 'A' AND age > 60"], 0, "allowed: grant 0"),
        (["ann", "subscribe", "age > 60"], 1, "refused: the subscription matches events"),
        (["eve", "publish", '{"ward": "A", "age": 7}'], 1, "refused: eve has no role"),
    ],
)
def test_explain_says_why(
    ward: str,
    arguments: list[str],
    status: int,
    first: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["policy", "explain", ward, *arguments]) == status
    assert capsys.readouterr().out.startswith(first)
    assert main(["policy", "explain", ward, *arguments, "--json"]) == status
    assert json.loads(capsys.readouterr().out)["allowed"] == (status == 0)


def test_mistakes_are_one_line(ward: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ["explain", ward, "ann", "receive", "no event"],
        ["explain", ward, "ann", "receive", '{"ward": "A"}'],
        ["explain", ward, "ann", "erase", "{}"],
        ["explain", ward, "ann", "subscribe", "age >"],
        ["check", ward + ".missing"],
    ):
        assert main(["policy", *arguments]) == 2
        assert "Traceback" not in capsys.readouterr().err


def test_diff_compares_what_is_allowed(
    ward: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    newer = tmp_path / "newer.toml"
    text = POLICY.replace("version = 7", "version = 8")
    newer.write_text(text.replace("ward = 'A'", "NOT ward = 'B'"))  # the same, in other words
    assert main(["policy", "diff", ward, str(newer)]) == 0
    assert capsys.readouterr().out == "policy 7 -> 8\nno difference\n"
    newer.write_text(text.replace('"ann", "bob"', '"ann", "dan"').replace("< 18", "< 21"))
    assert main(["policy", "diff", ward, str(newer)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "policy 7 -> 8",
        "researcher subscribe: narrower: NOT (age < 18) -> NOT (age < 21)",
        "researcher receive: narrower: NOT (age < 18) -> NOT (age < 21)",
        "doctor +dan",
        "doctor -bob",
    ]
    assert main(["policy", "diff", ward, str(newer), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert [one["kind"] for one in told["filters"]] == ["narrower", "narrower"]
