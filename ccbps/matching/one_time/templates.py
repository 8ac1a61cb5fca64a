"""Schemes with a public template or a box, and nothing else that is public but sizes.

A *template* is a formula that everybody sees, with ``:name`` for constants that only the subscriber
knows. The *box* is "every attribute lies in a private interval": it takes any conjunction of
comparisons, ranges, equalities and prefixes as SQL text, and hides which of them are used.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Final, Self, get_args

import numpy as np

from ccbps.arrays import Bools, Bytes, Words
from ccbps.checks import whole
from ccbps.dictionary import DictionaryColumn
from ccbps.encodings.rows import PairEncoding
from ccbps.errors import CcbpsError, ParameterError
from ccbps.forms.branching import box_form
from ccbps.leakage import LeakageCard, Protects
from ccbps.matching.contract.matcher import Matcher, from_text
from ccbps.matching.contract.scheme import (
    Cost,
    Draw,
    Interest,
    Operation,
    Operator,
    PairScheme,
    Sizes,
    bound_predicate,
)
from ccbps.predicates import Events, Predicate, Schema
from ccbps.predicates.form import Form
from ccbps.wire import padding_causes

MAX_SIZE: Final = 4096
"""Largest number of nodes or AND gates by default, and in a matcher's text.

A message of a program with so many nodes is a megabyte, one of a formula some kilobytes.
"""


class TemplateScheme(Matcher, PairScheme):
    """Public side of a scheme with a template or a box.

    Attributes:
        template: the public predicate, or None.
        encoding: the encoders and the decoder.
        size: number of nodes or AND gates.
    """

    operators: tuple[Operator, ...] = get_args(Operator)
    template: Predicate | None = None
    encoding: Any
    _form: Any
    """Form of the template or the box, which writes the private bits of an interest."""
    _size_name: ClassVar[str]
    """Unit of `size` in the parameters and, behind ``max_``, in the constructors."""
    _own_parameters: ClassVar[tuple[str, ...]] = ()
    """Names of the parameters besides template and size."""

    def _template_form(
        self, schema: Schema, template: str | Predicate | None, more: str = ""
    ) -> Form:
        """Keep a template, and return its form.

        Args:
            schema: schema of the events.
            template: SQL text, or a predicate whose private constants have no values.
            more: advice for no template, besides the box.

        Raises:
            ParameterError: there is none, it is for another schema or already bound.
            PredicateError: it does not parse or does not fit the schema.
        """
        if template is None:
            name = type(self).__name__
            raise ParameterError(
                f"{name}(schema, template) needs a public template, such as "
                "'price < :limit AND issue = :issue'; for subscriptions that each bring their own "
                f"conjunction of intervals, and hide it, take {name}.box(schema){more}"
            )
        predicate = schema.parse(template) if isinstance(template, str) else template
        if not isinstance(predicate, Predicate):
            raise ParameterError(
                f"template must be SQL text or a Predicate, got {type(template).__name__}"
            )
        if predicate.schema != schema:
            raise ParameterError("the template was parsed for another schema")
        if predicate.unbound_names != predicate.private_names:
            raise ParameterError(
                "the template's private constants have values, and a template is public; "
                "pass the predicate before bind()"
            )
        self.template, self.private_names = predicate, predicate.private_names
        return predicate.true_form()

    def _box_form(self, schema: Schema) -> Form:
        """Take boxes as interests, and return their form."""
        self.operators = ("=", "<", "interval", "prefix", "and")
        return box_form(schema)

    def _use(self, schema: Schema, form: Any, encoding: PairEncoding) -> None:
        """Keep the form and the encoding. Call this at the end of the constructor."""
        self._form, self.encoding = form, encoding
        sizes = encoding.event_bytes, encoding.interest_bytes, encoding.randomness_bytes
        self._set_up(schema, Sizes(*sizes))

    # -- public parameters ------------------------------------------------------------------------

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of nodes or AND gates."""

    def parameters(self) -> dict[str, Any]:
        template = None if self.template is None else self.template.text
        return {"template": template, self._size_name: self.size}

    @classmethod
    def from_parameters(cls, schema: Schema, parameters: Mapping[str, Any]) -> Self:
        options, unit = dict(parameters), cls._size_name
        if options.keys() != {"template", unit, *cls._own_parameters}:
            raise ParameterError(f"the parameters are not those of a {cls.__name__}")
        template, size = options.pop("template"), whole(unit, options.pop(unit), 0)
        if from_text() and size > MAX_SIZE:
            raise ParameterError(
                f"a text may ask for at most {MAX_SIZE:,} {unit}, got {size:,}; if such messages "
                f"are what you want, make the matcher by its constructor with max_{unit}={size}"
            )
        # The size that is counted before anything is built may be larger: constants fold.
        options[f"max_{unit}"] = MAX_SIZE if from_text() else sys.maxsize
        matcher = cls._again(schema, template, options)
        if matcher.size != size:
            raise ParameterError(f"the matcher has {matcher.size} {unit}, not {size}")
        return matcher

    @classmethod
    def _again(cls, schema: Schema, template: Any, options: dict[str, Any]) -> Self:
        """Call the constructor for these parameters."""
        make: Any = cls.box if template is None else partial(cls, template=template)
        matcher: Self = make(schema, **options)
        return matcher

    @classmethod
    @abstractmethod
    def box(cls, schema: Schema) -> Self:
        """Make the matcher that hides which attributes a predicate constrains, and how."""

    @classmethod
    def propose(cls, schema: Schema, predicate: Predicate) -> Iterator[Self]:
        if predicate.schema == schema:
            for make in cls._candidates(schema, predicate):
                with suppress(CcbpsError):
                    matcher = make()
                    if matcher.template is None:
                        matcher.prepare(predicate)
                    yield matcher
                    return

    @classmethod
    def _candidates(cls, schema: Schema, predicate: Predicate) -> list[Callable[[], Self]]:
        """List constructors of matchers to propose, best first."""
        make: Any = cls
        if predicate.private_names:
            return [partial(make, schema, predicate.text)]
        return [partial(make.box, schema)]

    @property
    def _shape(self) -> str:
        return "box" if self.template is None else f"template {self.template.text!r}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._shape} over {', '.join(self.schema)}>"

    def _hidden_part(self) -> tuple[str, str, set[Protects]]:
        """Return in words what is public and what is hidden of a subscription; and protections."""
        if self.template is not None:
            return (
                "the schema and the template with its public constants, so that an answer says "
                "which condition an event fulfils, but for private constants",
                "the private constants of the predicate",
                {Protects.CONSTANTS},
            )
        return (
            "the schema",
            "every constant of the predicate, and which attributes it constrains",
            {Protects.CONSTANTS, Protects.ATTRIBUTES},
        )

    @property
    def leakage(self) -> LeakageCard:
        return self._perfect(*self._hidden_part())

    @property
    def costs(self) -> tuple[Cost, ...]:
        counts = self.encoding.operations.items()
        return tuple(Cost(role, "pair", Operation.WORD, count) for role, count in counts)

    # -- interests and messages -------------------------------------------------------------------

    def prepare(self, interest: Interest) -> Words:
        """Return the private bits of a subscription, shape (1, words)."""
        if self.template is None:
            box = bound_predicate(self.schema, interest, "this matcher is a box: an interest").box()
            return self._interest_row(box_form(self.schema, box))
        if not isinstance(interest, Mapping):
            names = ", ".join(f":{name}" for name in self.template.private_names)
            raise ParameterError(
                "this matcher has a template: an interest is a mapping with values for its "
                f"private constants ({names or 'none'}), got {type(interest).__name__}"
            )
        if not all(isinstance(name, str) for name in interest):
            raise ParameterError("names of private constants must be strings")
        return self._interest_row(self.template.bind(**interest).true_form())

    def _interest_row(self, form: Any) -> Words:
        row: Words = self._form.interest_row(form)
        return row

    def meaning(self, interest: Any, events: Events) -> Bools:
        if self.template is None:
            return super().meaning(interest, events)
        return self.template.bind(**interest).evaluate(events)

    def identify(self, prepared: Words) -> bytes:
        return prepared.tobytes()

    def encode_interests(
        self, key: Mapping[str, Any], interests: DictionaryColumn[Words], draw: Draw, out: Bytes
    ) -> None:
        rows = np.concatenate(interests.values)
        index = None if len(rows) == 1 else interests.index
        self.encoding.encode_interest(rows, draw.rows, out, index=index)

    def match_pairs(self, events: Bytes, interests: Bytes) -> tuple[Bools, Bytes]:
        return self.match_behind(events, interests, np.empty((2, len(events), 0), dtype=np.uint8))

    def match_behind(self, events: Bytes, interests: Bytes, heads: Bytes) -> tuple[Bools, Bytes]:
        answers, stray = self.encoding.decode_with_heads(events, interests, heads)
        return answers, padding_causes(stray)
