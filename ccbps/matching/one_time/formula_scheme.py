"""Base of `FormulaMatch` and `BroadcastMatch`: schemes of formulas over GF(2).

There are three kinds of matchers. They differ in what everybody may see of a subscription:

- a *template*: a formula with ``:name`` for constants that only the subscriber knows;
- a *box*: every attribute lies in a private interval;
- *hidden*: a full binary tree of a public number of leaves, of a public kind; the formula is
  private, its negations, ANDs, ORs and unused leaves included.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Final, Self, get_args

from ccbps.arrays import Words
from ccbps.checks import choice, whole
from ccbps.errors import CcbpsError, ParameterError, UnsupportedPredicateError
from ccbps.forms.formula import FormulaForm, HiddenForm, TooManyGates
from ccbps.forms.leaves import Leaves
from ccbps.leakage import Protects
from ccbps.matching.contract.scheme import Interest, bound_predicate
from ccbps.matching.one_time.branching import BranchingMatch
from ccbps.matching.one_time.templates import TemplateScheme
from ccbps.predicates import Predicate, Schema
from ccbps.predicates.hiding import MAX_DEPTH, DoesNotFit, LeafKind, hide
from ccbps.programs.formula import Formula, Sum, as_json, depth, gates

MOST_PROPOSED: Final = 4
"""Largest number of levels of a hidden formula that is proposed."""


class FormulaScheme(TemplateScheme):
    """Public side of a scheme of formulas.

    Attributes:
        template: the public predicate, or None.
        hidden_tree: levels and kind of leaves of a hidden formula, or None.
        formula: the formula that all parties compute.
        encoding: the encoders and the decoder.
    """

    hidden_tree: tuple[int, LeafKind] | None = None
    _size_name = "gates"
    _own_parameters: ClassVar[tuple[str, ...]] = ("hidden",)
    _rule: ClassVar[int]
    """Number of the rule by which messages follow from the formula."""

    def _use_template(
        self, schema: Schema, template: str | Predicate | None, max_gates: int
    ) -> None:
        more = f"; for any formula, {type(self).__name__}.hidden(schema, ...)"
        form = self._template_form(schema, template, more)
        try:
            self._use_form(schema, FormulaForm(self._leaves(schema), form, _limit(max_gates)))
        except TooManyGates as error:
            raise ParameterError(f"{error}{_instead(schema, self.template)}") from None

    def _use_box(self, schema: Schema, max_gates: int) -> None:
        leaves, form = self._leaves(schema), self._box_form(schema)
        self._use_form(schema, FormulaForm(leaves, form, _limit(max_gates)))

    def _use_hidden(
        self,
        schema: Schema,
        leaves: int | None,
        levels: int | None,
        leaf: LeafKind,
        max_gates: int,
    ) -> None:
        levels = _levels(leaves, levels)
        choice("leaf", leaf, get_args(LeafKind))
        # One leaf tells how many gates there would be, before they are made.
        formula = HiddenForm(self._leaves(schema), 0, leaf).formula
        own, unit = gates(formula), "AND gates"
        if isinstance(formula, Sum) and len(formula.parts) - 1 > own:
            # A sum of digits has no gates, and its messages are as large as if it had.
            own, unit = len(formula.parts) - 1, "digits and AND gates"
        needed = ((own + 1) << levels) - 1
        if needed > _limit(max_gates):
            raise ParameterError(
                f"a hidden formula of {1 << levels:,} leaves would have {needed:,} {unit}; "
                f"max_gates allows {max_gates:,}: take fewer or simpler leaves, or raise max_gates"
            )
        self.hidden_tree = levels, leaf
        self._use_form(schema, HiddenForm(self._leaves(schema), levels, leaf))

    @abstractmethod
    def _leaves(self, schema: Schema) -> Leaves:
        """Return the conditions as the encoding takes them."""

    @abstractmethod
    def _use_form(self, schema: Schema, form: FormulaForm | HiddenForm) -> None:
        """Make the encoding of a form; call `_use`."""

    # -- public parameters ------------------------------------------------------------------------

    @property
    def formula(self) -> Formula:
        """Formula that all parties compute."""
        formula: Formula = self._form.formula
        return formula

    @property
    def size(self) -> int:
        """Number of AND gates."""
        return gates(self.formula)

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

    @classmethod
    def _candidates(cls, schema: Schema, predicate: Predicate) -> list[Callable[[], Self]]:
        # Hazard: the number of leaves follows from the predicate, and everybody sees it.
        levels = () if predicate.private_names else range(1, MOST_PROPOSED + 1)
        hidden = [partial(cls.hidden, schema, depth=level, leaf="box") for level in levels]
        return [*super()._candidates(schema, predicate), *hidden]

    def layout(self) -> Any:
        return [self._rule, as_json(self.formula)]

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

    def _explain(self, lines: Iterable[tuple[str, str]]) -> str:
        formula = f"{self.size:,} AND gates, depth {depth(self.formula)}"
        return super()._explain([("shape", self._shape), ("formula", formula), *lines])

    # -- interests --------------------------------------------------------------------------------

    def prepare(self, interest: Interest) -> Words:
        if self.hidden_tree is None:
            return super().prepare(interest)
        about = "this matcher hides formulas: an interest"
        predicate = bound_predicate(self.schema, interest, about)
        try:
            tree = hide(self.schema, predicate.true_form(), *self.hidden_tree)
        except DoesNotFit as problem:
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
        # What it would need tells of the formula, which is private.
        needed, advice = "it is too large to say what it needs", "take another kind of leaf"
        if problem.needed_depth is not None:
            needed = f"it needs depth {problem.needed_depth}, {problem.needed_leaves:,} leaves"
            if problem.needed_depth <= MAX_DEPTH:
                advice = "take a deeper one or another kind of leaf"
        message = f"{reason}: {needed}; {advice}, or write several subscriptions"
        with suppress(CcbpsError):
            other = BranchingMatch(self.schema, predicate)
            message += (
                "; where the formula may be public, BranchingMatch(schema, template) takes it, in "
                f"messages of {other.event_bytes:,} bytes"
            )
        return UnsupportedPredicateError(
            message, text=predicate.text, summary=f"{reason}; take a deeper one"
        )


def _limit(max_gates: int) -> int:
    return whole("max_gates", max_gates, 1)


def _levels(leaves: int | None, levels: int | None) -> int:
    """Return the levels of a tree of so many leaves."""
    if leaves is None and levels is None:
        raise ParameterError("hidden needs leaves=, a power of two, or depth=, its logarithm")
    if levels is None:
        count = whole("leaves", leaves, 1, hint="take a power of two")
        if count & (count - 1):
            raise ParameterError(f"leaves must be a power of two, got {leaves!r}")
        levels = count.bit_length() - 1
    levels = whole("depth", levels, 0, MAX_DEPTH)
    if leaves is not None and leaves != 1 << levels:
        raise ParameterError(
            f"a tree of depth {levels} has {1 << levels} leaves, not {leaves!r}; give one of both"
        )
    return levels


def _instead(schema: Schema, template: Predicate | None) -> str:
    """Return the cost of a branching program in a formula's place, in words."""
    try:
        other = BranchingMatch(schema, template)
    except CcbpsError:
        return ""
    return (
        f"; or take BranchingMatch(schema, template), whose programs share what a formula repeats: "
        f"{other.event_bytes:,} bytes an event and {other.interest_bytes:,} an interest"
    )
