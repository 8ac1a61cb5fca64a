"""What `FormulaMatch` and `BroadcastMatch` have in common: which predicates, and what is public.

By what of a subscription everybody may see, there are three kinds:

- a *template*: a formula with ``:name`` for constants that only the subscriber knows;
- a *box*: every attribute lies in a private interval;
- *hidden*: a full binary tree of a public number of leaves, of a public kind; the formula is
  private, its negations, ANDs, ORs and unused leaves included.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, ClassVar, Final, Self, get_args

from ccbps.arrays import Bools, Words
from ccbps.errors import CcbpsError, ParameterError, UnsupportedPredicateError
from ccbps.forms.branching import box_form
from ccbps.forms.formula import FormulaForm, TooManyGates
from ccbps.forms.hidden_formula import HiddenForm
from ccbps.forms.leaves import Leaves
from ccbps.leakage import LeakageCard, Protects
from ccbps.matching.contract.matcher import Matcher, from_text
from ccbps.matching.contract.scheme import Interest, Operator, PairScheme, bound_predicate
from ccbps.matching.one_time.branching import BranchingMatch
from ccbps.matching.one_time.templates import bound_template, limit_template, public_template
from ccbps.predicates import Events, Predicate, Schema
from ccbps.predicates.hiding import MAX_DEPTH, DoesNotFit, LeafKind, hide
from ccbps.programs.formula import Formula, Sum, as_json, depth, gates

MAX_GATES: Final = 4096
"""Most AND gates by default: messages of some kilobytes."""
MOST_PROPOSED: Final = 4
"""Most levels of a hidden formula that is proposed."""


class FormulaScheme(Matcher, PairScheme):
    """The public side of a scheme of formulas.

    Attributes:
        schema: the events' attributes.
        template: the public predicate, or None.
        hidden_tree: levels and kind of leaves of a hidden formula, or None.
        formula: what all parties compute.
    """

    operators: tuple[Operator, ...] = (
        "=", "<", "interval", "prefix", "in", "and", "or", "not", "at_least", "hamming",
    )  # fmt: skip

    own_options: ClassVar[tuple[str, ...]] = ()
    """Options of the scheme's constructors, and the attributes that keep them."""
    template: Predicate | None = None
    hidden_tree: tuple[int, LeafKind] | None = None
    formula: Formula

    def _use_template(
        self, schema: Schema, template: str | Predicate | None, max_gates: int
    ) -> None:
        name = type(self).__name__
        more = f"; for any formula, {name}.hidden(schema, ...)"
        predicate = public_template(schema, template, name, more)
        self.template = predicate
        self.private_names = predicate.private_names
        try:
            form = FormulaForm(self._leaves(schema), predicate.true_form(), _checked(max_gates))
        except TooManyGates as error:
            raise ParameterError(f"{error}{_instead(schema, predicate)}") from None
        self._use(schema, form)

    def _use_box(self, schema: Schema, max_gates: int) -> None:
        self.operators = ("=", "<", "interval", "prefix", "and")
        form = FormulaForm(self._leaves(schema), box_form(schema), _checked(max_gates))
        self._use(schema, form)

    def _use_hidden(
        self,
        schema: Schema,
        leaves: int | None,
        levels: int | None,
        leaf: LeafKind,
        max_gates: int,
    ) -> None:
        levels = _levels(leaves, levels)
        if leaf not in get_args(LeafKind):
            kinds = ", ".join(map(repr, get_args(LeafKind)))
            raise ParameterError(f"leaf must be one of {kinds}, got {leaf!r}")
        # One leaf tells how many gates there would be, before they are made.
        formula = HiddenForm(self._leaves(schema), 0, leaf).formula
        own, what = gates(formula), "AND gates"
        if isinstance(formula, Sum) and len(formula.parts) - 1 > own:
            # A sum of digits has no gates, and its messages are as large as if it had.
            own, what = len(formula.parts) - 1, "digits and AND gates"
        wanted = ((own + 1) << levels) - 1
        if wanted > _checked(max_gates):
            raise ParameterError(
                f"a hidden formula of {1 << levels:,} leaves would have {wanted:,} {what}; "
                f"max_gates allows {max_gates:,}: take fewer or simpler leaves, or raise max_gates"
            )
        self.hidden_tree = levels, leaf
        self._use(schema, HiddenForm(self._leaves(schema), levels, leaf))

    @abstractmethod
    def _leaves(self, schema: Schema) -> Leaves:
        """How the encoding takes conditions."""

    @abstractmethod
    def _use(self, schema: Schema, form: FormulaForm | HiddenForm) -> None:
        """Make the encoding; calls `_keep` and `_set_up`."""

    def _keep(self, form: FormulaForm | HiddenForm) -> None:
        self._form, self.formula = form, form.formula

    # -- public parameters ------------------------------------------------------------------------

    def parameters(self) -> dict[str, Any]:
        """Template or tree, number of gates, and options."""
        return {
            "template": None if self.template is None else self.template.text,
            "hidden": None if self.hidden_tree is None else list(self.hidden_tree),
            "gates": gates(self.formula),
            **{name: getattr(self, name) for name in self.own_options},
        }

    @classmethod
    def from_parameters(cls, schema: Schema, parameters: Mapping[str, Any]) -> Self:
        """See `Scheme.from_parameters`."""
        options = dict(parameters)
        if options.keys() != {"template", "hidden", "gates", *cls.own_options}:
            raise ParameterError(f"the parameters are not those of a {cls.__name__}")
        template, hidden, count = (options.pop(key) for key in ("template", "hidden", "gates"))
        _bounded(template, count)
        # What is counted before a formula is built may be more than its gates: constants fold,
        # digits count.
        options["max_gates"] = MAX_GATES if from_text() else sys.maxsize
        make: Any = cls
        if template is not None:
            made = make(schema, template, **options)
        elif hidden is None:
            made = make.box(schema, **options)
        else:
            if not isinstance(hidden, list) or len(hidden) != 2:
                raise ParameterError(f"hidden must be levels and a kind of leaves, got {hidden!r}")
            made = make.hidden(schema, depth=hidden[0], leaf=hidden[1], **options)
        if gates(made.formula) != count:
            raise ParameterError(f"the formula has {gates(made.formula)} gates, not {count}")
        return made  # type: ignore[no-any-return]

    @classmethod
    def propose(cls, schema: Schema, wanted: Predicate) -> Iterator[Self]:
        """A template for what has private constants; else a box, or a hidden formula of boxes.

        Hazard: how many leaves there are follows from `wanted`, and everybody sees it.
        """
        if wanted.schema != schema:
            return
        make: Any = cls
        if wanted.private_names:
            with suppress(CcbpsError):
                yield make(schema, wanted.text)
            return
        with suppress(CcbpsError):
            made = make.box(schema)
            made.prepare(wanted)
            yield made
            return
        for levels in range(1, MOST_PROPOSED + 1):
            with suppress(CcbpsError):
                made = make.hidden(schema, depth=levels, leaf="box")
                made.prepare(wanted)
                yield made
                return

    def layout(self) -> Any:
        """The formula, and the rule by which messages follow from it."""
        return [self._rule(), as_json(self.formula)]

    @abstractmethod
    def _rule(self) -> int:
        """Number of that rule."""

    @property
    def _shape(self) -> str:
        if self.template is not None:
            return f"template {self.template.text!r}"
        if self.hidden_tree is not None:
            levels, leaf = self.hidden_tree
            return f"hidden formula of {1 << levels} {leaf} leaves"
        return "box"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._shape} over {', '.join(self.schema)}>"

    def _hidden_part(self) -> tuple[str, str, set[Protects]]:
        """What is public, what is hidden of a subscription, in words; what is protected."""
        if self.template is not None:
            return (
                "the schema and the template with its public constants, so that an answer says "
                "which condition an event fulfils, but for private constants",
                "the private constants of the predicate",
                {Protects.CONSTANTS},
            )
        if self.hidden_tree is not None:
            levels, leaf = self.hidden_tree
            return (
                f"the schema, and that predicates are formulas of at most {1 << levels} {leaf} "
                "leaves",
                "every constant of the predicate, which attributes it constrains, and its formula",
                {Protects.CONSTANTS, Protects.ATTRIBUTES, Protects.FORMULA},
            )
        return (
            "the schema",
            "every constant of the predicate, and which attributes it constrains",
            {Protects.CONSTANTS, Protects.ATTRIBUTES},
        )

    @property
    def leakage(self) -> LeakageCard:
        """What the broker learns."""
        return self._perfect(*self._hidden_part())

    def _explain_formula(self, lines: list[tuple[str, str]]) -> str:
        count = gates(self.formula)
        return self._explain(
            [
                ("shape", self._shape),
                ("formula", f"{count:,} AND gates, depth {depth(self.formula)}"),
                *lines,
            ]
        )

    # -- interests --------------------------------------------------------------------------------

    def prepare(self, interest: Interest) -> Words:
        """A subscription's private bits, shape (1, words)."""
        if self.template is not None:
            assert isinstance(self._form, FormulaForm)
            return self._form.interest_row(bound_template(self.template, interest).true_form())
        if isinstance(self._form, HiddenForm):
            levels, leaf = self._form.depth, self._form.kind
            what = "this matcher hides formulas: an interest"
            predicate = bound_predicate(self.schema, interest, what)
            try:
                tree = hide(self.schema, predicate.true_form(), levels, leaf)
            except DoesNotFit as problem:
                raise _too_deep(self, predicate, problem) from None
            return self._form.interest_row(tree)
        box = bound_predicate(self.schema, interest, "this matcher is a box: an interest").box()
        return self._form.interest_row(box_form(self.schema, box))

    def meaning(self, interest: Any, events: Events) -> Bools:
        """See `Scheme.meaning`."""
        if self.template is None:
            return super().meaning(interest, events)
        return self.template.bind(**interest).evaluate(events)

    def identify(self, prepared: Words) -> bytes:
        """See `PairScheme.identify`."""
        return prepared.tobytes()


def _checked(max_gates: int) -> int:
    if type(max_gates) is not int or max_gates < 1:
        raise ParameterError(f"max_gates must be a whole number, at least 1, got {max_gates!r}")
    return max_gates


def _levels(leaves: int | None, levels: int | None) -> int:
    """Levels of a tree of so many leaves."""
    if leaves is None and levels is None:
        raise ParameterError("hidden needs leaves=, a power of two, or depth=, its logarithm")
    if levels is None:
        assert leaves is not None
        if type(leaves) is not int or leaves < 1 or leaves & (leaves - 1):
            raise ParameterError(f"leaves must be a power of two, got {leaves!r}")
        levels = leaves.bit_length() - 1
    if type(levels) is not int or not 0 <= levels <= MAX_DEPTH:
        raise ParameterError(f"depth must be a whole number of 0 to {MAX_DEPTH}, got {levels!r}")
    if leaves is not None and leaves != 1 << levels:
        raise ParameterError(
            f"a tree of depth {levels} has {1 << levels} leaves, not {leaves!r}; give one of both"
        )
    return levels


def _instead(schema: Schema, template: Predicate) -> str:
    """What a branching program would cost in a formula's place."""
    try:
        other = BranchingMatch(schema, template)
    except CcbpsError:
        return ""
    return (
        f"; or take BranchingMatch(schema, template), whose programs share what a formula repeats: "
        f"{other.event_bytes:,} bytes an event and {other.interest_bytes:,} an interest"
    )


def _too_deep(
    matcher: FormulaScheme, predicate: Predicate, problem: DoesNotFit
) -> UnsupportedPredicateError:
    assert matcher.hidden_tree is not None
    levels, leaf = matcher.hidden_tree
    if problem.needed_depth is None:
        needed = "it is too large to say what it needs"
    else:
        needed = f"it needs depth {problem.needed_depth}, {problem.needed_leaves:,} leaves"
    reason = (
        f"the predicate does not fit a hidden formula of depth {levels}, "
        f"{1 << levels} {leaf} leaves"
    )
    # What it would need tells of the formula, which is private.
    deeper = problem.needed_depth is not None and problem.needed_depth <= MAX_DEPTH
    advice = "take a deeper one or another kind of leaf" if deeper else "take another kind of leaf"
    help_text = f": {needed}; {advice}, or write several subscriptions"
    with suppress(CcbpsError):
        other = BranchingMatch(matcher.schema, predicate)
        help_text += (
            "; where the formula may be public, BranchingMatch(schema, template) takes it, in "
            f"messages of {other.event_bytes:,} bytes"
        )
    return UnsupportedPredicateError(
        reason + help_text, text=predicate.text, summary=f"{reason}; take a deeper one"
    )


def _bounded(template: Any, count: Any) -> None:
    """Refuse what a text must not ask for."""
    if type(count) is not int or count < 0:
        raise ParameterError(f"gates must be a whole number, got {count!r}")
    limit_template(template)
    if from_text() and count > MAX_GATES:
        raise ParameterError(
            f"a text may ask for at most {MAX_GATES:,} gates, got {count:,}; if such messages are "
            f"what you want, make the matcher by its constructor with max_gates={count}"
        )
