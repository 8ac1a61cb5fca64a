"""Base of `FormulaMatch` and `BroadcastMatch`: schemes of formulas over GF(2).

There are three kinds of matchers. They differ in the public part of a subscription:

- a *template*: a formula with ``:name`` for constants that only the subscriber knows;
- a *box*: every attribute lies in a private interval;
- *hidden*: a full binary tree of a public number of leaves, of a public kind; the formula is
  private, its negations, ANDs, ORs and unused leaves included.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from ccbps import matching
from ccbps.checks import whole
from ccbps.errors import CcbpsError, ParameterError
from ccbps.forms.formula import FormulaForm, HiddenForm, TooManyGates
from ccbps.forms.leaves import Leaves
from ccbps.matching.one_time.encoded import TemplateScheme
from ccbps.matching.templates import HiddenMatcher
from ccbps.predicates import Predicate, Schema
from ccbps.programs.formula import Formula, Sum, as_json, depth, gates

if TYPE_CHECKING:
    from ccbps.predicates.hiding import LeafKind


class FormulaScheme(HiddenMatcher, TemplateScheme):
    """Public side of a scheme of formulas.

    Attributes:
        template: the public predicate, or None.
        hidden_tree: levels and kind of leaves of a hidden formula, or None.
        formula: the formula that all parties compute.
        encoding: the encoders and the decoder.
    """

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
        levels = self._use_tree(leaves, levels, leaf)
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

    def layout(self) -> Any:
        return [self._rule, as_json(self.formula)]

    def _explain(self, lines: Iterable[tuple[str, str]]) -> str:
        formula = f"{self.size:,} AND gates, depth {depth(self.formula)}"
        return super()._explain([("shape", self._shape), ("formula", formula), *lines])

    def _other_scheme(self, predicate: Predicate) -> str:
        with suppress(CcbpsError):
            other = matching.BranchingMatch(self.schema, predicate)
            return (
                "; where the formula may be public, BranchingMatch(schema, template) takes it, in "
                f"messages of {other.event_bytes:,} bytes"
            )
        return ""


def _limit(max_gates: int) -> int:
    return whole("max_gates", max_gates, 1)


def _instead(schema: Schema, template: Predicate | None) -> str:
    """Return the cost of a branching program in a formula's place, in words."""
    try:
        other = matching.BranchingMatch(schema, template)
    except CcbpsError:
        return ""
    return (
        f"; or take BranchingMatch(schema, template), whose programs share what a formula repeats: "
        f"{other.event_bytes:,} bytes an event and {other.interest_bytes:,} an interest"
    )
