"""k-anonymous records: attributes as ranges that several records share, before any matcher.

An *identifying* attribute is one whose value somebody else may know of a person: an age, a place, a
time. In a release each of them is two attributes, ``age_low`` and ``age_high``, the least and the
greatest value in the record's class, and at least k records have the same. All other attributes are
*sensitive*: they stay as they are, and a rule on their diversity may ask each class for several.

A generalised record is one event of the schema `Anonymizer.released`, so any matcher can encode it.
`Anonymizer.rewrite` makes the subscription that goes with it: it holds for a class in which some
record may match. So the subscriber also gets records that do not match themselves. An event for
each record that a class may stand for would be no safer, and its broker would count the records.

Any holder of a release can merge its classes to a release for a larger k (`Release.derive`). A
holder of both learns no more than the finer one says. Two releases that are made independently of
the same records can be intersected, down to single records.

Hazard: whoever runs this sees all records. k-anonymity counts records: a person with several
records in a class is hidden among fewer people. An attribute that is declared sensitive but known
to others identifies.
Source: [ZSSC15] for versions of a stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Final, Self

import numpy as np

from ccbps.anonymity.diversity import Diversity, numbered
from ccbps.anonymity.partition import (
    METHODS,
    SUPPRESSED,
    Method,
    check_ordered,
    extremes,
    merged,
    neighbours,
    partition,
    renumbered,
)
from ccbps.arrays import Index, Reals
from ccbps.checks import Printable, Redacted, choice, flag, instance, whole
from ccbps.errors import ParameterError
from ccbps.predicates import Box, Events, Predicate, Schema
from ccbps.predicates.bound import bound_predicate
from ccbps.predicates.box_predicates import predicate_of

LOW: Final = "_low"
HIGH: Final = "_high"


class Report(Redacted, frozen=True):
    """Numbers of a release; public, as anybody who has the release can count them.

    Attributes:
        records: number of original records.
        suppressed: number of records that were left out.
        classes: number of classes.
        smallest: number of records of the smallest class; 0 if there is none. Of hidden records it
            may be less than k (`Anonymizer.hidden`).
        over: number of published records in classes of more than k, or hidden.
        loss: mean width of the published ranges, as a share of the domain's width: 0 for exact
            values, 1 for whole domains.
    """

    records: int
    suppressed: int
    classes: int
    smallest: int
    over: int
    loss: float
    _hidden = ()

    @property
    def suppression(self) -> float:
        """Share of records that were left out."""
        return self.suppressed / self.records if self.records else 0.0


class Anonymizer(Printable):
    """Parameters by which records are made k-anonymous; all of them are public.

    Example:
        >>> from ccbps import Category, Schema, UInt
        >>> from ccbps.anonymity import Anonymizer, Distinct
        >>> schema = Schema(age=UInt(7), illness=Category(["cold", "flu", "none"]))
        >>> anonymizer = Anonymizer(schema, k=2, sensitive=["illness"], diversity=Distinct(2))
        >>> release = anonymizer.release(
        ...     {"age": [31, 62, 33, 60], "illness": ["flu", "none", "cold", "cold"]}
        ... )
        >>> anonymizer.released.names
        ('age_low', 'age_high', 'illness')
        >>> release.events.codes["age_low"], release.events.codes["age_high"]
        (array([[31, 60, 31, 60]], dtype=uint64), array([[33, 62, 33, 62]], dtype=uint64))
        >>> anonymizer.rewrite("age < 32 AND illness = 'flu'").evaluate(release.events)
        array([ True, False, False, False])

    Attributes:
        schema: attributes of records.
        k: least number of records of a class.
        identifying: names of the attributes that become ranges.
        sensitive: names of the others.
        diversity: rule on the values of `sensitive` in each class; None for no rule.
        method: algorithm that forms classes; None for the first that fits.
    """

    def __init__(
        self,
        schema: Schema,
        k: int,
        *,
        sensitive: Iterable[str] = (),
        diversity: Diversity | None = None,
        method: Method | None = None,
    ) -> None:
        """Make an anonymizer.

        Args:
            schema: attributes of records. Those that identify have an order and at most 64 bits.
            k: least number of records of a class, at least 1.
            sensitive: names of the attributes that stay as they are. All others become ranges.
            diversity: rule on the combinations of sensitive values in each class; None for no rule.
            method: "optimal", the least loss, for one identifying attribute; "mondrian" for any
                number. None takes "optimal" where it can.

        Raises:
            ParameterError: an attribute does not exist or does not fit; none identifies; or there
                is a rule and nothing sensitive, or a method that does not fit.
        """
        self.schema, self.k = instance("schema", schema, Schema), whole("k", k, 1)
        if isinstance(sensitive, str):
            raise ParameterError(
                f"sensitive must be a list of names, got text; write [{sensitive!r}]"
            )
        names = set(sensitive)
        for name in sorted(map(str, names - set(schema))):
            raise ParameterError(f"sensitive: the schema has no attribute {name!r}")
        self.identifying = tuple(name for name in schema if name not in names)
        self.sensitive = tuple(name for name in schema if name in names)
        self.diversity = diversity
        if diversity is not None:
            instance("diversity", diversity, Diversity, hint="take Distinct(3), for example")
            if not self.sensitive:
                raise ParameterError("diversity is about sensitive attributes: name them")
        self.method = choice("method", method, METHODS)
        if not self.identifying:
            raise ParameterError("sensitive must leave at least one attribute that identifies")
        if method == "optimal" and len(self.identifying) > 1:
            raise ParameterError(
                f"method='optimal' takes one identifying attribute, got {len(self.identifying)}; "
                "take method='mondrian'"
            )
        for name in self.identifying:
            check_ordered(schema, name, "make it sensitive")

    def __repr__(self) -> str:
        rule = f", {self.diversity!r}" if self.diversity else ""
        return f"<Anonymizer: k={self.k} over {', '.join(self.identifying)}{rule}>"

    @cached_property
    def released(self) -> Schema:
        """Schema of released records, for matchers.

        Raises:
            ParameterError: a name such as ``age_low`` is taken.
        """
        types = {}
        for name in self.schema:
            ends = [name + LOW, name + HIGH] if name in self.identifying else [name]
            for new in ends:
                if new in types or (new != name and new in self.schema):
                    raise ParameterError(f"the schema has an attribute {new!r}: rename it")
                types[new] = self.schema[name]
        return Schema(types)

    @cached_property
    def scale(self) -> Reals:
        """Width of the domain of each identifying attribute, at least 1."""
        sizes = [max(1, self.schema[name].size - 1) for name in self.identifying]
        return np.array(sizes, dtype=np.float64)

    def classes(self, records: Any) -> Index:
        """Return the class of each record, -1 if it must not be published.

        Raises:
            EventError: the records do not fit the schema.
        """
        events = self.schema.encode(records)
        points = np.concatenate([events.codes[name] for name in self.identifying])
        values = None
        if self.diversity is not None:
            values = numbered(np.concatenate([events.codes[name] for name in self.sensitive]))
        return partition(points, points, self.scale, self.k, self.diversity, values, self.method)

    def release(self, records: Any) -> Release:
        """Make a release of records.

        Raises:
            EventError: the records do not fit the schema.
        """
        events = self.schema.encode(records)
        return self.release_classes(events, self.classes(events))

    def release_classes(self, records: Any, classes: Index) -> Release:
        """Make a release of records whose classes are given.

        Args:
            records: the records.
            classes: class of each, from 0; -1 for records that are left out. This does not check
                how many records a class has.
        """
        events = self.schema.encode(records)
        rows = np.flatnonzero(classes >= 0)
        numbers = renumbered(classes)[rows]
        codes = {}
        for name in self.schema:
            own = events.codes[name][:, rows]
            if name not in self.identifying:
                codes[name] = own
                continue
            for end, greatest in ((LOW, False), (HIGH, True)):
                hull = own[:, extremes(numbers, own[0], greatest=greatest)]
                codes[name + end] = hull[:, numbers]
        return Release(self, events.count, Events(self.released, len(rows), codes), rows, numbers)

    def hidden(self, records: Any) -> Release:
        """Make a release in which each identifying attribute is its whole domain.

        Its records form one class with all others that are ever released in this way. It says
        nothing about the attributes that identify, however few records there are.
        """
        events = self.schema.encode(records)
        codes = {name: events.codes[name] for name in self.sensitive}
        for name in self.identifying:
            codes[name + LOW] = np.zeros_like(events.codes[name])
            codes[name + HIGH] = codes[name + LOW] + np.uint64(self.schema[name].highest)
        codes = {name: codes[name] for name in self.released}
        whole_class = np.zeros(events.count, dtype=np.intp)
        out = Events(self.released, events.count, codes)
        return Release(self, events.count, out, np.arange(events.count), whole_class)

    def rewrite(self, interest: str | Predicate, *, certain: bool = False) -> Predicate:
        """Write a subscription to records as one to released records.

        Args:
            interest: SQL text or a predicate of `schema`, with all its constants, that is an OR of
                a few ANDs of sets of values.
            certain: False to match each class in which some record may match; True to match only
                classes whose records all match for certain. With True, an OR may miss some classes.

        Returns:
            a predicate of `released`. It is a box where the interest is one.

        Raises:
            ParameterError, PredicateError: the interest does not fit; or it never matches.
        """
        flag("certain", certain)
        predicate = bound_predicate(self.schema, interest)
        boxes: list[Box] = []
        for product in predicate.alternatives():
            ranges: list[dict[str, tuple[int, int]]] = [{}]
            for name, intervals in product.items():
                ranges = [{**old, name: pair} for old in ranges for pair in intervals]
                if len(boxes) + len(ranges) > MOST_BOXES:
                    raise ParameterError(
                        f"the interest takes more than {MOST_BOXES} boxes: write several"
                    )
            boxes += [self._box(given, certain) for given in ranges]
        if not boxes:
            raise ParameterError("the interest never matches")
        return predicate_of(*boxes)

    def _box(self, ranges: dict[str, tuple[int, int]], certain: bool) -> Box:
        out = {name: (0, self.released[name].size - 1) for name in self.released}
        for name, (low, high) in ranges.items():
            last = self.schema[name].size - 1
            if name not in self.identifying:
                out[name] = (low, high)
            elif certain:
                out[name + LOW], out[name + HIGH] = (low, last), (0, high)
            else:
                out[name + LOW], out[name + HIGH] = (0, high), (low, last)
        return Box(self.released, out)


MOST_BOXES: Final = 64
"""Largest number of boxes of a rewritten subscription."""


class Release(Redacted, frozen=True, eq=False, dict=True):
    """Records that are published, with their classes.

    Attributes:
        anonymizer: anonymizer that made the release.
        records: number of original records.
        events: released records, for any matcher's publisher, who shuffles them.
        rows: positions of the released records among the original ones. They are the publisher's
            secret, and so is the order of `events`: hand out `public`.
        classes: class of each released record, from 0.
    """

    anonymizer: Anonymizer
    records: int
    events: Events
    rows: Index
    classes: Index

    def __repr__(self) -> str:
        return f"<Release: {self.events.count} of {self.records} records>"

    @property
    def public(self) -> Self:
        """The same release for those who may read it: sorted, and without `rows`.

        Records are sorted by class, and within a class by their released values. So their order
        tells nothing of their arrival, or of the finer classes that they were in.
        """
        codes = np.concatenate([*self.events.codes.values()])
        order = np.lexsort((*codes, self.classes))
        places = np.arange(self.events.count)
        events, classes = self.events.take(order), self.classes[order]
        return type(self)(self.anonymizer, self.records, events, places, classes)

    @cached_property
    def report(self) -> Report:
        """Numbers of this release."""
        sizes = np.bincount(self.classes)
        codes, loss = self.events.codes, 0.0
        for name, scale in zip(
            self.anonymizer.identifying, self.anonymizer.scale.tolist(), strict=True
        ):
            widths = (codes[name + HIGH] - codes[name + LOW]).astype(np.float64) / scale
            loss += float(widths.mean()) if widths.size else 0.0
        return Report(
            records=self.records,
            suppressed=self.records - self.events.count,
            classes=len(sizes),
            smallest=int(sizes.min(initial=self.events.count)),
            over=int(sizes[sizes != self.anonymizer.k].sum()),
            loss=loss / len(self.anonymizer.identifying),
        )

    @classmethod
    def joined(cls, releases: Sequence[Self]) -> Self:
        """Join releases of one stream, whose classes stay as they are.

        Classes that are near one another get neighbouring numbers, which `derive` merges. `rows`
        counts on from each release to the next.

        Example:
            >>> from ccbps import Schema, UInt
            >>> from ccbps.anonymity import Anonymizer, Release
            >>> anonymizer = Anonymizer(Schema(age=UInt(7)), k=2)
            >>> first = anonymizer.release({"age": [31, 33, 60, 62]})
            >>> joined = Release.joined([first, anonymizer.release({"age": [34, 30]})])
            >>> joined, joined.classes, joined.rows
            (<Release: 6 of 6 records>, array([1, 1, 2, 2, 0, 0]), array([0, 1, 2, 3, 4, 5]))
            >>> joined.derive(4).events.codes["age_high"]
            array([[62, 62, 62, 62, 62, 62]], dtype=uint64)

        Args:
            releases: releases in their order, at least one; all of one anonymizer's schema.

        Raises:
            ParameterError: there is none, or they have different schemas.
        """
        if not releases:
            raise ParameterError("releases must have at least one")
        first = releases[0]
        if any(one.events.schema != first.events.schema for one in releases):
            raise ParameterError("releases of different schemas cannot be joined")
        anonymizer = min((one.anonymizer for one in releases), key=lambda own: own.k)
        starts = np.cumsum([0, *(one.records for one in releases)])
        tops = np.cumsum([0, *(int(one.classes.max(initial=-1)) + 1 for one in releases)])
        rows = [one.rows + start for one, start in zip(releases, starts, strict=False)]
        classes = [one.classes + top for one, top in zip(releases, tops, strict=False)]
        codes = {
            name: np.concatenate([one.events.codes[name] for one in releases], axis=1)
            for name in first.events.schema
        }
        numbers = np.concatenate(classes)
        events = Events(first.events.schema, len(numbers), codes)
        _, examples, index = np.unique(numbers, return_index=True, return_inverse=True)
        ranges = np.stack(
            [
                codes[name + end][0, examples]
                for name in anonymizer.identifying
                for end in (LOW, HIGH)
            ]
        )
        place = np.empty(len(examples), dtype=np.intp)
        place[neighbours(ranges[0::2], ranges[1::2], anonymizer.scale)] = np.arange(len(examples))
        return cls(anonymizer, int(starts[-1]), events, np.concatenate(rows), place[index])

    def is_enough(self, k: int, diversity: Diversity | None = None) -> bool:
        """Tell whether each class has k records and keeps a rule.

        Args:
            k: least number of records of a class.
            diversity: rule on the sensitive values; None for the rule of the anonymizer.
        """
        sizes = np.bincount(self.classes)
        rule = diversity or self.anonymizer.diversity
        if not len(sizes) or rule is None:
            return bool((sizes >= k).all())
        values = self._values(self.anonymizer.sensitive)
        return bool((sizes >= k).all() and rule.of_groups(self.classes, values, len(sizes)).all())

    def merges(self, finer: Release) -> bool:
        """Tell whether the classes of this release are unions of whole classes of a finer one.

        If so, both together say no more than the finer one. Classes that this release leaves out
        are left out as a whole. All records of a class have the same ranges.

        Example:
            >>> from ccbps import Schema, UInt
            >>> from ccbps.anonymity import Anonymizer
            >>> ages = {"age": [31, 33, 40, 41, 50, 51]}
            >>> fine = Anonymizer(Schema(age=UInt(7)), k=2).release(ages)
            >>> fine.derive(3).merges(fine)
            True
            >>> Anonymizer(Schema(age=UInt(7)), k=3).release(ages).merges(fine)
            False

        Args:
            finer: release of the same schema, whose `rows` count the same records.
        """
        if (self.events.schema, self.anonymizer.sensitive) != (
            finer.events.schema,
            finer.anonymizer.sensitive,
        ):
            return False
        order = np.argsort(finer.rows, kind="stable")
        known = finer.rows[order]
        at = np.searchsorted(known, self.rows)
        if len(np.unique(self.rows)) < len(self.rows) or not np.isin(self.rows, known).all():
            return False
        at = order[at]
        own, sizes = finer.classes[at], np.bincount(finer.classes)
        counts = np.bincount(own, minlength=len(sizes))
        if not ((counts == 0) | (counts == sizes)).all():
            return False
        pairs = np.unique(np.stack([own, self.classes]), axis=1).shape[1]
        if pairs != np.count_nonzero(counts):
            return False
        ends = {n + end: end for n in self.anonymizer.identifying for end in (LOW, HIGH)}
        numbers = self.classes.astype(np.uint64)
        shown = np.stack([numbers, *(self.events.codes[name][0] for name in ends)])
        if np.unique(shown, axis=1).shape[1] != len(np.unique(numbers)):
            return False
        for name, codes in self.events.codes.items():
            theirs = finer.events.codes[name][:, at]
            if name not in ends:
                inside = codes == theirs
            else:
                inside = codes <= theirs if ends[name] == LOW else codes >= theirs
            if not inside.all():
                return False
        return True

    def _values(self, sensitive: Iterable[str]) -> Index:
        """Number the combinations of sensitive values."""
        return numbered(np.concatenate([self.events.codes[name] for name in sensitive]))

    def versions(self, *ks: int) -> tuple[Self, ...]:
        """Make releases for several k, each of which is derived from the one before it.

        A holder of several of them learns no more than the finest of these says.

        Args:
            *ks: least numbers of records of a class, ascending, no less than the present k.

        Raises:
            ParameterError: they do not ascend.
        """
        out: list[Self] = []
        for k in ks:
            out.append((out[-1] if out else self).derive(k))
        return tuple(out)

    def derive(self, k: int, diversity: Diversity | None = None) -> Self:
        """Make the release for a larger k, by merging whole classes of this one.

        This needs no original record, so a broker that has this release can do it. A class of the
        new release is a union of classes of this one, so both together tell no more than this one.

        Hazard: two releases that are both derived from this one can be intersected down to classes
        of this one. Derive each from the one before it, as `versions` does.

        Args:
            k: least number of records of a class, no less than the present k.
            diversity: rule for the new classes; None for the present rule.

        Raises:
            ParameterError: k is less.
        """
        old = self.anonymizer
        rule = diversity or old.diversity
        new = Anonymizer(
            old.schema,
            whole("k", k, old.k, hint="a finer release needs the records"),
            sensitive=old.sensitive,
            diversity=rule,
            method=old.method,
        )
        codes = self.events.codes
        values = None if rule is None else self._values(old.sensitive)
        classes = merged(self.classes, k, rule, values)
        kept = np.flatnonzero(classes != SUPPRESSED)
        numbers = classes[kept]
        hulls = {}
        for name in self.events.schema:
            own = codes[name][:, kept]
            ends = {n + end: end for n in old.identifying for end in (LOW, HIGH)}
            if name in ends:
                rows = extremes(numbers, own[0], greatest=ends[name] == HIGH)
                own = own[:, rows][:, numbers]
            hulls[name] = own
        events = Events(self.events.schema, len(kept), hulls)
        return type(self)(new, self.records, events, self.rows[kept], numbers)
