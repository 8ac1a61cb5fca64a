"""No key in what a driver sends, in what Spark writes, or in a broker's memory."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import SparkSession

import ccbps.keys
from ccbps import SharedSeed
from ccbps import spark as cs
from ccbps.errors import KeyMismatchError
from tests.spark.cluster_program import (
    PLANTED,
    READABLE,
    errors,
    pipeline,
    plant,
    run_as_stream,
)
from tests.spark.key_search import (
    all_groups,
    check_errors,
    check_memory,
    check_readable,
    found_in,
    locals_of,
    needles,
    pieces,
    planted_in,
    secrets_in,
    secrets_of,
    shown,
    unzipped,
    write_keys,
)
from tests.spark.processes import kill
from tests.support.spark_session import KEY, MODE, ROOT, Places, contents

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


@pytest.mark.skipif(MODE != "classic", reason="it needs no session")
@pytest.mark.parametrize("before", [0, 1, 2])
@pytest.mark.parametrize(
    "form",
    [
        bytes,
        lambda secret: secret.hex().encode(),
        lambda secret: secret.hex().upper().encode(),
        lambda secret: secret.hex().encode().hex().encode(),
        base64.b64encode,
        base64.urlsafe_b64encode,
        lambda secret: base64.b64encode(secret.hex().encode()),
        lambda secret: repr(secret).encode(),
        lambda secret: json.dumps(repr(secret)).encode(),
        lambda secret: repr([*secret]).encode(),
        lambda secret: repr(np.frombuffer(secret, np.uint8)).encode(),
        lambda secret: json.dumps(repr(np.frombuffer(secret, np.uint8))).encode(),
        lambda secret: str(np.frombuffer(secret, np.int8)).encode(),
        lambda secret: secret.hex(" ").upper().encode(),
    ],
)
def test_a_secret_is_found_in_each_form(form: Callable[[bytes], bytes], before: int) -> None:
    content = form(b"\\'\""[:before] + PLANTED)
    other = form(b"\\'\""[:before] + PLANTED[::-1])
    assert planted_in(shown([("it", b"x = " + content), ("other", b"x = " + other)])) == {"it"}


@SLOW
def test_no_key_in_what_the_driver_sends_or_spark_writes(
    spark: SparkSession,
    seed: SharedSeed,
    places: Places,
    tmp_path: Path,
    sent: Sent,
    capfd: pytest.CaptureFixture[str],
) -> None:
    keys, data = tmp_path / "keys", tmp_path / "data"
    write_keys(keys)
    data.mkdir()
    found, ledger = pipeline(spark, keys, data), cs.EventLedger(data / "ledger", rounds=10_000)
    refused = errors(spark, keys, data, ledger)
    run_as_stream(spark, keys, data, ledger)
    for name in ("match", "stores", "delivered"):
        assert found[name] == found["wanted"], name
    assert found["tags"] == found["wanted tags"]
    check_errors(refused)
    payloads = spark.createDataFrame([(1, "quote")], "event long, payload string")
    assert cs.seal_payloads(payloads, KEY).count() == 1
    planted = plant(spark, data)

    secrets = secrets_in(keys.iterdir(), all_groups()) | pieces(secrets_of(seed))
    hidden = needles(secrets)
    assert len(secrets) > 60
    told = capfd.readouterr()
    texts = [*refused.items(), *planted.items(), ("out", told.out), ("err", told.err)]
    said = [(name, text.encode()) for name, text in texts]
    assert any(b"tag-publisher" in made for _, made in sent), "where the key is, is sent"
    written = [*places.contents(), *unzipped(contents(data))]

    # What was planted is found wherever it is, so a key would be, too.
    kinds = {"function", *["plan", "request"] * (MODE == "connect")}
    assert {kind for kind, _ in sent} == planted_in(sent) == kinds
    assert {"plan", "error"} == planted_in(shown(said))
    held = locals_of(planted["error"])
    assert {"held", "listed", "array"} <= planted_in(shown(held))
    where = planted_in(written)
    assert any(path.is_relative_to(places.event_log) for path in where)
    assert any(path.is_relative_to(places.local) for path in where if "shuffle" in path.name)
    assert any(path.is_relative_to(data / "planted") for path in where)
    check_readable(written, data)

    assert found_in(sent, hidden) == []
    assert found_in(shown([*said, *written]), hidden) == []
    every = len([*keys.iterdir()])
    assert len(found_in(contents(keys), hidden)) == every, "the search finds what is there"


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
                # It may be half written, or gone.
                with contextlib.suppress(KeyMismatchError, FileNotFoundError):
                    ccbps.keys.from_text(text := path.read_text())
                    (tmp_path / "keys" / name).write_text(text)
        time.sleep(0.2)
    told, _ = program.communicate(timeout=900)
    assert program.returncode == 0, told.decode()[-3000:]
    assert b"differences                          0" in told
    groups = defaultdict[int, set[int]](set)
    for path in (tmp_path / "output" / "matches").glob("part-*"):
        with contextlib.suppress(pa.ArrowInvalid):  # a kill has cut it off
            for row in pq.read_table(path, columns=["event", "subscription"]).to_pylist():
                groups[row["event"]].add(int(row["subscription"].removeprefix("subscriber-")))
    assert groups
    hidden = needles(secrets_in((tmp_path / "keys").iterdir(), groups.values()))
    assert len(hidden) > 60
    places = [tmp_path / name for name in ("output", "log", "local", "temporary")]
    left = [*unzipped(contents(*places))]
    parts = [path.relative_to(tmp_path).parts for path, _ in left]
    assert {"checkpoint-delivered", "ledger", "stored", "delivered", "log"} <= {p[1] for p in parts}
    assert any(p[0] == "log" for p in parts)
    kept = [content for path, content in left if "state" in path.parts]
    assert any(b"subscriber-0" in content for content in kept), "the state can be read"
    assert any("MANIFEST" in path.name for path, _ in left), "and what is zipped in it"
    written = [content for path, content in left if path.suffix == ".parquet"]
    assert any(b"subscriber-0" in content for content in written), "and so can files"
    assert found_in(shown([("output", told), *left]), hidden) == []
