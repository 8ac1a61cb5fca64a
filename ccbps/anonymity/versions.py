"""Versions at a broker: derived from the version that it has, or awaited from the broker before it.

A broker on the way has a version of a stream, and a child asks for one with a larger k. The broker
can merge classes of its own version at once. Or it waits until the broker before it sends a version
for that k, which may be made of more releases, and so have narrower ranges. `VersionRelay` decides:

- No record waits longer than the child's delay. If the period of earlier versions tells that none
  will come in time, the broker derives as soon as it has enough records.
- Otherwise waiting has a price: the mean loss of the versions that came, and `price` for each unit
  of time until the next one. The broker derives at once if the loss of the derived version is no
  more.

Each record is published once for each k, and classes are unions of whole classes of the version
that the broker has. So receivers who combine the versions of one relay, and the version that it
began with, learn no more than the finest of these says. For several children, chain relays: the
relay for the larger k takes the output of the relay for the smaller k.

Hazard: two brokers that decide differently publish two versions for one k. Receivers of both
together know at most the version that these were derived from. If they must not learn that much,
put them behind one broker, which decides for all of them.
Source: [ZSSC15] for versions; the choice is this library's.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np

from ccbps.anonymity.diversity import Diversity
from ccbps.anonymity.releases import Release
from ccbps.checks import Printable, instance, number, whole
from ccbps.errors import ParameterError
from ccbps.predicates.attributes import Attributes

MEMORY: Final = 8
"""Number of latest versions from which the next one is predicted."""


class VersionRelay(Printable):
    """A broker's choice for a child: derive its version, or wait for one.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.anonymity import Anonymizer, VersionRelay
        >>> schema = Schema(age=UInt(7))
        >>> fine = Anonymizer(schema, k=2).release({"age": [31, 62, 33, 60]})
        >>> relay = VersionRelay(4, delay=10)
        >>> relay.push(fine.public, now=0)           # no version is known to come: it derives
        <Release: 4 of 4 records>
        >>> later = Anonymizer(schema, k=2).release({"age": [20, 21]})
        >>> relay.push(later.public, now=1)          # too few
        >>> relay.deadline
        11.0

    Attributes:
        k: least number of records of a class of the child's version.
        delay: longest time that a release waits here, in the unit of `now`.
        price: loss that one unit of time costs.
    """

    def __init__(
        self,
        k: int,
        delay: float,
        *,
        price: float = 0.0,
        period: float | None = None,
        diversity: Diversity | None = None,
    ) -> None:
        """Make a relay without releases.

        Args:
            k: least number of records of a class of the child's version, at least 1.
            delay: longest time that a release waits here, at least 0.
            price: loss that one unit of time costs, at least 0; 0 to wait whenever a narrower
                version is expected in time.
            period: time between versions of the broker before this one, as long as fewer than two
                of them have come; None if none is expected until then.
            diversity: rule for the classes; None for the rule of the releases.

        Raises:
            ParameterError: an argument does not fit.
        """
        self.k, self.delay = whole("k", k, 1), number("delay", delay, 0)
        self.price = number("price", price, 0)
        self._period = None if period is None else number("period", period, 0)
        if diversity is not None:
            instance("diversity", diversity, Diversity)
        self._rule = diversity
        self._waiting: list[tuple[float, Release]] = []
        # Number of the first release that waits, and of the first that no version has reached.
        self._first = self._reached = 0
        # Times and losses of the last versions.
        self._came: deque[tuple[float, float]] = deque(maxlen=MEMORY)
        self._schema: Attributes | None = None
        self._now = -np.inf

    def __repr__(self) -> str:
        return f"<VersionRelay: k={self.k}, {len(self)} releases wait>"

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def deadline(self) -> float:
        """Time at which the next release is due: call `poll` by then. Infinity if none waits."""
        return self._waiting[0][0] + self.delay if self._waiting else np.inf

    def push(self, release: Release, now: float) -> Release | None:
        """Take the next release of the version that the broker has.

        Args:
            release: its public form (`Release.public`), for a k that is no larger.
            now: the time, no less than in the call before.

        Returns:
            the child's version of all releases that waited, whose `rows` count their records; None
            to wait. Hand out its public form.

        Raises:
            ParameterError: an argument does not fit, or the time goes back.
        """
        if instance("release", release, Release).anonymizer.k > self.k:
            raise ParameterError(
                f"release is for k={release.anonymizer.k}, from which no version for k={self.k} "
                "can be derived"
            )
        if self._rule is not None and not release.anonymizer.sensitive:
            raise ParameterError("diversity is about sensitive attributes: release has none")
        if self._schema not in (None, release.events.schema):
            raise ParameterError("release has another schema than those before")
        time = self._checked(now)
        self._schema = release.events.schema
        self._waiting.append((time, release))
        return self._decided(time)

    def offer(self, version: Release, start: int, stop: int, now: float) -> Release | None:
        """Take a version of the broker before this one.

        It is used if it covers the releases that wait here. If this broker has published some of
        these already, the version only serves to predict the time and loss of the next one.

        Args:
            version: a version for this k. Its `rows` count the records of its releases, in the
                public form that this broker has.
            start: number of its first release, counted from 0 in the order of `push`.
            stop: number behind its last release.
            now: the time, no less than in the call before.

        Returns:
            the child's version; None to wait, or if the records were published before.

        Raises:
            ParameterError: an argument does not fit; or the version has too small classes, or
                classes that are no unions of those that wait here.
        """
        whole("stop", stop, whole("start", start, 0) + 1)
        time = self._checked(now)
        count = stop - self._first
        usable = start == self._first and count <= len(self._waiting)
        if usable:
            finer = Release.joined([release for _, release in self._waiting[:count]])
            rule = self._rule or finer.anonymizer.diversity
            if not (version.merges(finer) and version.is_enough(self.k, rule)):
                raise ParameterError(
                    f"version must have classes of at least {self.k} records, which keep the rule "
                    "and are unions of whole classes of the releases that wait"
                )
        self._came.append((time, version.report.loss))
        self._reached = stop
        if not usable:
            return self._decided(time)
        self._forget(count)
        return version

    def poll(self, now: float) -> Release | None:
        """Publish releases that are due, or need not wait any more.

        Args:
            now: the time, no less than in the call before.

        Returns:
            the child's version; None to wait. If all records that wait are too few, the version
            leaves out those whose time is up, and has no records.

        Raises:
            ParameterError: the time goes back.
        """
        return self._decided(self._checked(now))

    def _checked(self, now: float) -> float:
        time = number("now", now)
        if time < self._now:
            raise ParameterError(f"now must not go back, got {time} after {self._now}")
        self._now = time
        return time

    def _decided(self, now: float) -> Release | None:
        """Derive the child's version of all that waits, or return None to wait."""
        if not self._waiting:
            return None
        count = len(self._waiting)
        derived = Release.joined([release for _, release in self._waiting])
        derived = derived.derive(self.k, self._rule)
        if now < self.deadline:
            if not derived.events.count or derived.report.loss > self._loss_of_waiting(now):
                return None
        elif not derived.events.count:
            count = sum(came + self.delay <= now for came, _ in self._waiting)
            due = Release.joined([release for _, release in self._waiting[:count]])
            derived = due.derive(self.k, self._rule)
        self._forget(count)
        return derived

    def _loss_of_waiting(self, now: float) -> float:
        """Return the loss of the next version and of the time until then; infinity for none."""
        period = self._period
        if len(self._came) > 1:
            period = (self._came[-1][0] - self._came[0][0]) / (len(self._came) - 1)
        # A version about records that were published in part cannot be used.
        if period is None or not self._came or self._first != self._reached:
            return np.inf
        overdue = now - self._came[-1][0] - period
        if overdue > period or now - min(overdue, 0) > self.deadline:
            return np.inf
        loss = sum(loss for _, loss in self._came) / len(self._came)
        return loss + self.price * max(-overdue, 0)

    def _forget(self, count: int) -> None:
        del self._waiting[:count]
        self._first += count
