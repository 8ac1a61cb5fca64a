"""Attestation: a party verifies the code that an enclave runs, and agrees on a session key with it.

========  =========================  ===================================================
step      message                    checks
========  =========================  ===================================================
1         challenge, 32 bytes        fresh, from the party that will trust the enclave
2         quote: measurement,        the platform signs what it measured when it started
          policy, name, public key,  the enclave; the party checks the signature, the
          challenge, signature       measurement, the policy, the name and its challenge
3         opening: both public       the enclave checks that the party is a member of its
          keys, name, proof          policy: a signature, or the quote of another enclave
4         keys                       X25519, and HKDF bound to the quote and both keys
========  =========================  ===================================================

The platform's public key stands for the service that certifies the keys of real hardware. Step 3 is
not in the source. Without it, the host of an enclave could take the place of the next hop and have
the secret encrypted for himself. For the same reason the recipients of an enclave are part of its
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
from ccbps.ciphers.signatures import check_identity, signed_by
from ccbps.errors import DecodeError, ParameterError
from ccbps.keys.plain_key import SigningKey
from ccbps.keys.secret import Confined
from ccbps.overlay.enclave.sessions import MOST_WINDOW, WAITING, Session, derive_keys
from ccbps.overlay.splits.fragments import Agreed, Fragment
from ccbps.records import Message, write
from ccbps.sharing.share import check_threshold

CHALLENGE_BYTES: Final = 32
ENCLAVE: Final = b""
"""Identity of members that are enclaves, which prove themselves by quotes."""
OPENING: Final = b"ccbps simulated enclave opening\0"
QUOTE: Final = b"ccbps simulated enclave quote\0"


def measure(package: Path | None = None) -> bytes:
    """Compute the SHA-256 of the code that enclaves run.

    It covers the source of this whole package, since importing a part of it runs more than that
    part. The interpreter, NumPy and cryptography are not measured.

    Args:
        package: folder of the package's source; this package's by default.
    """
    folder = package or Path(__file__).parents[2]
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.py")}
    return sha256(write([(name, files[name].read_bytes()) for name in sorted(files)])).digest()


class Policy(Message, frozen=True):
    """Public agreement of all members of a network, before they trust an enclave.

    Attributes:
        platform: public key of the simulated platform, 32 bytes.
        measurement: `measure` of the code that enclaves run, 32 bytes.
        k: number of fragments of each split that are needed.
        n: number of fragments into which an enclave splits a secret.
        members: identities of the parties that may have sessions with enclaves, by name; `ENCLAVE`
            for another enclave.
        routes: receivers of each enclave: n names for fragments 1 to n, or one name for the whole
            secret.
        sources: senders to each enclave: n names, of which the first sends fragments of point 1,
            and so on; or one name, which sends all fragments.
        splits: number of splits that fragments went through before they arrive at each enclave.
        checked: True if fragments carry checks of one another.
        replicas: number of replicas of enclaves, by name; 1 if missing. Replicas split secrets with
            common coins, so receivers may take each fragment from any of them.
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
    replicas: Mapping[str, Annotated[int, Meta(ge=1, le=255)]] = {}

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
        for name in self.replicas:
            if self.members.get(name) != ENCLAVE:
                raise ParameterError(f"{name!r} is in replicas, and not among members as ENCLAVE")
        for argument, ways in (("routes", self.routes), ("sources", self.sources)):
            for name, others in ways.items():
                if self.members.get(name) != ENCLAVE:
                    raise ParameterError(
                        f"{name!r} is in {argument}, and not among members as ENCLAVE"
                    )
                if len(others) not in (1, self.n) or not {*others} <= {*self.members} - {name}:
                    raise ParameterError(
                        f"{argument} of {name!r} must be one other member or {self.n}, got "
                        f"{[*others]}"
                    )

    def copies(self, name: str) -> int:
        """Return the number of replicas of a member: 1 for all but replicated enclaves."""
        return self.replicas.get(name, 1)

    def agreed(self, enclave: str) -> Agreed:
        """Return the parameters that an enclave expects of fragments."""
        return Agreed(self.k, self.n, self.splits[enclave], self.checked)

    @property
    def window(self) -> int:
        """Number of messages of a session by which another one may be overtaken.

        A receiver waits for the fragments of up to `WAITING` secrets, of each of which one sender
        may have several. All of these may overtake a message.
        """
        each = max([self.n, *(int(self.n**splits) for splits in self.splits.values())])
        return min(WAITING * each, MOST_WINDOW)

    def misfit(self, enclave: str, sender: str, fragment: Fragment) -> str | None:
        """Explain why an enclave does not accept a fragment from a sender; return None if it does.

        Args:
            enclave: name of the enclave.
            sender: name of the sender.
            fragment: fragment that arrived.
        """
        sources = self.sources[enclave]
        if sender not in sources:
            return f"{sender!r} does not send to {enclave!r}"
        number = sources.index(sender) + 1 if len(sources) > 1 else None
        return self.agreed(enclave).misfit(fragment, number)

    def digest(self) -> bytes:
        """Hash the policy to 32 bytes, which stand for it in quotes."""
        return sha256(self.to_bytes()).digest()

    def check(self, quote: bytes, enclave: str, challenge: bytes) -> Quote:
        """Read a quote and check it.

        Args:
            quote: message of a quote.
            enclave: name of the enclave whose quote it must be.
            challenge: challenge that was sent for it.

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
    """Signed statement of the platform about an enclave.

    Attributes:
        measurement: measurement of its code.
        policy: digest of its policy.
        enclave: name of the enclave.
        public: X25519 public key of the enclave, for one session.
        challenge: challenge that the quote answers.
        signature: signature of the platform.
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
        """Return the bytes that are signed."""
        return replace(self, signature=b"").to_bytes()

    def digest(self) -> bytes:
        """Hash the quote to 32 bytes, to which session keys are bound."""
        return sha256(QUOTE + self.body()).digest()

    def signed(self, platform: SigningKey) -> bytes:
        """Return the quote as a message with the platform's signature."""
        return replace(self, signature=platform.sign(QUOTE + self.body())).to_bytes()


class Opening(Message, frozen=True):
    """Message with which a party opens a session.

    Attributes:
        enclave: public key of the enclave, from its quote.
        name: name of the party.
        public: public key of the party.
        proof: signature of the party, or the quote of another enclave.
    """

    front: ClassVar[bytes] = b""
    what: ClassVar[str] = "an opening"
    enclave: bytes
    name: str
    public: bytes
    proof: bytes


class Challenger(Confined):
    """Party that sends challenges to enclaves, and checks their quotes.

    Args:
        policy: agreement of all members.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._challenges: dict[str, bytes] = {}

    def challenge(self, enclave: str, *, randomness: Randomness = os.urandom) -> bytes:
        """Return a fresh challenge for an enclave. Only the last one is valid, once."""
        self._challenges[enclave] = randomness(CHALLENGE_BYTES)
        return self._challenges[enclave]

    def agree(self, enclave: str, quote: bytes) -> tuple[Session, Quote, bytes]:
        """Check the quote that answers the challenge, and agree on the keys of a session.

        Returns:
            this end of the session, the quote, and a fresh public key that the enclave needs.

        Raises:
            DecodeError: no challenge was sent, or the quote does not answer it (`Policy.check`).
        """
        if enclave not in self._challenges:
            raise DecodeError(f"no challenge was sent to {enclave!r}: a quote answers one")
        checked = self.policy.check(quote, enclave, self._challenges.pop(enclave))
        own = X25519PrivateKey.generate()
        public = own.public_key().public_bytes_raw()
        keys = derive_keys(own, checked.public, checked.digest(), checked.public + public)
        session = Session(keys, enclave=False, window=self.policy.window)
        return session, checked, public


class Member(Challenger):
    """Party that talks to enclaves: a broker, a publisher or a subscriber.

    Args:
        name: name in the policy.
        key: signing key, whose identity is in the policy.
        policy: agreement of all members.

    Raises:
        ParameterError: the policy has no such member, or it has another identity.
    """

    def __init__(self, name: str, key: SigningKey, policy: Policy) -> None:
        if policy.members.get(name) != key.identity:
            raise ParameterError(f"the policy has no member {name!r} with this key's identity")
        super().__init__(policy)
        self.name, self._key = name, key

    def __repr__(self) -> str:
        return f"<Member {self.name}>"

    def accept(self, enclave: str, quote: bytes) -> tuple[Session, bytes]:
        """Check the quote that came for the challenge.

        Returns:
            this end of the session, and the opening, which gives the enclave the other end.

        Raises:
            DecodeError: no challenge was sent, or the quote does not answer it (`Policy.check`).
        """
        session, checked, public = self.agree(enclave, quote)
        proof = self._key.sign(OPENING + checked.digest() + public)
        return session, Opening(checked.public, self.name, public, proof).to_bytes()
