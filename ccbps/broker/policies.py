"""Effects of a policy on a matching broker's subscriptions and on publications on their way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import RLock

from ccbps.broker.accepted import Kept
from ccbps.broker.enforcement import Enactment, Enforcement, NoEnforcement
from ccbps.broker.messages import Subscription
from ccbps.broker.store import Store
from ccbps.broker.subscriptions import Subscriptions
from ccbps.errors import ParameterError
from ccbps.matching.contract.scheme import Answers


class Policies:
    """Policies of one broker. One thread changes them at a time.

    Args:
        access: access control.
        lock: lock that guards all the others.
        subscriptions: subscriptions of all clients, and those of the filters.
        store: file of the broker.
        kept: publications for later subscribers.
        end: function that forgets subscriptions of a client.
    """

    def __init__(
        self,
        access: Enforcement | NoEnforcement,
        lock: RLock,
        subscriptions: Subscriptions,
        store: Store,
        kept: Kept,
        end: Callable[[str, Sequence[str]], object],
    ) -> None:
        self._access, self._lock, self._subscriptions = access, lock, subscriptions
        self._store, self._kept, self._end = store, kept, end
        self._message: bytes | None = None

    def enforcement(self, why: str = "the broker enforces no policy") -> Enforcement:
        """Return the access control.

        Raises:
            ParameterError: there is none.
        """
        if not isinstance(self._access, Enforcement):
            raise ParameterError(f"{why}: give the broker access=Enforcement(...)")
        return self._access

    def load(self, subscriptions: Sequence[tuple[str, Subscription]]) -> None:
        """Resume the policy of the file, if it has one.

        Args:
            subscriptions: subscriptions of the file, which are not registered yet.
        """
        message = self._store.enacted()
        if message is not None:
            access = self.enforcement("the file has a policy in force")
            filters = access.load(message, self._store.presented())
            self._message = message
            self._subscriptions.add_all([(access.owner, one) for one in filters])
            for pair in subscriptions:
                access.enter(*pair)

    def enact(self, new: Enactment, message: bytes) -> list[str]:
        """Put a policy into force, and return the clients whose subscriptions it ends.

        Args:
            new: the policy.
            message: its bytes.
        """
        access, subscriptions = self.enforcement(), self._subscriptions
        if message == self._message:
            return []
        filters = access.read(new)
        if subscriptions.matcher.answers is Answers.SUBSCRIBER and access.has_filters(new):
            raise ParameterError(
                "the policy must have no filters but TRUE where subscribers decide, since the "
                "broker cannot tell which events match one"
            )
        subscriptions.examiner.check([(f"{access.owner}/{one.name}", one) for one in filters])
        # First, so that no publication that the policy judges misses them.
        for one in filters:
            if not subscriptions.has(access.owner, one):
                subscriptions.add(access.owner, one, lambda: None)
        try:
            with self._lock:
                with self._store.transaction():
                    self._store.enact(message)
                    self._store.keep_last(0)
                self._message = message
                access.install(new, filters)
                self._kept.forget_all()
        finally:
            own = subscriptions.registry.of(access.owner)
            subscriptions.remove(access.owner, [one for one in own if one not in access.lasting])
        return self.end_forbidden()

    def end_forbidden(self) -> list[str]:
        """Forget the subscriptions that the policy in force ends, and return their clients."""
        if self._message is None:
            return []
        with self._lock:
            ending = self.enforcement().ending(self._subscriptions.registry.all())
        for client, names in ending.items():
            self._end(client, names)
        return [*ending]
