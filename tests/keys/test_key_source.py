"""Key sources: what a notebook's user is told when a key is not where the workers look."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from ccbps import SharedSeed
from ccbps.errors import KeyMismatchError, ParameterError

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
    with pytest.raises(KeyMismatchError, match="path is relative to /"):
        spark.FileKey("no-such-folder/publisher.key").load()
    with pytest.raises(KeyMismatchError) as caught:
        spark.FileKey(tmp_path / "no-such.key").load()
    assert "relative to" not in str(caught.value)


def test_a_key_in_place_of_its_name_is_refused_and_not_shown() -> None:
    seed = SharedSeed.generate()
    for source in (spark.EnvKey, spark.FileKey):
        with pytest.raises(ParameterError, match="a key itself") as caught:
            source(seed.to_text())
        assert seed.export_secret().hex() not in str(caught.value)
        with pytest.raises(ParameterError, match="got SharedSeed"):
            source(seed)


def test_what_is_no_key_says_where_it_was_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CCBPS_NO_KEY", "letmein")
    path = tmp_path / "no.key"
    path.write_text("letmein")
    for source, place in (
        (spark.EnvKey("CCBPS_NO_KEY"), "variable CCBPS_NO_KEY"),
        (spark.FileKey(path), "no.key"),
    ):
        with pytest.raises(KeyMismatchError, match=f"{place}: .*not a key") as caught:
            source.load()
        assert "letmein" not in str(caught.value)
        assert caught.value.__cause__ is None and caught.value.__context__ is None
