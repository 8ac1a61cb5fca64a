"""A publisher or subscriber at a matching broker behind an MQTT server."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from itertools import count
from time import monotonic, time_ns
from typing import Any, Final

from ccbps.access import present_token
from ccbps.access.tokens import SESSION_BYTES
from ccbps.broker import (
    Delivery,
    Enactment,
    Hellos,
    Payloads,
    Publication,
    Receipt,
    SealedGrants,
    Subscription,
)
from ccbps.errors import CcbpsError, DecodeError, RefusedError, ReplayError
from ccbps.keys import SigningKey
from ccbps.mqtt.connection import (
    HELLO,
    UP,
    WAIT_SECONDS,
    Connection,
    MqttUrl,
    Startable,
    answers_topic,
    deliveries_topic,
    requests_topic,
)
from ccbps.mqtt.service import (
    ACKNOWLEDGE,
    NOTICE,
    NUMBER_BYTES,
    POSITION_BYTES,
    WINDOW,
    WINDOW_BYTES,
    Answer,
    Position,
)

PATIENCE: Final = 1.0
"""Seconds after which a client that waits asks again; then twice as many."""
GREETING_SECONDS: Final = 5.0
"""Most seconds until a client that the broker does not listen to says hello again."""
GOODBYE_SECONDS: Final = 1.0
ACKNOWLEDGE_SECONDS: Final = 0.05
"""Most seconds until deliveries are acknowledged."""
PRESENT: Final = "present"
LAPSED: Final = ("expired", "receive")
"""Reasons of refused hellos that mean that the client has lost the right to receive."""
BATCH: Final = WINDOW // 8
BATCH_BYTES: Final = WINDOW_BYTES // 8
"""Number and bytes of deliveries that are acknowledged at once."""
_log: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class _Request:
    """A request without an answer.

    Attributes:
        verb: its verb.
        message: its content.
        answered: future for the answer.
        due: time at which it is sent again.
        patience: seconds from the last time that it was sent to this time.
    """

    verb: str
    message: bytes
    answered: Future[Any]
    due: float
    patience: float

    def wait(self, now: float, patience: float) -> None:
        """Set the time at which it is sent again."""
        self.due, self.patience = now + patience, patience


class MqttClient(Startable):
    """A publisher or subscriber: it sends requests, waits for answers, and receives deliveries.

    A request without an answer is sent again, after some time or when its broker has started again.
    That does no harm: a broker knows a publication by its number, and a subscription by its name.
    `receive` acknowledges each delivery that it returns. If the client was killed before that, or
    the acknowledgement was lost, the delivery comes again, with the same publisher and number.

    The client says hello first, and sends its requests once the broker has answered.

    A client may have several connections at once, if one of them receives.

    Example:
        >>> from ccbps.mqtt import MqttClient, MqttUrl
        >>> client = MqttClient(MqttUrl("mqtt://localhost:1883", "alice"), timeout=5.0)
    """

    def __init__(
        self,
        url: MqttUrl,
        *,
        timeout: float = WAIT_SECONDS,
        on_warning: Callable[[str], object] = _log.warning,
    ) -> None:
        """Prepare a client.

        Args:
            url: address of the MQTT server, with this client's name.
            timeout: seconds that a request waits for its answer; meanwhile it is sent again.
            on_warning: function that is called with a text when the broker warns that a
                subscription runs out of rounds, that a policy ended a subscription, or that this
                client's token is no longer valid; must return at once. By default the text is
                logged.
        """
        self._timeout, self._name = timeout, url.client
        self._on_warning, self._warnings = on_warning, set[str]()
        # Of requests: others in this client's name have other numbers.
        self._numbers = count(int.from_bytes(os.urandom(NUMBER_BYTES - 1)))
        self._changed = threading.Condition()
        self._waiting: dict[bytes, _Request] = {}
        # Numbers of hellos without an answer, and whether the broker listens.
        self._hellos, self._is_heard = set[bytes](), False
        # Whether an error that says so waits for `receive`.
        self._is_revoked = False
        # Times at which a thread says hello, sends requests again, acknowledges deliveries, and
        # presents the token again.
        self._greet_at = self._repeat_at = self._acknowledge_at = self._present_at = math.inf
        self._greet_patience = self._present_patience = PATIENCE
        self._is_stopped = False
        self._keeper: threading.Thread | None = None
        self._deliveries: queue.SimpleQueue[tuple[Position, Delivery] | RefusedError]
        self._deliveries = queue.SimpleQueue()
        self._position, self._asked = Position(), -PATIENCE
        # The last delivery that `receive` returned, and the part of a batch that it has returned
        # since the last acknowledgement.
        self._returned: Position | None = None
        self._batch = 0.0
        self._broker = self._session = b""
        self._token: tuple[bytes, SigningKey] | None = None
        topics = [answers_topic(self._name), deliveries_topic(self._name), UP]
        self._connection = Connection(url, topics, self._arrived, self._came_up)

    def start(self) -> None:
        self._connection.open(self._timeout)
        self._is_stopped = False
        self._keeper = threading.Thread(target=self._keep, name="ccbps client", daemon=True)
        self._keeper.start()

    def stop(self) -> None:
        """Disconnect, once the broker knows which deliveries were acknowledged.

        This waits at most a second. Subscriptions stay, and deliveries wait.
        """
        if self._returned is not None:
            self._acknowledge()
            # The broker answers in order, so an answer to this means that it has what came before.
            with contextlib.suppress(CcbpsError, OSError):
                self._ask(HELLO, self._position.to_bytes(), GOODBYE_SECONDS)
        with self._changed:
            self._is_stopped = True
            self._changed.notify()
        if self._keeper is not None:
            self._keeper.join()
        self._connection.close()

    def greet(self, hellos: Hellos) -> None:
        """Give the keys of this client to three brokers: `MatchingBroker.greet`.

        Raises:
            CcbpsError: the broker's error.
            TimeoutError: there is no answer.
        """
        self._ask("greet", hellos.to_bytes())

    def grant(self, grants: SealedGrants) -> None:
        """Send grants of an authority to three brokers: `MatchingBroker.grant`.

        Raises:
            CcbpsError: the broker's error.
            TimeoutError: there is no answer.
        """
        self._ask("grant", grants.to_bytes())

    def enact(self, policy: Enactment) -> None:
        """Bring a policy that an authority signed: `MatchingBroker.enact`.

        Raises:
            CcbpsError: the broker's error.
            TimeoutError: there is no answer.
        """
        self._ask("enact", policy.to_bytes())

    def present(self, token: bytes, key: SigningKey) -> None:
        """Present a token now, and again whenever the broker has started again.

        A token that is refused is forgotten, and the earlier one stays valid.

        Hazard: the MQTT server names the broker's session. So it could replay the presentation to
        another broker, at which it is a client of the same name.

        Args:
            token: token from `ccbps.access.Authority.issue`.
            key: signing key whose identity the token names.

        Raises:
            CcbpsError: the broker's error.
            TimeoutError: there is no answer, or no broker that takes tokens.
        """
        with self._changed:
            before, self._token = self._token, (token, key)
            known = self._changed.wait_for(lambda: bool(self._session), self._timeout)
        if not known:
            raise TimeoutError(f"no broker that takes tokens in {self._timeout} s")
        try:
            self._ask(PRESENT, b"")
        except CcbpsError:
            self._token = before
            raise
        self._warnings.clear()  # of what the earlier token had no right to

    def _content(self, verb: str, message: bytes) -> bytes:
        """Return a request's message; for PRESENT without one, a new presentation of the token.

        It is empty if there is no token any more: another thread may have learned that it is
        refused.
        """
        if verb != PRESENT or message or (held := self._token) is None:
            return message
        token, key = held
        return present_token(token, key, self._session, self._name, time_ns()).to_bytes()

    def _present_again(self) -> None:
        """Present the token to a broker that is new, unless a request to do so waits."""
        answered: Future[Any] = Future()
        answered.add_done_callback(self._presented)
        with self._changed:
            self._present_at = math.inf
            is_known = self._token is not None and bool(self._session)
        if is_known:
            self._send(PRESENT, b"", answered, unless_waiting=True)

    def _presented(self, answered: Future[Any]) -> None:
        """Warn that the token is no longer valid; try again if the broker has no policy yet."""
        error = answered.exception()
        if not isinstance(error, RefusedError) or error.reason != "policy":
            self._present_patience = PATIENCE
            # A later presentation may have overtaken it; `receive` tells of a revocation.
            if error is not None and not isinstance(error, ReplayError):
                self._warn(str(error))
            return
        with self._changed:
            self._present_at = monotonic() + self._present_patience
            self._present_patience = min(2 * self._present_patience, GREETING_SECONDS)
            self._changed.notify()

    def subscribe(self, subscription: Subscription) -> None:
        """Register a subscription: `MatchingBroker.subscribe`.

        Raises:
            CcbpsError: the broker's error; the other requests raise it, too.
            TimeoutError: there is no answer; the other requests raise it, too.
        """
        self._ask("subscribe", subscription.to_bytes())
        self._warnings.clear()  # it may end again

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
            RefusedError: the client was revoked.
        """
        end = None if timeout is None else monotonic() + timeout
        patience = PATIENCE
        while True:
            left = patience if end is None else min(patience, end - monotonic())
            try:
                received = self._deliveries.get(timeout=max(0.0, left))
                break
            except queue.Empty:
                if end is not None and monotonic() >= end:
                    raise TimeoutError(f"nothing for {self._name} in {timeout} s") from None
            # The last one may have been lost, so that nothing shows that it is missing.
            self._greet()
            patience = min(2 * patience, WAIT_SECONDS)
        if isinstance(received, RefusedError):
            self._is_revoked = False
            raise received
        position, delivery = received
        with self._changed:
            self._returned = position
            self._batch += max(1 / BATCH, delivery.size / BATCH_BYTES)
            is_full = self._batch >= 1
        if is_full:
            self._acknowledge()
        else:
            self._acknowledge_soon()
        return delivery

    # -- inside ----------------------------------------------------------------------------------

    def _keep(self) -> None:
        """Send what is due, until the client stops."""
        while True:
            with self._changed:
                while not self._is_stopped:
                    now = monotonic()
                    due = min(
                        self._greet_at, self._repeat_at, self._acknowledge_at, self._present_at
                    )
                    if due <= now:
                        break
                    self._changed.wait(min(due - now, WAIT_SECONDS))
                if self._is_stopped:
                    return
                greets, acknowledges = self._greet_at <= now, self._acknowledge_at <= now
                repeats, presents = self._repeat_at <= now, self._present_at <= now
            try:
                if acknowledges:
                    self._acknowledge()
                if greets:
                    self._greet(min(2 * self._greet_patience, GREETING_SECONDS))
                if presents:
                    self._present_again()
                if repeats:
                    self._send_again(now)
            except OSError as error:
                _log.warning("%s", error)

    def _came_up(self) -> None:
        """Say hello, when a connection or a broker is new."""
        with self._changed:
            self._is_heard = False
        self._greet(PATIENCE)

    def _greet(self, patience: float | None = None) -> None:
        """Say hello, which asks for all deliveries that the client does not have.

        Args:
            patience: seconds after which to say it again if there is no answer, doubled each time.
                None if the caller repeats it.
        """
        if patience is not None:
            with self._changed:
                self._greet_at, self._greet_patience = monotonic() + patience, patience
                self._changed.notify()
        self._acknowledge()
        self._send(HELLO, self._position.to_bytes())

    def _acknowledge(self) -> None:
        """Acknowledge the deliveries that `receive` returned, if the broker listens.

        An acknowledgement may be lost. One goes out before each hello, and after its answer.
        """
        with self._changed:
            self._acknowledge_at, self._batch = math.inf, 0.0
            position = self._returned if self._is_heard else None
        if position is not None:
            self._send(ACKNOWLEDGE, position.to_bytes())

    def _acknowledge_soon(self) -> None:
        with self._changed:
            if self._acknowledge_at == math.inf:
                self._acknowledge_at = monotonic() + ACKNOWLEDGE_SECONDS
                self._changed.notify()

    def _send_again(self, now: float = math.inf) -> None:
        """Send the requests that have waited long enough, by default all of them."""
        with self._changed:
            self._repeat_at = math.inf
            if not self._is_heard:
                return  # they go out when the broker listens
            again = [pair for pair in self._waiting.items() if pair[1].due <= now]
            for _, request in again:
                if now == math.inf:
                    request.wait(monotonic(), PATIENCE)
                else:
                    request.wait(now, 2 * request.patience)
            if self._waiting:
                self._repeat_at = min(request.due for request in self._waiting.values())
                self._changed.notify()
        for number, request in again:
            # The broker may have another session now, for which a presentation is made anew.
            content = self._content(request.verb, request.message)
            if content or request.verb != PRESENT:
                self._connection.send(requests_topic(self._name, request.verb), number + content)

    def _ask(self, verb: str, message: bytes, timeout: float | None = None) -> Any:
        """Send a request, and return the result of its answer."""
        seconds = self._timeout if timeout is None else timeout
        answered: Future[Any] = Future()
        number = self._send(verb, message, answered)
        if not wait([answered], seconds).done:
            with self._changed:  # nobody waits for it any more
                self._waiting.pop(number, None)
            raise TimeoutError(f"no answer to {verb} in {seconds} s")
        return answered.result()

    def _send(
        self,
        verb: str,
        message: bytes,
        answered: Future[Any] | None = None,
        *,
        unless_waiting: bool = False,
    ) -> bytes:
        """Send a request, and return its number. If the broker does not listen, it waits.

        Args:
            verb: one of `ccbps.mqtt.connection.VERBS`.
            message: content of the request. Presentations are made here if it is empty, so that
                their counters grow, and made anew when the request is sent again.
            answered: future for the answer; None if nobody waits for it.
            unless_waiting: whether to send nothing if a request of this verb waits.
        """
        with self._changed:
            if unless_waiting and any(one.verb == verb for one in self._waiting.values()):
                return b""
            content = self._content(verb, message)
            if verb == PRESENT and not content:
                return b""
            number = next(self._numbers).to_bytes(NUMBER_BYTES)
            if answered is not None:
                answered.set_running_or_notify_cancel()  # it cannot be cancelled any more
                due = monotonic() + PATIENCE
                self._waiting[number] = _Request(verb, message, answered, due, PATIENCE)
                if due < self._repeat_at:
                    self._repeat_at = due
                    self._changed.notify()
            elif verb == HELLO:
                self._hellos.add(number)
            is_sent = self._is_heard or verb == HELLO
            must_greet = not is_sent and self._greet_at == math.inf
        if is_sent:
            self._connection.send(requests_topic(self._name, verb), number + content)
        elif must_greet:
            self._greet(PATIENCE)
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
                self._greet()
        elif delivery.sequence > self._position.sequence:
            self._position = Position(before.numbering, delivery.sequence)
            self._deliveries.put((self._position, delivery))
        else:  # it has come again: the broker may not know that the client has it
            self._acknowledge_soon()

    def _arrived(self, topic: str, content: bytes) -> None:
        if topic == deliveries_topic(self._name):
            self._take_in(content)
            return
        if topic == UP:
            if content != self._broker:
                if self._broker:  # another one answered, or would have
                    self._hellos.clear()
                self._broker = content
                session = content[NUMBER_BYTES:]
                with self._changed:
                    self._session = session if len(session) == SESSION_BYTES else b""
                    self._changed.notify_all()
                self._came_up()
            return
        number, answer = content[:NUMBER_BYTES], content[NUMBER_BYTES:]
        with self._changed:
            request = self._waiting.pop(number, None)
        if request is not None:
            try:
                request.answered.set_result(Answer.from_bytes(answer).result(request.verb))
            except CcbpsError as error:
                request.answered.set_exception(error)
        elif number == NOTICE or number in self._hellos:
            self._take_note(number, answer)

    def _take_note(self, number: bytes, content: bytes) -> None:
        """Accept the answer to a hello, or a notice."""
        error: CcbpsError | None = None
        try:
            answer = Answer.from_bytes(content)
            answer.result(HELLO)
        except DecodeError:
            return  # altered on its way
        except CcbpsError as refusal:
            error = refusal
        if number == NOTICE and error is None:
            self._warn(answer.message)
            return
        is_revoked = isinstance(error, RefusedError) and error.reason == "revoked"
        with self._changed:
            is_new = not self._is_heard
            self._is_heard = number != NOTICE and not is_revoked
            if self._is_heard or is_revoked:
                self._greet_at = math.inf
            self._hellos.clear()
            lost = [*self._waiting.values()] if not self._is_heard else []
            if lost:
                self._waiting.clear()
        for request in lost:
            request.answered.set_exception(error)
        if self._is_heard and is_new:
            self._present_again()
            self._acknowledge()
            self._send_again()
        elif isinstance(error, RefusedError) and is_revoked:
            if not self._is_revoked:
                self._is_revoked = True
                self._deliveries.put(error)
        elif not self._is_heard:
            self._greet(PATIENCE)
        elif isinstance(error, RefusedError) and error.reason in LAPSED:
            self._warn(str(error))

    def _warn(self, text: str) -> None:
        """Pass on a warning, which the broker repeats with each hello."""
        # What follows the colon changes.
        if (state := text.partition(":")[0]) not in self._warnings:
            self._warnings.add(state)
            self._on_warning(text)
