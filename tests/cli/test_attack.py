"""``ccbps attack``: the list, an attack with figures and picture, and refusals in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ccbps.attacks import all_attacks
from ccbps.cli.program import main

SHORT = ["--set", "seconds=1", "--set", "flood=1500"]


def test_without_a_name_all_attacks_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attack"]) == 0
    printed = capsys.readouterr().out
    assert "attacks on availability" in printed
    assert all(f"  {name} " in printed for name in all_attacks())


def test_an_attack_prints_its_figures_and_draws_its_curve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "flood.png"
    assert main(["attack", "publication-flood", *SHORT, "--plot", str(picture)]) == 0
    printed = capsys.readouterr().out
    assert "The adversary is a client that may publish." in printed
    assert "Taxonomy: resource, client to broker, global, stateless, proportional" in printed
    assert "honest events delivered" in printed
    assert picture.stat().st_size > 5_000


def test_json_has_all_that_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attack", "publication-flood", *SHORT, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["attack"] == "publication-flood"
    assert printed["parameters"]["flood"] == 2000
    figure = printed["figures"][0]
    assert figure["defended"] == 1.0 > figure["undefended"]
    assert len(printed["curve"]["at"]) == len(printed["curve"]["lines"]["without defence"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["flod"], "there is no attack 'flod'; `ccbps attack` lists them"),
        (["publication-flood", "--set", "speed=3"], "has no parameter 'speed'; its parameters are"),
        (["publication-flood", "--set", "brokers=0"], "brokers must be"),
        (["publication-flood", "--set", "seconds=-1"], "seconds must be"),
        (["publication-flood", "--set", "seconds=NaN"], "seconds must be"),
        (["publication-flood", "--set", "flood=1e9"], "flood must be"),
        (["partition", "--plot", "picture.xyz"], "such as picture.png or picture.svg, got '"),
        (["partition", "--plot", "picture"], "such as picture.png or picture.svg, got '"),
        (["--set", "flood=3"], "--set and --plot need the name of an attack"),
    ],
)
def test_refusals_are_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["attack", *arguments]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert said in error
    assert error.count("\n") == 1


def test_too_little_memory_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("ccbps.attacks.catalogue.Attack.run", run)
    assert main(["attack", "partition"]) == 2
    assert capsys.readouterr().err == "ccbps: not enough memory for numbers as large as these\n"
