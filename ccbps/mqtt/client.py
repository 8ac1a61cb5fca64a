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
    Startable,
    answers_topic,
    deliveries_topic,
)
from ccbps.mqtt.service import NUMBER_BYTES, POSITION_BYTES, Answer, Position

PATIENCE: Final = 1.0
"""Seconds after which a client that waits asks again; then twice as many."""
GOODBYE_SECONDS: Final = 1.0


class MqttClient(Startable):
    """A publisher or subscriber: it sends requests, waits for answers, and receives deliveries.

    A request without an answer is sent again, after some time or when its broker has started again.
    That does no harm: a broker knows a publication by its number, and a subscription by its name.
    `receive` acknowledges each delivery that it returns. A delivery comes again if the client was
    killed with it, or the acknowledgement was lost. Its publisher and number tell.

    A client may have several connections at once, if one of them receives.

    Example:
        >>> from ccbps.mqtt import MqttClient, MqttUrl
        >>> client = MqttClient(MqttUrl("mqtt://localhost:1883", "alice"), timeout=5.0)
    """

    def __init__(self, url: MqttUrl, *, timeout: float = WAIT_SECONDS) -> None:
        """Prepare a client.

        Args:
            url: address of the MQTT server, with this client's name.
            timeout: seconds that a request waits for its answer; meanwhile it is sent again.
        """
        self._timeout, self._name = timeout, url.client
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
        self._connection.open(self._timeout)

    def stop(self) -> None:
        """Disconnect, once the broker knows which deliveries were acknowledged.

        It waits a second for that. Subscriptions stay, and deliveries wait.
        """
        if self._acknowledges:
            # The broker answers in order, so an answer to this means that it has what came before.
            with contextlib.suppress(CcbpsError, OSError):
                self._ask("resume", self._position.to_bytes(), GOODBYE_SECONDS)
        self._connection.close()

    def subscribe(self, subscription: Subscription) -> None:
        """Register a subscription: `MatchingBroker.subscribe`.

        Raises:
            CcbpsError: the broker's error; so do the other requests.
            TimeoutError: there is no answer; so do the other requests.
        """
        self._ask("subscribe", subscription.to_bytes())

    def unsubscribe(self, name: str) -> None:
        """Forget a subscription: `MatchingBroker.unsubscribe`."""
        self._ask("unsubscribe", name.encode())

    def publish(self, publication: Publication) -> Receipt:
        """Publish: `MatchingBroker.publish`."""
        receipt: Receipt = self._ask("publish", publication.to_bytes())
        return receipt

    def publish_later(self, publication: Publication) -> Future[Receipt]:
        """Publish without waiting. The future will have the receipt or the error."""
        answered: Future[Receipt] = Future()
        self._send("publish", publication.to_bytes(), answered)
        return answered

    def deliver(self, payloads: Payloads) -> None:
        """Deliver sealed payloads: `MatchingBroker.deliver`."""
        self._ask("deliver", payloads.to_bytes())

    def receive(self, timeout: float | None = None) -> Delivery:
        """Return the next delivery, and acknowledge it.

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
            self._send("resume", self._position.to_bytes())
            patience = min(2 * patience, WAIT_SECONDS)
        self._acknowledges = True
        self._send("acknowledge", position.to_bytes())
        return delivery

    # -- inside ----------------------------------------------------------------------------------

    def _came_up(self) -> None:
        """Ask again for all that may be lost, when a connection or a broker is new."""
        self._send("resume", self._position.to_bytes())
        self._send_again()

    def _send_again(self) -> None:
        """Send the requests without an answer."""
        with self._lock:
            again = [(number, *request) for number, request in self._waiting.items()]
        for number, verb, message, _ in again:
            self._connection.send(f"ccbps/to/{self._name}/{verb}", number + message)

    def _ask(self, verb: str, message: bytes, timeout: float | None = None) -> Any:
        """Send a request, and return the result of its answer."""
        seconds = self._timeout if timeout is None else timeout
        end, patience = monotonic() + seconds, PATIENCE
        answered: Future[Any] = Future()
        number = self._send(verb, message, answered)
        while True:
            try:
                return answered.result(max(0.0, min(patience, end - monotonic())))
            except FutureTimeoutError:
                if monotonic() >= end:
                    with self._lock:  # nobody waits for it any more
                        self._waiting.pop(number, None)
                    raise TimeoutError(f"no answer to {verb} in {seconds} s") from None
            self._send_again()
            patience *= 2

    def _send(self, verb: str, message: bytes, answered: Future[Any] | None = None) -> bytes:
        """Send a request, and return its number.

        Args:
            verb: one of `ccbps.mqtt.connection.VERBS`.
            message: content of the request.
            answered: future for the answer; None if nobody waits for it.
        """
        with self._lock:
            number = next(self._numbers).to_bytes(NUMBER_BYTES)
            if answered is not None:
                answered.set_running_or_notify_cancel()  # it cannot be cancelled any more
                self._waiting[number] = verb, message, answered
        self._connection.send(f"ccbps/to/{self._name}/{verb}", number + message)
        return number

    def _take_in(self, content: bytes) -> None:
        """Accept a delivery, if it follows the last one."""
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
                self._send("resume", self._position.to_bytes())
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
