"""A real cluster: a master and two workers as processes of their own, executors with a wheel only.

The whole pipeline runs there, with a ledger that a server has; one worker is killed meanwhile, and
no file that the cluster writes holds a key.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from importlib.util import find_spec
from pathlib import Path

import pyspark
import pytest
from packaging.requirements import Requirement

from ccbps.keys import EventLedger, FileKey, LedgerServer
from tests.spark import cluster_program
from tests.spark.conftest import MODE, ROOT, contents
from tests.spark.key_search import found_in, needles, secrets_in, write_keys
from tests.spark.processes import kill

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(MODE != "classic", reason="it has a session of its own"),
]

PROGRAM = Path(cluster_program.__file__)
ENVIRONMENT = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "CCBPS_TEST_SEED")}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with a wheel of this tree, and links to what it needs of what is installed."""
    folder = tmp_path_factory.mktemp("cluster")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    build = [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "env")
    (site,) = (folder / "env").glob("lib/python*/site-packages")
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet"]
    subprocess.run([*install, "--target", str(site), str(wheel)], check=True, capture_output=True)
    (information,) = site.glob("ccbps-*.dist-info")
    for needed in needs(Distribution.at(information), "spark"):
        for file in needed.files or ():
            # A package as a whole; of a namespace, which others have part in, what is in it.
            package = needed.locate_file(f"{file.parts[0]}/__init__.py")
            link = site.joinpath(*file.parts[: 1 if Path(str(package)).exists() else 2])
            if ".." not in file.parts and not link.exists():
                link.parent.mkdir(exist_ok=True)
                link.symlink_to(str(needed.locate_file(link.relative_to(site))))
    return folder / "env" / "bin" / "python"


def needs(wheel: Distribution, *extras: str) -> list[Distribution]:
    """What a distribution needs, and what that needs in turn, as they are installed here."""
    waiting, found = [(wheel, {"", *extras})], dict[str, Distribution]()
    for asking, asked in waiting:
        for wanted in map(Requirement, asking.requires or ()):
            marker = wanted.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in asked):
                name = f"{wanted.name}{sorted(wanted.extras)}"
                if name not in found:
                    found[name] = distribution(wanted.name)
                    waiting.append((found[name], {"", *wanted.extras}))
    return [*found.values()]


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    write_keys(tmp_path / "keys")
    return tmp_path / "keys"


class Cluster:
    """A master and two workers on loopback."""

    def __init__(self, folder: Path, python: Path) -> None:
        home = Path(pyspark.__file__).parent
        self.environment = {
            **ENVIRONMENT,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": str(python),
            "SPARK_LOG_DIR": str(folder / "logs"),
        }
        self.folder, self._spark_class = folder, str(home / "bin" / "spark-class")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"spark://127.0.0.1:{port}"
        arguments = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        self.processes = [self._start("master.Master", "master", *arguments)]
        self._wait("master", "I have been elected leader")
        for name in ("one", "two"):
            self.processes.append(
                self._start(
                    "worker.Worker",
                    name,
                    *["--host", "127.0.0.1", "--cores", "1", "--memory", "1g"],
                    *["--webui-port", "0", "--work-dir", str(folder / name), self.url],
                )
            )
        for name in ("one", "two"):
            self._wait(name, "Successfully registered with master")

    def _start(self, kind: str, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{name}.log").open("wb")
        return subprocess.Popen(
            [self._spark_class, f"org.apache.spark.deploy.{kind}", *arguments],
            env=self.environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def _wait(self, name: str, text: str) -> None:
        until = time.monotonic() + 60
        while text not in (self.folder / f"{name}.log").read_text():
            assert time.monotonic() < until, (self.folder / f"{name}.log").read_text()[-2000:]
            time.sleep(0.1)


@pytest.fixture
def cluster(tmp_path: Path, python: Path) -> Iterator[Cluster]:
    (tmp_path / "cluster").mkdir()
    made = Cluster(tmp_path / "cluster", python)
    yield made
    for process in made.processes:
        kill(process)


def test_only_the_wheel_and_what_it_needs_is_there(python: Path) -> None:
    others = ["pytest", "hypothesis", "pip", "tests"]
    assert all(map(find_spec, others))
    program = (
        "import ccbps.spark, sys; from importlib.util import find_spec; "
        "print(ccbps.__file__, *filter(find_spec, sys.argv[1:]))"
    )
    call = [str(python), "-c", program, *others, "pyspark"]
    shown = subprocess.check_output(call, text=True, cwd=python.parent, env=ENVIRONMENT)
    where, *there = shown.split()
    assert Path(where).is_relative_to(python.parents[1])
    assert not Path(where).is_symlink()
    assert there == ["pyspark"]


def test_the_pipeline_runs_on_a_cluster_that_loses_a_worker(
    cluster: Cluster, python: Path, keys: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    (data / "log").mkdir(parents=True)
    ledger = EventLedger(tmp_path / "ledger", rounds=10_000)
    with (
        LedgerServer(ledger, FileKey(keys / "ledger")) as server,
        (tmp_path / "out").open("w") as out,
        (tmp_path / "err").open("w") as err,
    ):
        program = subprocess.Popen(
            [str(python), str(PROGRAM), cluster.url, str(keys), str(data), server.address],
            env=cluster.environment,
            stdout=out,
            stderr=err,
            cwd=tmp_path,
        )
        until = time.monotonic() + 240
        while not (data / "half-way").exists() and program.poll() is None:
            assert time.monotonic() < until
            time.sleep(0.05)
        time.sleep(1)
        kill(cluster.processes[1])
        code = program.wait(timeout=400)
    told = (tmp_path / "err").read_text()
    assert code == 0, told[-3000:]
    found = json.loads((tmp_path / "out").read_text().splitlines()[-1])
    site = str(python.parents[1])
    assert found["driver"].startswith(site)
    assert found["executors"] == [found["driver"]]
    assert 1000 < len(found["wanted"]) < 3000
    assert found["match"] == found["wanted"]
    assert ledger.used() == cluster_program.EVENTS
    assert found["stores"] == found["wanted"]
    assert found["delivered"] == found["wanted"]
    assert found["tags"] == found["wanted tags"]
    assert "'price'" in found["error"]
    assert "5000" not in found["error"].split("\\n")[0]

    hidden = needles(secrets_in(keys.iterdir()))
    assert len(hidden) > 60
    files = list(contents(data, cluster.folder))
    files.append((tmp_path / "ledger", (tmp_path / "ledger").read_bytes()))
    assert any("log" in (p.parent.name, p.parent.parent.name) for p, _ in files)
    texts = [("errors", told.encode()), ("results", json.dumps(found).encode())]
    assert found_in([*texts, *files], hidden) == []
    # The search finds what is there.
    assert found_in([("key", (keys / "publisher").read_bytes())], hidden)
