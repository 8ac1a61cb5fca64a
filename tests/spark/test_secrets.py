"""No key in what a driver sends, in what Spark writes, or in a broker's memory."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import SparkSession

from ccbps import spark as cs
from tests.spark.cluster_program import READABLE, pipeline, run_as_stream
from tests.spark.conftest import MODE, ROOT, Places, contents
from tests.spark.key_search import (
    check_errors,
    check_memory,
    found_in,
    needles,
    secrets_in,
    write_keys,
)
from tests.spark.processes import kill

pytestmark = pytest.mark.spark
# All of Connect's tests are one that is slow.
SLOW = pytest.mark.slow if MODE == "classic" else pytest.mark.connect
OWN_SESSION = pytest.mark.skipif(MODE != "classic", reason="it has a session of its own")

BROKER = ROOT / "tests" / "spark" / "broker_program.py"
Sent = list[tuple[str, bytes]]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """Whatever the driver makes for others: functions, and on Connect plans."""
    out: Sent = []
    dumps = CloudPickleSerializer.dumps

    def recorded(serializer: CloudPickleSerializer, what: object) -> bytes:
        made: bytes = dumps(serializer, what)
        out.append(("function", made))
        return made

    monkeypatch.setattr(CloudPickleSerializer, "dumps", recorded)
    if MODE == "connect":
        from pyspark.sql.connect.client import SparkConnectClient
        from pyspark.sql.connect.plan import LogicalPlan

        to_proto = LogicalPlan.to_proto

        def kept(plan: LogicalPlan, *arguments: object, **named: object) -> object:
            made = to_proto(plan, *arguments, **named)
            out.append(("plan", made.SerializeToString()))
            return made

        monkeypatch.setattr(LogicalPlan, "to_proto", kept)
        for name in ("_execute", "_execute_and_fetch_as_iterator"):
            monkeypatch.setattr(SparkConnectClient, name, executed(name, out))
    return out


def executed(name: str, out: Sent) -> Callable[..., object]:
    """A method that sends a request, a write for one, and keeps what it sends."""
    from pyspark.sql.connect.client import SparkConnectClient

    inner = getattr(SparkConnectClient, name)

    def kept(client: object, request: Any, *arguments: object, **named: object) -> object:
        out.append(("request", request.SerializeToString()))
        return inner(client, request, *arguments, **named)

    return kept


@SLOW
def test_no_key_in_what_the_driver_sends_or_spark_writes(
    spark: SparkSession,
    places: Places,
    tmp_path: Path,
    sent: Sent,
    capfd: pytest.CaptureFixture[str],
) -> None:
    write_keys(tmp_path / "keys")
    (tmp_path / "data").mkdir()
    found = pipeline(spark, tmp_path / "keys", tmp_path / "data")
    ledger = cs.EventLedger(tmp_path / "data" / "ledger", rounds=10_000)
    run_as_stream(spark, tmp_path / "keys", tmp_path / "data", ledger)
    assert any(contents(tmp_path / "data" / "checkpoint"))
    for name in ("match", "stores", "delivered"):
        assert found[name] == found["wanted"], name
    assert found["tags"] == found["wanted tags"]
    check_errors(found["errors"])

    hidden = needles(secrets_in((tmp_path / "keys").iterdir()))
    assert len(hidden) > 60
    kinds = {kind for kind, _ in sent}
    assert kinds == {"function", *["plan", "request"] * (MODE == "connect")}
    assert any(b"tag-publisher" in made for _, made in sent), "where the key is, is sent"
    assert found_in(sent, hidden) == []
    told = capfd.readouterr()
    texts = [*found["errors"].items(), ("out", told.out), ("err", told.err)]
    assert found_in([(name, text.encode()) for name, text in texts], hidden) == []
    written = list(places.contents())
    assert any(b"SparkListenerTaskEnd" in content for _, content in written), "it can be read"
    assert found_in(written, hidden) == []
    assert found_in(contents(tmp_path / "data"), hidden) == []
    assert len(found_in(contents(tmp_path / "keys"), hidden)) == 9, "the search finds what is there"


@OWN_SESSION
@pytest.mark.slow
@pytest.mark.parametrize("master", ["local[2]", "connect"])
def test_no_key_of_others_in_the_memory_of_a_broker(
    spark: SparkSession, tmp_path: Path, master: str
) -> None:
    keys, own, data = tmp_path / "keys", tmp_path / "own", tmp_path / "data"
    write_keys(keys)
    data.mkdir()
    found = pipeline(spark, keys, data)
    own.mkdir()
    (keys / "tag-broker").rename(own / "tag-broker")
    with (tmp_path / "log").open("w") as log:
        broker = subprocess.Popen(
            [sys.executable, str(BROKER), master, str(own), str(data)],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    until = time.monotonic() + 120
    while not (data / "broker-found").exists():
        assert broker.poll() is None and time.monotonic() < until, (tmp_path / "log").read_text()
        time.sleep(0.1)
    time.sleep(0.2)
    try:
        assert int((data / "broker-found").read_text()) == len(found["wanted"]) + len(found["tags"])
        check_memory([broker.pid], own.iterdir(), keys.iterdir())
    finally:
        kill(broker)


@OWN_SESSION
@pytest.mark.slow
def test_no_key_in_what_a_streaming_program_leaves(tmp_path: Path) -> None:
    """Checkpoints, state, ledger, stores, event log and output of the example that is killed."""
    for name in ("settings", "log", "local", "keys", "temporary"):
        (tmp_path / name).mkdir()
    settings = {
        "eventLog.enabled": "true",
        "eventLog.dir": (tmp_path / "log").as_uri(),
        "local.dir": str(tmp_path / "local"),
        **READABLE,
    }
    (tmp_path / "settings" / "spark-defaults.conf").write_text(
        "".join(f"spark.{name} {value}\n" for name, value in settings.items())
    )
    call = [sys.executable, str(ROOT / "examples" / "stream_quotes.py"), "--kills", "2"]
    call += ["--events", "120", "--files", "6", "--output", str(tmp_path / "output")]
    program = subprocess.Popen(
        call,
        env={
            **os.environ,
            "SPARK_CONF_DIR": str(tmp_path / "settings"),
            "TMPDIR": str(tmp_path / "temporary"),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    # Its keys are gone at its end.
    names = ("publisher", "subscribers", "sealer", "own")
    while program.poll() is None and len(list((tmp_path / "keys").iterdir())) < len(names):
        for name in names:
            for path in (tmp_path / "temporary").glob(f"*/{name}"):
                shutil.copy(path, tmp_path / "keys")
        time.sleep(0.2)
    told, _ = program.communicate(timeout=900)
    assert program.returncode == 0, told.decode()[-3000:]
    assert b"differences                          0" in told
    hidden = needles(secrets_in((tmp_path / "keys").iterdir()))
    assert len(hidden) > 60
    places = [tmp_path / name for name in ("output", "log", "local", "temporary")]
    files = list(contents(*places))
    left = [*files, *unzipped(files)]
    parts = [path.relative_to(tmp_path).parts for path, _ in left]
    assert {"checkpoint-delivered", "ledger", "stored", "delivered", "log"} <= {p[1] for p in parts}
    assert any(p[0] == "log" for p in parts)
    kept = [content for path, content in left if "state" in path.parts]
    assert any(b"subscriber-0" in content for content in kept), "the state can be read"
    assert any("MANIFEST" in path.name for path, _ in left), "and what is zipped in it"
    written = [content for path, content in left if path.suffix == ".parquet"]
    assert any(b"subscriber-0" in content for content in written), "and so can files"
    assert found_in([("output", told), *left], hidden) == []


def unzipped(files: Iterable[tuple[Path, bytes]]) -> Iterator[tuple[Path, bytes]]:
    """What is in files that are zipped, such as those of RocksDB's state."""
    for path, content in files:
        if path.suffix == ".zip":
            with zipfile.ZipFile(io.BytesIO(content)) as file:
                for name in file.namelist():
                    yield path / name, file.read(name)
