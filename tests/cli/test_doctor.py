"""``ccbps doctor``: its output in a sound installation, without an extra, and after a fault."""

from __future__ import annotations

import json

import pytest

from ccbps.cli import doctor
from ccbps.cli.program import main


def test_a_sound_installation(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["checks"]) == set(doctor.CHECKS)
    assert not any(result.startswith("FAILED") for result in found["checks"].values())
    assert {"ccbps", "Python", "numpy", "cryptography"} <= found["versions"].keys()
    assert found["extras"]["compiled"] is True


def test_a_missing_extra_is_named_with_its_command_and_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "EXTRAS", {"spark": ("absent.module",), "compiled": ("absent",)})
    monkeypatch.setattr(doctor, "CHECKS", {"a round": doctor.CHECKS["a round that is used again"]})
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert "spark         missing: pip install 'ccbps[spark]'" in printed
    assert "Java" not in printed
    assert printed.endswith("all is well\n")


def test_a_wrong_answer_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "ANSWERS", [[True, True], [False, True]])
    monkeypatch.setattr(doctor, "CHECKS", {"TagMatch": doctor.CHECKS["TagMatch"]})
    assert main(["doctor"]) == 1
    printed = capsys.readouterr().out
    assert "FAILED: ArithmeticError: answers are" in printed
    assert "1 of 1 checks failed" in printed


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'openjdk version \"21.0.2\" 2024-01-16' >&2", "version 21, "),
        ("echo 'java version \"1.8.0_392\"' >&2", "is version 8: Spark needs 17 or later"),
        ("exit 1", "does not run: set JAVA_HOME"),
    ],
)
def test_java(
    script: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    home = tmp_path_factory.mktemp("java")
    (home / "bin").mkdir()
    launcher = home / "bin" / "java"
    launcher.write_text(f"#!/bin/sh\n{script}\n")
    launcher.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert said in doctor._java()
    monkeypatch.setattr(doctor, "EXTRAS", {"spark": ("json",)})
    monkeypatch.setattr(doctor, "CHECKS", {})
    assert main(["doctor"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    will = "" if said.startswith("version") else "; Spark will not start with this Java"
    assert last == f"all is well{will}"
