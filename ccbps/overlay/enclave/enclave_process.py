"""What runs inside a simulated enclave: a process that alone holds secrets and whole fragments.

It is started by `ccbps.overlay.enclave.enclave`, reads requests from its standard input and answers
on its standard output, in frames. Ciphertexts and public values come in and go out, nothing else.
What it answers to a request that it refuses says why, in words that hold no part of a secret.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from ccbps.ciphers.signatures import signed_by
from ccbps.errors import DecodeError
from ccbps.overlay.enclave.attestation import (
    CHALLENGE_BYTES,
    ENCLAVE,
    OPENING,
    Policy,
    Quote,
    answer,
)
from ccbps.overlay.enclave.frames import pack, read_frame, unpack, write_frame
from ccbps.overlay.enclave.sessions import Session, derive_keys, read_sealed
from ccbps.overlay.splits.fragments import Fragment, join_fragments
from ccbps.records import write

DONE: Final = b"\0"
REFUSED: Final = b"\1"
"""With the reason, and positions of the ciphertexts that were refused."""
FAILED: Final = b"\2"
"""An error that is not the caller's; its text stays inside."""
MOST_DONE: Final = 1 << 16
"""Names of secrets that were regenerated, which are remembered."""


class _Inside:
    """An enclave's state, and its answers to requests."""

    def __init__(self, name: str, policy: Policy) -> None:
        self.name, self.policy = name, policy
        self.pending: dict[bytes, tuple[X25519PrivateKey, Quote]] = {}
        self.challenges: dict[str, bytes] = {}
        self.sessions: dict[bytes, Session] = {}
        self.to: dict[str, Session] = {}
        self.done: dict[bytes, None] = {}
        self.requests: dict[bytes, Callable[[list[bytes]], list[bytes]]] = {
            b"report": self.report,
            b"open": self.open,
            b"challenge": self.challenge,
            b"accept": self.accept,
            b"regenerate": self.regenerate,
        }

    def handle(self, message: bytes) -> bytes:
        """The answer to a request: what became of it, and its parts."""
        try:
            name, *parts = unpack(message)
            return DONE + pack(self.requests[name](parts))
        except DecodeError as wrong:
            return REFUSED + write((str(wrong), wrong.rows))
        except Exception:  # whatever it says may name a secret
            return FAILED

    def report(self, parts: list[bytes]) -> list[bytes]:
        """A fresh public key, for the platform to sign."""
        (challenge,) = parts
        if len(challenge) != CHALLENGE_BYTES:
            raise DecodeError(f"a challenge has {CHALLENGE_BYTES} bytes, got {len(challenge)}")
        key = X25519PrivateKey.generate()
        public = key.public_key().public_bytes_raw()
        quote = Quote(self.policy.measurement, self.policy.digest(), self.name, public, challenge)
        self.pending[public] = key, quote
        return [public]

    def open(self, parts: list[bytes]) -> list[bytes]:
        """The enclave's end of a session, after it has checked whose the other end is."""
        own_public, raw_name, public, proof = unpack(parts[0], 4)
        name = raw_name.decode(errors="replace")
        if own_public not in self.pending:
            raise DecodeError("an opening for no quote of this enclave, or for a used one: replay")
        key, quote = self.pending[own_public]
        identity = self.policy.members.get(name)
        if identity is None:
            raise DecodeError(f"{name!r} is no member of this enclave's policy")
        if identity == ENCLAVE:
            if self.policy.check(proof, name, quote.digest()).public != public:
                raise DecodeError(f"the opening of {name!r} has another key than its quote")
        elif not signed_by(identity, OPENING + quote.digest() + public, proof):
            raise DecodeError(f"an opening that was altered, or is not signed by {name!r}")
        keys = derive_keys(key, public, quote.digest(), own_public + public)
        del self.pending[own_public]
        self.keep(name, Session(keys, enclave=True))
        return []

    def challenge(self, parts: list[bytes]) -> list[bytes]:
        """A challenge for another enclave."""
        (name,) = parts
        self.challenges[name.decode()] = os.urandom(CHALLENGE_BYTES)
        return [self.challenges[name.decode()]]

    def accept(self, parts: list[bytes]) -> list[bytes]:
        """After another enclave's quote: what its opening needs, for the platform to sign."""
        raw_name, message = parts
        name = raw_name.decode()
        if name not in self.challenges:
            raise DecodeError(f"no challenge was sent to {name!r}: a quote answers one")
        quote = self.policy.check(message, name, self.challenges.pop(name))
        keys, public = answer(quote)
        self.keep(name, Session(keys, enclave=False))
        return [quote.public, public, quote.digest()]

    def keep(self, name: str, session: Session) -> None:
        """A member has one session; a new one takes the old one's place."""
        if name in self.to:
            del self.sessions[self.to[name].name]
        self.to[name] = self.sessions[session.name] = session

    def regenerate(self, ciphertexts: list[bytes]) -> list[bytes]:
        """Join the fragments, split the secret afresh, and encrypt for the next hop."""
        fragments = self.open_all(ciphertexts)
        secret = replace(
            fragments[0],
            path=(),
            value=join_fragments(fragments, self.policy.agreed(self.name)),
        )
        if secret.name in self.done:
            # Of two splits of one secret, the host could mix the fragments.
            raise DecodeError("a replay: this secret was regenerated before")
        route = self.policy.routes[self.name]
        missing = [name for name in dict.fromkeys(route) if name not in self.to]
        if missing:
            raise DecodeError(f"no session with {missing}: they have to attest this enclave first")
        out = [secret] if len(route) == 1 else secret.split(self.policy.n)
        for message in ciphertexts:
            self.sessions[read_sealed(message)[0]].spend(message)
        self.done[secret.name] = None
        while len(self.done) > MOST_DONE:
            del self.done[next(iter(self.done))]
        return [self.to[name].seal(part) for name, part in zip(route, out, strict=True)]

    def open_all(self, ciphertexts: list[bytes]) -> list[Fragment]:
        """The fragments; none of the messages is spent yet."""
        fragments: list[Fragment] = []
        refused: list[int] = []
        causes: list[str] = []
        for row, message in enumerate(ciphertexts):
            try:
                name, _ = read_sealed(message)
                if name not in self.sessions:
                    raise DecodeError(f"no session {name.hex()} at this enclave")
                if message in ciphertexts[:row]:
                    raise DecodeError("a replay: this message came twice")
                fragment = self.sessions[name].peek(message)
                sender = next(one for one, session in self.to.items() if session.name == name)
                wrong_because = self.policy.misfit(self.name, sender, fragment)
                if wrong_because or (fragments and fragment.name != fragments[0].name):
                    raise DecodeError(wrong_because or "a fragment of another secret")
                fragments.append(fragment)
            except DecodeError as wrong:
                refused.append(row)
                causes.append(str(wrong))
        if refused:
            raise DecodeError(
                f"ciphertext {refused[0]}: {causes[0]}; {len(refused)} of {len(ciphertexts)} are "
                "refused, none was used up: send the others",
                rows=tuple(refused),
            )
        if not fragments:
            raise DecodeError("no fragments: a secret needs at least one")
        return fragments


def main() -> None:
    """Answer requests until there are no more."""
    source, to = sys.stdin.buffer, sys.stdout.buffer
    first = read_frame(source)
    if first is None:
        return
    name, policy = unpack(first, 2)
    inside = _Inside(name.decode(), Policy.from_bytes(policy))
    while (message := read_frame(source)) is not None:
        write_frame(to, inside.handle(message))


if __name__ == "__main__":
    main()
