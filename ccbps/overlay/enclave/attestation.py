"""Attestation: a party learns which code an enclave runs, and agrees on a session key with it.

========  =========================  ===================================================
step      message                    who checks what
========  =========================  ===================================================
1         challenge, 32 bytes        fresh, from the party that will trust the enclave
2         quote: measurement,        the platform signs what it measured when it started
          policy, name, public key,  the enclave; the party checks the signature, the
          challenge, signature       measurement, the policy, the name and its challenge
3         opening: both public       the enclave checks that the party is a member of its
          keys, name, proof          policy: a signature, or the quote of another enclave
4         keys                       X25519, and HKDF bound to the quote and both keys
========  =========================  ===================================================

The platform's public key stands for the service that says which keys real hardware has. Step 3 is
not in the source. Without it, whoever runs an enclave could take the place of the next hop and
have the secret encrypted for himself; for the same reason an enclave's recipients are part of its
policy, and not of requests.

Source: [Survey] section 2.2.1; message formats are this package's own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Annotated, ClassVar, Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from msgspec import Meta
from msgspec.structs import replace

from ccbps.arrays import Randomness
from ccbps.ciphers.signatures import SigningKey, check_identity, signed_by
from ccbps.errors import DecodeError, ParameterError
from ccbps.keys.secret import Confined
from ccbps.overlay.enclave.frames import pack
from ccbps.overlay.enclave.sessions import Session, derive_keys
from ccbps.overlay.splits.fragments import Agreed, Fragment
from ccbps.records import Message
from ccbps.sharing.share import check_threshold

CHALLENGE_BYTES: Final = 32
ENCLAVE: Final = b""
"""In place of an identity: this member is an enclave, and proves itself by a quote."""
OPENING: Final = b"ccbps simulated enclave opening\0"
QUOTE: Final = b"ccbps simulated enclave quote\0"


def measure(package: Path | None = None) -> bytes:
    """SHA-256 of the code that enclaves run.

    That is the source of this whole package: importing a part of it runs more than the part. The
    interpreter, NumPy and cryptography are not measured.

    Args:
        package: the folder of the package's source; this one's by default.
    """
    folder = package or Path(__file__).parents[2]
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.py")}
    parts = [part for name in sorted(found) for part in (name.encode(), found[name].read_bytes())]
    return sha256(pack(parts)).digest()


class Policy(Message, frozen=True):
    """What all members of a network agree on before they trust an enclave. Public.

    Attributes:
        platform: the simulated platform's public key, 32 bytes.
        measurement: of the code that enclaves run, 32 bytes: see `measure`.
        k: fragments of each split that are needed.
        n: fragments an enclave splits a secret into.
        members: names and identities of those who may have sessions with enclaves; `ENCLAVE` for
            another enclave.
        routes: of each enclave, to whom it sends: n names, of which the first gets the first
            fragment, and so on; or one name, which gets the whole secret.
        sources: of each enclave, who sends to it: n names, of which the first sends fragments of
            point 1, and so on; or one name, which sends all.
        splits: of each enclave, how often fragments were split before they come to it.
        checked: whether fragments carry checks of one another.
    """

    front: ClassVar[bytes] = b""
    what: ClassVar[str] = "a policy"
    platform: bytes
    measurement: bytes
    k: int
    n: int
    members: Mapping[str, bytes]
    routes: Mapping[str, tuple[str, ...]]
    sources: Mapping[str, tuple[str, ...]]
    splits: Mapping[str, Annotated[int, Meta(ge=0, le=255)]]
    checked: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_threshold(self.k, self.n, 255)
        check_identity(self.platform)
        for name, identity in self.members.items():
            if identity != ENCLAVE:
                check_identity(identity)
            elif not {name} <= {*self.routes} & {*self.sources} & {*self.splits}:
                raise ParameterError(
                    f"enclave {name!r} needs routes, sources and splits: to whom it sends, who "
                    "sends to it, and what"
                )
        for what, ways in (("routes", self.routes), ("sources", self.sources)):
            for name, others in ways.items():
                if self.members.get(name) != ENCLAVE:
                    raise ParameterError(f"{name!r} is in {what}, and not among members as ENCLAVE")
                if len(others) not in (1, self.n) or not {*others} <= {*self.members}:
                    raise ParameterError(
                        f"{what} of {name!r} must be one member or {self.n}, got {[*others]}"
                    )

    def agreed(self, enclave: str) -> Agreed:
        """What an enclave expects of fragments."""
        return Agreed(self.k, self.n, self.splits[enclave], self.checked)

    def misfit(self, enclave: str, sender: str, fragment: Fragment) -> str | None:
        """Why an enclave does not take a fragment from a sender; None if it does."""
        sources = self.sources[enclave]
        if sender not in sources:
            return f"{sender!r} does not send to {enclave!r}"
        number = sources.index(sender) + 1 if len(sources) > 1 else None
        return self.agreed(enclave).misfit(fragment, number)

    def digest(self) -> bytes:
        """32 bytes that stand for the policy in quotes."""
        return sha256(self.to_bytes()).digest()

    def check(self, quote: bytes, enclave: str, challenge: bytes) -> Quote:
        """Read a quote and check it.

        Args:
            quote: the message.
            enclave: whose quote it must be.
            challenge: which was sent for it.

        Raises:
            DecodeError: it is not this enclave's answer to the challenge, signed by the platform,
                of an enclave with this code and policy.
        """
        read = Quote.from_bytes(quote)
        if not signed_by(self.platform, QUOTE + read.body(), read.signature):
            raise DecodeError("a quote that was altered, or is not signed by the trusted platform")
        if read.measurement != self.measurement:
            raise DecodeError(
                f"an enclave with other code: its measurement is {read.measurement.hex()[:16]}..., "
                f"and {self.measurement.hex()[:16]}... was expected"
            )
        if (read.policy, read.enclave) != (self.digest(), enclave):
            raise DecodeError(f"an enclave with another policy, or another one than {enclave!r}")
        if read.challenge != challenge:
            raise DecodeError("a quote for another challenge: an old one was replayed")
        return read


class Quote(Message, frozen=True):
    """What the platform says about an enclave.

    Attributes:
        measurement: of its code.
        policy: the digest of its policy.
        enclave: its name.
        public: its X25519 public key, for one session.
        challenge: that it answers.
        signature: the platform's.
    """

    front: ClassVar[bytes] = b""
    what: ClassVar[str] = "a quote"
    measurement: bytes
    policy: bytes
    enclave: str
    public: bytes
    challenge: bytes
    signature: bytes = b""

    def body(self) -> bytes:
        """What is signed."""
        return replace(self, signature=b"").to_bytes()

    def digest(self) -> bytes:
        """What session keys are bound to."""
        return sha256(QUOTE + self.body()).digest()

    def signed(self, platform: SigningKey) -> bytes:
        """The quote as a message, with the platform's signature."""
        return replace(self, signature=platform.sign(QUOTE + self.body())).to_bytes()


class Member(Confined):
    """A party that talks to enclaves: a broker, a publisher or a subscriber.

    Attributes:
        name: in the policy.
    """

    def __init__(self, name: str, key: SigningKey, policy: Policy) -> None:
        """
        Raises:
            ParameterError: the policy has no such member, or it has another identity.
        """
        if policy.members.get(name) != key.identity:
            raise ParameterError(f"the policy has no member {name!r} with this key's identity")
        self.name, self._key, self._policy = name, key, policy
        self._challenges: dict[str, bytes] = {}

    def __repr__(self) -> str:
        return f"<Member {self.name}>"

    def challenge(self, enclave: str, *, randomness: Randomness = os.urandom) -> bytes:
        """A fresh challenge for an enclave; the last one counts, and once."""
        self._challenges[enclave] = randomness(CHALLENGE_BYTES)
        return self._challenges[enclave]

    def accept(self, enclave: str, quote: bytes) -> tuple[Session, bytes]:
        """Check the quote that came for the challenge.

        Returns:
            This end of the session, and the opening: for the enclave, which has the other end.

        Raises:
            DecodeError: see `Policy.check`; or no challenge was sent.
        """
        if enclave not in self._challenges:
            raise DecodeError(f"no challenge was sent to {enclave!r}: a quote answers one")
        seen = self._policy.check(quote, enclave, self._challenges.pop(enclave))
        keys, public = answer(seen)
        proof = self._key.sign(OPENING + seen.digest() + public)
        return Session(keys, enclave=False), pack([seen.public, self.name.encode(), public, proof])


def answer(quote: Quote) -> tuple[tuple[bytes, bytes, bytes], bytes]:
    """Keys of a session with the enclave of a checked quote, and the fresh public key it needs."""
    own = X25519PrivateKey.generate()
    public = own.public_key().public_bytes_raw()
    return derive_keys(own, quote.public, quote.digest(), quote.public + public), public
