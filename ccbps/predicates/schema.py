"""Schema and Predicate: the attributes of events, and one subscription over them.

A schema reads a predicate from text, and a predicate that is read from JSON brings its schema. A
predicate with ``:name`` placeholders is a public template. `bind` makes a subscription from it,
which keeps the template's text and tree, and holds the private values beside them.

Hazard: a bound predicate, and any predicate without placeholders, is the subscriber's secret. Its
repr shows attribute names only, and `evaluate` is plaintext.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from functools import cached_property
from typing import Any, NoReturn, Self

from ccbps import predicates
from ccbps.checks import Printable, Redacted
from ccbps.errors import (
    DecodeError,
    ParameterError,
    PredicateError,
    PredicateTypeError,
    UnsupportedPredicateError,
)
from ccbps.predicates.attributes import Attributes
from ccbps.predicates.box import (
    Box,
    NotABox,
    alternatives_of,
    box_of,
    is_empty,
    is_within,
    sets_of,
)
from ccbps.predicates.codes import BoolArray, Intervals
from ccbps.predicates.described import from_text, to_text, types_of
from ccbps.predicates.expression import (
    Expression,
    attributes_of,
    evaluate,
    private_names_of,
    privates_of,
)
from ccbps.predicates.form import Form, lower
from ccbps.predicates.types import AttributeType, ConstantError, PatternError


class Schema(Attributes):
    """An ordered, immutable mapping of attribute names to attribute types.

    ``Schema(issue=Category(["IBM", "SAP"]), price=UInt(16))`` or the same as one mapping.

    Example:
        >>> from ccbps import Category, Decimal, Schema, UInt
        >>> schema = Schema(
        ...     issue=Category(["AAPL", "IBM", "MSFT"]),
        ...     price=Decimal(0, 1000, "0.01"),
        ...     volume=UInt(32, nullable=True),
        ... )
        >>> schema.names, schema.bits
        (('issue', 'price', 'volume'), 52)
        >>> schema["price"]
        Decimal("0", "1000", "0.01")

    Raises:
        ParameterError: no attribute, a name that is not an identifier, or something that is not
            an attribute type.
    """

    __slots__ = ()

    @classmethod
    def from_arrow(
        cls, schema: Any, columns: Iterable[str] | None = None, /, **types: AttributeType
    ) -> Self:
        """Make the schema of an Arrow table.

        Booleans and integers become `Bool`, `Int` and `UInt` of the same width. Columns of other
        types need an attribute type from you, as Arrow's types do not tell which values they hold.

        Example:
            >>> import pyarrow as pa
            >>> from ccbps import Category, Schema
            >>> table = pa.table({"issue": ["IBM", "SAP"], "volume": [100, 250]})
            >>> Schema.from_arrow(table.schema, issue=Category(["IBM", "SAP"]))
            Schema(issue=Category(["IBM", "SAP"]), volume=Int(64, nullable=True))

        Args:
            schema: the table's ``pyarrow.Schema``.
            columns: names of the columns that become attributes, in this order; all by default.
            **types: attribute types of some columns, in place of the default ones.

        Raises:
            ParameterError: a column does not exist, or needs a type; says what to write.
        """
        return cls(predicates.suggest.types_of_columns(schema, "pyarrow", columns, types))

    @classmethod
    def from_spark(
        cls, schema: Any, columns: Iterable[str] | None = None, /, **types: AttributeType
    ) -> Self:
        """Make the schema of a Spark DataFrame from its ``StructType``, as `from_arrow` does.

        ``Schema.from_spark(df.schema, ["price", "volume"], price=Decimal(0, 1000, "0.01"))``.

        Raises:
            ParameterError: as `from_arrow`.
        """
        return cls(predicates.suggest.types_of_columns(schema, "pyspark", columns, types))

    @classmethod
    def suggest(cls, data: Any, /, **types: AttributeType) -> predicates.Suggestion[Self]:
        """Suggest a schema for data like these, with the reasons for each choice.

        The ranges are wider than those in the data, to leave room for other values. The report says
        by how much, how many bits each attribute costs, and what to check.

        Hazard: a schema is public, and the suggested ranges and lists of words come from the data.

        Example:
            >>> from ccbps import Schema
            >>> suggestion = Schema.suggest({"age": [31, 47, 64], "member": [True, False, True]})
            >>> suggestion.schema
            Schema(age=UInt(8), member=Bool())
            >>> print(suggestion.report)
            3 records, 9 bits for each event
            age: UInt(8), 8 bits
              why: whole numbers from 31 to 64; twice as much fits
              check: anything but a whole number 0..255 is refused; NULL is refused
            member: Bool(), 1 bit
              why: truth values
              check: anything but true and false is refused; NULL is refused

        Args:
            data: anything that `encode` takes, or a Spark DataFrame, of which the first 100,000
                rows are collected, and the least and the greatest value of each column.
            **types: attribute types of some columns, chosen by you.

        Raises:
            ParameterError: no column has values that an attribute may have.
            EventError: `data` are not columns of one length.
        """
        return predicates.suggest.suggest(cls, data, types)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a schema that `to_json` wrote.

        Raises:
            DecodeError: the text is malformed.
        """
        return cls(
            types_of({"attributes": from_text("schema", text, {"attributes"})["attributes"]})
        )

    def to_json(self) -> str:
        """Write the schema as JSON text for other parties. All of it is public.

        Example:
            >>> from ccbps import Schema, UInt
            >>> Schema(price=UInt(16)).to_json()
            '{"ccbps": "schema", "version": 1, "attributes": [{"name": "price", "type": "UInt", ...'
            >>> Schema.from_json(Schema(price=UInt(16)).to_json())
            Schema(price=UInt(16))
        """
        return to_text("schema", self.describe())

    def split(self, *, routable: Iterable[str]) -> predicates.Split:
        """Divide the attributes into those that brokers read and those that travel sealed.

        Example:
            >>> from ccbps import Schema, UInt
            >>> Schema(price=UInt(16), volume=UInt(16)).split(routable=["price"])
            <Split: price routable, volume secret>

        Args:
            routable: names of the attributes that brokers read.

        Raises:
            ParameterError: `routable` names no attribute, all of them, or an unknown one.
        """
        return predicates.Split(self, routable)

    def parse(self, text: str, *, double_quoted_strings: bool = False) -> Predicate:
        """Read a predicate: the text after WHERE, with ``:name`` for private constants.

        Example:
            >>> from ccbps import Schema, Text, UInt
            >>> schema = Schema(price=UInt(16), volume=UInt(16))
            >>> schema.parse("price < 120 AND volume BETWEEN 100 AND 200")
            <Predicate over price, volume>
            >>> schema.parse("price < :limit").private_names
            ('limit',)
            >>> Schema(issue=Text(4)).parse('issue = "IBM"', double_quoted_strings=True).text
            "issue = 'IBM'"

        Args:
            text: the predicate.
            double_quoted_strings: True if double quotes are for strings, as in Spark, and not for
                names, as in standard SQL. The predicate's text, also in errors, then has single
                quotes.

        Raises:
            PredicateError: the text is not a predicate of this schema. The error is of a subclass,
                with text and position.
        """
        from ccbps.predicates.sql import read_sql  # here, since a publisher reads no predicates
        from ccbps.predicates.syntax import single_quoted

        text = single_quoted(text) if double_quoted_strings else text
        expression, _ = read_sql(self, text)
        return Predicate(self, text, expression, private_names_of(expression))


class Predicate(Printable, Redacted, frozen=True, eq=False, dict=True):
    """A parsed predicate, made by `Schema.parse`.

    Example:
        >>> from ccbps import Schema, UInt
        >>> schema = Schema(price=UInt(16), volume=UInt(16))
        >>> predicate = schema.parse("price < 120 AND volume > 1000")
        >>> predicate                              # no constants: they are the subscriber's secret
        <Predicate over price, volume>
        >>> predicate.evaluate({"price": [119, 119, 121], "volume": [1001, 1000, 1001]})
        array([ True, False, False])

    Attributes:
        schema: schema of the attributes that it names.
        text: text as written.
        expression: expression tree, placeholders included.
        private_names: names of the placeholders, in order of first appearance.
    """

    schema: Schema
    text: str
    expression: Expression
    private_names: tuple[str, ...]
    _constants: Mapping[str, Any] = {}

    def __repr__(self) -> str:
        names = ", ".join(attributes_of(self.expression)) or "no attribute"
        return f"<Predicate over {names}>"

    @classmethod
    def from_json(cls, text: str) -> Predicate:
        """Read a template that `to_json` wrote, with its schema.

        Compare its schema with the one agreed upon: the text is untrusted.

        Raises:
            DecodeError: the text is malformed.
        """
        content = from_text("predicate", text, {"schema", "text"})
        schema, written = Schema(types_of(content["schema"])), content["text"]
        if not isinstance(written, str):
            raise DecodeError(f"a template is a string, got {type(written).__name__}")
        try:
            return schema.parse(written)
        except PredicateError as error:
            problem = error.summary
        raise DecodeError(f"the template does not parse: {problem}")

    def to_json(self) -> str:
        """Write a template and its schema as JSON text for other parties.

        Example:
            >>> from ccbps import Predicate, Schema, UInt
            >>> template = Schema(price=UInt(16)).parse("price < :limit")
            >>> Predicate.from_json(template.to_json()).private_names
            ('limit',)

        Hazard: constants that are in the text are in the JSON text. Write those that are secret
        as ``:name``.

        Raises:
            ParameterError: private constants are bound; send the template instead.
        """
        if self._constants:
            raise ParameterError(
                "to_json writes templates, and this predicate has values of private constants; "
                "write the template that bind was called on"
            )
        return to_text("predicate", {"schema": self.schema.describe(), "text": self.text})

    @property
    def unbound_names(self) -> tuple[str, ...]:
        """Names of the placeholders that have no value yet."""
        if not self.private_names:  # asked of every row of a batch
            return ()
        return tuple(name for name in self.private_names if name not in self._constants)

    @property
    def bound_values(self) -> dict[str, Any]:
        """Values of the placeholders that `bind` was given, by name.

        Hazard: they are the subscriber's secret.
        """
        return dict(self._constants)

    def bind(self, /, **values: Any) -> Predicate:
        """Make the subscription with these private constants.

        Example:
            >>> from ccbps import Schema, UInt
            >>> template = Schema(price=UInt(16)).parse("price < :limit")
            >>> template.unbound_names
            ('limit',)
            >>> template.bind(limit=120).evaluate({"price": [119, 120]})
            array([ True, False])

        Raises:
            ParameterError: a placeholder is left out, or a name is not a placeholder.
            PredicateTypeError: a value does not fit its attribute, or is NULL.
            UnsupportedPredicateError: a private LIKE pattern is more than a prefix.
        """
        missing = [name for name in self.private_names if name not in values]
        unknown = [name for name in values if name not in self.private_names]
        if missing or unknown:
            names = ", ".join(self.private_names) or "none"
            problem = f"lacks {', '.join(missing)}" if missing else f"has no {', '.join(unknown)}"
            raise ParameterError(f"bind {problem}; private constants of this predicate: {names}")
        for attribute, use, operand in privates_of(self.expression):
            try:
                if values[operand.name] is None:
                    raise ConstantError("a private constant cannot be NULL")
                self.schema[attribute].code_range(use, values[operand.name])
                continue
            except ConstantError as error:
                problem = str(error)
                unsupported = isinstance(error, PatternError)
            refuse = UnsupportedPredicateError if unsupported else PredicateTypeError
            message = f"private constant :{operand.name}, attribute {attribute!r}: {problem}"
            # Raised outside the handler: the cause's frames would hold the private value.
            raise refuse(message, text=self.text, position=operand.position)
        return Predicate(self.schema, self.text, self.expression, self.private_names, values)

    def _not_an_operand(self, *_: object) -> NoReturn:
        """Refuse Python's operators: `p and q` would be q, and `not p` False, without a word."""
        raise ParameterError(
            "predicates are joined in their text: write AND, OR and NOT there, as in "
            "schema.parse('(price < 3 OR volume > 5) AND NOT issue = 7'); which events match, "
            "evaluate(records) tells"
        )

    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _not_an_operand
    __invert__ = __bool__ = _not_an_operand

    def identity(self) -> Hashable:
        """Return a key that equals that of predicates with the same schema, text and constants.

        The schema must be the same object. Constants that cannot be hashed differ from all others.

        Hazard: the key holds the constants. Do not show it.
        """
        constants = told_apart(self._constants)
        # Not the schema itself: to compare it takes as long as to prepare a predicate.
        return id(self) if constants is None else (id(self.schema), self.text, constants)

    def _require_bound(self) -> None:
        if self.unbound_names:
            raise ParameterError(
                f"private constants without a value: {', '.join(self.unbound_names)}; "
                "call bind first"
            )

    def evaluate(self, records: Any) -> BoolArray:
        """Find the records that SQL's WHERE would keep, shape (count,).

        Args:
            records: `Events` of this schema, or anything `Schema.encode` takes.

        Raises:
            ParameterError: a private constant has no value.
            EventError: the records do not fit the schema.
        """
        self._require_bound()
        return evaluate(self.expression, self.schema.encode(records), self._constants)

    @property
    def never_matches(self) -> bool:
        """True if no event at all can match, as with a word that is not in a Category's list.

        SQL and all matchers accept such a condition, and find nothing: check this before a
        subscription waits forever. True is certain. A contradiction across many alternatives or
        through ``hamming`` may not be found.

        Example:
            >>> from ccbps import Category, Schema
            >>> schema = Schema(issue=Category(["AAPL", "IBM"]))
            >>> schema.parse("issue = 'ibm'").never_matches          # the list has IBM
            True

        Raises:
            ParameterError: a private constant has no value.
        """
        self._require_bound()
        return is_empty(self.schema, self.true_form())

    def true_form(self) -> Form:
        """Return the code form of "the predicate is TRUE"; unbound private bounds are None."""
        return self._form

    @cached_property
    def _form(self) -> Form:
        return lower(self.schema, self.expression, self._constants)

    def box(self) -> Box:
        """Write the predicate as one range of codes for every attribute.

        Example:
            >>> from ccbps import Schema, UInt
            >>> schema = Schema(price=UInt(16), volume=UInt(16))
            >>> schema.parse("price < 120 AND NOT price < 100").box().ranges
            {'price': (100, 119), 'volume': (0, 65535)}

        Raises:
            ParameterError: a private constant has no value.
            UnsupportedPredicateError: the predicate is not a box; names the attribute that needs
                more.
        """
        # The caller may change its dict; this predicate may be shared.
        return Box(self.schema, dict(self._box.ranges))

    def sets(self, intervals: Mapping[str, int]) -> dict[str, Intervals]:
        """Write the predicate as a set of codes for every attribute.

        Example:
            >>> from ccbps import Schema, UInt
            >>> schema = Schema(price=UInt(16), volume=UInt(16))
            >>> schema.parse("price <> 5 AND volume IN (1, 2, 7)").sets({"price": 1, "volume": 2})
            {'price': ((0, 4), (6, 65535)), 'volume': ((1, 2), (7, 7))}

        Args:
            intervals: greatest number of intervals of each attribute. The complement of so many
                intervals is accepted, too.

        Raises:
            ParameterError: a private constant has no value.
            UnsupportedPredicateError: the predicate is no AND of such sets; names the attribute
                that needs more, and how many.
        """
        self._require_bound()
        return sets_of(self.schema, self._form, self.expression, self.text, intervals)

    def alternatives(self) -> list[dict[str, Intervals]]:
        """Write the predicate as an OR of ANDs of sets of codes; one that never holds has none.

        Example:
            >>> from ccbps import Schema, UInt
            >>> schema = Schema(price=UInt(16), volume=UInt(16))
            >>> schema.parse("price < 5 AND volume IN (1, 3) OR volume = 7").alternatives()
            [{'volume': ((7, 7),)}, {'price': ((0, 4),), 'volume': ((1, 1), (3, 3))}]

        Returns:
            for each AND, the sets of the attributes that it limits. Pairs of ANDs are merged where
            possible.

        Raises:
            ParameterError: a private constant has no value.
            UnsupportedPredicateError: there are more than 256, or too many to try.
        """
        self._require_bound()
        return alternatives_of(self.schema, self._form, self.expression, self.text)

    def implies(self, other: Predicate) -> bool:
        """Tell whether another predicate matches every event that this one matches.

        The answer is exact.

        Example:
            >>> from ccbps import Schema, UInt
            >>> schema = Schema(price=UInt(16), volume=UInt(16))
            >>> wide = schema.parse("price < 9 OR volume > 3")
            >>> schema.parse("price IN (1, 8)").implies(wide)
            True

        Args:
            other: a predicate of the same schema.

        Raises:
            ParameterError: `other` has another schema, or a private constant has no value.
            UnsupportedPredicateError: a predicate has too many alternatives to tell.
        """
        if other.schema != self.schema:
            raise ParameterError("other must be a predicate of the same schema")
        try:
            return is_within(self.schema, self.alternatives(), other.alternatives())
        except NotABox as problem:
            reason = problem.reason
        raise UnsupportedPredicateError(reason, text=self.text, position=None, summary=reason)

    @cached_property
    def _box(self) -> Box:
        self._require_bound()
        return box_of(self.schema, self._form, self.expression, self.text)


def told_apart(constants: Mapping[Any, Any]) -> Hashable | None:
    """Return a key that tells constants apart wherever some attribute does.

    Returns:
        the key, which holds the constants; None if a constant cannot be hashed.
    """
    # Types, too: to a schema, True is not 1. And folds: == does not tell apart the two passes of
    # the hour that clocks repeat in autumn.
    items = tuple(
        (name, type(value), value, getattr(value, "fold", 0)) for name, value in constants.items()
    )
    try:
        hash(items)
    except TypeError:
        return None
    return items
