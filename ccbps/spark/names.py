"""Names of columns that attributes of a schema can have."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def clean_names(df: DataFrame) -> DataFrame:
    """Rename columns so that attributes may have their names: ``Adj Close`` is ``Adj_Close``.

    What is no letter, digit or underscore becomes an underscore, and one is put before a digit in
    front; names that are then the same, whatever their case, get numbers. Others stay as they are.

    Example:
        .. code-block:: python

            raw = quotes.withColumnRenamed("price", "Adj Close")
            found = Schema.suggest(cs.clean_names(raw))
            # found.schema has subscription, round, issue and Adj_Close; found.report says why
    """
    names: list[str] = []
    taken: set[str] = set()
    kept = {name.lower() for name in df.columns if name.isidentifier()}
    for name in df.columns:
        base = re.sub(r"\W", "_", name).lstrip() or "_"
        base = base if base.isidentifier() else f"_{base}"
        found, number = base, 1
        while found.lower() in taken or (found != name and found.lower() in kept):
            number += 1
            found = f"{base}_{number}"
        names.append(found)
        taken.add(found.lower())
    return df.toDF(*names)
