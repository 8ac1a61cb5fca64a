"""Check keys whose content was altered, and whose check was computed again.

The check of a key guards against accidents. Whoever writes a key anew computes it, so everything
that the key's content may hold is met by its role: a clear refusal, or a key of another secret. No
error and no local variable of this package's frames shows a secret.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from traceback import walk_tb
from typing import Any, Final

import ccbps
from ccbps.errors import DecodeError, EventError, KeyMismatchError, ParameterError
from ccbps.keys.role_key import RoleKey
from ccbps.matching import Keying
from ccbps.matching.contract.parties import Party
from ccbps.testing.cases import Case, check, keyed, one_time, updated

SAMPLES: Final = 30
"""Altered keys of each role of a case."""
VALUES: Final[tuple[Any, ...]] = (
    None, True, -1, 0, 1, 1 << 63, 1.5, "", "0", "00", "-1", "zz", "1_0", " ", "é", "ff" * 16,
    "ff" * 32, "ff" * 400, b"", b"x", [], ["00"], [0], [[]], {}, {"00": "zz"}, {"a": []},
)  # fmt: skip
"""Values that take the place of any other."""
Path = tuple[Any, ...]


def altered(data: dict[str, Any], count: int, seed: int = 1) -> Iterator[Any]:
    """Yield copies of key data, each altered in one place."""
    changes = [(path, change) for path in _places(data) for change in _changes(_at(data, path))]
    draw = random.Random(seed)
    for path, change in draw.sample(changes, min(count, len(changes))):
        content = copy.deepcopy(data)
        if path:
            _at(content, path[:-1])[path[-1]] = change
        yield content if path else change


def _places(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the paths of all parts of a value, and of the whole."""
    yield path
    steps = value if isinstance(value, dict) else range(len(value)) if _is_list(value) else ()
    for step in steps:
        yield from _places(value[step], (*path, step))


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _at(value: Any, path: Path) -> Any:
    for step in path:
        value = value[step]
    return value


def _changes(value: Any) -> Iterator[Any]:
    """Yield values that may take the place of a value."""
    if isinstance(value, dict):
        yield {**value, "more": 1}
        yield {**value, "00" * 8: "00"}
        yield from ({key: value[key] for key in value if key != left} for left in value)
    yield from VALUES
    if isinstance(value, list):
        yield from (value[1:], value * 2, value[::-1], [*value, None])
    if isinstance(value, int):
        yield from (value + 1, value - 1)
    if isinstance(value, str):
        yield from (value[1:], value[:-2], value + "00", "0" + value, "-" + value, " " + value)
        yield from (value[:2] + "_" + value[2:], value[:-1] + "é", value[::-1], "0" * len(value))
        yield from (value.upper(), "f" * len(value))


def secrets_in(value: Any) -> Iterator[str]:
    """Yield the long texts and numbers in key data, as they would be printed."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from secrets_in(part)
    elif isinstance(value, str) and len(value) >= 12:
        yield value
    elif type(value) is int and value > 1 << 40:
        yield from (str(value), f"{value:x}")


def shown_by(error: BaseException) -> str:
    """Return what is printed of an error, its causes, and this package's locals on its way."""
    texts = []
    at: BaseException | None = error
    while at is not None:
        texts += [str(at), repr(at), *getattr(at, "__notes__", ())]
        for frame, _ in walk_tb(at.__traceback__):
            if frame.f_code.co_filename.startswith(ccbps.__path__[0]) and (
                "testing" not in frame.f_code.co_filename
            ):
                texts.append(repr(frame.f_locals))
        at = at.__cause__ or at.__context__
    return " ".join(texts)


def _use(case: Case, party: Party, key: RoleKey) -> None:
    """Make the role of a key, and let it do all that it can with the other roles of a party."""
    matcher = case.matcher
    role: Any = getattr(matcher, "key_server" if key.role == "server" else key.role)(key)
    if matcher.keying is Keying.SESSION:
        _ = role.key
        # The other role is a copy: the case's own must stay as it is for other checks.
        if key.role == "publisher":
            role.answer(matcher.subscriber(party.subscriber.key).encode(case.interests[:1]))
            role.encode(case.records)
        else:
            role.encode(case.interests)
            role.open(matcher.publisher(party.publisher.key).encode(case.records))
    elif key.role == "server":
        keys = Party(matcher, server=role).keys
        assert keys and role.key
        if role.users:
            role.revoke("subscriber", "alice")
        role.rotate()
    elif key.role == "broker":
        sent = party.publisher.encode(case.records)
        role.match_all(sent, party.subscriber.encode(case.interests))
        for user in role.users[:1]:
            role.revoke(bytes.fromhex(user))
            role.admit(party.keys["broker"])
    else:
        role.encode(case.records if key.role == "publisher" else case.interests)


def _refused_at_most(call: Any, *secrets: str) -> None:
    """Check that a call works, or that its error is clear and shows no secret."""
    try:
        call()
    except (DecodeError, KeyMismatchError, ParameterError, EventError) as error:
        shown = shown_by(error)
        assert not any(secret in shown for secret in secrets)


@check()
def altered_keys_are_refused_or_other_keys(case: Case) -> None:
    """Check keys with any other content: all that their roles do, and what errors show."""
    if one_time(case):
        return
    # Not the case's party: a session's roles remember all that they do.
    party = Party(case.matcher, case.interests)
    keys = dict(party.keys)
    if keyed(case):
        keys["server"] = party.server.key
    for key in keys.values():
        data = key.export_secret_data()
        for content in altered(data, SAMPLES):
            try:
                other = RoleKey.make(key.matcher, key.role, key.key_id, key.epoch, content)
            except ParameterError:
                continue  # a float, for example
            secrets = {*secrets_in(data), *secrets_in(content)}
            _refused_at_most(lambda other=other: _use(case, party, other), *secrets)


@check(updated)
def altered_updates_are_refused_or_others(case: Case) -> None:
    """Check updates with any other content."""
    matcher, party = case.matcher, case.party
    server = matcher.key_server(party.server.key)
    token = server.rotate()
    assert token is not None
    later, interests = matcher.broker(server.broker_key()), case.sides()[1]
    data = token.export_secret_data()
    for content in altered(data, SAMPLES):
        try:
            other = type(token).make(token.matcher, token.role, token.key_id, token.epoch, content)
        except ParameterError:
            continue
        _refused_at_most(
            lambda other=other: party.broker.update(interests, other, later), *secrets_in(data)
        )
