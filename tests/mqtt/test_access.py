"""Access control of a broker behind a real MQTT server: what clients are told, and when."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from ccbps.access import Grant, attenuate_token, issue_token, present_token
from ccbps.broker import MatchingBroker
from ccbps.broker.enforcement import When
from ccbps.errors import DecodeError, RefusedError, ReplayError
from ccbps.keys import SigningKey
from ccbps.mqtt import LocalServer, MqttClient, MqttService, MqttUrl, client, service
from ccbps.mqtt.connection import UP, VERBS
from tests.support.access_world import AUTHORITY, AccessWorld, user_key
from tests.support.broker_world import refused
from tests.support.mosquitto import ACL, MOSQUITTO, mosquitto

USERS = {name: f"password of {name}" for name in ("broker", "authority", "feed", "ann", "cem")}
WAIT = 60.0
WHENS: tuple[When, When] = ("before", "after")
GRANTS = [
    Grant("feed", ("publish",), "x < 7"),
    Grant("doctor", ("subscribe", "receive"), "x < 4"),
    Grant("nurse", ("receive", "subscribe"), "x > 2", 20.0, 3.0),
]
ROLES = {"feed": ["feed"], "doctor": ["ann"], "nurse": ["cem"]}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PATIENCE", 0.1)


@pytest.fixture(params=["amqtt", pytest.param("mosquitto", marks=pytest.mark.slow)])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An MQTT server of each kind that is there."""
    if request.param == "amqtt":
        with LocalServer(USERS) as server:
            yield server.url
    elif MOSQUITTO is None:
        pytest.skip("mosquitto is not installed")
    else:
        with mosquitto(tmp_path) as url:
            yield url


class Place:
    """A broker with a policy at an MQTT server, and its clients.

    Attributes:
        world: the policy, and what clients send.
        told: warnings to each client.
    """

    def __init__(self, address: str, stack: ExitStack, when: When, **options: Any) -> None:
        self._address, self._stack = address, stack
        self.world = AccessWorld(ROLES, GRANTS, (), when, **options)
        self.told: dict[str, list[str]] = {name: [] for name in USERS}
        self.service = self.serve(self.world.broker)
        self.clients: dict[str, MqttClient] = {}

    def serve(self, broker: MatchingBroker) -> MqttService:
        return self._stack.enter_context(MqttService(broker, self.url("broker")))

    def url(self, name: str) -> MqttUrl:
        return MqttUrl(self._address, name, USERS[name])

    def connect(self, name: str) -> MqttClient:
        own = MqttClient(self.url(name), timeout=WAIT, on_warning=self.told[name].append)
        self.clients[name] = own
        return self._stack.enter_context(own)

    def token(self, name: str, **settings: Any) -> bytes:
        return self.world.authority.issue(name, user_key(name).identity, **settings)

    def enter(self, name: str, **settings: Any) -> MqttClient:
        """Return a client that has presented a token."""
        own = self.clients.get(name) or self.connect(name)
        own.present(self.token(name, **settings), user_key(name))
        return own

    def subscribe(self, name: str, text: str = "TRUE") -> None:
        for one in self.world.wants(name, "a", text):
            self.clients[name].subscribe(one)

    def publish(self, *values: int) -> None:
        for x in values:
            self.clients["feed"].publish(self.world.event("feed", x))

    def received(self, name: str, count: int) -> list[int]:
        return [int(self.clients[name].receive(WAIT).payload) for _ in range(count)]


@contextmanager
def placed(address: str, when: When = "before", **options: Any) -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(address, stack, when, **options)


def until(is_reached: Callable[[], object]) -> None:
    """Wait until something holds."""
    end = time.monotonic() + WAIT
    while not is_reached():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("when", WHENS)
def test_a_client_that_is_revoked_is_told_at_once(address: str, when: When) -> None:
    with placed(address, when) as place:
        authority = place.connect("authority")
        ann, _ = place.enter("ann"), place.enter("feed")
        place.subscribe("ann")
        place.publish(3)
        assert place.received("ann", 1) == [3]
        (wanted,) = place.world.wants("ann", "a", "TRUE")
        place.world.authority.revoke("ann")
        authority.enact(place.world.enactment())
        until(lambda: place.told["ann"])
        assert place.told["ann"] == [
            "subscription a ended: policy version 2 lets ann not subscribe and receive"
        ]
        place.publish(3)
        with refused("revoked", "ann was revoked by policy version 2"):
            ann.receive(WAIT)
        with refused("revoked", "ann was revoked by policy version 2"):
            ann.subscribe(wanted)
        with refused("revoked"):
            ann.present(attenuated(place, "ann"), user_key("ann"))


@pytest.mark.parametrize("when", WHENS)
def test_a_client_whose_revocation_is_taken_back_goes_on(address: str, when: When) -> None:
    with placed(address, when) as place:
        ann, _ = place.enter("ann"), place.enter("feed")
        place.subscribe("ann")
        for value in (1, 2):
            place.world.enact(revoked=["ann", "feed"])
            with refused("revoked"):
                ann.receive(WAIT)
            with refused("revoked"):
                place.publish(3)
            place.world.enact(revoked=[])
            place.subscribe("ann")
            place.publish(value)
            assert place.received("ann", 1) == [value]
            place.enter("ann")


def attenuated(place: Place, name: str) -> bytes:
    """A token that the authority issued to a user who was revoked since then."""
    key = user_key(name).identity
    return issue_token(AUTHORITY, name, key, ["doctor"], policy=1, starts=1000, seconds=60)


@pytest.mark.parametrize("when", WHENS)
def test_deliveries_stop_with_the_token_and_the_client_is_told(address: str, when: When) -> None:
    with placed(address, when) as place:
        place.enter("feed")
        ann = place.enter("ann", seconds=60)
        place.subscribe("ann")
        place.publish(1)
        assert place.received("ann", 1) == [1]
        for _ in range(2):  # it is told each time
            place.world.clock.now += 61
            place.publish(2)
            with pytest.raises(TimeoutError):
                ann.receive(0.25)
            until(lambda: place.told["ann"])
            (told,) = place.told["ann"]
            assert "the token of ann ended: have it renewed in time" in told
            (wanted,) = place.world.wants("ann", "b", "TRUE")
            with refused("expired"):
                ann.subscribe(wanted)
            place.told["ann"].clear()
            place.enter("ann", seconds=60)
            place.publish(3)
            assert place.received("ann", 1) == [3]


def test_a_token_that_is_renewed_in_time_leaves_no_gap(address: str) -> None:
    with placed(address) as place:
        place.enter("feed")
        ann, authority = place.connect("ann"), place.world.authority
        token = place.token("ann", seconds=60)
        ann.present(token, user_key("ann"))
        place.subscribe("ann")
        for number in range(3):
            place.world.clock.now += 50
            shown = present_token(token, user_key("ann"), authority.session, "ann", number)
            token = authority.renew(shown, seconds=60)
            ann.present(token, user_key("ann"))
            place.publish(number)
        assert place.received("ann", 3) == [0, 1, 2]
        assert not place.told["ann"]


def test_a_token_that_was_attenuated_allows_less(address: str) -> None:
    with placed(address) as place:
        feed = place.enter("feed")
        token = attenuate_token(place.token("feed"), AUTHORITY.identity, actions=["receive"])
        feed.present(token, user_key("feed"))
        with refused("publish", "the token of feed does not allow to publish"):
            place.publish(1)
        token = attenuate_token(place.token("feed"), AUTHORITY.identity, until=1010)
        feed.present(token, user_key("feed"))
        place.publish(1)
        place.world.clock.now += 11
        with refused("expired"):
            place.publish(1)


def test_a_presentation_is_sent_again_also_without_a_token(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request could outlive its token; to send it again ended the client's thread."""
    with placed(address) as place:
        cem, sent = place.connect("cem"), []
        with refused("token", "presented no token"):
            cem.subscribe(place.world.wants("cem", "a", "TRUE")[0])
        assert cem._send(client.PRESENT, b"", Future()) == b""
        monkeypatch.setattr(cem._connection, "send", lambda *given: sent.append(given))
        number = cem._send(client.PRESENT, b"of somebody", Future())
        cem._send_again()
        assert [content for _, content in sent] == [number + b"of somebody"] * 2


def test_stolen_tokens_and_presentations_open_nothing(address: str) -> None:
    with placed(address) as place:
        ann, cem = place.connect("ann"), place.connect("cem")
        token = place.token("ann")
        ann.present(token, user_key("ann"))
        seen = ann._content(client.PRESENT, b"")  # an eavesdropper has it
        with refused("proof", "did not sign"):
            ann.present(token, SigningKey.generate())
        with refused("proof"):
            cem._ask(client.PRESENT, seen)
        with refused("proof"):
            cem.present(token, user_key("cem"))
        with refused("user", "not that of cem"):
            cem.present(token, user_key("ann"))
        ann._ask(client.PRESENT, seen)
        with pytest.raises(ReplayError, match="not new"):
            ann._ask(client.PRESENT, seen)
        with pytest.raises(DecodeError):
            cem.present(token[:-1], user_key("cem"))
        with refused("token", "presented no token"):
            cem.subscribe(place.world.wants("cem", "a", "TRUE")[0])
        # What was refused is not presented again, and ann's token counts still.
        assert ann._token == (token, user_key("ann"))
        assert cem._token is None


def test_a_flooder_is_told_to_wait_and_others_are_served(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with placed(address) as place:
        limited = [Grant("feed", ("publish",), rate=2.0, burst=3.0), *GRANTS[1:]]
        place.world.enact(grants=limited)
        feed, _ = place.enter("feed"), place.enter("ann")
        place.subscribe("ann")
        # What is sent again, on a slow machine, would be accepted when time has passed.
        monkeypatch.setattr(client, "PATIENCE", WAIT)
        sent = [feed.publish_later(place.world.event("feed", 1)) for _ in range(20)]
        errors = [one.exception(WAIT) for one in sent]
        assert errors[:3] == [None] * 3
        for error in errors[3:]:
            assert isinstance(error, RefusedError)
            assert error.reason == "rate"
            assert "feed may publish 2 events a second: wait" in str(error)
        assert place.received("ann", 3) == [1, 1, 1]
        place.world.clock.now += 1
        place.publish(2, 2)
        assert place.received("ann", 2) == [2, 2]


@pytest.mark.parametrize("when", WHENS)
def test_deliveries_over_the_rate_come_later(address: str, when: When) -> None:
    with placed(address, when) as place:
        place.enter("feed")
        cem = place.enter("cem")
        place.subscribe("cem")
        place.publish(*[3] * 8)
        assert place.received("cem", 3) == [3] * 3
        with pytest.raises(TimeoutError):
            cem.receive(0.2)
        place.world.clock.now += 0.1  # nothing else happens: the service goes on by itself
        assert place.received("cem", 2) == [3] * 2
        place.world.clock.now += 60
        assert place.received("cem", 3) == [3] * 3


def test_a_pause_costs_one_timer_a_client(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    class Timer(service.threading.Timer):
        def __init__(self, *arguments: Any) -> None:
            made.append(arguments)
            super().__init__(*arguments)

    monkeypatch.setattr(service.threading, "Timer", Timer)
    with placed(address) as place:
        slow = [*GRANTS[:2], Grant("nurse", ("receive", "subscribe"), "x > 2", 0.001, 1.0)]
        place.world.enact(grants=slow)
        place.enter("feed")
        place.enter("cem")
        place.subscribe("cem")
        place.publish(*[3] * 30)
        assert place.received("cem", 1) == [3]
        assert len(made) == 1


@pytest.mark.parametrize("when", WHENS)
def test_clients_present_again_when_their_broker_starts_again(address: str, when: When) -> None:
    # Without a file: the policy comes after the clients.
    with placed(address, when) as place:
        ann, feed = place.enter("ann"), place.enter("feed")
        for _ in range(2):
            place.service.stop()
            place.world.broker = place.world.start()
            place.service = place.serve(place.world.broker)
            with refused("token"):
                ann.subscribe(place.world.wants("ann", "a", "TRUE")[0])
            place.connect("authority").enact(place.world.enactment())
            until(lambda: all(place.world.guard.token(one) for one in ("ann", "feed")))
            place.subscribe("ann")
            place.publish(2)
            assert place.received("ann", 1) == [2]
        assert feed._token is not None


def test_a_token_that_counts_no_more_after_a_start_is_told(address: str, tmp_path: Path) -> None:
    with placed(address, path=tmp_path / "broker.db") as place:
        place.enter("ann", seconds=60)
        place.service.stop()
        place.world.broker.close()
        place.world.clock.now += 61
        place.world.broker = place.world.start()
        place.serve(place.world.broker)
        until(lambda: place.told["ann"])
        assert place.told["ann"][0].startswith("the token of ann ended")
        place.world.broker.close()


def test_a_client_may_present_before_it_is_heard(address: str) -> None:
    with placed(address) as place:
        for _ in range(5):  # the request and the one after the first hello do not meet
            own = MqttClient(place.url("ann"), timeout=WAIT)
            own.start()
            own.present(place.token("ann"), user_key("ann"))
            own.stop()


def test_a_session_of_another_length_is_none(address: str) -> None:
    with placed(address) as place:
        ann = place.enter("ann")
        session = ann._session
        ann._arrived(UP, bytes(8) + b"short")
        assert ann._session == b""
        ann._arrived(UP, bytes(7) + b"b" + session)
        ann.present(place.token("ann"), user_key("ann"))


def test_the_access_list_of_the_docs_lets_clients_send_all_requests() -> None:
    lines = {f"pattern write ccbps/to/%u/{verb}" for verb in VERBS}
    assert {line for line in ACL.splitlines() if "/to/%u/" in line} == lines
