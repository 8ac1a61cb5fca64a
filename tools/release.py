"""Build a release: sdist and wheel, twice with equal bytes, and the files that go with them.

    python tools/release.py [--out dist]

The folder then has

- the sdist and the wheel, which two builds in different folders made alike;
- ``ccbps-<version>.cdx.json``: the bill of materials (CycloneDX) of a fresh environment with the
  wheel and what it needs, after `ccbps doctor` found no fault there;
- ``SHA256SUMS``: the subjects of an attestation;
- ``NOTES.md``: the part of CHANGELOG.md on this version.

Nothing is signed or uploaded: that is for whoever holds the keys.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
EPOCH = "1767225600"
"""Time of all files in the packages, in seconds since 1970."""


def build(source: Path, out: Path) -> dict[str, bytes]:
    """Build the sdist, and the wheel from it; return their contents by name."""
    call = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)]
    run(call, env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH, "PYTHONHASHSEED": "random"})
    return {path.name: path.read_bytes() for path in sorted(out.iterdir())}


def built_twice(folder: Path) -> dict[str, bytes]:
    """Build in this folder, and in another one from the sdist of the first build.

    Raises:
        SystemExit: the two builds differ.
    """
    first = build(ROOT, folder / "first")
    sdist = next(name for name in first if name.endswith(".tar.gz"))
    shutil.unpack_archive(folder / "first" / sdist, folder / "elsewhere", filter="data")
    (source,) = (folder / "elsewhere").iterdir()
    second = build(source, folder / "second")
    if first != second:
        unlike = [name for name in first | second if first.get(name) != second.get(name)]
        raise SystemExit(f"two builds differ: {', '.join(unlike)}")
    return first


def bill_of_materials(wheel: Path, folder: Path) -> str:
    """Install a wheel in a fresh environment, check it there, and list what is in it."""
    python = folder / "environment" / "bin" / "python"
    run([sys.executable, "-m", "venv", str(folder / "environment")])
    run([str(python), "-m", "pip", "install", "--quiet", str(wheel)])
    run([str(python), "-m", "ccbps", "doctor"], cwd=folder)
    run([str(python), "-m", "pip", "uninstall", "--quiet", "--yes", "pip", "setuptools"])
    call = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible"]
    bill = json.loads(run([*call, "--output-format", "JSON", str(python)]))
    for component in bill["components"]:
        # Where the wheel lay while it was installed is nobody's business.
        kept = [
            each
            for each in component.get("externalReferences", [])
            if not each["url"].startswith("file:")
        ]
        component["externalReferences"] = kept
    return json.dumps(bill, indent=1) + "\n"


def notes(version: str) -> str:
    """Return the part of the changelog on a version.

    Raises:
        SystemExit: there is no such part.
    """
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    part = re.search(rf"^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    if part is None:
        raise SystemExit(f"CHANGELOG.md has nothing on {version}")
    return part[1].strip() + "\n"


def check_folder(out: Path) -> None:
    """Refuse a folder with other contents than an earlier release, which is replaced.

    Raises:
        SystemExit: the folder has other contents.
    """
    inside = [*out.iterdir()] if out.exists() else []
    if inside and not ((out / "SHA256SUMS").is_file() and all(map(Path.is_file, inside))):
        raise SystemExit(f"{out} has contents that are no release: empty it, or take another --out")


def run(call: list[str], **settings: Any) -> str:
    """Run a command and return its output.

    Raises:
        SystemExit: the command fails; its output is printed.
    """
    done: Any = subprocess.run(call, capture_output=True, text=True, **settings)
    if done.returncode:
        raise SystemExit(f"{' '.join(call)}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return str(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder (dist)")
    out: Path = parser.parse_args().out
    check_folder(out)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        packages = built_twice(folder)
        paths = [str(folder / "first" / package) for package in packages]
        run([sys.executable, "-m", "twine", "check", "--strict", *paths])
        wheel = next(path for path in paths if path.endswith(".whl"))
        version = Path(wheel).name.split("-")[1]
        files = dict(packages)
        files["NOTES.md"] = notes(version).encode()
        files[f"ccbps-{version}.cdx.json"] = bill_of_materials(Path(wheel), folder).encode()
    sums = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files.items()]
    files["SHA256SUMS"] = "".join(sums).encode()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for name, content in files.items():
        (out / name).write_bytes(content)
        print(f"{len(content):>12,}  {name}")
    print("two builds are equal")


if __name__ == "__main__":
    main()
