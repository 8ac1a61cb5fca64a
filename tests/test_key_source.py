"""Key sources: what a notebook's user is told when a key is not where the workers look."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from ccbps import SharedSeed
from ccbps.errors import KeyMismatchError

spark = pytest.importorskip("ccbps.spark", exc_type=ImportError)


def test_a_variable_that_is_not_set_says_what_works_in_a_notebook() -> None:
    with pytest.raises(KeyMismatchError) as caught:
        spark.EnvKey("CCBPS_NOT_SET").load()
    message = str(caught.value)
    assert "CCBPS_NOT_SET is not set" in message
    assert "what a notebook sets later is not seen" in message
    # In this order: the first works at once.
    assert message.index("FileKey('path')") < message.index("start the notebook's kernel")


def test_a_file_may_be_named_by_a_path_object(tmp_path: Path) -> None:
    seed = SharedSeed.generate()
    path = tmp_path / "publisher.key"
    path.write_text(seed.to_text())
    key = spark.FileKey(path)
    assert key.load() == spark.FileKey(str(path)).load() == seed
    assert pickle.loads(pickle.dumps(key)) == key


def test_a_relative_path_says_what_it_is_relative_to(tmp_path: Path) -> None:
    with pytest.raises(KeyMismatchError, match="relative to the worker's folder"):
        spark.FileKey("no-such-folder/publisher.key").load()
    with pytest.raises(KeyMismatchError) as caught:
        spark.FileKey(tmp_path / "no-such.key").load()
    assert "relative to" not in str(caught.value)
