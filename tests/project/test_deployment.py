"""The files of the page on running a broker: every path, option, topic, metric and command."""

from __future__ import annotations

import ctypes
import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from ctypes.util import find_library
from pathlib import Path
from threading import Event
from typing import Any

import paho.mqtt.client as paho
import pytest
import yaml
from paho.mqtt.enums import CallbackAPIVersion
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from ccbps.broker import MatchingBroker, Publication, Quota, Subscription
from ccbps.cli import main
from ccbps.cli.program import make_parser
from ccbps.errors import RefusedError
from ccbps.keys import FileKey
from ccbps.keys.sources import role_key
from ccbps.matching import from_json
from ccbps.mqtt import LocalServer, MqttClient, MqttService, MqttUrl
from ccbps.mqtt.claim import CLAIM
from ccbps.mqtt.connection import (
    BROKER,
    HELLO,
    UP,
    VERBS,
    answers_topic,
    deliveries_topic,
    requests_topic,
)
from tests.support.broker_world import World
from tests.support.mosquitto import (
    ACL,
    DEPLOYMENT,
    MOSQUITTO,
    Mosquitto,
    free_port,
    mosquitto,
)

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "deployment.md").read_text("utf-8")
BLOCKS = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [
    line.removeprefix("$ ").partition("  #")[0].strip()
    for block in BLOCKS
    for line in block.replace("\\\n", " ").splitlines()
    if line.startswith("$ ")
]
NAMES = (BROKER, "alice", "bob")
WAIT = 60.0
Rules = set[tuple[str, str, str]]


def text_of(name: str) -> str:
    return (DEPLOYMENT / name).read_text("utf-8")


def tool(name: str, variable: str | None = None) -> str:
    """The path of a program; without it the test is skipped."""
    path = os.environ.get(variable or name.upper().replace("-", "_")) or shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


# -- the page ------------------------------------------------------------------------------------


def test_the_page_shows_every_file() -> None:
    shown = re.findall(r"```\{literalinclude\} \.\./examples/deployment/(\S+)\n", PAGE)
    files = {path.name for path in DEPLOYMENT.iterdir() if path.is_file()}
    assert sorted(shown) == sorted(files)


def test_the_page_uses_every_file_that_it_shows() -> None:
    named = " ".join([*COMMANDS, compose()["services"]["broker"]["build"]["dockerfile"]])
    files = {path.name for path in DEPLOYMENT.iterdir() if path.is_file()}
    assert {name for name in files if f"examples/deployment/{name}" not in named} == {
        "Dockerfile.dockerignore"  # which docker finds by its name
    }


class Machine:
    """Files that commands of the page make, and those of a checkout. No command is run.

    Args:
        folders: folders that packages of the system make.
    """

    def __init__(self, *folders: str) -> None:
        self._made = {folder.rstrip("/") for folder in folders}

    def has(self, path: str) -> bool:
        """Whether a file or folder exists in the checkout, or was made."""
        path = path.rstrip("/")
        inside = not path.startswith("/") and (ROOT / path).exists()
        return inside or any(one == path or one.startswith(f"{path}/") for one in self._made)

    def make(self, *paths: str) -> None:
        """Make files or folders, whose folder must exist."""
        for path in paths:
            folder = path.rstrip("/").rpartition("/")[0]
            assert not folder or self.has(folder), f"nothing makes the folder of {path}"
            self._made.add(path.rstrip("/"))

    def put(self, sources: list[str], target: str) -> None:
        """Copy files, or a folder with what was made in it, to a folder or under a new name."""
        for source in (one.rstrip("*") for one in sources):
            assert self.has(source), f"nothing makes {source}"
            inside = self.has(target)
            assert inside or not target.endswith("/"), f"nothing makes {target}"
            new = f"{target.rstrip('/')}/{Path(source).name}" if inside else target
            below = [one for one in self._made if one.startswith(f"{source}/")]
            self.make(new, *sorted(new + one.removeprefix(source) for one in below))

    def unit(self, name: str) -> bool:
        """Whether systemd knows a service: of a package, or installed."""
        return name in ("mosquitto", "prometheus") or self.has(
            f"/etc/systemd/system/{name}.service"
        )


def values_of(words: list[str], *options: str) -> list[str]:
    return [words[place + 1] for place, word in enumerate(words) if word in options]


def follow(machine: Machine, command: str) -> None:
    """Check that a command's files exist, and make those that it makes."""
    name, *words = shlex.split(command)
    with_value = ("-m", "-o")
    paths = [
        word
        for place, word in enumerate(words)
        if not word.startswith("-")
        and words[place - 1 : place] not in ([one] for one in with_value)
    ]
    match Path(name).name:
        case "mkdir":
            machine.make(*paths)
        case "install" if "-d" in words:
            machine.make(*paths)
        case "install" | "cp" | "mv":
            if "-D" in words:
                machine.make(paths[-1].rpartition("/")[0])
            machine.put(paths[:-1], paths[-1])
        case "ccbps" | "openssl":
            machine.make(*values_of(words, "--out", "-keyout", "-out"))
        case "sh":
            assert machine.has(words[0])
            machine.make(f"{words[1]}.password", words[2])
        case "systemctl":
            verb, *units = paths
            assert verb in ("daemon-reload", "enable", "restart", "reload", "start", "stop")
            assert (verb == "daemon-reload") != bool(units)
            assert all(map(machine.unit, units)), f"nothing makes {units}"
        case "nft":
            assert all(map(machine.has, values_of(words, "--file")))
        case "chown":
            assert all(map(machine.has, paths[1:])), command
        case "python":
            assert machine.has(words[0])
        case "docker" | "spark-submit":
            assert all(machine.has(word) for word in words if word.startswith("examples/"))
        case "python3":
            machine.make(words[-1])
        case "pip" | "echo" | "mosquitto_passwd":
            pass
        case other:
            raise AssertionError(f"the test does not know {other}: {command}")


def test_files_and_services_of_the_page_exist_or_are_made_by_earlier_commands() -> None:
    machine = Machine("/opt", "/etc/systemd/system", "/etc/mosquitto", "/etc/prometheus", "/backup")
    machine.make("/var", "/var/lib", "/var/lib/ccbps", "/var/lib/ccbps/broker.db")
    for line in COMMANDS:
        for command in line.split(" && "):
            follow(machine, command)
    # What mosquitto's configuration, and the services read.
    for path in re.findall(r"^\w+ (/etc/mosquitto/\S+)$", text_of("mosquitto.conf"), re.MULTILINE):
        assert machine.has(path), path
    for name in ("ccbps-broker.service", "ccbps-limits.service"):
        service = unit(name)["Service"]
        read = [one.partition(":")[2] for one in service.get("LoadCredential", [])]
        read += re.findall(r"/(?:opt|etc)/\S+", " ".join(service["ExecStart"]))
        assert read
        assert all(map(machine.has, read)), name


def test_the_page_runs_commands_and_options_of_the_command_line() -> None:
    lines = [command[command.index("ccbps ") :] for command in COMMANDS if "ccbps " in command]
    lines = [line for line in lines if line.split()[1] in ("keygen", "explain", "subscribe")]
    assert len(lines) >= 6
    for line in lines:
        make_parser().parse_args(shlex.split(line)[1:])


def test_the_page_names_files_that_exist() -> None:
    paths = set(re.findall(r"examples/deployment/[\w./-]*\w", PAGE))
    for path in {path for path in paths if "/secrets" not in path}:
        assert (ROOT / path).exists(), path
    for name in set(re.findall(r"`([\w.-]+\.(?:sh|py|yaml|yml|conf|service))`", PAGE)):
        assert (DEPLOYMENT / name).exists() or name == "test_kafka.py", name


# -- the broker's script, the service and the containers ------------------------------------------


def broker_command() -> list[str]:
    """The command that the script runs."""
    command = text_of("broker.sh").partition("\nexec ")[2].partition("<>")[0]
    return shlex.split(command.replace("\\\n", " "))


def test_the_script_runs_a_broker_with_known_options_and_quotas() -> None:
    name, *arguments = broker_command()
    assert name == "ccbps"
    values = {"$METRICS_PORT": "9100"}
    parsed = make_parser().parse_args([values.get(one, one) for one in arguments])
    quotas = dict(one.split("=") for one in parsed.quota)
    assert Quota(**{name: int(value) for name, value in quotas.items()}).rate == 200
    described = re.findall(r"^#     ([A-Z_]+) ", text_of("broker.sh"), re.MULTILINE)
    assert set(described) == set(re.findall(r"\$([A-Z_]+)", text_of("broker.sh")))


def unit(name: str = "ccbps-broker.service") -> dict[str, dict[str, list[str]]]:
    """Sections of a unit, and the values of each setting."""
    sections: dict[str, dict[str, list[str]]] = {}
    for line in text_of(name).splitlines():
        if line.startswith("["):
            section = sections.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            name, _, value = line.partition("=")
            section.setdefault(name, []).append(value)
    return sections


def credentials() -> set[str]:
    return set(re.findall(r"\$CREDENTIALS_DIRECTORY/([\w.]+)", text_of("broker.sh")))


def test_the_unit_gives_the_script_what_it_reads() -> None:
    service = unit()["Service"]
    assert {one.partition(":")[0] for one in service["LoadCredential"]} == credentials()
    set_here = {one.partition("=")[0] for one in service["Environment"]}
    # systemd sets the others.
    by_systemd = {"CREDENTIALS_DIRECTORY", "STATE_DIRECTORY", "RUNTIME_DIRECTORY"}
    assert {"StateDirectory", "RuntimeDirectory", "LoadCredential"} <= set(service)
    assert set(re.findall(r"\$([A-Z_]+)", text_of("broker.sh"))) <= set_here | by_systemd


def test_systemd_takes_the_unit_and_finds_it_hardened(tmp_path: Path) -> None:
    analyze = tool("systemd-analyze")
    script = tmp_path / "broker.sh"
    shutil.copy(DEPLOYMENT / "broker.sh", script)
    copy = tmp_path / "ccbps-broker.service"
    copy.write_text(text_of(copy.name).replace("/opt/ccbps/broker.sh", str(script)), "utf-8")
    verified = subprocess.run([analyze, "verify", copy], capture_output=True, text=True, check=True)
    assert [line for line in verified.stderr.splitlines() if copy.name in line] == []
    # Of 100; a service without any hardening has 96.
    security = [analyze, "security", "--offline=true", "--threshold=15", copy]
    subprocess.run(security, capture_output=True, check=True)


def test_systemd_takes_the_unit_of_the_limits(tmp_path: Path) -> None:
    copy = tmp_path / "ccbps-limits.service"
    copy.write_text(text_of(copy.name).replace("/usr/sbin/nft", "/bin/true"), "utf-8")
    command = [tool("systemd-analyze"), "verify", copy]
    verified = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [line for line in verified.stderr.splitlines() if copy.name in line] == []


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(text_of("compose.yaml"))
    return loaded


def test_paths_ports_and_secrets_of_the_containers() -> None:
    services = compose()["services"]
    made = set()
    for volume in services["mosquitto"]["volumes"]:
        source, place, mode = volume.split(":")
        assert mode == "ro"
        assert place in text_of("mosquitto.conf") + "/etc/mosquitto/mosquitto.conf"
        if source.startswith("./secrets/"):
            made.add(source.removeprefix("./secrets/"))
        else:
            assert (DEPLOYMENT / source).is_file()
    assert made == {"passwords", "tls"}
    assert services["mosquitto"]["command"][-1] == "/etc/mosquitto/mosquitto.conf"
    # The configuration says which ports are open to whom.
    assert services["mosquitto"]["network_mode"] == services["broker"]["network_mode"] == "host"

    broker = services["broker"]
    assert set(broker["secrets"]) == set(compose()["secrets"]) == credentials()
    assert {one["file"] for one in compose()["secrets"].values()} == {
        f"./secrets/{name}" for name in credentials()
    }
    context = (DEPLOYMENT / broker["build"]["context"]).resolve()
    assert context == ROOT
    assert (context / broker["build"]["dockerfile"]) == DEPLOYMENT / "Dockerfile"
    (volume,) = broker["volumes"]
    assert volume.split(":")[0] in compose()["volumes"]


def image() -> tuple[list[str], dict[str, str]]:
    """What the image is built from, and its environment."""
    text = re.sub(r"^#.*\n", "", text_of("Dockerfile"), flags=re.MULTILINE).replace("\\\n", " ")
    copied: list[str] = []
    environment: dict[str, str] = {}
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        if word == "COPY" and "--from" not in rest:
            copied += [one for one in rest.split()[:-1] if not one.startswith("--")]
        if word == "ENV":
            environment |= dict(one.split("=", 1) for one in rest.split())
    return copied, environment


def test_the_image_has_what_it_needs() -> None:
    copied, environment = image()
    assert all((ROOT / path).exists() for path in copied)
    kept = [line[1:] for line in text_of("Dockerfile.dockerignore").splitlines() if line[0] == "!"]
    assert sorted(kept) == sorted(copied)
    assert set(re.findall(r"\$([A-Z_]+)", text_of("broker.sh"))) <= set(environment)
    broker = compose()["services"]["broker"]
    assert broker["volumes"][0].split(":")[1] == environment["STATE_DIRECTORY"]
    assert broker["tmpfs"][0].split(":")[0] == environment["RUNTIME_DIRECTORY"]
    assert environment["CREDENTIALS_DIRECTORY"] == "/run/secrets"
    given = broker["environment"]
    in_unit = dict(one.split("=", 1) for one in unit()["Service"]["Environment"])
    for name in ("MQTT_URL", "METRICS_PORT"):
        assert given[name] == environment[name] == in_unit[name]
    host, port = given["MQTT_URL"].removeprefix("mqtts://").split(":")
    assert broker["extra_hosts"] == [f"{host}:127.0.0.1"]
    assert listeners()[port] == "127.0.0.1"


@pytest.mark.slow
def test_a_wheel_is_built_from_what_the_image_copies(tmp_path: Path) -> None:
    for path in image()[0]:
        if (ROOT / path).is_dir():
            shutil.copytree(ROOT / path, tmp_path / path, ignore=lambda *_: ["__pycache__"])
        elif "/" not in path:
            shutil.copy(ROOT / path, tmp_path / path)
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel"], cwd=tmp_path, check=True
    )
    assert [*(tmp_path / "dist").glob("ccbps-*.whl")]


# -- mosquitto -----------------------------------------------------------------------------------


def options_of(text: str) -> list[str]:
    lines = [line.split()[0] for line in text.splitlines() if line and not line.startswith("#")]
    assert lines
    return lines


def test_mosquitto_knows_every_option() -> None:
    """It ignores none: an unknown one ends it. Here, from its manual."""
    shown = subprocess.run(
        [tool("man"), "mosquitto.conf"],
        capture_output=True,
        text=True,
        env={**os.environ, "MANWIDTH": "200"},
    )
    if shown.returncode:
        pytest.skip("the manual of mosquitto is not installed")
    plain = re.sub(".\b", "", shown.stdout)
    known = set(re.findall(r"^ {7}([a-z_0-9]+) (?:\[|[a-z/ ]+(?:$|\[))", plain, re.MULTILINE))
    assert set(options_of(text_of("mosquitto.conf"))) <= known


def rules(user: str) -> Rules:
    """The access of a user: actions and patterns of topics."""
    allowed: Rules = set()
    applies = False
    for line in ACL.splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "user":
            applies = rest == user
        elif kind == "pattern" or (kind == "topic" and applies):
            action, topic = rest.split()
            for one in ("read", "write") if action == "readwrite" else (action,):
                allowed.add((one, topic.replace("%u", user), user))
        else:
            assert kind in ("", "#", "topic")
    return allowed


def may(user: str, action: str, topic: str) -> bool:
    return any(
        one == action and paho.topic_matches_sub(pattern, topic) for one, pattern, _ in rules(user)
    )


def needs(user: str, action: str, topic: str) -> bool:
    """What the code of `ccbps.mqtt` sends and reads: the service, and each client."""
    if action == "write":
        own = {requests_topic(user, verb) for verb in VERBS}
        if user == BROKER:
            own |= {UP, CLAIM}
            own |= {make(name) for name in NAMES for make in (answers_topic, deliveries_topic)}
        return topic in own
    read = [answers_topic(user), deliveries_topic(user), UP]
    if user == BROKER:
        read += [CLAIM, requests_topic("+", HELLO), *map(requests_topic, NAMES)]
    return any(paho.topic_matches_sub(pattern, topic) for pattern in read)


TOPICS = [
    *(requests_topic(name, verb) for name in NAMES for verb in (*VERBS, "other")),
    *(make(name) for name in NAMES for make in (answers_topic, deliveries_topic)),
    UP,
    CLAIM,
    "ccbps/other",
    "ccbps/to/alice",
    "ccbps/to/alice/publish/more",
    "ccbps/for/alice/other",
    "other",
]


def test_the_access_list_allows_what_is_needed_and_nothing_else() -> None:
    for user in NAMES:
        for action in ("read", "write"):
            allowed = {topic for topic in TOPICS if may(user, action, topic)}
            assert allowed == {topic for topic in TOPICS if needs(user, action, topic)}


def test_mosquitto_keeps_clients_to_their_own_topics(tmp_path: Path) -> None:
    """Everybody subscribes to everything, and publishes to every topic."""
    if MOSQUITTO is None:
        pytest.skip("mosquitto is not installed")
    got: set[tuple[str, str, str]] = set()
    ended = {name: Event() for name in NAMES}

    def arrived(client: paho.Client, reader: str, message: Any) -> None:
        if message.payload == b"end":
            ended[reader].set()
        else:
            got.add((message.payload.decode(), message.topic, reader))

    with mosquitto(tmp_path) as url:
        clients = {}
        host, port = url.rpartition("/")[2].split(":")
        for name in NAMES:
            client = paho.Client(CallbackAPIVersion.VERSION2, userdata=name)
            client.username_pw_set(name)
            client.on_message = arrived
            ready = Event()
            client.on_subscribe = lambda *_, ready=ready: ready.set()
            client.connect(host, int(port))
            client.loop_start()
            client.subscribe("#", 1)
            assert ready.wait(WAIT)
            clients[name] = client
        for writer, client in clients.items():
            sent = [client.publish(topic, writer, qos=1) for topic in TOPICS]
            for one in sent:
                one.wait_for_publish(WAIT)
        for name in NAMES:
            clients[BROKER].publish(answers_topic(name), b"end", qos=1)
        assert all(event.wait(WAIT) for event in ended.values())
        for client in clients.values():
            client.disconnect()
            client.loop_stop()
    assert got == {
        (writer, topic, reader)
        for writer in NAMES
        for topic in TOPICS
        for reader in NAMES
        if needs(writer, "write", topic) and needs(reader, "read", topic)
    }


def test_last_wills_keep_to_the_access_list(tmp_path: Path) -> None:
    """Else a client could speak for others by dying."""
    if MOSQUITTO is None:
        pytest.skip("mosquitto is not installed")
    own = requests_topic("alice", "publish")
    got, ready, ended = set[str](), Event(), Event()

    def arrived(_: paho.Client, __: None, message: Any) -> None:
        got.add(message.topic)
        if message.topic == own:
            ended.set()

    with mosquitto(tmp_path) as url:
        host, port = url.rpartition("/")[2].split(":")
        readers = []
        for name in (BROKER, "bob"):
            reader = paho.Client(CallbackAPIVersion.VERSION2)
            reader.username_pw_set(name)
            reader.on_message, reader.on_subscribe = arrived, lambda *_: ready.set()
            reader.connect(host, int(port))
            reader.loop_start()
            reader.subscribe("#", 1)
            assert ready.wait(WAIT)
            ready.clear()
            readers.append(reader)
        for topic in (answers_topic("bob"), requests_topic("bob", HELLO), UP, CLAIM, own):
            client = paho.Client(CallbackAPIVersion.VERSION2)
            client.username_pw_set("alice")
            client.will_set(topic, b"will", qos=1)
            client.connect(host, int(port))
            while not client.is_connected():
                client.loop(0.1)
            client.socket().close()
        assert ended.wait(WAIT)
        for reader in readers:
            reader.disconnect()
            reader.loop_stop()
    assert got == {own}


# -- what to watch -------------------------------------------------------------------------------


def test_alerts_are_about_metrics_that_a_broker_has() -> None:
    broker = World().broker()
    families = {one.name: one for one in text_string_to_metric_families(broker.metrics())}
    endings = {"counter": ["_total"], "gauge": [""], "histogram": ["_bucket", "_sum", "_count"]}
    samples = {name + end for name, one in families.items() for end in endings[one.type]}
    (group,) = yaml.safe_load(text_of("alerts.yml"))["groups"]
    for rule in group["rules"]:
        names = set(re.findall(r"\bccbps_\w+", rule["expr"]))
        assert names <= samples, rule["alert"]
        assert names or 'up{job="ccbps"}' in rule["expr"]
        assert rule["annotations"]["summary"].endswith((".", '".'))
    assert set(re.findall(r"`(ccbps_\w+)`", PAGE)) <= samples
    scraped = yaml.safe_load(text_of("prometheus.yml"))
    assert scraped["rule_files"] == ["alerts.yml"]
    (job,) = scraped["scrape_configs"]
    assert job["job_name"] == "ccbps"
    port = compose()["services"]["broker"]["environment"]["METRICS_PORT"]
    assert job["static_configs"] == [{"targets": [f"127.0.0.1:{port}"]}]


def test_prometheus_takes_the_alerts() -> None:
    command = [tool("promtool"), "check", "config", DEPLOYMENT / "prometheus.yml"]
    subprocess.run(command, check=True, capture_output=True)


QUIET = {
    'up{job="ccbps"}': "1x90",
    "ccbps_publications_total": "0+600x90",
    "ccbps_repeated_total": "0+1x90",
    'ccbps_refused_total{reason="rate"}': "0+1x90",
    "ccbps_filter_false_positives_total": "0+1x90",
    "ccbps_pairs_refused_total": "0x90",
    "ccbps_dropped_total": "0x90",
    "ccbps_waiting": "100x90",
    "ccbps_clients": "10x90",
    "ccbps_match_seconds_sum": "0+1x90",
    'ccbps_match_seconds_bucket{le="0.01"}': "0+600x90",
    'ccbps_match_seconds_bucket{le="0.1"}': "0+600x90",
    'ccbps_match_seconds_bucket{le="1.0"}': "0+600x90",
    'ccbps_match_seconds_bucket{le="+Inf"}': "0+600x90",
}
ALARMING = {
    "BrokerDown": {'up{job="ccbps"}': "0x90"},
    "NothingPublished": {
        "ccbps_publications_total": "600x90",
        "ccbps_repeated_total": "0x90",
        "ccbps_filter_false_positives_total": "0x90",
    },
    "DeliveriesDropped": {"ccbps_dropped_total": "0x85 7x5"},
    "DeliveriesWait": {"ccbps_waiting": "30000x90"},
    "PairsOfOtherRounds": {"ccbps_pairs_refused_total": "0+1x90"},
    "ClientsRefused": {'ccbps_refused_total{reason="rate"}': "0+120x90"},
    "PublicationsRepeated": {"ccbps_repeated_total": "0+60x90"},
    "MatchingSlow": {
        f'ccbps_match_seconds_bucket{{le="{bound}"}}': "0+590x90" for bound in ("0.01", "0.1")
    },
    "BrokerBusy": {"ccbps_match_seconds_sum": "0+50x90"},
    "FilterUseless": {"ccbps_filter_false_positives_total": "0+60x150"},
}


@pytest.mark.slow
def test_each_alert_fires_when_it_should_and_no_other(tmp_path: Path) -> None:
    """Of brokers with 600 publications a minute."""
    promtool = tool("promtool")
    names = [one["alert"] for one in yaml.safe_load(text_of("alerts.yml"))["groups"][0]["rules"]]
    assert sorted(ALARMING) == sorted(names)
    cases: list[dict[str, Any]] = []
    for fired, changed in [("", dict[str, str]()), *ALARMING.items()]:
        series = {**QUIET, **changed}
        minutes = 150 if fired == "FilterUseless" else 90
        values = {name: text.replace("x90", f"x{minutes}") for name, text in series.items()}
        cases.append(
            {
                "interval": "1m",
                "input_series": [{"series": one, "values": values[one]} for one in values],
                "promql_expr_test": [
                    {
                        "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                        "eval_time": f"{minutes}m",
                        "exp_samples": [{"labels": f'{{alertname="{fired}"}}', "value": 1}]
                        if fired
                        else [],
                    }
                ],
            }
        )
    text = {"rule_files": [str(DEPLOYMENT / "alerts.yml")], "tests": cases}
    (tmp_path / "cases.yml").write_text(yaml.safe_dump(text), "utf-8")
    command = [promtool, "test", "rules", tmp_path / "cases.yml"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_nftables_takes_the_limits() -> None:
    command = [tool("nft"), "--check", "--file", DEPLOYMENT / "nftables.conf"]
    subprocess.run(command, check=True, capture_output=True)


Packet = tuple[str, str, int]
"""Interface, protocol and port of its target."""


def verdict(packet: Packet) -> str:
    """What nftables.conf does with a packet. A rule on TCP's ports applies to TCP alone."""
    interface, protocol, port = packet
    is_tcp = protocol == "tcp"
    for line in text_of("nftables.conf").partition("policy accept;\n")[2].splitlines():
        match line.split():
            case ["iifname", name, ending]:
                applies = interface == name.strip('"')
            case ["meta", "l4proto", "!=", other, ending]:
                applies = protocol != other
            case ["tcp", "dport", "!=", other, ending]:
                applies = is_tcp and port != int(other)
            case ["tcp", "dport", other, ending]:
                applies = is_tcp and port == int(other)
            case [("ct" | "update"), *_]:
                return "limited"
            case words:
                assert words[:1] in ([], ["}"], ["#"]), line
                continue
        if applies:
            return ending
    return "accept"


@pytest.mark.parametrize(
    ("packet", "ending"),
    [
        (("eth0", "udp", 53), "accept"),
        (("eth0", "udp", 8883), "accept"),
        (("eth0", "icmp", 0), "accept"),
        (("eth0", "tcp", 22), "accept"),
        (("eth0", "tcp", 8883), "limited"),
        (("eth0", "tcp", 8884), "drop"),
        (("lo", "tcp", 8884), "accept"),
        (("lo", "tcp", 8883), "accept"),
    ],
)
def test_the_limits_apply_to_the_port_of_clients_alone(packet: Packet, ending: str) -> None:
    assert verdict(packet) == ending


def listeners() -> dict[str, str]:
    """Ports of mosquitto, and the address at which each is open; an empty one is all."""
    text = text_of("mosquitto.conf")
    return dict(re.findall(r"^listener (\d+) ?(\S*)$", text, re.MULTILINE))


def test_no_other_machine_reaches_the_port_of_the_broker() -> None:
    assert listeners() == {"8883": "", "8884": "127.0.0.1"}
    ports = re.findall(r"dport (?:!= )?(\d+)", text_of("nftables.conf"))
    assert sorted(ports) == [*listeners()]


def test_mosquitto_needs_the_limits() -> None:
    assert unit("ccbps-limits.service")["Install"]["RequiredBy"] == ["mosquitto.service"]


# -- passwords of clients ------------------------------------------------------------------------

FAILING, HASHING = "exit 1", """sed -i 's/:.*/:hash/' "$2" """


def add_client(folder: Path, mosquitto_passwd: str | None) -> subprocess.CompletedProcess[str]:
    """Run the script for alice, with a `mosquitto_passwd` of this text or none."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    for name in ("cat", "cut", "grep", "head", "base64", "tr", "rm", "mktemp", "sed"):
        if not (programs / name).exists():
            (programs / name).symlink_to(tool(name))
    if mosquitto_passwd is not None:
        (programs / "mosquitto_passwd").write_text(f"#!/bin/sh\n{mosquitto_passwd}\n")
        (programs / "mosquitto_passwd").chmod(0o700)
    command = ["/bin/sh", DEPLOYMENT / "add_client.sh", "alice", "passwords"]
    return subprocess.run(
        command,
        cwd=folder,
        env={"PATH": str(programs)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("mosquitto_passwd", [None, FAILING, "kill $PPID"])
def test_a_failure_leaves_no_password_and_can_be_repeated(
    mosquitto_passwd: str | None, tmp_path: Path
) -> None:
    refused = add_client(tmp_path, mosquitto_passwd)
    assert refused.returncode == 1
    assert ("mosquitto_passwd is not installed" in refused.stderr) == (mosquitto_passwd is None)
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]
    assert add_client(tmp_path, HASHING).returncode == 0
    assert (tmp_path / "passwords").read_text() == "alice:hash\n"
    assert (tmp_path / "alice.password").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "alice.password",
        "bin",
        "passwords",
    ]
    # A second time, and with a file of this name from elsewhere.
    assert add_client(tmp_path, HASHING).returncode == 2
    (tmp_path / "passwords").unlink()
    kept = (tmp_path / "alice.password").read_text()
    assert add_client(tmp_path, HASHING).returncode != 0
    assert (tmp_path / "alice.password").read_text() == kept
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alice.password", "bin"]


# -- all of it -----------------------------------------------------------------------------------


def calls_of(name: str) -> set[str]:
    """System calls of a name or a group of systemd's."""
    if not name.startswith("@"):
        return {name}
    command = [tool("systemd-analyze"), "syscall-filter", name]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = [line.strip() for line in listed.splitlines()[1:]]
    return set().union(*(calls_of(line) for line in lines if line and line[0] != "#"))


def calls_of_the_unit() -> set[str]:
    """System calls that the unit lets through."""
    calls: set[str] = set()
    for value in unit()["Service"]["SystemCallFilter"]:
        listed = set().union(*map(calls_of, value.removeprefix("~").split()))
        calls = calls - listed if value.startswith("~") else calls | listed
    return calls


def confinement() -> Callable[[], None]:
    """Make a function that confines its process as the unit does, and ends it where systemd fails.

    There is no executable memory that can be written, and no other system call.
    """
    name = find_library("seccomp")
    if name is None:
        pytest.skip("libseccomp is not installed")
    seccomp = ctypes.CDLL(name)
    seccomp.seccomp_init.restype = ctypes.c_void_p
    calls = calls_of_the_unit()
    if os.getuid() == 0:
        calls.add("fchown")  # by SQLite, for root alone

    def confine() -> None:
        ctypes.CDLL(None).prctl(65, 1, 0, 0, 0)  # PR_SET_MDWE, of Linux 6.3
        context = ctypes.c_void_p(seccomp.seccomp_init(0x80000000))  # SCMP_ACT_KILL_PROCESS
        for call in calls:
            number = seccomp.seccomp_syscall_resolve_name(call.encode())
            if number >= 0:
                seccomp.seccomp_rule_add(context, 0x7FFF0000, number, 0)  # SCMP_ACT_ALLOW
        if seccomp.seccomp_load(context):
            raise OSError("the filter of system calls cannot be loaded")

    return confine


@contextmanager
def running_broker(
    folder: Path, environment: dict[str, str], confine: Callable[[], None] | None
) -> Iterator[subprocess.Popen[str]]:
    """The script's broker, until SIGTERM."""
    with subprocess.Popen(
        [DEPLOYMENT / "broker.sh"],
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=confine,
    ) as process:
        try:
            assert process.stdout is not None
            assert "mqtts://localhost:" in process.stdout.readline()
            yield process
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT) == 0
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("is_confined", [False, True])
def test_a_broker_runs_as_the_page_says(
    is_confined: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TLS, passwords, limits, the operator's pipe, metrics, and the unit's confinement."""
    if MOSQUITTO is None:
        pytest.skip("mosquitto is not installed")
    tool("mosquitto_passwd")
    confine = confinement() if is_confined else None
    monkeypatch.chdir(tmp_path)
    folders = {name: tmp_path / name for name in ("credentials", "state", "run", "tls", "bin")}
    for folder in folders.values():
        folder.mkdir(mode=0o700)

    # The certificate, keys and passwords, by the page's own commands.
    (certify,) = [one for one in COMMANDS if one.startswith("openssl")]
    certify = certify.replace("mqtt.example.org", "localhost").replace("secrets/", "")
    subprocess.run(shlex.split(certify), check=True, capture_output=True)
    for command in COMMANDS:
        if command.startswith(("ccbps explain ", "ccbps keygen ")):
            assert main(shlex.split(command.replace("secrets/", "credentials/"))[1:]) == 0
    for name in (BROKER, "alice", "feed"):
        subprocess.run([DEPLOYMENT / "add_client.sh", name, "passwords"], check=True)
    refused = subprocess.run(
        [DEPLOYMENT / "add_client.sh", "alice", "passwords"], capture_output=True, check=False
    )
    assert refused.returncode == 2
    words = {name: Path(f"{name}.password").read_text().strip() for name in ("alice", "feed")}
    assert all(word not in Path("passwords").read_text() for word in words.values())
    shutil.copy("broker.password", folders["credentials"])
    shutil.copy("tls/server.pem", folders["credentials"] / "ca.pem")

    clients, own = free_port(), free_port()
    text = text_of("mosquitto.conf").replace("/etc/mosquitto", str(tmp_path))
    text = text.replace("listener 8883", f"listener {clients}")
    text = text.replace("listener 8884 ", f"listener {own} ")
    (folders["bin"] / "ccbps").write_text(f'#!/bin/sh\nexec {sys.executable} -m ccbps "$@"\n')
    (folders["bin"] / "ccbps").chmod(0o700)
    metrics = free_port()
    environment = {
        "PATH": f"{folders['bin']}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "MQTT_URL": f"mqtts://localhost:{own}",
        "METRICS_PORT": str(metrics),
        "CREDENTIALS_DIRECTORY": str(folders["credentials"]),
        "STATE_DIRECTORY": str(folders["state"]),
        "RUNTIME_DIRECTORY": str(folders["run"]),
    }
    with Mosquitto(tmp_path, text, clients) as server:
        at = {
            name: MqttUrl(
                f"mqtts://localhost:{clients}", name, word, str(tmp_path / "tls/server.pem")
            )
            for name, word in words.items()
        }
        with (
            running_broker(tmp_path, environment, confine) as process,
            closing_clients(at) as (alice, feed),
        ):
            exchange(alice, feed, 0)
            server.stop()
            server.start()
            exchange(alice, feed, 1)
            page = urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics", timeout=WAIT)
            assert b"ccbps_deliveries_total 2.0" in page.read()
            with (folders["run"] / "operator").open("w") as operator:
                operator.write("revoke alice\n")
            with pytest.raises(RefusedError, match="revoked"):
                alice.receive(WAIT)
            assert process.stdout is not None
            assert process.stdout.readline() == "alice is shut out\n"
        # A wrong password, and no password.
        for word in ("wrong", None):
            with pytest.raises(OSError, match="refuses alice"):
                MqttClient(MqttUrl(*at["alice"].url.split(), "alice", word, at["alice"].ca)).start()
        # A password that is gone ends the connection.
        watched, connected, ended = paho.Client(CallbackAPIVersion.VERSION2), Event(), Event()
        watched.username_pw_set("feed", words["feed"])
        watched.tls_set(at["feed"].ca)
        watched.on_connect = lambda *_: connected.set()
        watched.on_disconnect = lambda *_: ended.set()
        watched.connect("localhost", clients)
        watched.loop_start()
        assert connected.wait(WAIT)
        subprocess.run(["mosquitto_passwd", "-D", "passwords", "feed"], check=True)
        server.reload()
        assert ended.wait(WAIT)
        watched.loop_stop()
    # A copy is one file, once the broker has ended.
    assert [path.name for path in folders["state"].iterdir()] == ["broker.db"]


def exchange(alice: MqttClient, feed: MqttClient, first: int) -> None:
    """A match, and messages as large as the quota and mosquitto let through, and larger ones."""
    matcher = from_json(Path("credentials/quotes.matcher").read_text())
    key = {name: role_key(FileKey(f"{name}.key")) for name in ("alice", "feed")}
    asked = matcher.subscriber(key["alice"]).encode("issue = 'IBM' AND price < 120")
    for number in range(100):
        alice.subscribe(Subscription(f"{number:0256}", asked))
    event = matcher.publisher(key["feed"]).encode({"issue": ["IBM"], "price": [119]})[0].tobytes()
    spare = (1 << 20) - len(Publication(first, event, bytes(700_000)).to_bytes())
    largest = Publication(first, event, bytes(700_000 + spare))
    assert len(largest.to_bytes()) == 1 << 20
    feed.publish(largest)
    assert len(alice.receive(WAIT).names) == 100
    with pytest.raises(RefusedError, match="a message of"):
        feed.publish(Publication(9, event, bytes(1_100_000)))


@contextmanager
def closing_clients(at: dict[str, MqttUrl]) -> Iterator[tuple[MqttClient, MqttClient]]:
    with (
        MqttClient(at["alice"], timeout=WAIT) as alice,
        MqttClient(at["feed"], timeout=WAIT) as feed,
    ):
        yield alice, feed


@pytest.mark.slow
def test_a_restored_broker_gives_no_number_twice(tmp_path: Path) -> None:
    """A client that lived on would take new deliveries for those that it had, and drop them."""
    users = dict.fromkeys((BROKER, "alice", "feed"), "password")
    world, file, copy = World(), tmp_path / "broker.db", tmp_path / "copy.db"
    with LocalServer(users) as server:
        at = {name: MqttUrl(server.url, name, word) for name, word in users.items()}
        with closing_clients(at) as (alice, feed):

            @contextmanager
            def served() -> Iterator[MatchingBroker]:
                broker = world.broker(path=file)
                with closing(broker), MqttService(broker, at[BROKER]):
                    yield broker

            with served() as broker:
                alice.subscribe(world.wants("a", "price < 10"))
                feed.publish(world.event(0, 3))
                assert alice.receive(WAIT).number == 0
                broker.revoke("mallory")
            assert [*tmp_path.iterdir()] == [file]
            shutil.copy(file, copy)
            with served():
                for number in range(1, 5):
                    feed.publish(world.event(number, 3))
                    assert alice.receive(WAIT).number == number
            file.unlink()
            command = [sys.executable, DEPLOYMENT / "restore.py", copy, file]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            assert "shut out in the copy: mallory\n" in said
            assert file.stat().st_mode & 0o777 == 0o600
            with served():
                for number in range(5, 12):
                    feed.publish(world.event(number, 3))
                # Behind what she had, and the copy does not know that she had.
                got = list(iter(lambda: alice.receive(WAIT).number, 11))
                assert got[-6:] == [*range(5, 11)]
            again = subprocess.run(command, capture_output=True, text=True, check=False)
            assert again.returncode == 1
            assert "exists: move both away first" in again.stderr


@pytest.mark.parametrize(
    ("damage", "said"), [("other", "not a broker's file"), ("no", "not exist")]
)
def test_a_file_of_another_kind_is_not_restored(tmp_path: Path, damage: str, said: str) -> None:
    copy, file = tmp_path / "copy.db", tmp_path / "broker.db"
    if damage == "other":
        with closing(sqlite3.connect(copy)) as other:
            other.execute("CREATE TABLE numbers (number)")
    command = [sys.executable, DEPLOYMENT / "restore.py", copy, file]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert said in refused.stderr
    assert not file.exists()
