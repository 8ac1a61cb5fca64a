"""Interests behind masks of a content filter: only pairs whose masks fit are tested.

Clients make masks, and a client may lie. Its mask concerns its own subscription only: interests are
one entry if they and their masks are equal, and no interest is tested under another that covers it.
So a false mask makes its own client miss events, and costs nobody else anything.

Hazard: masks show the broker more than a matcher that hides equality (`ccbps.filters.contents`).
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import RLock
from typing import Any, Final

import numpy as np

from ccbps.arrays import Bools, Bytes, Index
from ccbps.broker.books import Labelled, TableBook, events_of, interests_of
from ccbps.broker.messages import Publication
from ccbps.broker.metrics import Metrics
from ccbps.broker.registry import Registry
from ccbps.filters.contents import HEAD_BYTES, MaskLayout, may_match
from ccbps.matching.contract.access import message_bytes
from ccbps.matching.contract.broker import PAIR_ROWS, Broker

ROOM: Final = 64
"""Interests that a new book has room for."""


class MaskedBook(TableBook):
    """Interests that the broker tests with the events whose masks fit.

    A subscription without a mask, such as a policy's filter, is tested with every event.
    """

    def __init__(
        self,
        broker: Broker,
        registry: Registry,
        lock: RLock,
        metrics: Metrics,
        layout: MaskLayout,
    ) -> None:
        super().__init__(broker, registry, lock, metrics)
        self._layout = layout
        self._places: dict[int, int] = {}
        self._used = 0
        self._make_room(ROOM)

    def check(self, subscriptions: Sequence[Labelled]) -> None:
        super().check(subscriptions)
        for _, one in subscriptions:
            if one.mask is not None:
                self._layout.check_interest(one.mask)

    def _make_room(self, room: int) -> None:
        """Make new columns of the interests in use. Matches under way keep the old columns."""
        width = message_bytes(self._broker.matcher, "interest")
        layout, live = self._layout, [*self._places.values()]
        entries = np.full(room, -1, dtype=np.int64)
        messages = np.zeros((room, width), dtype=np.uint8)
        masks = np.zeros((room, HEAD_BYTES + layout.masks * layout.bits // 8), dtype=np.uint8)
        masks[:, :HEAD_BYTES] = np.frombuffer(layout.name, dtype=np.uint8)
        if live:
            old = self._columns
            entries[: len(live)], messages[: len(live)] = old[0][live], old[1][live]
            masks[: len(live)] = old[2][live]
        with self._lock:
            self._places = {int(entry): place for place, entry in enumerate(entries[: len(live)])}
            self._columns: tuple[Index, Bytes, Bytes] = entries, messages, masks
            self._used = len(live)

    def _put(self, subscriptions: Sequence[Labelled], entries: Sequence[int]) -> dict[int, int]:
        count = len(subscriptions)
        if self._used + count > len(self._columns[0]):
            self._make_room(2 * (len(self._places) + count))
        numbers, messages, masks = self._columns
        # Nobody reads these places yet.
        added = slice(self._used, self._used + count)
        numbers[added], messages[added] = entries, interests_of(subscriptions)
        masks[added] = self._masks_of(subscriptions)
        with self._lock:
            self._places |= zip(entries, range(self._used, self._used + count), strict=True)
            self._used += count
        return {}

    def _masks_of(self, subscriptions: Sequence[Labelled]) -> Bytes:
        """Return the masks of subscriptions, each as many as any may have: the last one repeats."""
        layout, size = self._layout, self._layout.bits // 8
        rows = []
        for _, one in subscriptions:
            mask = layout.name + bytes(size) if one.mask is None else one.mask
            missing = layout.masks - (len(mask) - HEAD_BYTES) // size
            rows.append(mask + missing * mask[-size:])
        return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(len(rows), -1)

    def _take_out(self, gone: Sequence[int]) -> None:
        entries, _, masks = self._columns
        with self._lock:
            for entry in gone:
                place = self._places.pop(entry)
                # Nearly no event has all bits, and nobody is behind the entry any more.
                entries[place], masks[place, HEAD_BYTES:] = -1, 255
        if self._used > ROOM and self._used > 2 * len(self._places):
            self._make_room(max(ROOM, 2 * len(self._places)))

    def find(self, publications: Sequence[Publication]) -> list[list[Any]]:
        with self._lock:
            used, (entries, messages, masks) = self._used, self._columns
            saved = len(publications) * (self._count - self.distinct)
            every = len(publications) * self.distinct
        answers, tested = self._tested(publications, messages[:used], masks[:used])
        self._metrics.add("pairs_tested", tested)
        # Other threads may have removed subscriptions that were tested.
        self._metrics.add("pairs_masked", max(0, every - tested))
        self._metrics.add("pairs_saved", max(0, saved))
        return [entries[np.flatnonzero(row)].tolist() for row in answers]

    def _tested(
        self, publications: Sequence[Publication], messages: Bytes, masks: Bytes
    ) -> tuple[Bools, int]:
        """Match events with interests whose masks fit, and count the pairs that were tested."""
        events = events_of(publications)
        own = b"".join(publication.mask or b"" for publication in publications)
        passing = may_match(np.frombuffer(own, np.uint8).reshape(len(events), -1), masks)
        # By interest, since a scheme prepares each interest of a batch once.
        places, rows = np.nonzero(passing.T)
        out = np.zeros(passing.shape, dtype=np.bool_)
        for start in range(0, len(rows), PAIR_ROWS):
            row, place = rows[start : start + PAIR_ROWS], places[start : start + PAIR_ROWS]
            # A user who was revoked matches nothing.
            out[row, place] = self._broker.examine(events[row], messages[place])[0]
        return out, len(rows)

    def matching(
        self, subscriptions: Sequence[Labelled], publications: Sequence[Publication]
    ) -> Bools:
        if not subscriptions or not publications:
            return np.zeros((len(publications), len(subscriptions)), dtype=np.bool_)
        messages, masks = interests_of(subscriptions), self._masks_of(subscriptions)
        return self._tested(publications, messages, masks)[0]
