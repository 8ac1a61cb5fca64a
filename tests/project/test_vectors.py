"""The test vectors: every scheme has some, and the library makes and answers them as they say."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccbps.errors import DecodeError
from ccbps.matching import SCHEMES

ROOT = Path(__file__).resolve().parents[2]
MAKER = runpy.run_path(str(ROOT / "tools" / "vectors.py"))
FILES = sorted((ROOT / "vectors").glob("*.json"))


def test_every_scheme_has_vectors() -> None:
    named = {json.loads(path.read_text("utf-8"))[0]["scheme"] for path in FILES}
    assert named == {scheme.name for scheme in SCHEMES}


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_the_library_answers_as_the_vectors_say(path: Path) -> None:
    for vector in json.loads(path.read_text("utf-8")):
        assert np.array_equal(MAKER["answers_of"](vector), vector["answers"])


@pytest.mark.parametrize("name", ["formula", "tags"])
def test_an_altered_byte_is_noticed(name: str) -> None:
    vector: dict[str, Any] = json.loads((ROOT / "vectors" / f"{name}.json").read_text("utf-8"))[0]
    rows = vector["messages"]["events"]
    rows[0] = rows[0][:-2] + f"{int(rows[0][-2:], 16) ^ 1:02x}"
    with pytest.raises((AssertionError, DecodeError), match=r"are others|was altered"):
        MAKER["answers_of"](vector)
