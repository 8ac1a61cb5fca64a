"""Simulated enclaves, from the side of their hosts: HyShare's brokers.

An enclave joins the fragments of a secret and splits the secret afresh. `SimulatedEnclave` is the
broker's handle. The enclave is a process of its own (`ccbps.overlay.enclave.enclave_process`), with
only a pipe to the broker, which sees nothing but ciphertexts. This **simulates** Intel SGX, and
does not protect against the owner of the machine: he can read the memory of both processes, and so
the platform's key. The protocol, the cryptography and the separation of processes are real, so
counts, messages and faults are real, too.

Fragments wait in a `SealedQueue` until enough have arrived for the broker to enter the enclave.

Source: [Survey] sections 2.2, 8.4.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Self

from ccbps.checks import Printable
from ccbps.errors import DecodeError, EnclaveError, ParameterError
from ccbps.keys.plain_key import SigningKey
from ccbps.keys.secret import Confined
from ccbps.overlay.enclave.attestation import ENCLAVE, Opening, Policy, Quote, measure
from ccbps.overlay.enclave.enclave_process import DONE, REFUSED, read_frame, write_frame
from ccbps.overlay.enclave.sessions import WAITING, SealedFragment, forget_oldest
from ccbps.overlay.splits.fragments import Agreed
from ccbps.records import read, write

ROOT: Final = Path(__file__).parents[3]
SECONDS: Final = 30.0
"""Time limit of an answer, seconds. The first answer takes as long as Python takes to start."""
PER_PATH: Final = 4
"""Largest number of ciphertexts of one path that wait. The first may have been altered."""


class SimulatedPlatform(Confined):
    """Simulated machine with SGX, which signs quotes and starts enclaves.

    Args:
        key: key of the platform; a fresh one by default.

    Attributes:
        identity: public key, which stands for Intel's attestation service.
        measurement: measurement of the code that it starts.

    Example:
        >>> from ccbps.keys import SigningKey
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
        >>> fragments = [sessions[1].open(left), sessions[2].open(right)]
        >>> join_fragments(fragments, Agreed(k=2, n=2, splits=1))
        b'a seed'
    """

    def __init__(self, key: SigningKey | None = None) -> None:
        self._key = key or SigningKey.generate()
        self.identity, self.measurement = self._key.identity, measure()

    def __repr__(self) -> str:
        return f"<SimulatedPlatform {self.identity.hex()[:16]}>"

    def quote(self, enclave: str, policy: Policy, public: bytes, challenge: bytes) -> bytes:
        """Sign the measurement of an enclave with its policy, public key and challenge."""
        quote = Quote(self.measurement, policy.digest(), enclave, public, challenge)
        return quote.signed(self._key)

    def launch(self, name: str, policy: Policy, *, seconds: float = SECONDS) -> SimulatedEnclave:
        """Start an enclave.

        Args:
            name: name of the enclave in the policy.
            policy: agreement of all members, which cannot be changed later.
            seconds: time limit of each answer.

        Raises:
            ParameterError: the policy has no such enclave.
        """
        return SimulatedEnclave(name, policy, self, seconds=seconds)


class SimulatedEnclave(Confined):
    """Handle of an enclave in a process of its own, from `SimulatedPlatform.launch`.

    All methods raise EnclaveError if the process has ended or does not answer in time. Its sessions
    and fragments are lost then, and another enclave has to be started and attested.

    Attributes:
        name: name in its policy.
        entries: number of times that it was entered to regenerate a secret.
        pid: number of its process.
    """

    def __init__(
        self, name: str, policy: Policy, platform: SimulatedPlatform, *, seconds: float = SECONDS
    ) -> None:
        if policy.members.get(name) != ENCLAVE:
            raise ParameterError(f"the policy has no enclave named {name!r}")
        self.name, self.entries = name, 0
        self._policy, self._platform, self._seconds = policy, platform, seconds
        self._lock = threading.Lock()
        # The process gets nothing of the host's environment, which may hold keys.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ccbps.overlay.enclave.enclave_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        )
        self.pid = self._process.pid
        self._exchange(write((name, policy.to_bytes())), answer=False)

    def __repr__(self) -> str:
        return f"<SimulatedEnclave {self.name}, process {self.pid}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process, and lose what it holds."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # bytes that were not sent
                    pipe.close()

    def attest(self, challenge: bytes) -> bytes:
        """Return the quote that answers a challenge.

        Raises:
            DecodeError: the challenge has not 32 bytes.
        """
        (public,) = self._ask(b"report", challenge)
        return self._platform.quote(self.name, self._policy, public, challenge)

    def open(self, opening: bytes) -> None:
        """Hand over a member's opening, from `Member.accept`.

        Raises:
            DecodeError: it is not of a member of the policy, altered, or used before.
        """
        self._ask(b"open", opening)

    def challenge(self, enclave: str) -> bytes:
        """Return this enclave's challenge for another one, as `introduce` needs it."""
        return self._ask(b"challenge_for", enclave.encode())[0]

    def accept(self, enclave: str, quote: bytes) -> bytes:
        """Return this enclave's opening for another one, whose quote it checks.

        Raises:
            DecodeError: the quote does not answer this enclave's challenge (`Policy.check`).
        """
        theirs, public, digest = self._ask(b"accept", enclave.encode(), quote)
        proof = self._platform.quote(self.name, self._policy, public, digest)
        return Opening(theirs, self.name, public, proof).to_bytes()

    def regenerate(self, ciphertexts: Iterable[bytes]) -> list[bytes]:
        """Join a secret's fragments inside, split the secret afresh, and get it back encrypted.

        Args:
            ciphertexts: sealed fragments of one secret, as many as `SealedQueue` waits for.

        Returns:
            a ciphertext for each name of the enclave's route, in its order; for an enclave with
            replicas, one for each of them, in the order of their sessions.

        Raises:
            DecodeError: some were altered or sent before (at the places `rows`), or they do not
                recover a secret, or the next hop has no session yet. Nothing was used up.
        """
        self.entries += 1
        return self._ask(b"regenerate", *ciphertexts)

    def _ask(self, *request: bytes) -> list[bytes]:
        message = self._exchange(write(request))
        if message[:1] == DONE:
            return read(list[bytes], message[1:], refusal="not an answer")
        if message[:1] == REFUSED:
            reason, rows = read(tuple[str, tuple[int, ...]], message[1:], refusal="not a refusal")
            raise DecodeError(reason, rows=rows)
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
                reply = read_frame(source) if answer else b""
            except (OSError, ValueError):  # a broken or closed pipe, or half a frame
                reply = None
            finally:
                alarm.cancel()
                alarm.join()
        if reply is None:
            raise EnclaveError(
                f"enclave {self.name!r} has ended or did not answer within {self._seconds:g} s; "
                "its sessions and fragments are lost: start and attest another one"
            )
        return reply


def introduce(first: SimulatedEnclave, second: SimulatedEnclave) -> None:
    """Give two enclaves a session: each checks the other's quote. Their hosts see public values.

    Raises:
        DecodeError: one of them does not trust the other.
    """
    quote = second.attest(first.challenge(second.name))
    second.open(first.accept(second.name, quote))


def replicate(first: SimulatedEnclave, *others: SimulatedEnclave) -> None:
    """Give replicas of one enclave common coins: the first one's, through a session of the two.

    Replicas are started with one name and one policy, which says how many they are.

    Raises:
        DecodeError: one of them does not trust the other, or they are no replicas.
    """
    for other in others:
        introduce(first, other)
        other._ask(b"take_seed", *first._ask(b"give_seed"))


class SealedQueue(Printable):
    """Sealed fragments that wait outside until there are enough of a secret to enter the enclave.

    Of a split k fragments are enough, or with checks more than half of n. If some were altered, the
    enclave reports that they are not enough. Then the queue returns all fragments again with each
    further one, until `done`. The queue reads public parts only, which it cannot authenticate. So
    the fragments that the enclave refuses must be removed with `drop`.

    Args:
        agreed: parameters of fragments, from `Policy.agreed` of the enclave.
        most: largest number of secrets that wait, and of names of finished secrets. The oldest
            ones are forgotten.
    """

    def __init__(self, agreed: Agreed, most: int = WAITING) -> None:
        self.agreed, self.most = agreed, most
        self._waiting: dict[bytes, dict[tuple[int, ...], list[bytes]]] = {}
        self._done: dict[bytes, None] = {}

    def __repr__(self) -> str:
        return f"<SealedQueue: {len(self._waiting)} secrets wait>"

    def add(self, ciphertext: bytes, number: int | None = None) -> list[bytes] | None:
        """Add a fragment, and return all of its secret's fragments once there are enough.

        Args:
            ciphertext: sealed fragment that arrived.
            number: number of its sender among the n brokers of the previous hop, by its link; None
                if unknown.

        Raises:
            DecodeError: it is no sealed fragment, or not as agreed.
        """
        fragment = SealedFragment.from_bytes(ciphertext).fragment
        misfit = self.agreed.misfit(fragment, number)
        if misfit:
            raise DecodeError(f"a sealed fragment that is not as agreed: {misfit}")
        if fragment.name in self._done:
            return None
        paths = self._waiting.setdefault(fragment.name, {})
        several = paths.setdefault(fragment.path, [])
        if ciphertext not in several and len(several) < PER_PATH:
            several.append(ciphertext)
        forget_oldest(self._waiting, self.most)
        if not self._enough(paths):
            return None
        return [waiting for several in paths.values() for waiting in several]

    def drop(self, ciphertexts: Iterable[bytes]) -> None:
        """Remove the fragments that the enclave refused."""
        for ciphertext in ciphertexts:
            fragment = SealedFragment.from_bytes(ciphertext).fragment
            paths = self._waiting.get(fragment.name, {})
            several = paths.get(fragment.path, [])
            if ciphertext in several:
                several.remove(ciphertext)
            if not several:
                paths.pop(fragment.path, None)

    def done(self, ciphertext: bytes) -> None:
        """Remove the secret of a fragment, which was regenerated, and ignore its later fragments.

        Raises:
            DecodeError: it is no sealed fragment.
        """
        fragment = SealedFragment.from_bytes(ciphertext).fragment
        self._waiting.pop(fragment.name, None)
        self._done[fragment.name] = None
        forget_oldest(self._done, self.most)

    def _enough(self, paths: Iterable[tuple[int, ...]]) -> bool:
        """Tell whether fragments of some paths recover the secret."""
        k, n, splits = self.agreed.k, self.agreed.n, self.agreed.splits
        needed = max(k, n // 2 + 1) if self.agreed.checked else k
        level = {*paths}
        if len(level) < needed**splits:
            return False
        for _ in range(splits):
            children = Counter(path[:-1] for path in level)
            level = {path for path, count in children.items() if count >= needed}
        return bool(level)
