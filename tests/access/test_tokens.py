"""Tokens: only the authority makes them, only their key presents them, and they can only shrink."""

from __future__ import annotations

import contextlib
import datetime

import biscuit_auth
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps.access import Presentation, attenuate_token, issue_token, present_token, read_token
from ccbps.access.policy import ACTIONS, Action
from ccbps.errors import DecodeError, ParameterError, RefusedError
from ccbps.keys import SigningKey
from tests.support.effort import examples

AUTHORITY, ANN, EVE = (SigningKey(bytes([place]) * 32) for place in range(3))
SESSION = bytes(16)
LETTERS = st.characters(codec="utf-8", exclude_characters='"\\', exclude_categories=["C", "Z"])
NAMES = st.text(LETTERS, min_size=1, max_size=12)


def issued(user: str = "ann", roles: list[str] | None = None, seconds: float = 60) -> bytes:
    return issue_token(
        AUTHORITY, user, ANN.identity, roles or ["r"], policy=7, starts=1000, seconds=seconds
    )


@given(NAMES, st.lists(NAMES))
@settings(max_examples=examples(100))
def test_a_token_says_what_was_issued_whatever_the_names(user: str, roles: list[str]) -> None:
    token = read_token(
        issue_token(AUTHORITY, user, ANN.identity, roles, policy=7, starts=1000.5, seconds=60),
        AUTHORITY.identity,
    )
    assert (token.user, token.key, token.roles) == (user, ANN.identity, tuple(sorted({*roles})))
    assert (token.policy, token.starts, token.ends) == (7, 1000, 1060)
    assert token.actions == {*ACTIONS}


@given(
    st.lists(
        st.tuples(
            st.none() | st.lists(st.sampled_from(ACTIONS), unique=True), st.integers(990, 1100)
        ),
        max_size=5,
    )
)
@settings(max_examples=examples(40))
def test_attenuations_only_take_away(steps: list[tuple[list[Action] | None, int]]) -> None:
    token, actions, ends = issued(), {*ACTIONS}, 1060
    for kept, until in steps:
        token = attenuate_token(token, AUTHORITY.identity, actions=kept, until=until)
        actions, ends = actions & {*(ACTIONS if kept is None else kept)}, min(ends, until)
    read = read_token(token, AUTHORITY.identity)
    assert (read.actions, read.ends) == (actions, ends)
    assert len(read.numbers) == 1 + len(steps)
    # biscuit's own evaluation agrees.
    parsed = biscuit_auth.Biscuit.from_bytes(
        token, biscuit_auth.PublicKey.from_bytes(AUTHORITY.identity, biscuit_auth.Algorithm.Ed25519)
    )
    for action in ACTIONS:
        for now in (1000, ends, ends + 1):
            code = f'allow if true; action("{action}"); time({{now}})'
            moment = datetime.datetime.fromtimestamp(now, datetime.UTC)
            builder = biscuit_auth.AuthorizerBuilder(code, {"now": moment})
            limits = builder.limits()
            limits.max_time = datetime.timedelta(seconds=60)  # a millisecond, if nobody says so
            builder.set_limits(limits)
            authorizer = builder.build(parsed)
            allowed = True
            try:
                authorizer.authorize()
            except biscuit_auth.AuthorizationError:
                allowed = False
            # The facts of the first block bind this package, and no check of biscuit's.
            checked = min([until for _, until in steps], default=now)
            assert allowed == (action in actions and now <= checked)


@pytest.mark.parametrize(
    "block",
    [
        'role("admin")',
        'user("eve")',
        "check if true",
        'check if action($a), ["receive"].contains($a) or true',
        'check if action($a), user("ann"), ["receive"].contains($a)',
        "check all time($t), $t <= 2026-11-27T14:39:37Z",
        "valid(1970-01-01T00:00:00Z, 2030-01-01T00:00:00Z)",
        'role("x") <- user("ann")',
    ],
)
def test_blocks_with_another_meaning_are_refused(block: str) -> None:
    public = biscuit_auth.PublicKey.from_bytes(AUTHORITY.identity, biscuit_auth.Algorithm.Ed25519)
    parsed = biscuit_auth.Biscuit.from_bytes(issued(), public)
    token = bytes(parsed.append(biscuit_auth.BlockBuilder(block)).to_bytes())
    with pytest.raises(DecodeError, match="unknown way"):
        read_token(token, AUTHORITY.identity)


def test_a_token_of_another_authority_is_refused() -> None:
    with pytest.raises(DecodeError):
        read_token(issued(), EVE.identity)
    # Eve's first block says whatever she likes, and is not signed by the authority.
    forged = issue_token(EVE, "ann", EVE.identity, ["r"], policy=7, starts=0, seconds=10**6)
    with pytest.raises(DecodeError):
        read_token(forged, AUTHORITY.identity)


@given(st.data())
@settings(max_examples=examples(60))
def test_altered_tokens_and_presentations_are_one_error(data: st.DataObject) -> None:
    token = issued()
    presented = present_token(token, ANN, SESSION, "ann", 1).to_bytes()
    for message in (token, presented):
        changed = bytearray(message)
        place = data.draw(st.integers(0, len(message) - 1))
        changed[place] ^= data.draw(st.integers(1, 255))
        for bad in (bytes(changed), message[:place], b""):
            with contextlib.suppress(DecodeError):
                if message is token:
                    # Biscuits do not sign how their fields are ordered; what they say is signed.
                    assert read_token(bad, AUTHORITY.identity).user == "ann"
                    continue
                with pytest.raises(RefusedError):
                    Presentation.from_bytes(bad).verified(AUTHORITY.identity, SESSION, "ann", 1000)
                assert bad != presented


def test_only_the_key_presents_its_token_and_only_here_and_now() -> None:
    token = issued()
    presented = present_token(token, ANN, SESSION, "ann", 5)
    verified = presented.verified(AUTHORITY.identity, SESSION, "ann", 1030)
    assert verified == read_token(token, AUTHORITY.identity)
    stolen = present_token(token, EVE, SESSION, "ann", 5)
    cases = [
        (stolen, SESSION, "ann", 1030, "proof"),  # the token without its key
        (presented, bytes([1]) * 16, "ann", 1030, "proof"),  # another broker, or a later session
        (presented, SESSION, "eve", 1030, "proof"),  # another client
        (present_token(token, ANN, SESSION, "eve", 5), SESSION, "eve", 1030, "user"),
        (presented, SESSION, "ann", 999, "early"),
        (presented, SESSION, "ann", 1061, "expired"),
        (Presentation(token, 6, presented.signature), SESSION, "ann", 1030, "proof"),
        (
            Presentation(
                attenuate_token(token, AUTHORITY.identity, until=1040), 5, presented.signature
            ),
            SESSION,
            "ann",
            1030,
            "proof",
        ),
    ]
    for sent, session, client, now, reason in cases:
        with pytest.raises(RefusedError) as refused:
            sent.verified(AUTHORITY.identity, session, client, now)
        assert refused.value.reason == reason


def test_arguments_are_checked() -> None:
    for name in ("a\nb", 'x"); role("admin', "x\\"):
        with pytest.raises(ParameterError, match="printable"):
            issued(name)
    with pytest.raises(ParameterError, match="name the actions"):
        attenuate_token(issued(), AUTHORITY.identity)
    with pytest.raises(ParameterError, match="actions"):
        attenuate_token(issued(), AUTHORITY.identity, actions=["delete"])  # type: ignore[list-item]
    with pytest.raises(ParameterError, match="session"):
        present_token(issued(), ANN, b"short", "ann", 1)
    token = issued()
    for _ in range(16):
        token = attenuate_token(token, AUTHORITY.identity, until=1050)
    with pytest.raises(DecodeError):
        read_token(token, AUTHORITY.identity)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("starts", -1),
        ("starts", 1e18),
        ("starts", float("nan")),
        ("seconds", 1e30),
        ("policy", 1 << 63),
        ("roles", [f"role {n} of many" for n in range(1000)]),
    ],
)
def test_tokens_that_nobody_could_read_are_not_issued(name: str, value: object) -> None:
    settings = {"roles": [], "policy": 1, "starts": 0.0, "seconds": 60.0, name: value}
    key = SigningKey.generate()
    with pytest.raises(ParameterError):
        issue_token(key, "ann", key.identity, settings.pop("roles"), **settings)  # type: ignore[arg-type]
    token = issue_token(key, "ann", key.identity, [], policy=1, starts=0, seconds=60)
    with pytest.raises(ParameterError):
        attenuate_token(token, key.identity, until=1e30)
