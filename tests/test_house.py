"""The house rules that no linter states: a file holds one idea, and says why where it is long."""

from __future__ import annotations

from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "ccbps"
FREE, MOST = 300, 400
"""Lines a file may have without a reason, and with one."""

LONG = {
    "algebra/alternating.py": "one group: its kernels, straight-line code on planes, and its ranks",
    "algebra/modular.py": "the one door to GMP",
    "broker/matching_broker.py": "one role: all that changes what it holds, with what it refuses",
    "broker/messages.py": "what is sent, as objects and as bytes",
    "broker/parts.py": "one state: made, loaded, taken from and told",
    "broker/store.py": "one file, written and read",
    "ciphers/paillier_keys.py": "a public and a secret key that check one another",
    "ciphers/prefix_preserving.py": "one cipher, its tree and its kernel for columns",
    "circuits/bristol.py": "one file format, read and written",
    "delivery/group_sealer.py": "one role, with what it keeps and what it refuses",
    "encodings/compiled_kernels.py": "the inner loops, compiled together",
    "encodings/compiled_rows.py": "the passes over rows, compiled together",
    "matching/access.py": "seeds and keys: all that tells keyings apart",
    "matching/broker.py": "one role, with all that it refuses",
    "matching/contract.py": "the contract, with what each method promises",
    "matching/boxes/aspe.py": "one matcher with its card",
    "matching/one_time/formula_scheme.py": "what two matchers share: kinds and cards",
    "matching/table.py": "one table, its parts and its file",
    "matching/boxes/tag.py": "one matcher: its sizes, keys, both sides and the broker",
    "matching/session/oblivious_topic.py": "one matcher with its card",
    "matching/session/publisher.py": "one role of one protocol",
    "matching/session/subscriber.py": "one role of one protocol",
    "matching/users/access_tree.py": "one matcher with its card",
    "matching/users/keyword.py": "one matcher with its card",
    "predicates/schema.py": "schema and predicate, each of which makes the other",
    "predicates/columns.py": "one conversion, from every kind of container",
    "predicates/types.py": "the attribute type and the types without a family",
    "programs/barrington.py": "one transform, with and without a fixed structure",
    "spark/encoding.py": "two functions, each mostly its documentation",
    "spark/groups.py": "three functions, each mostly its documentation",
    "store/broadcast_plan.py": "one plan, from runs of interests to blocks, round by round",
    "store/files.py": "one file format, read and written",
    "store/index.py": "one index, written, read and checked",
    "store/plan.py": "one plan, from runs of both sides to blocks of messages",
}
"""Files of more than `FREE` lines, and what keeps each together."""


def lines(path: Path) -> int:
    return len(path.read_text("utf-8").splitlines())


SIZES = {path.relative_to(PACKAGE).as_posix(): lines(path) for path in PACKAGE.rglob("*.py")}


def complaints(sizes: dict[str, int], reasons: dict[str, str]) -> list[str]:
    """What is wrong with files of these sizes, one line each."""
    found = [
        f"{name} has {size} lines, at most {MOST}: cut it along its ideas"
        for name, size in sizes.items()
        if size > MOST
    ]
    found += [
        f"{name} has {size} lines: shorten it, or say in LONG what keeps it together"
        for name, size in sizes.items()
        if FREE < size <= MOST and name not in reasons
    ]
    found += [
        f"{name} is in LONG, but not between {FREE} and {MOST} lines: take it out"
        for name in reasons
        if not FREE < sizes.get(name, 0) <= MOST
    ]
    return sorted(found)


def test_long_files_say_why() -> None:
    assert len(SIZES) > 100
    assert complaints(SIZES, LONG) == []
    assert all(len(reason) > 10 for reason in LONG.values())


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"a.py": 401}, "a.py has 401 lines, at most 400"),
        ({"a.py": 301}, "a.py has 301 lines: shorten it"),
        ({"a.py": 300, "long.py": 300}, "long.py is in LONG"),
        ({}, "long.py is in LONG"),
        ({"long.py": 401}, "long.py has 401 lines, at most 400"),
    ],
)
def test_each_rule_is_noticed(sizes: dict[str, int], said: str) -> None:
    assert any(line.startswith(said) for line in complaints(sizes, {"long.py": "one idea"}))


def test_the_bounds_themselves_are_allowed() -> None:
    assert complaints({"a.py": 300, "long.py": 400}, {"long.py": "one idea"}) == []
