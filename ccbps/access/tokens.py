"""Tokens: an authority's statements about a user, limited in time and bound to the user's key.

A token is a biscuit (Ed25519, Datalog). Its first block has facts, signed by the authority::

    user("ann"); key("<hex>"); role("doctor"); policy(7); valid(<from>, <until>);

Whoever holds a token may *attenuate* it without asking anybody: a further block has checks, which
take actions away or end the token earlier. Blocks with anything else are refused, so a token means
exactly what `read_token` returns.

A token alone opens nothing. Its sender *presents* it: the key that the token names signs the
broker's session, the client's name and a counter, which must grow. So a token that is stolen is of
no use without its key, and a presentation that is repeated is refused.

Leak: whoever sees a token reads user, roles, policy version and times.
Hazard: times are those of the broker's clock. Nobody can remove an attenuation, but the
token without it stays valid for its holders.
Sources: [Survey] section 5.1 (Fongen and Mancini; Pallickara et al.), biscuitsec.org.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Any, ClassVar, Final

from msgspec import Meta

from ccbps.access.policy import ACTIONS, Action, Roles
from ccbps.checks import choice, number, octets, whole
from ccbps.ciphers.signatures import IDENTITY_BYTES, Signature, signed_by
from ccbps.errors import DecodeError, ParameterError, RefusedError
from ccbps.keys import SigningKey
from ccbps.records import Message, Number
from ccbps.wire import Kind

MOST_BYTES: Final = 1 << 13
"""Largest length of a token, bytes."""
MOST_BLOCKS: Final = 16
MOST_POLICY: Final = (1 << 63) - 1
LATEST: Final = 253_402_300_799
"""Last second of the year 9999, since 1970."""
SESSION_BYTES: Final = 16
_PURPOSE: Final = b"ccbps token presented 1\0"
_FACT: Final = re.compile(r'(user|key|role)\("([^"\\]*)"\)')
_POLICY: Final = re.compile(r"policy\((\d{1,19})\)")
_TIME: Final = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
_VALID: Final = re.compile(rf"valid\(({_TIME}), ({_TIME})\)")
_ACTIONS_CHECK: Final = re.compile(
    r'check if action\(\$a\), \[((?:"[a-z]+"(?:, )?)*)\]\.contains\(\$a\)'
)
_TIME_CHECK: Final = re.compile(rf"check if time\(\$t\), \$t <= ({_TIME})")


def _biscuit() -> Any:
    try:
        import biscuit_auth
    except ImportError:
        raise ImportError(
            "tokens need biscuit-python: pip install 'ccbps[access]' brings it"
        ) from None
    return biscuit_auth


@dataclass(frozen=True)
class Token:
    """A token that was read: the authority's statements, less the rights that attenuations removed.

    Attributes:
        user: name of the user.
        key: identity of the key that the user must hold, 32 bytes.
        roles: roles that the token grants, sorted.
        policy: version of the policy when the token was issued.
        starts: first second at which it is valid, seconds since 1970.
        ends: last second at which it is valid, seconds since 1970.
        is_limited: True if an attenuation ends it earlier than the authority did.
        actions: actions that it still allows.
        numbers: names of the token and of its attenuations, for revocation: hexadecimal.
        digest: SHA-256 of the token's bytes.
    """

    user: str
    key: bytes
    roles: Roles
    policy: int
    starts: int
    ends: int
    is_limited: bool
    actions: frozenset[Action]
    numbers: tuple[str, ...]
    digest: bytes

    def check_time(self, now: float) -> None:
        """Refuse a token before and after its time.

        Raises:
            RefusedError: it is not valid yet, or ended.
        """
        if now < self.starts:
            raise RefusedError(f"the token of {self.user} does not count yet", reason="early")
        if now > self.ends:
            raise RefusedError(
                f"the token of {self.user} ended: have it renewed in time, or ask for another one",
                reason="expired",
            )


def issue_token(
    authority: SigningKey,
    user: str,
    key: bytes,
    roles: Collection[str],
    *,
    policy: int,
    starts: float,
    seconds: float,
) -> bytes:
    """Return a token for a user.

    Example:
        >>> from ccbps.access import issue_token, read_token
        >>> from ccbps.keys import SigningKey
        >>> authority, ann = SigningKey.generate(), SigningKey.generate()
        >>> token = issue_token(
        ...     authority, "ann", ann.identity, ["doctor"], policy=7, starts=1000, seconds=60
        ... )
        >>> read = read_token(token, authority.identity)
        >>> read.user, read.roles, read.ends
        ('ann', ('doctor',), 1060)

    Args:
        authority: the authority's key.
        user: name of the user.
        key: identity of the user's key, `SigningKey.identity`.
        roles: the user's roles.
        policy: version of the policy.
        starts: first second at which it is valid, seconds since 1970.
        seconds: seconds for which it is valid.

    Raises:
        ParameterError: an argument is out of its bounds, or the token would be too long.
        ImportError: biscuit-python, the extra ``access``, is missing.
    """
    biscuit = _biscuit()
    number("seconds", seconds, 1, LATEST)
    number("starts", starts, 0, LATEST - seconds)
    for name in (user, *roles):
        # biscuit shows quotes in texts as they are, so that they could end a text.
        if not name.isprintable() or {*name} & {*'"\\'}:
            raise ParameterError(
                "names of users and roles must be printable, without quotes and backslashes, got "
                f"{name!r}"
            )
    first, last = (_moment(time) for time in (int(starts), int(starts + seconds)))
    builder = biscuit.BiscuitBuilder(
        "user({user}); key({key}); policy({policy}); valid({first}, {last})",
        {
            "user": user,
            "key": octets("key", key, IDENTITY_BYTES).hex(),
            "policy": whole("policy", policy, 0, MOST_POLICY),
            "first": first,
            "last": last,
        },
    )
    for role in sorted(set(roles)):
        builder.add_fact(biscuit.Fact("role({role})", {"role": role}))
    secret = biscuit.PrivateKey.from_bytes(authority.export_secret(), biscuit.Algorithm.Ed25519)
    token = bytes(builder.build(secret).to_bytes())
    if len(token) > MOST_BYTES:
        raise ParameterError(
            f"a token has {MOST_BYTES} bytes at the most, got {len(token)}: name fewer roles"
        )
    return token


def attenuate_token(
    token: bytes,
    authority: bytes,
    *,
    actions: Iterable[Action] | None = None,
    until: float | None = None,
) -> bytes:
    """Return a token that allows less, without asking the authority.

    Example:
        >>> from ccbps.access import attenuate_token, issue_token, read_token
        >>> from ccbps.keys import SigningKey
        >>> key = SigningKey.generate()
        >>> token = issue_token(key, "ann", key.identity, [], policy=7, starts=1000, seconds=60)
        >>> less = attenuate_token(token, key.identity, actions=["receive"], until=1010)
        >>> sorted(read_token(less, key.identity).actions), read_token(less, key.identity).ends
        (['receive'], 1010)

    Args:
        token: the token.
        authority: identity of the authority's key.
        actions: actions that stay; None for all.
        until: last second at which the new token is valid, since 1970; None for no change.

    Raises:
        DecodeError: it is no token of this authority.
        ImportError: biscuit-python, the extra ``access``, is missing.
    """
    biscuit = _biscuit()
    builder = biscuit.BlockBuilder("")
    if actions is not None:
        kept = [choice("each of actions", one, ACTIONS) for one in actions]
        shown = ", ".join(f'"{one}"' for one in sorted(set(kept)))
        builder.add_check(biscuit.Check(f"check if action($a), [{shown}].contains($a)"))
    if until is not None:
        last = {"last": _moment(int(number("until", until, 0, LATEST)))}
        builder.add_check(biscuit.Check("check if time($t), $t <= {last}", last))
    if actions is None and until is None:
        raise ParameterError("name the actions that stay, or the time until which it counts")
    return bytes(_parsed(token, authority).append(builder).to_bytes())


def read_token(token: bytes, authority: bytes) -> Token:
    """Verify a token's signatures, and return its contents; its time is not checked.

    Args:
        token: untrusted bytes.
        authority: identity of the authority's key, 32 bytes.

    Raises:
        DecodeError: it is no token of this authority, or has blocks that mean something else.
        ImportError: biscuit-python, the extra ``access``, is missing.
    """
    parsed = _parsed(token, authority)
    blocks = parsed.block_count()
    if blocks > MOST_BLOCKS:
        raise _malformed()
    facts: dict[str, list[str]] = {"user": [], "key": [], "role": [], "policy": []}
    times: list[tuple[int, int]] = []
    for line in _lines(parsed.block_source(0)):
        if (fact := _FACT.fullmatch(line)) is not None:
            facts[fact[1]].append(fact[2])
        elif (policy := _POLICY.fullmatch(line)) is not None:
            facts["policy"].append(policy[1])
        elif (valid := _VALID.fullmatch(line)) is not None:
            times.append((_seconds(valid[1]), _seconds(valid[2])))
        else:
            raise _malformed()
    if any(len(facts[name]) != 1 for name in ("user", "key", "policy")) or len(times) != 1:
        raise _malformed()
    actions, (starts, latest) = frozenset(ACTIONS), times[0]
    ends = latest
    for place in range(1, blocks):
        if parsed.block_external_key(place) is not None:
            raise _malformed()
        for line in _lines(parsed.block_source(place)):
            if (check := _ACTIONS_CHECK.fullmatch(line)) is not None:
                actions &= {*re.findall(r'"([a-z]+)"', check[1])}
            elif (check := _TIME_CHECK.fullmatch(line)) is not None:
                ends = min(ends, _seconds(check[1]))
            else:
                raise _malformed()
    key = facts["key"][0]
    if not re.fullmatch("[0-9a-f]{64}", key):
        raise _malformed()
    return Token(
        facts["user"][0],
        bytes.fromhex(key),
        tuple(sorted(set(facts["role"]))),
        int(facts["policy"][0]),
        starts,
        ends,
        ends < latest,
        actions,
        tuple(str(one) for one in parsed.revocation_ids),
        sha256(token).digest(),
    )


class Presentation(Message, frozen=True):
    """A token with the proof that its sender holds the key that it names.

    Attributes:
        token: the token.
        counter: number that grows with each presentation of a session.
        signature: signature by the token's key.
    """

    front: ClassVar[bytes] = bytes([Kind.PRESENTATION, 1])
    what: ClassVar[str] = "a presentation of a token"
    token: Annotated[bytes, Meta(max_length=MOST_BYTES)]
    counter: Number
    signature: Signature

    def user(self, authority: bytes) -> str:
        """Return the name of the token's user; nothing else is checked.

        Raises:
            DecodeError: the token is malformed, or not of this authority.
        """
        return read_token(self.token, authority).user

    def verified(self, authority: bytes, session: bytes, client: str, now: float) -> Token:
        """Return the token, if its sender holds its key and its time is now.

        Args:
            authority: identity of the authority's key.
            session: the broker's session, 16 bytes.
            client: name under which the sender is connected.
            now: seconds since 1970.

        Raises:
            DecodeError: the token is malformed, or not of this authority.
            RefusedError: the proof is missing, the token is another user's, or not of this time.
        """
        token = read_token(self.token, authority)
        signed = _proof(session, client, self.counter, token.digest)
        if not signed_by(token.key, signed, self.signature):
            raise RefusedError(
                "the token's key did not sign this presentation for this session of the broker",
                reason="proof",
            )
        if token.user != client:
            raise RefusedError(f"the token is not that of {client}", reason="user")
        token.check_time(now)
        return token


def present_token(
    token: bytes, key: SigningKey, session: bytes, client: str, counter: int
) -> Presentation:
    """Return a token with the proof that the caller holds its key.

    Args:
        token: the token.
        key: the user's key.
        session: the broker's session, 16 bytes; a broker that starts again has another one.
        client: name under which the caller is connected to the broker.
        counter: a number greater than those of earlier presentations of the session.
    """
    digest = sha256(octets("token", token)).digest()
    octets("session", session, SESSION_BYTES)
    signature = key.sign(_proof(session, client, whole("counter", counter, 0), digest))
    return Presentation(token, counter, signature)


def _proof(session: bytes, client: str, counter: int, digest: bytes) -> bytes:
    name = client.encode()
    return b"".join([_PURPOSE, session, len(name).to_bytes(2), name, counter.to_bytes(8), digest])


def _parsed(token: bytes, authority: bytes) -> Any:
    biscuit = _biscuit()
    octets("authority", authority, IDENTITY_BYTES, hint="the authority's .identity")
    if not isinstance(token, bytes) or len(token) > MOST_BYTES:
        raise _malformed()
    public = biscuit.PublicKey.from_bytes(authority, biscuit.Algorithm.Ed25519)
    try:
        return biscuit.Biscuit.from_bytes(token, public)
    except biscuit.BiscuitValidationError:
        pass
    raise _malformed()


def _malformed() -> DecodeError:
    return DecodeError("not a token of this authority, cut off, or attenuated in an unknown way")


def _lines(source: str) -> list[str]:
    """Return the statements of a block as biscuit writes them, one a line."""
    return [line.removesuffix(";") for line in source.split("\n") if line]


def _moment(seconds: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)


def _seconds(text: str) -> int:
    try:
        return int(datetime.datetime.fromisoformat(text).timestamp())
    except ValueError:
        pass
    raise _malformed()
