"""A real cluster: a master and two workers as processes of their own, executors with a wheel only.

The whole pipeline runs there, with a ledger that a server has; tasks are run twice, one worker is
killed meanwhile, messages stay the same, and no file that the cluster writes holds a key.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import venv
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import Distribution, distribution
from importlib.util import find_spec
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest
from packaging.requirements import Requirement

from ccbps.keys import FileKey
from ccbps.rounds import EventLedger, LedgerServer
from tests.spark import cluster_program
from tests.spark.key_search import (
    all_groups,
    check_errors,
    check_memory,
    check_readable,
    found_in,
    locals_of,
    needles,
    planted_in,
    secrets_in,
    shown,
    unzipped,
    write_keys,
)
from tests.spark.processes import kill
from tests.support.spark_session import JAVA_OPTIONS, MODE, ROOT, contents

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(MODE != "classic", reason="it has a session of its own"),
]

PROGRAM = Path(cluster_program.__file__)
BROKER = PROGRAM.with_name("broker_program.py")
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


class Cluster:
    """A master and two workers on loopback, and programs that use them."""

    def __init__(self, folder: Path, python: Path) -> None:
        home = Path(pyspark.__file__).parent
        self._environment = {
            **ENVIRONMENT,
            "JDK_JAVA_OPTIONS": JAVA_OPTIONS,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": str(python),
            "SPARK_LOG_DIR": str(folder / "logs"),
        }
        self.folder, self.processes = folder, dict[str, subprocess.Popen[bytes]]()
        spark_class, of = str(home / "bin" / "spark-class"), "org.apache.spark.deploy"
        arguments = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        self.start("master", spark_class, f"{of}.master.Master", *arguments)
        self._wait_for_text("master", "I have been elected leader")
        told = re.search(r"spark://127\.0\.0\.1:\d+", (folder / "master.log").read_text())
        assert told is not None
        self.url = told[0]
        # A task is not run beside itself on one host, so there are two names of this one.
        for name, host in (("one", "127.0.0.1"), ("two", "localhost")):
            arguments = ["--host", host, "--cores", "1", "--memory", "1g", "--webui-port", "0"]
            arguments += ["--work-dir", str(folder / name), self.url]
            local = {"SPARK_LOCAL_DIRS": str(folder / "local" / name)}
            self.start(name, spark_class, f"{of}.worker.Worker", *arguments, **local)
        for name in ("one", "two"):
            self._wait_for_text(name, "Successfully registered with master")

    def start(self, name: str, *command: str, **environment: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                command,
                env=self._environment | environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )

    def _wait_for_text(self, name: str, text: str) -> None:
        self.wait(name, lambda: text in (self.folder / f"{name}.log").read_text(), 120)

    def wait(self, name: str, done: Callable[[], bool], seconds: float) -> None:
        """Until a process has done something."""
        until = time.monotonic() + seconds
        while not done():
            running = self.processes[name].poll() is None and time.monotonic() < until
            assert running, (self.folder / f"{name}.log").read_text()[-3000:]
            time.sleep(0.1)


@pytest.fixture
def cluster(tmp_path: Path, python: Path) -> Iterator[Cluster]:
    (tmp_path / "cluster").mkdir()
    made = Cluster(tmp_path / "cluster", python)
    yield made
    for process in made.processes.values():
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
    cluster: Cluster, python: Path, tmp_path: Path
) -> None:
    data, keys = tmp_path / "data", tmp_path / "keys"
    (data / "log").mkdir(parents=True)
    write_keys(keys)
    ledger = EventLedger(tmp_path / "ledger", rounds=10_000)
    with LedgerServer(ledger, FileKey(keys / "ledger")) as server:
        arguments = [cluster.url, str(keys), str(data), server.address]
        cluster.start("program", str(python), str(PROGRAM), *arguments)
        cluster.wait("program", (data / "half-way").exists, 240)
        used, half_way = ledger.used(), list(contents(data / "local", cluster.folder))
        time.sleep(1)
        kill(cluster.processes["one"])
        cluster.wait("program", (data / "end").exists, 480)
        left = [*unzipped(contents(data, cluster.folder))]
        cluster.processes["program"].communicate(timeout=60)
    found = json.loads((data / "found").read_text())
    assert found["driver"].startswith(str(python.parents[1]))
    assert 1000 < len(found["wanted"]) < 3000
    for name in ("match", "stores", "delivered"):
        assert found[name] == found["wanted"], name
    assert found["tags"] == found["wanted tags"]

    # Each attempt, a restart and a stream make the same messages.
    assert used == ledger.used() == cluster_program.EVENTS
    assert len(messages(data / "events")) == cluster_program.EVENTS * len(cluster_program.LABELS)
    for name in ("first", "streamed"):
        assert messages(data / name) == messages(data / "events"), name
    begun, made = (attempts(data / "attempts" / name) for name in ("begun", "made"))
    assert {text for parts in begun for text in parts.values()} == {found["driver"]}
    for parts in made:
        assert len({*parts.values()}) == 1
    assert {line for parts in made for text in parts.values() for line in text.splitlines()} == {
        f"{label} {number} {message.hex()}" for label, number, message in messages(data / "events")
    }
    (events,) = (data / "log").glob("*/events_*")
    log = events.read_text()
    tasks = [json.loads(line).get("Task Info", {}) for line in log.splitlines()]
    beside = {task["Task ID"] for task in tasks if task.get("Speculative")}
    assert made[0].keys() & beside and made[0].keys() - beside, "both have encoded"
    failed = {task["Task ID"] for task in tasks if task.get("Failed")}
    assert made[1].keys() & failed and made[1].keys() - failed, "it has encoded again"

    check_errors(found["errors"])
    hidden = needles(secrets_in(keys.iterdir(), all_groups()))
    assert len(hidden) > 60
    texts = [
        (name, text.encode())
        for name, text in [*found["errors"].items(), *found["planted"].items()]
    ]
    texts.append(("ledger", (tmp_path / "ledger").read_bytes()))
    after = unzipped(contents(data, cluster.folder))
    assert found_in(shown([*texts, *half_way, *left, *after]), hidden) == []

    def kept(paths: Iterable[Path]) -> set[str]:
        """What executors keep on their disks, by kind."""
        local = cluster.folder / "local"
        return {path.name.partition("_")[0] for path in paths if local in path.parents}

    # What was planted is found wherever it is, so a key would be, too.
    assert {"plan", "error"} == planted_in(shown(texts))
    assert {"held", "listed", "array"} <= planted_in(shown(locals_of(found["planted"]["error"])))
    where = planted_in(left)
    assert any(path.is_relative_to(data / "log") for path in where)
    assert kept(where) == {"rdd", "shuffle"}
    assert any(path.is_relative_to(data / "planted") for path in where)
    check_readable(left, data)
    # The search finds what is there: keys, and messages where executors keep them.
    assert len(found_in(contents(keys), hidden)) == len([*keys.iterdir()])
    public = [message for _, _, message in messages(data / "first")][:100]
    kinds = [kept(found_in(seen, public)) for seen in (half_way, left)]
    assert kinds[0] == {"rdd", "shuffle"}
    # The worker that was killed may have had all blocks of the RDD.
    assert "shuffle" in kinds[1] and kinds[1] <= kinds[0]
    folders = {path.parent.relative_to(tmp_path).as_posix() for path, _ in left}
    stores = {f"data/{kind}-store" for kind in ("event", "interest")}
    assert {"data/checkpoint/streamed/offsets", "cluster", *stores} <= folders
    assert "physicalPlanDescription" in log

    # A broker that matches on the cluster what they have left holds its own key alone.
    own = tmp_path / "own"
    own.mkdir()
    (keys / "tag-broker").rename(own / "tag-broker")
    cluster.start("broker", str(python), str(BROKER), cluster.url, str(own), str(data))
    cluster.wait("broker", (data / "broker-found").exists, 240)
    assert int((data / "broker-found").read_text()) == len(found["wanted"]) + len(found["tags"])
    sessions = [cluster.processes[name].pid for name in ("two", "broker")]
    check_memory(sessions, own.iterdir(), keys.iterdir())


def messages(folder: Path) -> set[tuple[str, int, bytes]]:
    rows = pq.read_table(folder).to_pylist()
    return {(row["subscription"], row["round"], row["event_message"]) for row in rows}


def attempts(folder: Path) -> list[dict[int, str]]:
    """What the attempts at each task left, by their numbers."""
    out = defaultdict[int, dict[int, str]](dict)
    for path in folder.iterdir():
        task, _, number = path.name.partition("-")
        out[int(task)][int(number)] = path.read_text()
    return [out[task] for task in range(len(out))]
