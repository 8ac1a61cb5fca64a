"""Simulated enclaves: for HyShare's brokers, which join fragments and split the secret afresh.

`SimulatedEnclave` is the broker's handle. The enclave is a process of its own
(`ccbps.overlay.enclave.enclave_process`), with nothing but a pipe to the broker, which sees
ciphertexts alone. This **simulates** Intel SGX and protects against nobody who owns the machine: he
reads the process's memory, and takes the platform's key from his own. What is real is the protocol,
the cryptography and the separation of processes, so that counts, messages and faults are real too.

A broker waits until enough fragments have come (`ccbps.overlay.enclave.sealed_queue`), and then
enters the enclave.

Source: [Survey] sections 2.2, 8.4.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Self

from ccbps.ciphers.signatures import SigningKey
from ccbps.errors import DecodeError, EnclaveError, ParameterError
from ccbps.keys.secret import Confined
from ccbps.overlay.enclave.attestation import ENCLAVE, Policy, Quote, measure
from ccbps.overlay.enclave.enclave_process import DONE, REFUSED
from ccbps.overlay.enclave.frames import pack, read_frame, unpack, write_frame
from ccbps.records import read

ROOT: Final = Path(__file__).parents[3]
SECONDS: Final = 30.0
"""To wait for an answer: the first one takes as long as a Python process takes to start."""


class SimulatedPlatform(Confined):
    """Stands for a machine with SGX and the key it signs with; starts enclaves.

    Attributes:
        identity: its public key, which stands for Intel's attestation service.
        measurement: of the code it starts.

    Example:
        >>> from ccbps.ciphers.signatures import SigningKey
        >>> from ccbps.overlay.enclave.attestation import ENCLAVE, Member, Policy
        >>> from ccbps.overlay.enclave.enclave import SimulatedPlatform
        >>> from ccbps.overlay.splits.fragments import Agreed, Fragment, join_fragments
        >>> platform, keys = SimulatedPlatform(), [SigningKey.generate() for _ in range(3)]
        >>> names = ["publisher", "left", "right"]
        >>> members = dict(zip(names, (key.identity for key in keys)))
        >>> policy = Policy(
        ...     platform.identity,
        ...     platform.measurement,
        ...     k=2,
        ...     n=2,
        ...     members={**members, "enclave": ENCLAVE},
        ...     routes={"enclave": ("left", "right")},
        ...     sources={"enclave": ("publisher",)},
        ...     splits={"enclave": 0},
        ... )
        >>> with platform.launch("enclave", policy) as enclave:
        ...     sessions = []
        ...     for name, key in zip(names, keys):
        ...         member = Member(name, key, policy)
        ...         quote = enclave.attest(member.challenge("enclave"))
        ...         session, opening = member.accept("enclave", quote)
        ...         enclave.open(opening)
        ...         sessions.append(session)
        ...     sealed = sessions[0].seal(Fragment.of(b"a seed", 2))
        ...     left, right = enclave.regenerate([sealed])
        >>> came = [sessions[1].open(left), sessions[2].open(right)]
        >>> join_fragments(came, Agreed(k=2, n=2, splits=1))
        b'a seed'
    """

    def __init__(self, key: SigningKey | None = None) -> None:
        """
        Args:
            key: the platform's; a fresh one by default.
        """
        self._key = key or SigningKey.generate()
        self.identity, self.measurement = self._key.identity, measure()

    def __repr__(self) -> str:
        return f"<SimulatedPlatform {self.identity.hex()[:16]}>"

    def quote(self, enclave: str, policy: Policy, public: bytes, challenge: bytes) -> bytes:
        """What it measured, signed."""
        made = Quote(self.measurement, policy.digest(), enclave, public, challenge)
        return made.signed(self._key)

    def launch(self, name: str, policy: Policy, *, seconds: float = SECONDS) -> SimulatedEnclave:
        """Start an enclave.

        Args:
            name: of the enclave, in the policy.
            policy: it cannot be changed later.
            seconds: to wait for each answer.

        Raises:
            ParameterError: the policy has no such enclave.
        """
        return SimulatedEnclave(name, policy, self, seconds=seconds)


class SimulatedEnclave(Confined):
    """A broker's handle of an enclave in a process of its own; see `SimulatedPlatform`.

    All methods raise EnclaveError if the process has ended or does not answer in time: its sessions
    and fragments are lost then, and another enclave has to be started and attested.

    Attributes:
        name: in its policy.
        entries: how often it was entered to regenerate a secret.
    """

    def __init__(
        self, name: str, policy: Policy, platform: SimulatedPlatform, *, seconds: float = SECONDS
    ) -> None:
        if policy.members.get(name) != ENCLAVE:
            raise ParameterError(f"the policy has no enclave named {name!r}")
        self.name, self.entries = name, 0
        self._policy, self._platform, self._seconds = policy, platform, seconds
        self._lock = threading.Lock()
        # Nothing of the host's environment: it may hold keys.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ccbps.overlay.enclave.enclave_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        )
        self._exchange(pack([name.encode(), policy.to_bytes()]), answer=False)

    def __repr__(self) -> str:
        return f"<SimulatedEnclave {self.name}, process {self.pid}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    def close(self) -> None:
        """End the process; what it holds is gone."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                try:
                    pipe.close()
                except OSError:  # what was not sent has nobody to go to
                    continue

    def attest(self, challenge: bytes) -> bytes:
        """The quote that answers a challenge.

        Raises:
            DecodeError: a challenge has 32 bytes.
        """
        (public,) = self._ask(b"report", challenge)
        return self._platform.quote(self.name, self._policy, public, challenge)

    def open(self, opening: bytes) -> None:
        """Hand over a member's opening, from `Member.accept`.

        Raises:
            DecodeError: not of a member of the policy, altered, or used before.
        """
        self._ask(b"open", opening)

    def challenge(self, enclave: str) -> bytes:
        """This enclave's challenge for another one; see `introduce`."""
        return self._ask(b"challenge", enclave.encode())[0]

    def accept(self, enclave: str, quote: bytes) -> bytes:
        """This enclave's opening for another one, whose quote it checks.

        Raises:
            DecodeError: see `Policy.check`.
        """
        theirs, public, digest = self._ask(b"accept", enclave.encode(), quote)
        proof = self._platform.quote(self.name, self._policy, public, digest)
        return pack([theirs, self.name.encode(), public, proof])

    def regenerate(self, ciphertexts: Iterable[bytes]) -> list[bytes]:
        """Join a secret's fragments inside, split it afresh, and get it back encrypted.

        Args:
            ciphertexts: sealed fragments of one secret, enough of them: see
                `ccbps.overlay.enclave.sealed_queue`.

        Returns:
            A ciphertext for each name of the enclave's route, in its order.

        Raises:
            DecodeError: some were altered or sent before (`rows` says which), or they do not give
                a secret back, or the next hop has no session yet. Nothing was used up.
        """
        self.entries += 1
        return self._ask(b"regenerate", *ciphertexts)

    def _ask(self, *request: bytes) -> list[bytes]:
        message = self._exchange(pack(request))
        if message[:1] == DONE:
            return unpack(message[1:])
        if message[:1] == REFUSED:
            refusal = read(tuple[str, tuple[int, ...]], message[1:], refusal="not a refusal")
            raise DecodeError(refusal[0], rows=refusal[1])
        raise EnclaveError(f"enclave {self.name!r} failed at a request, and does not say why")

    def _exchange(self, message: bytes, *, answer: bool = True) -> bytes:
        """Send a frame and read one. An enclave that takes too long is ended."""
        to, source = self._process.stdin, self._process.stdout
        assert to is not None and source is not None
        with self._lock:
            alarm = threading.Timer(self._seconds, self._process.kill)
            alarm.start()
            try:
                write_frame(to, message)
                got = read_frame(source) if answer else b""
            except (OSError, ValueError):  # a broken or closed pipe, or half a frame
                got = None
            finally:
                alarm.cancel()
                alarm.join()
        if got is None:
            raise EnclaveError(
                f"enclave {self.name!r} has ended or did not answer within {self._seconds:g} s; "
                "its sessions and fragments are lost: start and attest another one"
            )
        return got


def introduce(first: SimulatedEnclave, second: SimulatedEnclave) -> None:
    """Give two enclaves a session: each checks the other's quote. Their hosts see public values.

    Raises:
        DecodeError: one of them does not trust the other.
    """
    quote = second.attest(first.challenge(second.name))
    second.open(first.accept(second.name, quote))
