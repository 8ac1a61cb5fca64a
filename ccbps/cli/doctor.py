"""``ccbps doctor``: what is installed, what is missing, and whether it works here."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import tempfile
import warnings
from argparse import Namespace
from collections.abc import Callable, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from ccbps import Schema, SharedSeed, UInt, __version__, loading
from ccbps.cli.command import JSON, Command, answer
from ccbps.delivery import PayloadOpener, PayloadSealer
from ccbps.errors import RandomnessReuseError
from ccbps.matching import FormulaMatch, InnerProductMatch, KeywordMatch, TagMatch, ThreeBrokerMatch
from ccbps.matching.contract.parties import Party

OLDEST_JAVA: Final = 17
"""Major version of Java that Spark needs."""
SCHEMA: Final = Schema(price=UInt(8))
RECORDS: Final = [{"price": 7}, {"price": 200}]
INTERVALS: Final = ("price < 100", "price >= 100")
EQUALITIES: Final = ("price = 7", "price = 200")
ANSWERS: Final = [[True, False], [False, True]]
EXTRAS: Final = {"access": ("biscuit_auth",), "compiled": ("numba",), **loading.EXTRAS}


def _doctor(arguments: Namespace) -> int:
    r"""Check the installation: versions, extras, Java, compiled kernels, and a self-test.

    The self-test encrypts and matches with several matchers, seals and opens a payload, and uses a
    round twice, which has to be refused. The exit status is 1 if a check fails. A missing extra is
    no failure, and neither is a Java that Spark cannot use.

    Example:
        ccbps doctor
    """
    versions = {"ccbps": __version__, "Python": platform.python_version()}
    versions |= {name: metadata.version(name) for name in _dependencies()}
    extras = {
        name: all(_is_there(module) for module in modules) for name, modules in EXTRAS.items()
    }
    java = _java() if extras["spark"] else ""
    results = {name: _outcome(check) for name, check in CHECKS.items()}
    lines = ["versions", *(f"  {name:<14}{version}" for name, version in versions.items())]
    lines += ["", "extras"]
    for name, installed in extras.items():
        state = "installed" if installed else f"missing: pip install 'ccbps[{name}]'"
        lines.append(f"  {name:<14}{state}")
    if java:
        lines += ["", f"Java  {java}"]
    lines += ["", "self-test", *(f"  {name:<36}{result}" for name, result in results.items())]
    failed = [name for name, result in results.items() if result.startswith("FAILED")]
    summary = f"{len(failed)} of {len(results)} checks failed" if failed else "all is well"
    if java and not java.startswith("version"):
        summary += "; Spark will not start with this Java"
    lines += ["", summary]
    answer(
        arguments,
        "\n".join(lines),
        platform=platform.platform(),
        versions=versions,
        extras=extras,
        java=java or None,
        checks=results,
    )
    return 1 if failed else 0


def _dependencies() -> list[str]:
    """Return the packages that the library needs in any case."""
    needed = metadata.requires("ccbps") or []
    return [re.split(r"[^\w.-]", line)[0] for line in needed if "extra ==" not in line]


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its package is missing
        return False


def _java() -> str:
    """Return the version of the Java that Spark would start, or what is wrong with it."""
    home = os.environ.get("JAVA_HOME")
    launcher = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if launcher is None:
        return f"missing: Spark needs version {OLDEST_JAVA} or later, and JAVA_HOME or PATH"
    try:
        told = subprocess.run(  # noqa: S603  (the user's Java)
            [launcher, "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return f"{launcher} does not run: set JAVA_HOME to version {OLDEST_JAVA} or later"
    version = re.search(r'version "(?:1\.)?(\d+)', told)
    number = int(version[1]) if version else 0
    if number < OLDEST_JAVA:
        return f"{launcher} is version {number}: Spark needs {OLDEST_JAVA} or later"
    return f"version {number}, {launcher}"


# -- self-test ----------------------------------------------------------------------------------


class _Skipped(Exception):
    """A check that does not apply here, and why."""


def _outcome(check: Callable[[], str]) -> str:
    """Return what a check says, or how it failed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return check() or "works"
    except _Skipped as skipped:
        return f"skipped: {skipped}"
    except Exception as error:
        return f"FAILED: {type(error).__name__}: {error}"


def _matches(
    make: Callable[[], object], predicates: Sequence[str] = INTERVALS
) -> Callable[[], str]:
    """Return a check that a matcher answers as plaintext does."""

    def check() -> str:
        found = Party(make(), predicates).answers(RECORDS, predicates).tolist()
        if found != ANSWERS:
            raise ArithmeticError(f"answers are {found}, not {ANSWERS}")
        return ""

    return check


def _inner_products() -> str:
    if not any(map(_is_there, EXTRAS["pairings"])):
        raise _Skipped("needs the extra pairings")
    return _matches(lambda: InnerProductMatch(SCHEMA), EQUALITIES)()


def _keywords() -> str:
    if not _is_there("coincurve"):
        raise _Skipped("needs the extra groups")
    return _matches(lambda: KeywordMatch(SCHEMA), EQUALITIES)()


def _compiled() -> str:
    if not _is_there("numba"):
        raise _Skipped("needs the extra compiled; NumPy is used")
    before = os.environ.get("CCBPS_COMPILED")
    os.environ["CCBPS_COMPILED"] = "1"
    try:
        return _matches(lambda: FormulaMatch.box(SCHEMA))()
    finally:
        os.environ.pop("CCBPS_COMPILED")
        if before is not None:
            os.environ["CCBPS_COMPILED"] = before


def _payload() -> str:
    master = SharedSeed.generate()
    sealer, opener = PayloadSealer(master), PayloadOpener(master.pair("alice"))
    sealed = sealer.seal([b"119.50"], events=[7])
    wrapped = sealer.wrap(events=[7], rounds=[0], pairs=["alice"])
    if opener.open(sealed, wrapped, rounds=[0]) != [b"119.50"]:
        raise ArithmeticError("what was opened is not what was sealed")
    return ""


def _rounds() -> str:
    matcher, seed = FormulaMatch.box(SCHEMA), SharedSeed.generate()
    with tempfile.TemporaryDirectory() as folder:
        publisher = matcher.publisher(seed, ledger=Path(folder) / "ledger")
        publisher.encode(RECORDS[:1], [0])
        try:
            publisher.encode(RECORDS[1:], [0])
        except RandomnessReuseError:
            return "refused, as it has to be"
    raise AssertionError("a round was used twice")


CHECKS: Final[dict[str, Callable[[], str]]] = {
    "FormulaMatch": _matches(lambda: FormulaMatch.box(SCHEMA)),
    "FormulaMatch, compiled kernels": _compiled,
    "TagMatch": _matches(lambda: TagMatch(SCHEMA)),
    "KeywordMatch": _keywords,
    "ThreeBrokerMatch": _matches(lambda: ThreeBrokerMatch.box(SCHEMA)),
    "InnerProductMatch": _inner_products,
    "payloads for those who matched": _payload,
    "a round that is used again": _rounds,
}

DOCTOR: Final = Command("doctor", _doctor, (JSON,))
