"""Run the tests on every Python that `pyproject.toml` names, and on the oldest dependencies.

    python tools/test_versions.py [--only 3.13 oldest] [--require-all] [-- pytest arguments]

Each kind of run has an environment of its own under .venv-versions, which is kept: the oldest
Python with the oldest versions of all dependencies that `pyproject.toml` allows ("oldest"), and
every Python that is found with the newest ones. Interpreters come from PATH and from pyenv; those
that are not there are named, and left out unless all are required.

Exit code: 0 when all that ran passed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / ".venv-versions"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRA = "test"


def pythons() -> list[str]:
    """Return the versions that the classifiers name, oldest first."""
    found = [
        match[1]
        for text in PROJECT["classifiers"]
        if (match := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", text))
    ]
    return sorted(found, key=lambda v: int(v.split(".")[1]))


def interpreter(version: str) -> str | None:
    """Return a command that starts this version of Python, or None."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [f"python{version}", "python3", sys.executable]
    candidates += sorted(str(p / "bin" / "python") for p in pyenv.glob(f"{version}*"))
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    for candidate in candidates:
        try:
            said = subprocess.run([candidate, "-c", code], capture_output=True, text=True)
        except OSError:
            continue
        if said.returncode == 0 and said.stdout.strip() == version:
            return candidate
    return None


def oldest() -> str:
    """Return constraints to the least version that every requirement allows."""
    extras = PROJECT["optional-dependencies"]
    wanted, requirements = [EXTRA], list(PROJECT["dependencies"])
    for extra in wanted:
        for text in extras[extra]:
            if own := re.fullmatch(rf"{PROJECT['name']}\[(.*)\]", text):
                wanted += [name.strip() for name in own[1].split(",")]
            else:
                requirements.append(text)
    lines = []
    for text in requirements:
        match = re.fullmatch(r"([\w.-]+)(?:\[[\w,]*\])?>=([\w.]+)(;.*)?", text)
        if match is None:
            raise SystemExit(f"{text!r} in pyproject.toml states no least version")
        lines.append(f"{match[1]}=={match[2]}{match[3] or ''}")
    return "\n".join(dict.fromkeys(lines)) + "\n"


def run(name: str, python: str, arguments: list[str]) -> bool:
    """Make the environment if it is missing, install and test; return whether all passed."""
    folder = PLACE / name
    own = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    print(f"==> {name}: {python}", flush=True)
    if not own.exists():
        subprocess.run([python, "-m", "venv", str(folder)], check=True)
    install = [str(own), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if name == "oldest":
        constraints = folder / "oldest.txt"
        constraints.write_text(oldest(), encoding="utf-8")
        install += ["--constraint", str(constraints)]
    if subprocess.run([*install, "--editable", f"{ROOT}[{EXTRA}]"]).returncode:
        return False
    java = subprocess.run(
        [str(own), "tools/java_home.py"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    environment = {**os.environ, "JAVA_HOME": java.stdout.strip(), "PYSPARK_PYTHON": str(own)}
    tests = [str(own), "-m", "pytest", "-q", *arguments]
    return subprocess.run(tests, cwd=ROOT, env=environment).returncode == 0


def main() -> int:
    """Run the tests on the chosen versions, and print the results."""
    kinds = ["oldest", *pythons()]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=kinds, default=kinds, metavar="KIND")
    parser.add_argument("--require-all", action="store_true", help="a missing Python is a failure")
    parser.add_argument("pytest", nargs="*", help="arguments for pytest, after --")
    options = parser.parse_args()
    results = {}
    for kind in options.only:
        python = interpreter(pythons()[0] if kind == "oldest" else kind)
        if python is None:
            results[kind] = "failed: not found" if options.require_all else "not found, left out"
        else:
            results[kind] = "passed" if run(kind, python, options.pytest) else "failed"
    print("\n".join(f"{kind:<8}{result}" for kind, result in results.items()))
    return int(any(result.startswith("failed") for result in results.values()))


if __name__ == "__main__":
    sys.exit(main())
