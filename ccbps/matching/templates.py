"""Bases of schemes with a public template, a box, or a hidden formula.

A *template* is a formula that everybody sees, with ``:name`` for constants that only the subscriber
knows. The *box* is "every attribute lies in a private interval": it takes any conjunction of
comparisons, ranges, equalities and prefixes as SQL text, and hides which of them are used. A
*hidden* formula is a full binary tree of a public number of leaves, of a public kind; its
negations, ANDs, ORs and unused leaves are private.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, get_args

from ccbps import predicates
from ccbps.arrays import Bools
from ccbps.checks import choice, whole
from ccbps.errors import CcbpsError, ParameterError, UnsupportedPredicateError
from ccbps.forms.branching import box_form
from ccbps.leakage import Protects
from ccbps.matching.contract.matcher import Matcher, from_text
from ccbps.matching.contract.scheme import Interest, Operator
from ccbps.predicates import Events, Predicate, Schema
from ccbps.predicates.bound import bound_predicate
from ccbps.predicates.form import Form

if TYPE_CHECKING:
    from ccbps.predicates.hiding import DoesNotFit, HiddenTree, LeafKind

MAX_SIZE: Final = 4096
"""Largest number of nodes or AND gates by default, and in a matcher's text.

A message of a program with so many nodes is a megabyte, one of a formula some kilobytes.
"""
MOST_PROPOSED: Final = 4
"""Largest number of levels of a hidden formula that is proposed."""


class TemplateMatcher(Matcher):
    """Public side of a scheme with a template or a box.

    Attributes:
        template: the public predicate, or None.
        size: number of nodes or gates.
    """

    operators: tuple[Operator, ...] = get_args(Operator)
    template: Predicate | None = None
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
            ParameterError: there is no template, or it is for another schema or already bound.
            PredicateError: the template does not parse or does not fit the schema.
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
            yield from cls._first(cls._candidates(schema, predicate), predicate)

    @classmethod
    def _first(cls, makers: Iterable[Callable[[], Self]], predicate: Predicate) -> Iterator[Self]:
        """Yield the first matcher that takes a predicate, if there is any."""
        for make in makers:
            with suppress(CcbpsError):
                matcher = make()
                if matcher.template is None:
                    matcher.prepare(predicate)
                yield matcher
                return

    def _with(self, **parameters: Any) -> Self:
        """Make the matcher that has other values of some `_own_parameters`.

        Raises:
            ParameterError: the parameters are not possible.
        """
        options = {**self.parameters(), **parameters}
        template = options.pop("template")
        del options[self._size_name]
        return self._again(self.schema, template, options)

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

    # -- interests --------------------------------------------------------------------------------

    def prepare(self, interest: Interest) -> Any:
        """Return the private bits of a subscription."""
        if self.template is None:
            about = "this matcher is a box: an interest"
            return self._box_row(bound_predicate(self.schema, interest, about))
        if not isinstance(interest, Mapping):
            names = ", ".join(f":{name}" for name in self.template.private_names)
            raise ParameterError(
                "this matcher has a template: an interest is a mapping with values for its "
                f"private constants ({names or 'none'}), got {type(interest).__name__}"
            )
        if not all(isinstance(name, str) for name in interest):
            raise ParameterError("names of private constants must be strings")
        return self._interest_row(self.template.bind(**interest).true_form())

    def _box_row(self, predicate: Predicate) -> Any:
        """Return the private bits of a predicate that is a box."""
        return self._interest_row(box_form(self.schema, predicate.box()))

    @abstractmethod
    def _interest_row(self, form: Form | HiddenTree) -> Any:
        """Return the private bits of a bound form, or of a hidden tree."""

    def meaning(self, interest: Any, events: Events) -> Bools:
        if self.template is None:
            return super().meaning(interest, events)
        return self.template.bind(**interest).evaluate(events)


class HiddenMatcher(TemplateMatcher):
    """Public side of a scheme that also takes hidden formulas.

    Attributes:
        hidden_tree: levels and kind of leaves of a hidden formula, or None.
    """

    hidden_tree: tuple[int, LeafKind] | None = None
    _size_name = "gates"
    _own_parameters: ClassVar[tuple[str, ...]] = ("hidden",)

    @classmethod
    @abstractmethod
    def hidden(
        cls,
        schema: Schema,
        *,
        leaves: int | None = None,
        depth: int | None = None,
        leaf: LeafKind = "box",
    ) -> Self:
        """Make the matcher that hides the formula itself."""

    def parameters(self) -> dict[str, Any]:
        hidden = None if self.hidden_tree is None else list(self.hidden_tree)
        return {**super().parameters(), "hidden": hidden}

    @classmethod
    def _again(cls, schema: Schema, template: Any, options: dict[str, Any]) -> Self:
        hidden = options.pop("hidden")
        if template is not None or hidden is None:
            return super()._again(schema, template, options)
        if not isinstance(hidden, list) or len(hidden) != 2:
            raise ParameterError(f"hidden must be levels and a kind of leaves, got {hidden!r}")
        return cls.hidden(schema, depth=hidden[0], leaf=hidden[1], **options)

    @classmethod
    def _candidates(cls, schema: Schema, predicate: Predicate) -> list[Callable[[], Self]]:
        levels = () if predicate.private_names else range(1, MOST_PROPOSED + 1)
        return [*super()._candidates(schema, predicate), *cls._trees(schema, levels)]

    @classmethod
    def _trees(cls, schema: Schema, levels: Iterable[int]) -> list[Callable[[], Self]]:
        # Hazard: the number of leaves follows from the predicate, and everybody sees it.
        return [partial(cls.hidden, schema, depth=level, leaf="box") for level in levels]

    @classmethod
    def variants(cls, schema: Schema, predicate: Predicate) -> Iterator[Self]:
        """Yield the matchers of `propose`, and the smallest one that hides the formula."""
        proposed = list(cls.propose(schema, predicate))
        yield from proposed
        if predicate.unbound_names or any(matcher.hidden_tree for matcher in proposed):
            return
        if predicate.schema == schema:
            yield from cls._first(cls._trees(schema, range(MOST_PROPOSED + 1)), predicate)

    @property
    def _shape(self) -> str:
        if self.hidden_tree is None:
            return super()._shape
        levels, leaf = self.hidden_tree
        return f"hidden formula of {1 << levels} {leaf} leaves"

    def _hidden_part(self) -> tuple[str, str, set[Protects]]:
        if self.hidden_tree is None:
            return super()._hidden_part()
        levels, leaf = self.hidden_tree
        return (
            f"the schema, and that predicates are formulas of at most {1 << levels} {leaf} leaves",
            "every constant of the predicate, which attributes it constrains, and its formula",
            {Protects.CONSTANTS, Protects.ATTRIBUTES, Protects.FORMULA},
        )

    def prepare(self, interest: Interest) -> Any:
        if self.hidden_tree is None:
            return super().prepare(interest)
        about = "this matcher hides formulas: an interest"
        predicate = bound_predicate(self.schema, interest, about)
        try:
            tree = predicates.hiding.hide(self.schema, predicate.true_form(), *self.hidden_tree)
        except predicates.hiding.DoesNotFit as problem:
            raise self._too_deep(predicate, problem) from None
        return self._interest_row(tree)

    def _too_deep(self, predicate: Predicate, problem: DoesNotFit) -> UnsupportedPredicateError:
        """Return the error of a predicate that does not fit, with what it needs."""
        assert self.hidden_tree is not None
        levels, leaf = self.hidden_tree
        reason = (
            f"the predicate does not fit a hidden formula of depth {levels}, "
            f"{1 << levels} {leaf} leaves"
        )
        # The size that it would need depends on the formula, which is private.
        needed, advice = "it is too large to say what it needs", "take another kind of leaf"
        if problem.needed_depth is not None:
            needed = f"it needs depth {problem.needed_depth}, {problem.needed_leaves:,} leaves"
            if problem.needed_depth <= predicates.hiding.MAX_DEPTH:
                advice = "take a deeper one or another kind of leaf"
        message = f"{reason}: {needed}; {advice}, or write several subscriptions"
        message += self._other_scheme(predicate)
        return UnsupportedPredicateError(
            message, text=predicate.text, summary=f"{reason}; take a deeper one"
        )

    def _other_scheme(self, predicate: Predicate) -> str:
        """Return advice on another scheme for a predicate that does not fit, or ""."""
        return ""

    def _use_tree(self, leaves: int | None, levels: int | None, leaf: LeafKind) -> int:
        """Keep the tree of hidden formulas, and return its levels."""
        if leaves is None and levels is None:
            raise ParameterError("hidden needs leaves=, a power of two, or depth=, its logarithm")
        if levels is None:
            count = whole("leaves", leaves, 1, hint="take a power of two")
            if count & (count - 1):
                raise ParameterError(f"leaves must be a power of two, got {leaves!r}")
            levels = count.bit_length() - 1
        levels = whole("depth", levels, 0, predicates.hiding.MAX_DEPTH)
        if leaves is not None and leaves != 1 << levels:
            raise ParameterError(
                f"a tree of depth {levels} has {1 << levels} leaves, not {leaves!r}; give one of "
                "both"
            )
        self.hidden_tree = levels, choice("leaf", leaf, get_args(predicates.hiding.LeafKind))
        return levels
