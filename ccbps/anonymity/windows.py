"""Windows: releases of a stream, whose records wait for others at most for a set time.

A record waits until its time is up. Then all records that wait are put into classes, and each class
with a record whose time is up is published. The other classes go on waiting: each of them has
enough records, so none is left alone. If all that wait are too few, those whose time is up are
suppressed or, on request, published with the whole domain in place of values. So a record may be in
a class of more than k, but never in one of fewer.

A record is published once, so nobody can intersect its classes.

Hazard: times are not anonymized. Anybody who knows when a record was made knows its release.
Source: [ZSSC15], which builds on J. Cao, B. Carminati, E. Ferrari and K.-L. Tan, CASTLE, 2011.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import numpy as np
from msgspec.structs import replace

from ccbps.anonymity.partition import SUPPRESSED
from ccbps.anonymity.releases import Anonymizer, Release
from ccbps.arrays import Bools, Numbers, Reals
from ccbps.checks import Printable, choice, instance, number
from ccbps.errors import ParameterError
from ccbps.predicates import Events

Few: TypeAlias = Literal["suppress", "hide"]
_FEW: Final = ("suppress", "hide")


class Window(Printable):
    """Records of a stream that wait for others.

    Example:
        >>> from ccbps import Schema, UInt
        >>> from ccbps.anonymity import Anonymizer, Window
        >>> window = Window(Anonymizer(Schema(age=UInt(7)), k=2), delay=10)
        >>> window.push({"age": [31, 62]}, now=0)
        <Release: 0 of 0 records>
        >>> window.push({"age": [33]}, now=6)
        <Release: 0 of 0 records>
        >>> release = window.push({"age": [60]}, now=10)           # two are due
        >>> release, release.rows
        (<Release: 4 of 4 records>, array([0, 1, 2, 3]))
        >>> release.events.codes["age_low"], release.events.codes["age_high"]
        (array([[31, 60, 31, 60]], dtype=uint64), array([[33, 62, 33, 62]], dtype=uint64))

    Attributes:
        anonymizer: anonymizer that makes the releases.
        delay: longest time that a record waits, in the unit of `now`.
    """

    def __init__(self, anonymizer: Anonymizer, delay: float, *, few: Few = "suppress") -> None:
        """Make an empty window.

        Args:
            anonymizer: anonymizer that makes the releases.
            delay: longest time that a record waits, in the unit of `now`; at least 0.
            few: treatment of records whose time is up while too few wait: "suppress" leaves them
                out, "hide" publishes them with the whole domain in place of values.

        Raises:
            ParameterError: an argument does not fit, or the anonymizer has a rule on sensitive
                values, which a hidden record alone cannot keep.
        """
        self.anonymizer = instance("anonymizer", anonymizer, Anonymizer)
        self.delay, self._few = number("delay", delay, 0), choice("few", few, _FEW)
        if few == "hide" and anonymizer.diversity is not None:
            raise ParameterError(
                "few='hide' publishes single sensitive values, which no rule allows: take "
                "few='suppress'"
            )
        self._held = anonymizer.schema.encode([])
        self._rows: Numbers = np.zeros(0, dtype=np.int64)
        self._times: Reals = np.zeros(0)
        self._count, self._now = 0, -np.inf

    def __repr__(self) -> str:
        return f"<Window: {len(self)} records wait>"

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def deadline(self) -> float:
        """Time at which the next record is due: call `push` by then. Infinity if none waits."""
        return float(self._times.min(initial=np.inf)) + self.delay

    def push(self, records: Any, now: float) -> Release:
        """Take records, and release those whose time is up, with their classes.

        Args:
            records: records that come now; perhaps none.
            now: the time, no less than in the call before.

        Returns:
            a release. Its `rows` count all records that ever came, and its `records` those that
            leave the window by this call.

        Raises:
            ParameterError: the time goes back.
            EventError: the records do not fit the schema.
        """
        time = number("now", now)
        if time < self._now:
            raise ParameterError(f"now must not go back, got {time} after {self._now}")
        new = self.anonymizer.schema.encode(records)
        self._now = time
        rows = np.arange(self._count, self._count + new.count)
        self._count += new.count
        self._held = _joined(self._held, new)
        self._rows = np.concatenate([self._rows, rows])
        self._times = np.concatenate([self._times, np.full(new.count, time)])
        return self._release(self._times + self.delay <= time)

    def close(self) -> Release:
        """Release all records that wait, as if their time were up."""
        return self._release(np.ones(len(self), dtype=np.bool_))

    def _release(self, due: Bools) -> Release:
        leaving = due.copy()
        classes = np.full(len(due), SUPPRESSED, dtype=np.intp)
        if due.any():
            found = self.anonymizer.classes(self._held)
            if (found != SUPPRESSED).all():
                leaving = np.isin(found, found[due])
                classes = np.where(leaving, found, SUPPRESSED)
        gone, rows = self._held.take(leaving), self._rows[leaving]
        if leaving.any() and (classes == SUPPRESSED).all() and self._few == "hide":
            release = self.anonymizer.hidden(gone)
        else:
            release = self.anonymizer.release_classes(gone, classes[leaving])
        self._held, self._rows = self._held.take(~leaving), self._rows[~leaving]
        self._times = self._times[~leaving]
        return replace(release, rows=rows[release.rows])


def _joined(first: Events, second: Events) -> Events:
    codes = {
        name: np.concatenate([codes, second.codes[name]], axis=1)
        for name, codes in first.codes.items()
    }
    return Events(first.schema, first.count + second.count, codes)
