"""Records that cannot be used: an error, or set aside with a reason."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bools
from ccbps.cli.command import Option
from ccbps.cli.records import Block, Lines, Reject
from ccbps.errors import CcbpsError, EventError, ParameterError
from ccbps.predicates import AttributeType, Events
from ccbps.predicates.attributes import Attributes

Reasons: TypeAlias = NDArray[np.object_]

ON_ERROR: Final = (
    Option(
        "--on-error",
        "if a record cannot be used, stop (default), or reject it and go on",
        choices=("stop", "reject"),
        default="stop",
    ),
    Option("--rejects FILE", "new file for number and reason of rejected records, as JSON lines"),
)


class Rejects:
    """Records that cannot be used: an error, or noted with a reason, in a `with` block.

    Args:
        arguments: options of `ON_ERROR`.
        resumed: whether another run continues after a failure, so that what was noted is kept.

    Attributes:
        count: number of records that were noted.
        note: function that notes a record; None if it is an error.
    """

    def __init__(self, arguments: Namespace, *, resumed: bool = False) -> None:
        if arguments.rejects is not None and arguments.on_error != "reject":
            raise ParameterError("--rejects FILE needs --on-error reject")
        self._path, self._file = arguments.rejects, sys.stderr
        self._resumed = resumed
        self._stack, self.count = ExitStack(), 0
        self.note: Reject | None = self._note if arguments.on_error == "reject" else None

    def __enter__(self) -> Rejects:
        if self._path is not None:
            self._file = self._stack.enter_context(Path(self._path).open("x", encoding="utf-8"))
        return self

    def __str__(self) -> str:
        return f"; rejected {self.count:,}" if self.note is not None else ""

    def __exit__(self, kind: object, *_: object) -> None:
        self._stack.close()
        if kind is not None and self._path is not None and not (self._resumed and self.count):
            Path(self._path).unlink()  # else it would stand in the way of another try

    def _note(self, number: int, reason: str) -> None:
        self.count += 1
        if self._path is None:
            print(f"ccbps: record {number} is rejected: {reason}", file=self._file)
        else:
            print(json.dumps({"record": number, "reason": reason}), file=self._file)


def set_aside(
    reject: Reject | None, number: int, reason: str, error: type[CcbpsError] = EventError
) -> None:
    """Note a record that cannot be used, or raise.

    Args:
        reject: function that notes a record; None if it is an error.
        number: number of the record.
        reason: reason not to use it, for the error or the note.
        error: class of the error.

    Raises:
        CcbpsError: `reject` is None; of the class `error`.
    """
    if reject is None:
        raise error(f"record {number}: {reason}") from None
    reject(number, reason)


def usable(
    block: Block, schema: Attributes, reject: Reject | None, reasons: Reasons | None = None
) -> tuple[Events, Block]:
    """Encode the records of a block as events, and leave out those that cannot be used.

    Args:
        block: the records.
        schema: types of their values.
        reject: called for each record that is left out; None if such a record is an error.
        reasons: reasons not to use a record, None for the others; None for no reasons.

    Returns:
        The events, and their records.

    Raises:
        EventError: a record cannot be used, and `reject` is None.
    """
    if reasons is None or not any(reasons):
        try:
            return schema.encode(block.values), block
        except EventError as error:
            problem = error
        reasons = np.full(len(block), None, dtype=np.object_)
    for name in schema:
        _examine(block, name, schema[name], reasons)
    bad = ~_free(reasons)
    if not bad.any():
        raise problem
    for place in np.flatnonzero(bad).tolist():
        set_aside(reject, block.numbers[place], reasons[place])
    block = block.take(~bad)
    return schema.encode(block.values), block


def _examine(block: Block, name: str, kind: AttributeType, reasons: Reasons) -> None:
    """Note why records do not have a value of an attribute, if they have no other reason."""
    if isinstance(block, Lines):
        column: Any = [row.get(name) for row in block.values]
        absent = np.array([name not in row for row in block.values], dtype=np.bool_)
        problems = [(absent, "it is missing")]
    else:
        column, problems = block.column(name), []
    try:
        problems += kind.examine(column, attribute=name)[1]
    except EventError:
        values = block.python_values(name)
        present = np.array([value is not None for value in values], dtype=np.bool_)
        problems.append((present, f"wrong type; expected {kind.accepts}"))
    for mask, reason in problems:
        reasons[mask & _free(reasons)] = f"attribute {name!r}: {reason}"


def _free(reasons: Reasons) -> Bools:
    """Mark the records that have no reason."""
    return np.array([reason is None for reason in reasons.tolist()], dtype=np.bool_)
