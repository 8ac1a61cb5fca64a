"""Check the package as users get it: the wheel, its imports, and the pages of the project."""

from __future__ import annotations

import compileall
import os
import pkgutil
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest

import ccbps
from ccbps import Category, Decimal, Schema, UInt
from ccbps.matching import SCHEMES, BranchingMatch

ROOT = Path(__file__).parents[2]

MATCH = """
import ccbps
from ccbps import Decimal, Schema, SharedSeed, UInt
from ccbps.matching import BranchingMatch

matcher = BranchingMatch.box(Schema(price=Decimal(0, 1000, "0.01"), volume=UInt(16)))
seed = SharedSeed.generate()
records = [{"price": 119.5, "volume": 2500}, {"price": 121, "volume": 2500}]
events = matcher.publisher(seed).encode(records, rounds=[0, 1])
interests = matcher.subscriber(seed).encode("price < 120 AND volume > 1000", rounds=[0, 1])
print(ccbps.__file__)
print(matcher.broker().match(events, interests).tolist())
"""


def run(*command: str | Path, **environment: str) -> str:
    """Return the output of a command that does not see this process's Python settings."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    words = [str(part) for part in command]
    result = subprocess.run(words, capture_output=True, text=True, env=clean | environment)
    assert result.returncode == 0, result.stderr
    return result.stdout


def lines_of(program: str) -> list[str]:
    """Return the lines that a program prints in a process that imports the source tree."""
    return run(sys.executable, "-c", program, PYTHONPATH=str(ROOT)).splitlines()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a wheel of this tree with the installed backend."""
    out = tmp_path_factory.mktemp("wheel")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    run(sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", out, ROOT)
    (built,) = out.glob("*.whl")
    return built


def test_git_knows_every_file_of_the_package() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = run("git", "-C", ROOT, "ls-files", "ccbps").splitlines()
    files = (path for path in (ROOT / "ccbps").rglob("*") if "__pycache__" not in path.parts)
    assert {str(path.relative_to(ROOT)) for path in files if path.is_file()} == set(listed)


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"ccbps", f"ccbps-{ccbps.__version__}.dist-info"}
    assert "ccbps/py.typed" in names
    assert any(name.endswith("dist-info/licenses/LICENSE") for name in names)
    source = {str(path.relative_to(ROOT)) for path in (ROOT / "ccbps").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == source


def test_wheel_states_its_version_licence_and_extras(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
    lines = archive.read(metadata).decode().splitlines()
    assert f"Version: {ccbps.__version__}" in lines
    assert "License-Expression: Apache-2.0" in lines
    assert "Author: The ccbps developers" in lines
    assert {"Provides-Extra: spark", "Provides-Extra: plot"} <= set(lines)


FOR_AUTHORS = {"examples", "bench", "testing", "test", "docs", "dev"}
"""Extras of who works on the library, its examples or benchmarks, or on a scheme of their own."""


def test_pages_list_the_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"].keys() - FOR_AUTHORS
    readme = (ROOT / "README.md").read_text("utf-8").partition("The extras are ")[2]
    assert {*re.findall(r"`(\w+)`", readme.partition("\n\n")[0])} == extras
    page = (ROOT / "docs" / "getting_started.md").read_text("utf-8")
    table = page.partition("| extra | for |")[2].partition("\n\n")[0]
    assert {*re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)} == extras


def test_wheel_matches_where_the_source_tree_is_not_in_sight(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    options = ["--no-deps", "--no-index", "--no-compile", "--quiet"]
    run(sys.executable, "-m", "pip", "install", *options, "--target", target, wheel)
    # -I -S leaves the standard library; dependencies come after the wheel, without .pth files.
    path = [str(target), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    shown = run(sys.executable, "-I", "-S", "-c", f"import sys; sys.path += {path!r}\n{MATCH}")
    origin, answers = shown.splitlines()
    assert Path(origin).is_relative_to(target)
    assert answers == "[True, False]"


@pytest.mark.slow
def test_wheel_matches_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "empty", with_pip=True)
    scripts = "Scripts" if os.name == "nt" else "bin"
    python = tmp_path / "empty" / scripts / "python"
    run(python, "-m", "pip", "install", "--quiet", wheel)
    origin, answers = run(python, "-I", "-c", MATCH).splitlines()
    assert Path(origin).is_relative_to(tmp_path)
    assert answers == "[True, False]"
    program = "try:\n    import ccbps.spark\nexcept ImportError as error:\n    print(error)"
    assert "ccbps[spark]" in run(python, "-I", "-c", program)


def test_importing_the_core_loads_no_optional_or_deferred_package() -> None:
    heavy = {"pyspark", "pandas", "pyarrow", "sqlglot", "matplotlib", "scipy", "numba", "gmpy2"}
    program = "import sys, ccbps, ccbps.matching, ccbps.delivery\n"
    assert lines_of(f"{program}print('numpy' in sys.modules)") == ["False"]
    program += "ccbps.SharedSeed, ccbps.matching.FormulaMatch, ccbps.delivery.PayloadSealer\n"
    assert lines_of(f"{program}print({heavy!r} & sys.modules.keys())") == ["set()"]
    later = {"cryptography", "ccbps.keys.share_form"}
    later |= {f"ccbps.{name}" for name in ("predicates.hiding", "predicates.suggest", "rounds")}
    later |= {f"ccbps.matching.one_time.{name}" for name in ("branching", "deferred")}
    later |= {"ccbps.encodings.formula.ahead", "ccbps.shares"}
    later |= {f"ccbps.predicates.{name}" for name in ("parsed", "sql", "temporal", "textual")}
    later |= {f"ccbps.matching.contract.{name}" for name in ("broker", "estimate", "traffic")}
    later |= {"ccbps.matching.contract.key_server", "ccbps.matching.contract.table"}
    program = "import sys, ccbps, ccbps.matching\n"
    program += "ccbps.Schema, ccbps.SharedSeed, ccbps.matching.FormulaMatch\n"
    assert lines_of(f"{program}print({later!r} & sys.modules.keys())") == ["set()"]


README = (ROOT / "README.md").read_text("utf-8")


def blocks(text: str, language: str) -> list[str]:
    """Return the code blocks of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_readme_example_prints_what_it_says() -> None:
    (example,) = blocks(README, "python")
    assert len([line for line in example.splitlines() if line]) == 12
    said = blocks(README, "text")[-1].splitlines()
    shown = lines_of(example)
    assert len(shown) == len(said) == 3
    for printed, line in zip(shown[:2], said, strict=False):
        # Messages are other ones in each run: what they are and how long they are stays.
        words, content = printed.rsplit(" ", 1)
        found = re.fullmatch(r"(.*) ([0-9a-f]+)\.\.\.[0-9a-f]+ \((\d+) bytes\)", line)
        assert found is not None
        assert (words, content[:2]) == (found[1], found[2][:2])
        assert len(bytes.fromhex(content)) == int(found[3])
    assert shown[2] == said[2] == "the broker learns [ True]"


def test_readme_is_short_and_says_what_installs_the_package() -> None:
    assert len(README.split()) <= 700
    assert "pip install ccbps" not in README  # it is on no package index
    for command in ("make quickstart", "make test", "pip install ."):
        assert re.search(rf"^{re.escape(command)} ", README, re.MULTILINE), command


def dead_links(text: str) -> list[str]:
    """Return the links and pictures of a page whose targets are files beside it."""
    kinds = (r"\]\(\s*<?([^)>\s]+)", r"(?:src|href)=.([^\"'>]+)", r"(?m)^\[[^\]]+\]:\s*(\S+)")
    links = [link for kind in kinds for link in re.findall(kind, text)]
    return [link for link in links if not re.match(r"(https?|mailto):", link)]


def test_readme_has_no_link_that_a_package_index_cannot_follow() -> None:
    assert dead_links(README) == []
    page = "[a](b.md) ![c](d.svg) <img src='e.png'> [f](#g) [h](https://i)\n[j]: k.md\n"
    assert dead_links(page) == ["b.md", "d.svg", "#g", "e.png", "k.md"]


def test_files_that_the_readme_names_are_there() -> None:
    named = set(re.findall(r"\bdocs/[\w./]*\w", README)) | {"SECURITY.md", "CHANGELOG.md"}
    assert len(named) > 5
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.slow
@pytest.mark.spark
def test_first_spark_example_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quotes.seed").write_text(ccbps.SharedSeed.generate().to_text())
    environment = {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    page = (ROOT / "docs" / "getting_started.md").read_text("utf-8")
    (example,), (table,) = blocks(page, "python"), blocks(page, "text")
    assert table.strip() in run(sys.executable, "-c", example, **environment)


def test_changelog_is_short_and_has_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    versions = re.findall(r"^## \[(.+?)\]", text, re.MULTILINE)
    assert versions[0] in ("Unreleased", ccbps.__version__)
    assert ccbps.__version__ in versions
    latest = text.partition(f"## [{versions[0]}]")[2].partition("\n## ")[0]
    assert len(latest.splitlines()) <= 60


def test_cost_table_of_the_documentation_is_true() -> None:
    schema = Schema(
        issue=Category(["AAPL", "GOOG", "IBM", "MSFT"]),
        price=Decimal(0, 1000, "0.01"),
        volume=UInt(32),
    )
    boxes = {
        "box over `UInt(16)`": Schema(a=UInt(16)),
        "box of the example (51 bits)": schema,
    }
    for names, bits in (("ab", 16), ("abcd", 32), ("abcdefgh", 32)):
        title = f"box over {len(names)} `UInt({bits})`"
        boxes[title] = Schema({name: UInt(bits) for name in names})
    page = (ROOT / "docs" / "matchers" / "branching.md").read_text()
    section = page.partition("\n## Cost\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:1] == "|"]
    assert len(rows) == 2 + 9
    for name, *numbers in rows[2:]:
        box = boxes.get(name)
        matcher = (
            BranchingMatch(schema, name.strip("`")) if box is None else BranchingMatch.box(box)
        )
        wanted = [matcher.program.size + 1, matcher.event_bytes, matcher.randomness_bytes]
        wanted += matcher.encoding.operations.values()
        assert [int(number.replace(",", "")) for number in numbers] == wanted, name


def test_installed_version_is_that_of_the_source() -> None:
    assert version("ccbps") == ccbps.__version__


SUBMODULES = """
import sys, ccbps
print([name for name in ('ccbps.matching', 'ccbps.delivery') if name in sys.modules])
print(ccbps.matching.BranchingMatch.__name__, ccbps.delivery.PayloadSealer.__name__)
print('pyspark' in sys.modules, hasattr(ccbps, 'mathcing'))
print({'BranchingMatch', '__getattr__'} & set(dir(ccbps)), 'matching' in dir(ccbps))
print(ccbps.spark.FileKey.__name__)
"""


def test_submodules_are_there_after_importing_the_package() -> None:
    assert lines_of(SUBMODULES) == [
        "[]",
        "BranchingMatch PayloadSealer",
        "False False",
        "set() True",
        "FileKey",
    ]


def packages() -> list[str]:
    """Return the names of all packages of the library."""
    inside = pkgutil.walk_packages(ccbps.__path__, "ccbps.")
    return ["ccbps", *(found.name for found in inside if found.ispkg)]


@pytest.mark.parametrize("name", packages())
def test_a_package_lists_its_names_and_loads_each(name: str) -> None:
    package = import_module(name)
    inside = {found.name for found in pkgutil.iter_modules(package.__path__)}
    exported = set(getattr(package, "__all__", ()))
    # Importing a module sets its name in the package, over what was loaded before.
    assert not exported & inside or name == "ccbps.testing"
    assert exported <= set(dir(package))
    assert all(getattr(package, exported_name) is not None for exported_name in exported)
    if name == "ccbps":
        assert {found for found in inside if f"ccbps.{found}" in packages()} <= set(dir(package))


def test_packages_whose_extra_is_missing_are_not_listed() -> None:
    program = "import importlib.util as util\nfind = util.find_spec\n"
    program += "util.find_spec = lambda name: None if name == 'paho' else find(name)\n"
    program += "import ccbps\nprint('mqtt' in dir(ccbps), 'spark' in dir(ccbps))"
    assert lines_of(program) == ["False True"]


def test_without_its_source_a_package_imports_its_names_at_once(tmp_path: Path) -> None:
    shutil.copytree(
        ROOT / "ccbps", tmp_path / "ccbps", ignore=shutil.ignore_patterns("__pycache__")
    )
    assert compileall.compile_dir(tmp_path / "ccbps", quiet=1, legacy=True)
    for source in (tmp_path / "ccbps").rglob("*.py"):
        source.unlink()
    program = "import ccbps.matching\nprint(ccbps.__file__, *map(repr, ccbps.matching.SCHEMES))"
    origin, *schemes = run(sys.executable, "-Pc", program, PYTHONPATH=str(tmp_path)).split(" ", 1)
    assert origin == str(tmp_path / "ccbps" / "__init__.pyc")
    assert schemes == [" ".join(map(repr, SCHEMES)) + "\n"]


def test_spark_without_pyspark_names_the_extra() -> None:
    # None stands for a module that is not installed.
    program = "import sys\nsys.modules['pyspark'] = None\nimport ccbps\nfrom ccbps import *\n"
    program += "try:\n    ccbps.spark\nexcept ImportError as error:\n    print(error)"
    (error,) = lines_of(program)
    assert "ccbps.spark needs pyspark: pip install 'ccbps[spark]'" in error


def test_citation_is_of_this_version() -> None:
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {ccbps.__version__}\n" in citation
    assert "\nlicense: Apache-2.0\n" in citation
    assert "\nauthors:\n  - name: The ccbps developers\n" in citation


@pytest.mark.parametrize("name", ["SECURITY.md", "CONTRIBUTING.md"])
def test_links_of_the_project_files_lead_somewhere(name: str) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / name).read_text())
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
    named = re.findall(r"`((?:docs|tests)/[^`]+)`", (ROOT / name).read_text())
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_a_release_replaces_no_other_folder(tmp_path: Path) -> None:
    check_folder = runpy.run_path(str(ROOT / "tools" / "release.py"))["check_folder"]
    check_folder(tmp_path / "missing")
    check_folder(tmp_path)
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(SystemExit, match="has contents that are no release"):
        check_folder(tmp_path)
    (tmp_path / "SHA256SUMS").write_text("")
    check_folder(tmp_path)
    (tmp_path / "photos").mkdir()
    with pytest.raises(SystemExit, match="has contents that are no release"):
        check_folder(tmp_path)
