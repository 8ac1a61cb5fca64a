"""Matchers of rounds for tests of roles: with one message each, or with messages in segments."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from ccbps import Schema, UInt
from ccbps.encodings.group import GroupEncoding
from ccbps.matching import (
    BranchingMatch,
    FormulaMatch,
    FSGPMatch,
    OFSGPMatch,
    PublicFunctionMatch,
)
from ccbps.matching.group import group_match
from tests.support.one_time import SEED

__all__ = [
    "Subject",
    "all_subjects",
    "group_subjects",
    "made_subject",
    "several_segments",
    "some_subjects",
]


class Subject:
    """A matcher of events with one attribute x.

    Attributes:
        interest: an interest that takes some of 0 .. 7, as `answer` says.
        parts: segments of a message.
    """

    def __init__(self, matcher: Any, interest: Any, answer: Callable[[int], bool]) -> None:
        self.matcher, self.interest, self.answer = matcher, interest, answer
        self.parts = matcher.sizes.pieces

    def role(self, name: str, source: Any = SEED) -> Any:
        return getattr(self.matcher, name)(source)

    def ways(self, role: str, source: Any = SEED) -> dict[str, Callable[..., Any]]:
        """Ways of one holder to use rounds; pieces are asked for, and not read."""
        holder = self.role(role, source)

        def content(count: int) -> Any:
            return {"x": [1] * count} if role == "publisher" else self.interest

        def encode(rounds: Any, **more: Any) -> Any:
            return holder.encode(content(len(rounds)), rounds, **more)

        def pieces(rounds: Any) -> Any:
            return [holder.encode_chunks(content(1), number) for number in rounds]

        if not hasattr(holder, "encode_chunks"):
            return {"encode": encode}
        return {"encode": encode, "pieces": pieces}


# Lengths 160, 320 and some hundred: of the first, the last segment is short.
SUBJECTS: dict[str, tuple[Callable[..., Any], Any, Callable[[int], bool]]] = {
    "branching": (lambda: BranchingMatch.box(Schema(x=UInt(5))), "x > 3", lambda x: x > 3),
    "formula": (lambda: FormulaMatch(Schema(x=UInt(5)), "x > :y"), {"y": 3}, lambda x: x > 3),
    "OFSGP": (
        lambda group: OFSGPMatch(Schema(x=UInt(5)), 2, group=group), "x > 3", lambda x: x > 3
    ),
    "FSGP": (lambda group: FSGPMatch(Schema(x=UInt(3)), 2, group=group), "x > 3", lambda x: x > 3),
    "public function": (
        lambda group: PublicFunctionMatch.hamming(5, limit=1, group=group), {"y": 5},
        lambda x: (x ^ 5).bit_count() <= 1,
    ),
}  # fmt: skip
ALL = [
    "branching", "formula",
    *(f"{name}, {group}{cut}" for name in ("OFSGP", "FSGP", "public function")
      for group in ("A5", "S5") for cut in ("", ", in segments")),
]  # fmt: skip
SOME = ["branching", "OFSGP, A5", "OFSGP, S5", "OFSGP, A5, in segments"]


def several_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of 64 positions for matchers made from now on."""
    monkeypatch.setattr(group_match, "GroupEncoding", partial(GroupEncoding, segment=64))


@pytest.fixture(name="subject")
def made_subject(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Subject:
    name, *more = request.param.split(", ")
    make, interest, answer = SUBJECTS[name]
    if more[1:]:
        several_segments(monkeypatch)
    made = Subject(make(*more[:1]), interest, answer)
    if more:
        length = made.matcher.length
        assert length > 128 and made.parts == (-(-length // 64) if more[1:] else 1)
    return made


all_subjects = pytest.mark.parametrize("subject", ALL, indirect=True)
group_subjects = pytest.mark.parametrize("subject", ALL[2:], indirect=True)
some_subjects = pytest.mark.parametrize("subject", SOME, indirect=True)
