"""Functional encryption: exactly the keys that fit open, and altered messages are one error."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ccbps import Bool, Category, Schema, UInt
from ccbps.algebra.pairing.curve import ArkworksCurve, BothCurve, MclCurve
from ccbps.ciphers.payloads import seal
from ccbps.errors import (
    CcbpsError,
    DecodeError,
    KeyMismatchError,
    ParameterError,
    UnsupportedPredicateError,
)
from ccbps.forms import bit_tree
from ccbps.functional import (
    Authority,
    CpAbe,
    HiddenVectors,
    Ibe,
    KpAbe,
    PublicKey,
    UserKey,
    hidden_vectors,
)
from ccbps.functional.keys import _key, _masked, _Sealed, coins, decoded, encoded
from ccbps.functional.trees import ANYBODY, Tree, predicate_tree, record_words
from ccbps.records import read, write
from tests.support import strategies
from tests.support.effort import examples

ORDER = 0x73EDA753299D7D483339D80809A1D80553BDA402FFFE5BFEFFFFFFFF00000001
WARD = Schema(doctor=Bool(), ward=Category(["A", "B"]), age=UInt(7, nullable=True))
ANNE = {"doctor": True, "ward": "A", "age": 40}
POLICY = "(doctor AND ward = 'A') OR age >= 65"
CHOSEN: dict[str, tuple[Any, Any, Any, Any]] = {
    "cp": (CpAbe, ANNE, POLICY, "NOT doctor"),
    "kp": (KpAbe, POLICY, ANNE, {**ANNE, "ward": "B"}),
    "hidden": (HiddenVectors, POLICY, ANNE, {**ANNE, "ward": "B"}),
    "ibe": (Ibe, "anne", "anne", "bob"),
}
"""A scheme, what a key is for, a message that it opens, and one that it does not open."""
schemes = pytest.mark.parametrize("name", CHOSEN)
both = pytest.mark.parametrize("pairing", ["transparent", "bls12-381"])


def made(name: str, pairing: str = "transparent") -> tuple[Authority, Any, Any, Any]:
    kind, holds, fits, others = CHOSEN[name]
    scheme = kind(pairing=pairing) if kind is Ibe else kind(WARD, pairing=pairing)
    return Authority.generate(scheme), holds, fits, others


# -- policies ---------------------------------------------------------------------------------


@st.composite
def drawn(draw: st.DrawFn, small: bool) -> tuple[Any, list[dict[str, Any]]]:
    """Draw a predicate over a schema, and records."""
    kinds = strategies.small_types() if small else None
    schema = draw(strategies.schemas(kinds, max_attributes=3))
    predicate = draw(strategies.predicates(schema))
    rows = draw(strategies.rows(schema, max_size=4))
    bound = schema.parse(predicate.text).bind(**predicate.private)
    return bound, [strategies.record(row) for row in rows]


def check(predicate: Any, records: list[dict[str, Any]], pairing: str, kinds: Any) -> None:
    """Compare what opens with the meaning of the policy."""
    wanted = predicate.evaluate(records).tolist() if records else []
    for kind in kinds:
        authority = Authority.generate(kind(predicate.schema, pairing=pairing))
        public = authority.public
        try:
            if kind is CpAbe:
                sealed = public.seal(b"x", predicate)
                pairs = [(authority.key(record), sealed) for record in records]
            else:
                key = authority.key(predicate)
                pairs = [(key, public.seal(b"x", record)) for record in records]
        except UnsupportedPredicateError as error:
            refused = str(error)
        else:
            refused = ""
        if refused:
            assert not any(wanted) or "patterns" in refused
            continue
        assert [opens(key, sealed) for key, sealed in pairs] == wanted


def opens(key: UserKey, sealed: bytes) -> bool:
    try:
        return key.open(sealed) == b"x"
    except (KeyMismatchError, DecodeError):
        return False


@given(drawn(small=True))
@settings(max_examples=examples(10_000) // 20)
def test_keys_open_what_the_policy_says(case: tuple[Any, list[dict[str, Any]]]) -> None:
    check(*case, "transparent", [CpAbe, KpAbe, HiddenVectors])


@pytest.mark.slow
@given(drawn(small=True))
@settings(max_examples=10_000)
def test_ten_thousand_policies(case: tuple[Any, list[dict[str, Any]]]) -> None:
    check(*case, "transparent", [CpAbe, KpAbe, HiddenVectors])


@pytest.mark.slow
@given(drawn(small=True))
@settings(max_examples=500)
def test_five_hundred_policies_on_the_curve(case: tuple[Any, list[dict[str, Any]]]) -> None:
    check(case[0], case[1][:2], "bls12-381", [CpAbe, KpAbe, HiddenVectors])


@given(drawn(small=False))
@settings(max_examples=examples(300))
def test_words_of_records_satisfy_trees_of_predicates(
    case: tuple[Any, list[dict[str, Any]]],
) -> None:
    predicate, records = case
    assume(records)
    wanted = predicate.evaluate(records).tolist()
    try:
        tree = predicate_tree(predicate.schema, predicate)
    except UnsupportedPredicateError:
        assert not any(wanted)
        return
    held = list(record_words(predicate.schema.encode(records)))
    assert [tree.weights(words, ORDER) is not None for words in held] == wanted


@given(st.integers(0, 1 << 64), st.integers(0, ORDER - 1))
@settings(max_examples=examples(400))
def test_shares_of_satisfied_leaves_add_up_and_others_do_not_count(seed: int, secret: int) -> None:
    """A tree of random thresholds: brute force tells which sets of words satisfy it."""
    draw = random.Random(seed)

    def tree(depth: int) -> Tree:
        if not depth or draw.random() < 0.3:
            return Tree.leaf(draw.choice("abcdef"))
        parts = [tree(depth - 1) for _ in range(draw.randint(2, 4))]
        return Tree.join(draw.randint(1, len(parts)), parts)

    def holds(words: set[str], node: Tree) -> bool:
        stack: list[bool] = []
        leaves = iter(node.words)
        for least, parts in node.steps:
            if parts == 1:
                stack.append(next(leaves) in words)
                continue
            some = [stack.pop() for _ in range(parts)]
            stack.append(sum(some) >= least)
        return stack.pop()

    policy = tree(3)
    random_numbers = [draw.randrange(ORDER) for _ in range(policy.draws())]
    shares = policy.share(secret, random_numbers, ORDER)
    for _ in range(6):
        words = {word for word in "abcdef" if draw.random() < 0.5}
        weights = policy.weights(words, ORDER)
        assert (weights is not None) == holds(words, policy)
        if weights is not None:
            assert {policy.words[leaf] for leaf in weights} <= words
            assert sum(shares[leaf] * weight for leaf, weight in weights.items()) % ORDER == secret


def test_fewest_leaves_are_used() -> None:
    parts = [Tree.join(3, list(map(Tree.leaf, "abc"))), Tree.leaf("d"), Tree.leaf("e")]
    assert Tree.join(1, parts).weights(set("abcd"), ORDER) == {3: 1}
    assert len(Tree.join(2, parts).weights(set("abcde"), ORDER) or {}) == 2


def test_weights_of_deep_trees_take_linear_time() -> None:
    """Anybody can send such trees: where each node copied the weights below, it took 10 seconds."""
    divisions: list[int] = []

    class Counted(int):
        def __rmod__(self, number: int) -> int:
            divisions.append(number)
            return number % int(self)

    depth, leaf = 500, (0, 1)
    tree = Tree(("a",) * (depth + 1), (leaf, *(leaf, (2, 2)) * depth))
    assert tree.weights({"a"}, Counted(ORDER)) == dict.fromkeys(range(depth + 1), 1)
    assert len(divisions) <= 2 * depth


def test_trees_are_checked() -> None:
    for words, steps in [
        ((), ()),
        (("a",), ((0, 1), (0, 1))),
        (("a", "b"), ((0, 1), (0, 1))),
        (("a", "b"), ((0, 1), (0, 1), (3, 2))),
        (("a", "b"), ((0, 1), (0, 1), (0, 2))),
        (("a",), ((1, 1),)),
        (("a",) * 600, ((0, 1), *(((0, 1), (2, 2)) * 599))),
        (("a",), ((0, 1), (1, 2))),
        # A share of "half of so many" takes a power for each part, and so would a message of it.
        (("a",) * 513, ((0, 1),) * 513 + ((256, 513),)),
    ]:
        with pytest.raises(ParameterError, match="must be a tree"):
            Tree(words, steps)


def test_policies_that_always_or_never_hold() -> None:
    assert predicate_tree(WARD, WARD.parse("TRUE")).words == (ANYBODY,)
    for name in ("kp", "hidden"):
        authority, *_ = made(name)
        assert authority.key("TRUE").open(authority.public.seal(b"x", ANNE)) == b"x"
        with pytest.raises(UnsupportedPredicateError, match="no record satisfies"):
            authority.key("FALSE")
    authority, *_ = made("cp")
    assert authority.key(ANNE).open(authority.public.seal(b"x", "TRUE")) == b"x"
    with pytest.raises(UnsupportedPredicateError, match="nobody could open"):
        authority.public.seal(b"x", "age = 3 AND FALSE")


# -- keys and messages ------------------------------------------------------------------------


@both
@schemes
def test_a_key_opens_what_it_fits_and_nothing_else(name: str, pairing: str) -> None:
    authority, holds, fits, others = made(name, pairing)
    public = PublicKey.from_bytes(authority.public.to_bytes())
    assert public == authority.public == Authority.from_text(authority.to_text()).public
    key = UserKey.from_text(authority.key(holds).to_text())
    message, secret = public.encapsulate(fits)
    assert key.decapsulate(message) == secret
    sealed = [public.seal(b"a record", fits), public.seal(b"a record", others)]
    with pytest.raises((KeyMismatchError, DecodeError)):
        key.decapsulate(public.encapsulate(others)[0])
    payloads, causes = key.examine(sealed)
    assert payloads == [b"a record", None]
    assert list(causes) == [1]
    assert sealed[0] != public.seal(b"a record", fits)
    with pytest.raises((KeyMismatchError, DecodeError)):
        key.open(sealed[1])
    assert key.open(message) == b""


def test_a_key_of_several_patterns_finds_the_one_that_fits() -> None:
    authority, _, fits, _ = made("hidden")
    message, secret = authority.public.encapsulate(fits)
    assert authority.key("age = 3 OR ward = 'A'").decapsulate(message) == secret


def test_policies_of_too_many_patterns_are_refused_soon() -> None:
    schema = Schema(x=UInt(32), y=UInt(32))
    authority = Authority.generate(HiddenVectors(schema, pairing="transparent"))
    values = ", ".join(str(3 * number) for number in range(600))
    others = ", ".join(str(3 * number + 1) for number in range(600))
    for policy in (
        f"x IN ({values}) AND x IN ({others}) AND y IN ({values})",
        "hamming(x, 5) <= 9",
        "x BETWEEN 1 AND 4294967294 AND y BETWEEN 1 AND 4294967294",
    ):
        with pytest.raises(UnsupportedPredicateError, match="patterns of bits"):
            authority.key(policy)


def test_long_lists_of_values_are_refused_at_the_first_that_is_too_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An authority that is asked for 8,000 values wrote all of them as trees, for a second."""
    trees: list[Any] = []
    plain = bit_tree._range
    monkeypatch.setattr(bit_tree, "_range", lambda *given: trees.append(given) or plain(*given))
    schema = Schema(x=UInt(16), y=UInt(4))
    values = ", ".join(str(7 * number) for number in range(8_000))
    for policy in (f"x IN ({values})", f"y = 3 AND x IN ({values})"):
        trees.clear()
        with pytest.raises(UnsupportedPredicateError, match="1024 patterns of bits"):
            hidden_vectors.patterns(schema, schema.parse(policy))
        assert len(trees) <= hidden_vectors.MOST_PATTERNS + 2


def test_a_record_has_the_words_of_its_schema() -> None:
    """A label could be as long as its sender liked."""
    authority, holds, fits, _ = made("kp")
    key, sealed = authority.key(holds, epoch=(1 << 63) - 1), msgspec.msgpack.decode
    fields = sealed(authority.public.seal(b"x", fits, epoch=(1 << 63) - 1)[2:])
    words = msgspec.msgpack.decode(fields[2])
    for forged, cause in (
        ([*words, "more=1"], "has 13 words|has 12 words"),
        (words[:-1], "the message has"),
        ([*words[:-1], "a" * 1000], "has at most 70 letters"),
    ):
        fields[2] = msgspec.msgpack.encode(forged)
        message = authority.public.seal(b"x", fits)[:2] + msgspec.msgpack.encode(fields)
        for reader in (key.open, authority.public.read):
            with pytest.raises(DecodeError, match=cause):
                reader(message)


def test_a_name_is_no_other_name_in_an_epoch() -> None:
    authority, *_ = made("ibe")
    sealed = authority.public.seal(b"x", "bob", epoch=7)
    for name in ("7:bob", ":7:bob", ":bob"):
        key = authority.key(name)
        key.epoch = 7
        with pytest.raises(DecodeError):
            key.open(sealed)


@schemes
def test_other_authorities_epochs_and_schemes(name: str) -> None:
    authority, holds, fits, _ = made(name)
    key = authority.key(holds)
    other, *_ = made(name)
    with pytest.raises(KeyMismatchError, match="is of authority"):
        key.open(other.public.seal(b"x", fits))
    if name == "hidden":
        with pytest.raises(ParameterError, match="make the epoch an attribute"):
            authority.key(holds, epoch=3)
        return
    sealed = authority.public.seal(b"x", fits, epoch=7)
    assert authority.key(holds, epoch=7).open(sealed) == b"x"
    for epoch in (None, 6, 8):
        with pytest.raises(KeyMismatchError, match="is of epoch 7, and the key of epoch"):
            authority.key(holds, epoch=epoch).open(sealed)
    with pytest.raises(KeyMismatchError, match="epoch None"):
        authority.key(holds, epoch=7).open(authority.public.seal(b"x", fits))
    # Not only by the field that says so.
    for made_for, sealed_for in ((6, 7), (None, 7), (7, None)):
        key, sealed = (
            authority.key(holds, epoch=made_for),
            authority.public.seal(b"x", fits, epoch=sealed_for),
        )
        forged = msgspec.msgpack.decode(sealed[2:])
        forged[1] = made_for
        with pytest.raises((DecodeError, KeyMismatchError)):
            key.open(sealed[:2] + msgspec.msgpack.encode(forged))
        key.epoch = sealed_for
        with pytest.raises((DecodeError, KeyMismatchError)):
            key.open(sealed)


def altered_parts(sealed: bytes) -> Iterator[bytes]:
    """Yield a message with a bit of each byte turned, cut off, and longer."""
    for at in range(len(sealed)):
        yield sealed[:at] + bytes([sealed[at] ^ 1 << at % 8]) + sealed[at + 1 :]
    yield from (sealed[:-1], sealed + b"\0", b"", sealed[:1])


@schemes
def test_altered_messages_do_not_open(name: str) -> None:
    authority, holds, fits, _ = made(name)
    key, sealed = authority.key(holds), authority.public.seal(b"x", fits, pad_to=1)
    for other in altered_parts(sealed):
        with pytest.raises((DecodeError, KeyMismatchError)):
            key.open(other)


@schemes
def test_points_of_a_wrong_group_are_refused(name: str) -> None:
    authority, holds, fits, _ = made(name, "bls12-381")
    sealed = authority.public.seal(b"x", fits)
    fields, size = msgspec.msgpack.decode(sealed[2:]), authority.scheme.group.g1_bytes
    wrong = bytes([0x80]) + bytes(46) + bytes([4])  # of the curve, not of the group
    for points in (
        wrong * (len(fields[3]) // size),
        bytes([0xC0]) + bytes(len(fields[3]) - 1),
        fields[3][:-size],
    ):
        message = sealed[:2] + msgspec.msgpack.encode([*fields[:3], points, *fields[4:]])
        with pytest.raises(DecodeError, match=r"or one that was altered|not of this scheme"):
            authority.key(holds).open(message)


@both
@pytest.mark.parametrize("name", ["cp", "kp", "ibe"])
def test_messages_made_in_another_way_are_refused(name: str, pairing: str) -> None:
    """Points with coins of the sender's choice: the equations hold, and the check does not."""
    authority, holds, fits, _ = made(name, pairing)
    public, key = authority.public, authority.key(holds)
    group, honest = public.scheme.group, public.scheme.encapsulate
    sealed = public.seal(b"x", fits)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            public.scheme,
            "encapsulate",
            lambda p, t, target, _: honest(p, t, target, coins(group, b"chosen", b"")),
        )
        forged = public.seal(b"x", fits)
        assert key.open(forged) == b"x"  # as long as the opener makes it in the same way
    assert key.open(sealed) == b"x"
    with pytest.raises(DecodeError):
        key.open(forged)


@both
@pytest.mark.parametrize("name", ["cp", "kp", "ibe"])
def test_each_single_altered_point_is_refused_where_everything_else_fits_it(
    name: str, pairing: str
) -> None:
    """The forger has a key that fits, so mask and payload are those of the altered points."""
    authority, holds, fits, _ = made(name, pairing)
    public, key, scheme = authority.public, authority.key(holds), authority.scheme
    group, seed = scheme.group, bytes(range(32))
    honest = public._from_seed(scheme.target(fits, None), None, seed)
    label = read(scheme.label_type, honest.label, refusal="")
    shape = scheme.message_shape(label)

    def forged(data: bytes, new_seed: bytes) -> bytes:
        (find,) = scheme.find(key._holdings, key._points, label, decoded(group, data, shape))
        mask = _masked(group, find(), data, new_seed)
        message = replace(honest, points=data, mask=mask)
        sealed = seal(b"x", _key(b"payload", new_seed, message), message.head, pad_to=1)
        return replace(message, payload=sealed).to_bytes()

    assert key.open(forged(honest.points, seed)) == b"x"
    ones, twos = decoded(group, honest.points, shape)
    altered = [
        (
            [group.multiply(p, group.g1) if at == n else p for n, p in enumerate(ones)],
            [group.multiply(p, group.g2) if at == shape[0] + n else p for n, p in enumerate(twos)],
        )
        for at in range(sum(shape))
    ]
    assert len(altered) == sum(shape) > 0
    for points in altered:
        with pytest.raises(DecodeError, match="not a message for this key"):
            key.open(forged(encoded(group, points), seed))
    # The points are honest, and the mask holds another seed.
    with pytest.raises(DecodeError, match="not a message for this key"):
        key.open(forged(honest.points, bytes(32)))


@pytest.mark.parametrize("name", ["cp", "kp", "hidden", "ibe"])
def test_each_library_opens_what_the_other_seals(name: str) -> None:
    pytest.importorskip("pymcl", reason="pymcl has no wheel for this Python")
    authority, holds, fits, _ = made(name, "bls12-381")
    texts = authority.to_text(), authority.public.to_bytes(), authority.key(holds).to_text()
    scheme = type(authority.scheme)
    curves = [MclCurve(), ArkworksCurve(), BothCurve()]

    def by(curve: Any) -> tuple[PublicKey, UserKey]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("ccbps.functional.scheme._group", lambda _: curve)
            assert Authority.from_text(texts[0]).public.to_bytes() == texts[1]
            return PublicKey.from_bytes(texts[1]), UserKey.from_text(texts[2])

    parties = list(map(by, curves))
    assert all(isinstance(public.scheme, scheme) for public, _ in parties)
    for public, _ in parties:
        sealed = public.seal(b"x", fits)
        assert [key.open(sealed) for _, key in parties] == [b"x"] * 3


def test_one_seed_gives_each_scheme_and_schema_a_master_key() -> None:
    """With one master key, keys of one schema would open messages of another one."""
    schemas = Schema(ward=UInt(3)), Schema(ward=UInt(3), level=UInt(3))
    made = [
        Authority(kind(schema, pairing="transparent"), bytes(32)).public.targets[0]
        for kind in (CpAbe, KpAbe, HiddenVectors)
        for schema in schemas
    ]
    assert len({*made}) == 6


def test_epochs_may_be_numbers_of_numpy() -> None:
    authority, holds, fits, _ = made("kp")
    sealed = authority.public.seal(b"x", fits, epoch=np.uint8(7))
    assert authority.key(holds, epoch=np.int64(7)).open(sealed) == b"x"


@both
@schemes
def test_public_keys_and_schemes_go_to_other_processes(name: str, pairing: str) -> None:
    authority, holds, fits, _ = made(name, pairing)
    public, scheme = pickle.loads(pickle.dumps((authority.public, authority.scheme)))
    assert (public, scheme) == (authority.public, authority.scheme)
    assert authority.key(holds).open(public.seal(b"x", fits)) == b"x"


def test_arguments_are_refused_clearly() -> None:
    authority, *_ = made("cp")
    public = authority.public
    for call in (
        lambda: Authority.generate("cp"),
        lambda: CpAbe({"age": 3}),
        lambda: CpAbe(WARD, pairing="bn254"),
        lambda: authority.key("doctor"),
        lambda: authority.key({**ANNE, "ward": "C"}),
        lambda: authority.key(ANNE, epoch=-1),
        lambda: public.seal("text", "doctor"),
        lambda: public.seal(b"x", ANNE),
        lambda: public.seal(b"x", "nurse"),
        lambda: public.seal(b"x", "age > :a"),
        lambda: public.seal(b"x", "doctor", pad_to=0),
        lambda: PublicKey.from_bytes(b"x"),
        lambda: Authority.generate(Ibe(pairing="transparent")).key(7),
        lambda: Authority.generate(Ibe(pairing="transparent")).key("\ud800"),
        lambda: authority.key(ANNE).examine(public.seal(b"x", "doctor")),  # not in a list
        lambda: authority.key(ANNE, randomness=lambda size: b""),
        lambda: public.seal(b"x", "doctor", randomness=lambda size: b""),
    ):
        with pytest.raises(CcbpsError):
            call()


# -- attacks ----------------------------------------------------------------------------------


def pooled(keys: list[UserKey], holdings: Any, take: Any) -> UserKey:
    """Make a key of the points of several."""
    ones = [
        point
        for key, places in zip(keys, take[0], strict=True)
        for point in (key._points[0][at] for at in places)
    ]
    twos = [
        point
        for key, places in zip(keys, take[1], strict=True)
        for point in (key._points[1][at] for at in places)
    ]
    return UserKey(keys[0].public, keys[0].epoch, holdings, (ones, twos))


@both
def test_users_who_pool_their_keys_fail(pairing: str) -> None:
    authority, *_ = made("cp", pairing)
    sealed = authority.public.seal(b"x", "doctor AND age >= 64")
    doctor, old = authority.key(ANNE), authority.key({**ANNE, "doctor": False, "age": 70})
    words, old_words = doctor._holdings, old._holdings
    # The doctor's first point and words, and the other's words that the doctor lacks.
    extra = [at for at, word in enumerate(old_words) if word not in words]
    together = pooled(
        [doctor, old],
        (*words, *(old_words[at] for at in extra)),
        ((range(1 + len(words)), [1 + at for at in extra]), ([0], [])),
    )
    assert not opens(doctor, sealed)
    assert not opens(old, sealed)
    with pytest.raises(DecodeError, match="not a message for this key"):
        together.open(sealed)

    authority, *_ = made("kp", pairing)
    sealed = authority.public.seal(b"x", {**ANNE, "ward": "A"})
    keys = [
        authority.key(f"ward = '{ward}' AND age = {age}") for ward, age in (("A", 3), ("B", 40))
    ]
    assert [key._holdings.words for key in keys] == [("ward=0", "age=4"), ("ward=1", "age=41")]
    both_words = Tree.join(2, [Tree.leaf("ward=0"), Tree.leaf("age=41")])
    for exponent in ([0], []), ([], [0]):
        mixed = pooled(keys, both_words, (([0], [1]), exponent))
        with pytest.raises(DecodeError, match="not a message for this key"):
            mixed.open(sealed)


@both
def test_patterns_of_users_who_pool_their_keys_fail(pairing: str) -> None:
    schema = Schema(ward=Bool(), age=UInt(2))
    authority = Authority.generate(HiddenVectors(schema, pairing=pairing))
    sealed = authority.public.seal(b"x", {"ward": True, "age": 2})
    keys = [authority.key(policy) for policy in ("ward AND age = 1", "NOT ward AND age = 2")]
    assert [key._holdings for key in keys] == [
        (((0, 1), (1, 0), (2, 1), (3, 1)),),
        (((0, 0), (1, 1), (2, 0), (3, 1)),),
    ]
    wanted = (((0, 1), (1, 1), (2, 0), (3, 1)),)
    # The first place of one key, and the next two of the other; the last one of either.
    for last in (0, 1):
        own = [key._points[1] for key in keys]
        points = [*own[0][:2], *own[1][2:6], *own[last][6:]]
        together = UserKey(authority.public, None, wanted, ((), points))
        with pytest.raises(DecodeError, match="not a message for this key"):
            together.open(sealed)
    assert authority.key("ward AND age = 2").open(sealed) == b"x"


@both
def test_a_key_of_hidden_vectors_tells_its_policy(pairing: str) -> None:
    """e(T, first) = e(V, second) iff the key fixes a place to 1: it is not for a broker."""
    schema = Schema(x=UInt(4))
    scheme = HiddenVectors(schema, pairing=pairing)
    authority = Authority.generate(scheme)
    group, public = scheme.group, authority.public.points[0]
    key = authority.key("x = 5")
    ((pattern), points) = key._holdings[0], key._points[1]
    assert pattern == ((0, 0), (1, 1), (2, 0), (3, 1), (4, 1))
    read = []
    for number, (place, _) in enumerate(pattern):
        t, v, u, m = public[4 * place : 4 * place + 4]
        first, second = points[2 * number : 2 * number + 2]
        one = group.product([(t, first)]) == group.product([(v, second)])
        zero = group.product([(u, first)]) == group.product([(m, second)])
        assert one != zero
        read.append(int(one))
    assert read == [0, 1, 0, 1, 1]


def test_messages_of_hidden_vectors_have_one_length_and_no_label() -> None:
    authority, *_ = made("hidden")
    records = [ANNE, {"doctor": False, "ward": "B", "age": None}]
    sealed = [authority.public.seal(b"x", record) for record in records]
    assert len(sealed[0]) == len(sealed[1])
    fields = [msgspec.msgpack.decode(one[2:]) for one in sealed]
    assert fields[0][:3] == fields[1][:3]


def test_who_opens_a_message_of_hidden_vectors_cannot_make_it_again() -> None:
    """Were all random numbers of a message to follow from its seed, an opener could try records."""
    schema = Schema(buys=Bool(), price=UInt(4))
    authority = Authority.generate(HiddenVectors(schema, pairing="transparent"))
    public = authority.public
    message = _Sealed.from_bytes(public.seal(b"x", {"buys": True, "price": 7}))
    _, seed = authority.key("buys")._opened(message)
    for price in range(16):
        target = public.scheme.target({"buys": True, "price": price}, None)
        draw = coins(public.scheme.group, seed, write((public.name, None, target)))
        points, _ = public.scheme.encapsulate(public.points, public.targets, target, draw)
        assert encoded(public.scheme.group, points) != message.points


def test_names_do_not_stand_in_messages() -> None:
    authority, *_ = made("ibe")
    sealed = authority.public.seal(b"x", "a name that is long")
    assert b"a name" not in sealed
    assert len(sealed) == len(authority.public.seal(b"x", "bob"))


@pytest.mark.parametrize("name", ["cp", "kp", "hidden"])
def test_only_points_that_a_key_uses_are_decoded_and_checked(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, holds, fits, _ = made(name)
    sealed, group = authority.public.seal(b"x", fits), authority.scheme.group
    key, read = authority.key(holds), []
    for kind in ("decode_g1", "decode_g2"):
        decode = getattr(group, kind)
        monkeypatch.setattr(group, kind, lambda data, d=decode: read.append(data) or d(data))
    assert key.open(sealed) == b"x"
    size = group.g1_bytes
    points = msgspec.msgpack.decode(sealed[2:])[3]
    assert 0 < len(set(read)) == len(read) < len(points) // size
    for at in range(0, len(points), size):
        others = points[:at] + bytes(size) + points[at + size :]
        assert not opens(key, sealed.replace(points, others))


def test_an_error_does_not_tell_which_leaf_was_used() -> None:
    authority, *_ = made("cp", "bls12-381")
    sealed, size = (
        authority.public.seal(b"x", "doctor OR age >= 64"),
        authority.scheme.group.g1_bytes,
    )
    points = msgspec.msgpack.decode(sealed[2:])[3]
    key = authority.key(ANNE)
    errors = set()
    for at in range(0, len(points), size):
        with pytest.raises(DecodeError) as caught:
            key.open(sealed.replace(points, points[:at] + bytes(size) + points[at + size :]))
        errors.add(str(caught.value))
    assert len(errors) == 1


def test_decoding_is_strict() -> None:
    group = made("cp")[0].scheme.group
    points = ([group.g1], [group.g2, group.g2])
    data = encoded(group, points)
    assert decoded(group, data, (1, 2)) == ([group.g1], [group.g2, group.g2])
    for shape in ((1, 1), (2, 2), (2, 1), (0, 3)):
        with pytest.raises(DecodeError):
            decoded(group, data, shape)
