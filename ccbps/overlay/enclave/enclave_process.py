"""Inside of a simulated enclave: a process that alone holds secrets and whole fragments.

`ccbps.overlay.enclave.enclave` starts it. It reads requests from its standard input and answers on
its standard output. Only ciphertexts and public values come in and go out. The reason for which it
refuses a request holds no part of a secret.

Replicas of an enclave have one seed, which leaves them only in a session between two of them. The
coins of a split are a pseudorandom function, under the seed, of the secret's name *and value*. So
replicas that joined the same secret send the same fragments. If the coins depended on the name
alone, the seed and one fragment would give the secret at any later time, and two secrets of one
name would reveal their difference. With the value, seed and fragment only confirm a guess of the
secret.

Messages on a pipe are frames: four bytes of length, little-endian, and as many bytes.
"""

from __future__ import annotations

import os
import sys
from hashlib import blake2b
from typing import IO, Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from msgspec.structs import replace

from ccbps.arrays import Randomness
from ccbps.ciphers.signatures import signed_by
from ccbps.errors import DecodeError
from ccbps.overlay.enclave.attestation import (
    CHALLENGE_BYTES,
    ENCLAVE,
    OPENING,
    Challenger,
    Opening,
    Policy,
    Quote,
)
from ccbps.overlay.enclave.sessions import (
    WAITING,
    SealedFragment,
    Session,
    derive_keys,
    forget_oldest,
)
from ccbps.overlay.splits.fragments import Fragment, join_fragments
from ccbps.records import read, write
from ccbps.sharing.share import NAME_BYTES

DONE: Final = b"\0"
"""First byte of an answer; its parts follow."""
REFUSED: Final = b"\1"
"""First byte of a refusal; the reason and the places of the refused ciphertexts follow."""
FAILED: Final = b"\2"
"""Answer after an internal error, whose text stays inside."""
LENGTH_BYTES: Final = 4
SEED_BYTES: Final = 32
MOST_BYTES: Final = 1 << 24
"""Largest length of a frame. Otherwise an invented length could take all memory."""


def write_frame(to: IO[bytes], message: bytes) -> None:
    """Write a frame, and send it."""
    to.write(len(message).to_bytes(LENGTH_BYTES, "little") + message)
    to.flush()


def read_frame(source: IO[bytes]) -> bytes | None:
    """Read the message of the next frame; return None if there are no more.

    Raises:
        DecodeError: the frame was cut off, or is too long.
    """
    head = source.read(LENGTH_BYTES)
    if not head:
        return None
    size = int.from_bytes(head, "little")
    if len(head) < LENGTH_BYTES or size > MOST_BYTES:
        raise DecodeError(f"a frame has a length of 4 bytes, at most {MOST_BYTES}")
    message = source.read(size) or b""
    if len(message) < size:
        raise DecodeError(f"a frame of {size} bytes was cut off at {len(message)}")
    return message


def common_coins(seed: bytes, secret: Fragment) -> Randomness:
    """Return the source of randomness with which all replicas split a secret."""
    key = blake2b(write((secret.name, secret.value)), key=seed, digest_size=32).digest()
    stream = Cipher(AES256(key), CTR(bytes(16))).encryptor()
    return lambda count: stream.update(bytes(count))


class _Inside(Challenger):
    """State of an enclave, and its answers to requests."""

    def __init__(self, name: str, policy: Policy) -> None:
        super().__init__(policy)
        self.name = name
        self.pending: dict[bytes, tuple[X25519PrivateKey, Quote]] = {}
        # Sessions by their names, with the member at the other end; and by this member.
        self.sessions: dict[bytes, tuple[str, Session]] = {}
        self.to: dict[str, list[Session]] = {}
        self.done: dict[bytes, None] = {}
        self.seed = b""
        requests = "report open challenge_for accept give_seed take_seed regenerate"
        self.requests = {name.encode(): getattr(self, name) for name in requests.split()}

    def handle(self, message: bytes) -> bytes:
        """Answer a request."""
        try:
            name, *parts = read(list[bytes], message, refusal="not a request, or cut off")
            return DONE + write(self.requests[name](*parts))
        except DecodeError as error:
            return REFUSED + write((str(error), error.rows))
        except Exception:  # its text may name a secret
            return FAILED

    def report(self, challenge: bytes) -> list[bytes]:
        """Make a fresh public key, for the platform to sign."""
        if len(challenge) != CHALLENGE_BYTES:
            raise DecodeError(f"a challenge has {CHALLENGE_BYTES} bytes, got {len(challenge)}")
        key = X25519PrivateKey.generate()
        public = key.public_key().public_bytes_raw()
        quote = Quote(self.policy.measurement, self.policy.digest(), self.name, public, challenge)
        self.pending[public] = key, quote
        return [public]

    def open(self, message: bytes) -> list[bytes]:
        """Open a session, after checking the other end's identity."""
        opening = Opening.from_bytes(message)
        name, public = opening.name, opening.public
        if opening.enclave not in self.pending:
            raise DecodeError("an opening for no quote of this enclave, or for a used one: replay")
        key, quote = self.pending[opening.enclave]
        identity = self.policy.members.get(name)
        if identity is None:
            raise DecodeError(f"{name!r} is no member of this enclave's policy")
        if identity == ENCLAVE:
            if self.policy.check(opening.proof, name, quote.digest()).public != public:
                raise DecodeError(f"the opening of {name!r} has another key than its quote")
        elif not signed_by(identity, OPENING + quote.digest() + public, opening.proof):
            raise DecodeError(f"an opening that was altered, or is not signed by {name!r}")
        keys = derive_keys(key, public, quote.digest(), opening.enclave + public)
        del self.pending[opening.enclave]
        self.keep(name, Session(keys, enclave=True, window=self.policy.window))
        return []

    def challenge_for(self, enclave: bytes) -> list[bytes]:
        """Make a challenge for another enclave."""
        return [self.challenge(enclave.decode())]

    def accept(self, enclave: bytes, message: bytes) -> list[bytes]:
        """Check another enclave's quote; return parts of the opening, for the platform to sign."""
        session, quote, public = self.agree(enclave.decode(), message)
        self.keep(enclave.decode(), session)
        return [quote.public, public, quote.digest()]

    def keep(self, name: str, session: Session) -> None:
        """Keep the session of a member, and of its earlier ones as many as it has replicas."""
        kept = [*self.to.get(name, []), session]
        copies = self.policy.copies(name)
        for old in kept[:-copies]:
            del self.sessions[old.name]
        self.to[name], self.sessions[session.name] = kept[-copies:], (name, session)

    def give_seed(self) -> list[bytes]:
        """Encrypt the seed of common coins, drawn if need be, for the replica that came last."""
        if self.policy.copies(self.name) == 1 or self.name not in self.to:
            raise DecodeError(f"no session with a replica of {self.name!r}: introduce one")
        self.seed = self.seed or os.urandom(SEED_BYTES)
        # The session of two replicas carries nothing else, since neither is a source of the other.
        return [self.to[self.name][-1].seal(Fragment(bytes(NAME_BYTES), 1, (), self.seed))]

    def take_seed(self, message: bytes) -> list[bytes]:
        """Take the seed of common coins from a replica, once."""
        sender, session = self.sessions.get(SealedFragment.from_bytes(message).session, ("", None))
        if session is None or sender != self.name:
            raise DecodeError(f"a seed of common coins that is of no replica of {self.name!r}")
        seed = session.open(message).value
        if self.seed not in (b"", seed):
            raise DecodeError("this replica has another seed of common coins: start a new one")
        self.seed = seed
        return []

    def regenerate(self, *ciphertexts: bytes) -> list[bytes]:
        """Join the fragments, split the secret afresh, and encrypt it for the next hop."""
        opened = self.open_all(ciphertexts)
        value = join_fragments(opened.values(), self.policy.agreed(self.name))
        secret = replace(next(iter(opened.values())), path=(), value=value)
        if secret.name in self.done:
            # The host could mix the fragments of two splits of one secret.
            raise DecodeError("a replay: this secret was regenerated before")
        route = self.policy.routes[self.name]
        missing = [
            name
            for name in dict.fromkeys(route)
            if len(self.to.get(name, [])) < self.policy.copies(name)
        ]
        if missing:
            raise DecodeError(f"no session with {missing}: they have to attest this enclave first")
        randomness: Randomness = os.urandom
        if self.policy.copies(self.name) > 1:
            if not self.seed:
                raise DecodeError(
                    "this replica has no seed of common coins, and would split in its own way: "
                    "replicate()"
                )
            randomness = common_coins(self.seed, secret)
        whole = len(route) == 1
        parts = [secret] if whole else secret.split(self.policy.n, randomness=randomness)
        for sealed in opened:
            self.sessions[sealed.session][1].spend(sealed)
        self.done[secret.name] = None
        forget_oldest(self.done, WAITING)
        return [
            session.seal(part)
            for name, part in zip(route, parts, strict=True)
            for session in self.to[name]
        ]

    def open_all(self, ciphertexts: tuple[bytes, ...]) -> dict[SealedFragment, Fragment]:
        """Decrypt all fragments. None of the messages is spent yet."""
        opened: dict[SealedFragment, Fragment] = {}
        causes: dict[int, str] = {}
        secret = b""
        for row, message in enumerate(ciphertexts):
            try:
                sealed = SealedFragment.from_bytes(message)
                if sealed.session not in self.sessions:
                    raise DecodeError(f"no session {sealed.session.hex()} at this enclave")
                if sealed in opened:
                    raise DecodeError("a replay: this message came twice")
                sender, session = self.sessions[sealed.session]
                fragment = session.peek(sealed)
                misfit = self.policy.misfit(self.name, sender, fragment)
                if misfit or secret not in (b"", fragment.name):
                    raise DecodeError(misfit or "a fragment of another secret")
                secret, opened[sealed] = fragment.name, fragment
            except DecodeError as error:
                causes[row] = str(error)
        if causes:
            row = min(causes)
            raise DecodeError(
                f"ciphertext {row}: {causes[row]}; {len(causes)} of {len(ciphertexts)} are "
                "refused, none was used up: send the others",
                rows=tuple(causes),
            )
        if not opened:
            raise DecodeError("no fragments: a secret needs at least one")
        return opened


def main() -> None:
    """Answer requests until there are no more."""
    source, to = sys.stdin.buffer, sys.stdout.buffer
    first = read_frame(source)
    if first is None:
        return
    name, policy = read(tuple[str, bytes], first, refusal="not the start of an enclave")
    inside = _Inside(name, Policy.from_bytes(policy))
    while (message := read_frame(source)) is not None:
        write_frame(to, inside.handle(message))


if __name__ == "__main__":
    main()
