"""A publisher or subscriber at a matching broker behind an MQTT server."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from itertools import count
from time import monotonic
from typing import Any, Final

from ccbps.broker import Delivery, Payloads, Publication, Receipt, Subscription
from ccbps.errors import CcbpsError, DecodeError
from ccbps.mqtt.connection import (
    UP,
    WAIT_SECONDS,
    Connection,
    MqttUrl,
    answers_topic,
    deliveries_topic,
)
from ccbps.mqtt.outgoing import POSITION_BYTES, Position
from ccbps.mqtt.service import NUMBER_BYTES, Answer

PATIENCE: Final = 1.0
"""Seconds after which a client that waits asks again; then twice as many."""
GOODBYE_SECONDS: Final = 1.0


class MqttClient:
    """Sends requests, waits for their answers, and receives deliveries.

    A request that gets no answer in time, or before its broker is started again, is sent again.
    That does no harm: a broker knows a publication by its number, and a subscription by its name.
    A delivery is acknowledged when `receive` hands it out, so one that a client was killed with, or
    whose acknowledgement was lost, comes again. Publisher and number tell.

    A client may have several connections at once, if one of them receives.

    Example:
        >>> from ccbps.mqtt import MqttClient, MqttUrl
        >>> client = MqttClient(MqttUrl("mqtt://localhost:1883", "alice"), timeout=5.0)
    """

    def __init__(self, url: MqttUrl, *, timeout: float = WAIT_SECONDS) -> None:
        """
        Args:
            url: of the MQTT server, with this client's name.
            timeout: seconds that a request waits for its answer; meanwhile it is sent again.
        """
        self._timeout = timeout
        self._name, self._up = url.client, threading.Event()
        # Of requests: others in this client's name have other numbers.
        self._numbers = count(int.from_bytes(os.urandom(NUMBER_BYTES - 1)))
        self._lock = threading.Lock()
        self._waiting: dict[bytes, tuple[str, bytes, Future[Any]]] = {}
        self._deliveries: queue.SimpleQueue[tuple[Position, Delivery]] = queue.SimpleQueue()
        self._position, self._asked = Position(), -PATIENCE
        self._acknowledges = False
        self._broker = b""
        topics = [answers_topic(self._name), deliveries_topic(self._name), UP]
        self._connection = Connection(url, topics, self._arrived, self._came_up)

    def start(self) -> None:
        """Connect.

        Raises:
            OSError: the server cannot be reached, or refuses.
        """
        self._connection.open()
        if not self._up.wait(self._timeout) or self._connection.refused:
            self._connection.close()
            raise OSError(f"the MQTT server refuses {self._name}: {self._connection.refused}")

    def stop(self) -> None:
        """Disconnect, when the broker knows what was acknowledged, or does not answer in a second.
        Subscriptions stay, and what matches waits."""
        if self._acknowledges:
            # The broker answers in order, so an answer to this says that it has what came before.
            with contextlib.suppress(CcbpsError, OSError):
                self._ask("resume", self._position.to_bytes(), GOODBYE_SECONDS)
        self._connection.close()

    def __enter__(self) -> MqttClient:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def subscribe(self, subscription: Subscription) -> None:
        """See `MatchingBroker.subscribe`. Raises its errors, and TimeoutError without an answer."""
        self._ask("subscribe", subscription.to_bytes())

    def unsubscribe(self, name: str) -> None:
        """See `MatchingBroker.unsubscribe`."""
        self._ask("unsubscribe", name.encode())

    def publish(self, publication: Publication) -> Receipt:
        """See `MatchingBroker.publish`."""
        receipt: Receipt = self._ask("publish", publication.to_bytes())
        return receipt

    def publish_later(self, publication: Publication) -> Future[Receipt]:
        """Publish without waiting: the receipt, or the error, is in the future, some time."""
        return self._send("publish", publication.to_bytes(), asks=True)

    def deliver(self, payloads: Payloads) -> None:
        """See `MatchingBroker.deliver`."""
        self._ask("deliver", payloads.to_bytes())

    def receive(self, timeout: float | None = None) -> Delivery:
        """The next delivery; it is acknowledged.

        Args:
            timeout: seconds to wait; None for as long as it takes.

        Raises:
            TimeoutError: none came.
        """
        end = None if timeout is None else monotonic() + timeout
        patience = PATIENCE
        while True:
            left = patience if end is None else min(patience, end - monotonic())
            try:
                position, delivery = self._deliveries.get(timeout=max(0.0, left))
                break
            except queue.Empty:
                if end is not None and monotonic() >= end:
                    raise TimeoutError(f"nothing for {self._name} in {timeout} s") from None
            # The last one may have been lost, so that nothing shows that it is missing.
            self._send("resume", self._position.to_bytes(), asks=False)
            patience = min(2 * patience, WAIT_SECONDS)
        self._acknowledges = True
        self._send("acknowledge", position.to_bytes(), asks=False)
        return delivery

    # -- inside ----------------------------------------------------------------------------------

    def _came_up(self) -> None:
        """The connection is there, or a broker has started: what was on its way may be lost."""
        if self._connection.refused is None:
            self._send("resume", self._position.to_bytes(), asks=False)
            self._send_again()
        self._up.set()

    def _send_again(self) -> None:
        """Send what was not answered."""
        with self._lock:
            again = [(number, *request) for number, request in self._waiting.items()]
        for number, verb, message, _ in again:
            self._connection.send(f"ccbps/to/{self._name}/{verb}", number + message)

    def _ask(self, verb: str, message: bytes, timeout: float | None = None) -> Any:
        seconds = self._timeout if timeout is None else timeout
        end, patience = monotonic() + seconds, PATIENCE
        answered = self._send(verb, message, asks=True)
        while True:
            try:
                return answered.result(max(0.0, min(patience, end - monotonic())))
            except FutureTimeoutError:
                if monotonic() >= end:
                    self._forget(answered)
                    raise TimeoutError(f"no answer to {verb} in {seconds} s") from None
            self._send_again()
            patience *= 2

    def _forget(self, answered: Future[Any]) -> None:
        """That nobody waits for an answer any more, so that its request is not sent again."""
        with self._lock:
            for number, request in [*self._waiting.items()]:
                if request[2] is answered:
                    del self._waiting[number]

    def _send(self, verb: str, message: bytes, *, asks: bool) -> Future[Any]:
        answered: Future[Any] = Future()
        answered.set_running_or_notify_cancel()  # it cannot be cancelled any more
        with self._lock:
            number = next(self._numbers).to_bytes(NUMBER_BYTES)
            if asks:
                self._waiting[number] = verb, message, answered
        self._connection.send(f"ccbps/to/{self._name}/{verb}", number + message)
        return answered

    def _take_in(self, content: bytes) -> None:
        try:
            before = Position.from_bytes(content[:POSITION_BYTES])
            delivery = Delivery.from_bytes(content[POSITION_BYTES:])
        except DecodeError:
            return  # altered on its way; it will come again
        if before.numbering != self._position.numbering:
            # Another broker, or one that lost its file.
            self._position = Position(before.numbering)
        if before.sequence > self._position.sequence:
            if monotonic() > self._asked + PATIENCE:
                self._asked = monotonic()
                self._send("resume", self._position.to_bytes(), asks=False)
        elif delivery.sequence > self._position.sequence:
            self._position = Position(before.numbering, delivery.sequence)
            self._deliveries.put((self._position, delivery))

    def _arrived(self, topic: str, content: bytes) -> None:
        if topic == deliveries_topic(self._name):
            self._take_in(content)
            return
        if topic == UP:
            if content != self._broker:
                self._broker = content
                self._came_up()
            return
        with self._lock:
            request = self._waiting.pop(content[:NUMBER_BYTES], None)
        if request is None:
            return  # answered before: it was sent twice
        verb, _, answered = request
        try:
            answered.set_result(Answer.from_bytes(content[NUMBER_BYTES:]).result(verb))
        except CcbpsError as error:
            answered.set_exception(error)
