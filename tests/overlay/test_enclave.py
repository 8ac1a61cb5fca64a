"""Simulated enclaves: what they give back, whom they trust and refuse, what their host sees."""

from __future__ import annotations

import copy
import io
import itertools
import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

import ccbps
from ccbps.errors import DecodeError, EnclaveError, ParameterError, SerializationError
from ccbps.keys.plain_key import SigningKey
from ccbps.overlay.enclave import enclave as enclave_module
from ccbps.overlay.enclave import enclave_process
from ccbps.overlay.enclave.attestation import ENCLAVE, Member, Opening, Policy, Quote, measure
from ccbps.overlay.enclave.enclave import SealedQueue, SimulatedEnclave, SimulatedPlatform
from ccbps.overlay.enclave.enclave_process import _Inside, read_frame, write_frame
from ccbps.overlay.enclave.sessions import MOST_WINDOW, WAITING, SealedFragment, Session
from ccbps.overlay.splits.fragments import Agreed, Fragment, join_fragments
from ccbps.records import write
from tests.support.altered import altered
from tests.support.effort import examples
from tests.support.forks import answer_of_child

SECRET = b"32 bytes of a seed for matching."
K, N = 2, 3
BEFORE = [f"before {i}" for i in range(N)]
AFTER = [f"after {i}" for i in range(N)]
KEYS = {name: SigningKey.generate() for name in BEFORE + AFTER}


@dataclass
class Place:
    """An enclave whose neighbours trust it."""

    enclave: SimulatedEnclave
    sessions: dict[str, Session]

    def __post_init__(self) -> None:
        self.platform, self.policy = self.enclave._platform, self.enclave._policy

    def sealed(self, fragments: list[Fragment]) -> list[bytes]:
        """Fragments as the hop before sends them."""
        senders = [BEFORE[fragment.path[-1] - 1 if fragment.path else 0] for fragment in fragments]
        pairs = zip(senders, fragments, strict=True)
        return [self.sessions[sender].seal(fragment) for sender, fragment in pairs]

    def opened(self, ciphertexts: list[bytes]) -> list[Fragment]:
        """Return the fragments that the hop behind reads."""
        return [self.sessions[n].open(c) for n, c in zip(AFTER, ciphertexts, strict=True)]

    def joined(self, ciphertexts: list[bytes]) -> bytes:
        """Return the secret that the hop behind joins from the enclave's answer."""
        return join_fragments(self.opened(self.enclave.regenerate(ciphertexts)), AFRESH)

    def member(self, name: str = "before 0", policy: Policy | None = None) -> Member:
        return Member(name, KEYS[name], policy or self.policy)


def policy_of(platform: SimulatedPlatform, splits: int = 1, *, checked: bool = False) -> Policy:
    every = "first", "second", "third", "lonely"
    sources = {"second": ("before 0",), "third": ("second",)}
    if not splits:
        sources["first"] = ("before 0",)
    return Policy(
        platform.identity,
        platform.measurement,
        K,
        N,
        {name: key.identity for name, key in KEYS.items()} | dict.fromkeys(every, ENCLAVE),
        dict.fromkeys(every, tuple(AFTER)) | {"second": ("third",)},
        dict.fromkeys(every, tuple(BEFORE)) | sources,
        {"first": splits, "second": 1, "third": 0, "lonely": 1},
        checked,
    )


AFRESH = Agreed(K, N, 1)


def attest(enclave: SimulatedEnclave, name: str) -> Session:
    member = Member(name, KEYS[name], enclave._policy)
    session, opening = member.accept(enclave.name, enclave.attest(member.challenge(enclave.name)))
    enclave.open(opening)
    return session


@pytest.fixture(scope="module")
def started() -> Iterator[SimulatedEnclave]:
    """Start one process for most tests."""
    os.environ["CCBPS_TEST_OF_HOST"] = "a secret of the host"
    platform = SimulatedPlatform()
    with platform.launch("first", policy_of(platform)) as enclave:
        yield enclave
    del os.environ["CCBPS_TEST_OF_HOST"]


@pytest.fixture
def place(started: SimulatedEnclave) -> Place:
    """Open fresh sessions."""
    return Place(started, {name: attest(started, name) for name in KEYS})


@contextmanager
def another(place: Place, splits: int = 1, *, checked: bool = False) -> Iterator[Place]:
    """Start an enclave with another policy."""
    policy = policy_of(place.platform, splits, checked=checked)
    with place.platform.launch("first", policy) as enclave:
        yield Place(enclave, {name: attest(enclave, name) for name in KEYS})


def resplit(levels: int) -> list[Fragment]:
    fragments = [Fragment.of(SECRET, K)]
    for _ in range(levels):
        fragments = [part for fragment in fragments for part in fragment.split(N)]
    return fragments


# -- what it is for ------------------------------------------------------------------------------


@pytest.mark.parametrize("levels", [0, 1, 2])
def test_joins_and_splits_afresh(place: Place, levels: int) -> None:
    fragments = resplit(levels)
    with another(place, levels) as other:
        fresh = other.opened(other.enclave.regenerate(other.sealed(fragments)))
        assert other.enclave.entries == 1
    assert [fragment.path for fragment in fresh] == [(1,), (2,), (3,)]
    assert {fragment.name for fragment in fresh} == {fragments[0].name}
    for pair in itertools.combinations(fresh, K):
        assert join_fragments(pair, AFRESH) == SECRET
    assert not {f.value for f in fresh} & {f.value for f in fragments}


def test_as_many_as_needed_are_enough(place: Place) -> None:
    assert place.joined(place.sealed(resplit(1)[1:])) == SECRET
    with pytest.raises(DecodeError, match="do not give their secret back"):
        place.enclave.regenerate(place.sealed(resplit(1)[:1]))


def test_enclaves_hand_the_whole_secret_on(place: Place) -> None:
    launch = place.platform.launch
    with launch("second", place.policy) as second, launch("third", place.policy) as third:
        enclave_module.introduce(second, third)
        session = attest(second, "before 0")
        (between,) = second.regenerate([session.seal(f) for f in resplit(1)])
        assert SECRET not in between and SealedFragment.from_bytes(between).fragment.path == ()
        after = {name: attest(third, name) for name in AFTER}
        assert Place(third, after).joined([between]) == SECRET
        # Neither end of another session: a proof of one member is none of another.
        member = place.member("before 1")
        quote = place.enclave.attest(member.challenge("first"))
        opening = Opening.from_bytes(member.accept("first", quote)[1])
        with pytest.raises(DecodeError):
            place.enclave.open(structs.replace(opening, name="second").to_bytes())
        own = place.platform.quote(
            "second", place.policy, bytes(32), Quote.from_bytes(quote).digest()
        )
        with pytest.raises(DecodeError, match="another key than its quote"):
            place.enclave.open(structs.replace(opening, name="second", proof=own).to_bytes())


def test_what_a_member_alters_shows_where_there_are_more_than_needed(place: Place) -> None:
    fragments = resplit(1)
    fragments[1] = structs.replace(fragments[1], value=bytes(len(SECRET)))
    with pytest.raises(DecodeError, match="more were altered than can be told"):
        place.enclave.regenerate(place.sealed(fragments))


# -- what the host sees --------------------------------------------------------------------------


def test_the_host_sees_ciphertexts_only(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    crossed: list[bytes] = []

    def write(to: io.RawIOBase, message: bytes) -> None:
        crossed.append(message)
        write_frame(to, message)

    def read(source: io.RawIOBase) -> bytes | None:
        got = read_frame(source)
        crossed.append(got or b"")
        return got

    monkeypatch.setattr(enclave_module, "write_frame", write)
    monkeypatch.setattr(enclave_module, "read_frame", read)
    fragments = resplit(1)
    fresh = place.opened(place.enclave.regenerate(place.sealed(fragments)))
    assert len(crossed) == 2 and len(b"".join(crossed)) > 2 * N * len(SECRET)
    for value in [SECRET, *(f.value for f in [*fragments, *fresh])]:
        assert value not in b"".join(crossed)


def test_is_another_process_without_the_hosts_environment(place: Place) -> None:
    assert place.enclave.pid != os.getpid()
    folder = Path(f"/proc/{place.enclave.pid}")
    if not folder.exists():
        pytest.skip("no /proc here")
    assert b"CCBPS_TEST_OF_HOST" not in (folder / "environ").read_bytes()
    arguments = (folder / "cmdline").read_bytes().strip(b"\0").split(b"\0")
    assert arguments[1:] == [b"-P", b"-m", b"ccbps.overlay.enclave.enclave_process"]
    assert (folder / "fd" / "2").resolve() == Path("/dev/null")


def test_what_it_says_of_errors_holds_no_secret(place: Place) -> None:
    fragments = resplit(1)
    messages = place.sealed(fragments)
    with pytest.raises(DecodeError) as refused:
        place.enclave.regenerate([messages[0], messages[0], messages[1][:-1]])
    said = str(refused.value).encode()
    assert not any(value in said for f in fragments for value in (f.value, f.value.hex().encode()))
    # An error that nobody thought of says nothing at all.
    inside = _Inside("first", place.policy)
    assert inside.handle(write([b"no such request", SECRET])) == enclave_process.FAILED == b"\2"
    with pytest.raises(EnclaveError, match="does not say why") as failed:
        place.enclave._ask(b"no such request", SECRET)
    assert SECRET.decode() not in str(failed.value)


def test_neither_prints_nor_pickles(place: Place) -> None:
    for thing in (place.enclave, place.platform, place.member(), place.sessions["before 0"]):
        assert KEYS["before 0"].export_secret().hex() not in repr(thing)
        for take in (pickle.dumps, copy.copy):
            with pytest.raises(SerializationError):
                take(thing)


# -- attestation ---------------------------------------------------------------------------------


def refused_quote(place: Place, quote: bytes, policy: Policy | None = None) -> str:
    member = place.member(policy=policy)
    challenge = member.challenge("first")
    with pytest.raises(DecodeError) as refused:
        member.accept("first", quote or place.enclave.attest(challenge))
    return str(refused.value)


def test_other_code_platforms_policies_and_challenges_are_refused(place: Place) -> None:
    policy = place.policy
    assert "other code" in refused_quote(place, b"", structs.replace(policy, measurement=bytes(32)))
    forged = structs.replace(policy, platform=SigningKey.generate().identity)
    assert "not signed by the trusted platform" in refused_quote(place, b"", forged)
    assert "another policy" in refused_quote(place, b"", structs.replace(policy, k=1))
    stale = place.member()
    old = place.enclave.attest(stale.challenge("first"))
    assert "an old one was replayed" in refused_quote(place, old)
    with pytest.raises(DecodeError, match="no challenge was sent"):
        place.member().accept("first", old)
    with pytest.raises(DecodeError, match="32 bytes"):
        place.enclave.attest(b"")
    stale.accept("first", old)  # the quote was good, for its challenge, once
    with pytest.raises(DecodeError, match="no challenge was sent"):
        stale.accept("first", old)


def test_a_quote_of_another_enclave_is_refused(place: Place) -> None:
    challenge = os.urandom(32)
    quote = place.platform.quote("second", place.policy, bytes(32), challenge)
    with pytest.raises(DecodeError, match="another one than 'first'"):
        place.policy.check(quote, "first", challenge)


def test_every_byte_of_a_quote_counts(place: Place) -> None:
    challenge = os.urandom(32)
    quote = place.enclave.attest(challenge)
    place.policy.check(quote, "first", challenge)
    for wrong in altered(quote):
        with pytest.raises(DecodeError):
            place.policy.check(wrong, "first", challenge)


def test_the_measurement_is_of_all_code_and_its_places(tmp_path: Path) -> None:
    copied = tmp_path / "ccbps"
    # Other processes may be writing compiled files, which do not count.
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(ccbps.__file__).parent, copied, ignore=ignored)
    assert measure(copied) == measure()
    (copied / "overlay" / "splits" / "fragments.py").open("a").write("\n")
    changed = measure(copied)
    (copied / "wire.py").rename(copied / "wires.py")
    assert len({measure(), changed, measure(copied)}) == 3


def test_what_an_enclave_runs_of_this_package_is_measured() -> None:
    code = (
        "import sys, ccbps.overlay.enclave.enclave_process\n"
        "print(*[m.__file__ for n, m in sys.modules.items() if n.split('.')[0] == 'ccbps'])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    package = Path(ccbps.__file__).parent
    assert {Path(name) for name in ran.stdout.split()} <= {*package.rglob("*.py")}


# -- whom the enclave trusts ---------------------------------------------------------------------


def test_the_host_cannot_take_the_next_hops_place(place: Place) -> None:
    host = SigningKey.generate()
    with pytest.raises(ParameterError, match="no member"):
        Member("after 0", host, place.policy)
    own = structs.replace(place.policy, members={**place.policy.members, "after 0": host.identity})
    member = Member("after 0", host, own)
    challenge = member.challenge("first")
    # As if it did not care what the quote says.
    quote = place.platform.quote(
        "first", own, Quote.from_bytes(place.enclave.attest(challenge)).public, challenge
    )
    with pytest.raises(DecodeError, match="not signed by 'after 0'"):
        place.enclave.open(member.accept("first", quote)[1])


def test_openings_are_for_one_quote_and_one_time(place: Place) -> None:
    member = place.member()
    _, opening = member.accept("first", place.enclave.attest(member.challenge("first")))
    for changes in (
        {"name": "before 1"},
        {"name": "nobody"},
        {"public": bytes(32)},
        {"proof": bytes(64)},
        {"enclave": bytes(32)},
    ):
        with pytest.raises(DecodeError):
            place.enclave.open(structs.replace(Opening.from_bytes(opening), **changes).to_bytes())
    for malformed in (opening[:-1], opening + b"\0", b""):
        with pytest.raises(DecodeError, match="not an opening"):
            place.enclave.open(malformed)
    place.enclave.open(opening)
    with pytest.raises(DecodeError, match="replay"):
        place.enclave.open(opening)


def test_a_new_session_ends_the_old_one(place: Place) -> None:
    late = place.sessions["before 0"].seal(resplit(0)[0])
    attest(place.enclave, "before 0")
    with pytest.raises(DecodeError, match="no session"):
        place.enclave.regenerate([late])


# -- altered, replayed, mixed up -----------------------------------------------------------------


def test_refused_ciphertexts_are_named_and_the_others_not_used_up(place: Place) -> None:
    messages = place.sealed(resplit(1))
    changed = messages[1][:-1] + bytes([messages[1][-1] ^ 1])
    with pytest.raises(DecodeError, match="ciphertext 1") as refused:
        place.enclave.regenerate([messages[0], changed, messages[2], b"", messages[0]])
    assert refused.value.rows == (1, 3, 4)
    rest = [messages[0], messages[2]]
    assert place.joined(rest) == SECRET
    with pytest.raises(DecodeError, match="replay") as replayed:
        place.enclave.regenerate(rest)
    assert replayed.value.rows == (0, 1)


def test_other_thresholds_mixtures_and_nothing_are_refused(place: Place) -> None:
    for fragments, said in (
        ([Fragment.of(SECRET, 1)], "threshold 1"),
        ([resplit(1)[0], resplit(1)[1]], "a fragment of another secret"),
        ([resplit(0)[0]], "1 splits into 3 are agreed"),
        (Fragment.of(SECRET, K, checked=N).split(N), f"checks for {N}, and {K} and 0 are agreed"),
        ([], "no fragments"),
    ):
        with pytest.raises(DecodeError, match=said):
            place.enclave.regenerate(place.sealed(fragments))


def test_without_a_next_hop_nothing_is_used_up(place: Place) -> None:
    with place.platform.launch("lonely", place.policy) as lonely:
        before = [attest(lonely, name) for name in BEFORE]
        messages = [one.seal(f) for one, f in zip(before, resplit(1), strict=True)]
        with pytest.raises(DecodeError, match="no session with"):
            lonely.regenerate(messages)
        after = {name: attest(lonely, name) for name in AFTER}
        assert Place(lonely, after).joined(messages) == SECRET


def ends(window: int = WAITING) -> tuple[Session, Session]:
    keys = os.urandom(8), os.urandom(32), os.urandom(32)
    return (
        Session(keys, enclave=False, window=window),
        Session(keys, enclave=True, window=window),
    )


def test_every_byte_of_a_sealed_fragment_counts() -> None:
    member, enclave = ends()
    sent = member.seal(resplit(2)[4])
    assert SECRET not in sent
    for wrong in altered(sent):
        with pytest.raises(DecodeError):
            enclave.open(wrong)
    assert enclave.open(sent).path == (2, 2)


def test_directions_and_sessions_do_not_mix() -> None:
    member, enclave = ends()
    sent = member.seal(resplit(0)[0])
    with pytest.raises(DecodeError, match="direction"):
        member.open(sent)
    with pytest.raises(DecodeError, match="of session"):
        ends()[1].open(sent)
    # One key for both directions would not do either: the direction is authenticated.
    keys = member.name, bytes(32), bytes(32)
    reflected = Session(keys, enclave=False).seal(resplit(0)[0])
    with pytest.raises(DecodeError, match="direction"):
        Session(keys, enclave=False).open(reflected)
    assert enclave.open(sent).value == SECRET


@settings(max_examples=examples(30))
@given(st.permutations(range(12)), st.data())
def test_messages_may_overtake_one_another_and_come_once(
    order: list[int], data: st.DataObject
) -> None:
    member, enclave = ends()
    sent = [member.seal(structs.replace(resplit(0)[0], value=bytes([i]))) for i in range(12)]
    lost = data.draw(st.sets(st.sampled_from(order)))
    came = [i for i in order if i not in lost]
    for place, i in enumerate(came):
        assert enclave.open(sent[i]).value == bytes([i])
        for before in came[: place + 1]:
            with pytest.raises(DecodeError, match="replay"):
                enclave.open(sent[before])


def test_what_is_too_old_is_refused() -> None:
    member, enclave = ends(1024)
    sent = [member.seal(resplit(0)[0]) for _ in range(1025)]
    enclave.open(sent[-1])
    enclave.open(sent[1])
    for old in (sent[0], sent[1], sent[-1]):
        with pytest.raises(DecodeError, match="replay"):
            enclave.open(old)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.integers(0, 200), max_size=60), st.sampled_from([8, 16, 64]))
def test_a_window_forgets_what_is_behind_it_and_nothing_else(order: list[int], window: int) -> None:
    member, enclave = ends(window)
    sent = [member.seal(resplit(0)[0]) for _ in range(201)]
    opened, newest = set[int](), -1
    for number in order:
        if number in opened or number <= newest - window:
            with pytest.raises(DecodeError, match="replay"):
                enclave.open(sent[number])
        else:
            enclave.open(sent[number])
            opened, newest = opened | {number}, max(newest, number)


def test_all_fragments_of_a_secret_may_be_overtaken_by_another_ones(place: Place) -> None:
    # 1,100 of A are sent before 1,100 of B, and B is complete first.
    member, enclave = ends(place.policy.window)
    first, second = ([member.seal(resplit(0)[0]) for _ in range(1100)] for _ in "AB")
    for message in (*second, *first):
        enclave.open(message)


@pytest.mark.parametrize(
    ("n", "splits", "window"),
    [(3, 1, 3 * WAITING), (3, 0, 3 * WAITING), (3, 2, 9 * WAITING), (255, 2, MOST_WINDOW)],
)
def test_a_window_is_as_long_as_the_plan_needs(
    place: Place, n: int, splits: int, window: int
) -> None:
    ways = {"enclave": ("before 0",)}
    members = {name: place.policy.members[name] for name in ("before 0",)} | {"enclave": ENCLAVE}
    policy = structs.replace(
        place.policy, n=n, members=members, routes=ways, sources=ways, splits={"enclave": splits}
    )
    assert policy.window == window and not window % 8


def test_a_forked_child_seals_nothing() -> None:
    member, enclave = ends()
    sent = member.seal(resplit(0)[0])
    said = answer_of_child(lambda: member.seal(resplit(0)[0]))
    assert said.startswith("RandomnessReuseError: this session was made before the process forked")
    assert enclave.open(sent).value == SECRET
    assert answer_of_child(lambda: ends()[0].seal(resplit(0)[0])[:1] == sent[:1]) == "True"


def test_threads_share_no_number() -> None:
    member, _ = ends()
    with ThreadPoolExecutor(8) as pool:
        sent = [*pool.map(lambda _: member.seal(resplit(0)[0]), range(400))]
    numbers = [SealedFragment.from_bytes(message).counter for message in sent]
    assert sorted(numbers) == [*range(400)]


# -- faults --------------------------------------------------------------------------------------


def test_a_killed_enclave_is_an_error(place: Place) -> None:
    enclave = place.platform.launch("second", place.policy)
    enclave.attest(bytes(32))
    os.kill(enclave.pid, signal.SIGKILL)
    with pytest.raises(EnclaveError, match="start and attest another one"):
        enclave.attest(bytes(32))
    enclave.close()
    with pytest.raises(EnclaveError):
        enclave.regenerate([])


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no SIGSTOP here")
def test_an_enclave_that_does_not_answer_is_ended(place: Place) -> None:
    with place.platform.launch("second", place.policy) as enclave:
        os.kill(enclave.pid, signal.SIGSTOP)
        enclave._seconds = 0.2
        with pytest.raises(EnclaveError, match=r"within 0\.2 s"):
            enclave.attest(bytes(32))


def test_an_enclave_ends_with_its_host(place: Place) -> None:
    process = place.platform.launch("second", place.policy)._process
    assert process.stdin is not None and process.stdout is not None
    process.stdin.close()
    assert process.wait(timeout=30) == 0
    process.stdout.close()


def test_fragments_with_checks_survive_a_member_that_alters_them(place: Place) -> None:
    """Before it seals them, so that no tag of the session tells."""
    fragments = Fragment.of(SECRET, K, checked=N).split(N)
    fragments[0] = structs.replace(fragments[0], value=bytes(len(fragments[0].value)))
    with another(place, checked=True) as other:
        queue, fresh = SealedQueue(other.policy.agreed("first")), None
        for number, ciphertext in enumerate(other.sealed(fragments), 1):
            enough = queue.add(ciphertext, number)
            try:
                fresh = other.enclave.regenerate(enough) if enough else None
            except DecodeError:
                continue  # of exactly k, one was altered: one more is needed
        assert fresh is not None
        queue.done(ciphertext)
        opened = other.opened(fresh)
    assert join_fragments(opened, Agreed(K, N, 1, checked=True)) == SECRET


def test_a_member_sends_fragments_of_its_own_point_only(place: Place) -> None:
    forged = Fragment.of(b"E" * len(SECRET), K).split(N)
    one = place.sessions["before 0"]
    sent = [one.seal(fragment) for fragment in forged]
    with pytest.raises(DecodeError, match="broker 1 sent a fragment of point 2") as refused:
        place.enclave.regenerate(sent)
    assert refused.value.rows == (1, 2)
    late = place.sessions["after 0"].seal(forged[0])
    with pytest.raises(DecodeError, match="'after 0' does not send to 'first'"):
        place.enclave.regenerate([late])
    queue = SealedQueue(place.policy.agreed("first"))
    with pytest.raises(DecodeError, match="broker 1 sent a fragment of point 2"):
        queue.add(sent[1], 1)


def test_a_secret_is_regenerated_once(place: Place) -> None:
    """Of two splits of one secret a host could mix fragments, and nobody would notice."""
    fragments = resplit(1)
    place.enclave.regenerate(place.sealed(fragments[:2]))
    with pytest.raises(DecodeError, match="this secret was regenerated before"):
        place.enclave.regenerate(place.sealed(fragments[1:]))


# -- what is around it ---------------------------------------------------------------------------


@settings(max_examples=examples(60))
@given(st.integers(0, 2), st.randoms(use_true_random=False))
def test_the_queue_waits_until_there_is_enough(levels: int, chance: Random) -> None:
    member, _ = ends()
    fragments, agreed = resplit(levels), Agreed(K, N, levels)
    chance.shuffle(fragments)
    queue, came = SealedQueue(agreed), []
    for fragment in fragments:
        got = queue.add(member.seal(fragment))
        came.append(fragment)
        try:
            assert join_fragments(came, agreed) == SECRET
        except DecodeError:
            assert got is None
        else:  # and again with each one more
            assert got is not None and len(got) == len(came)
    queue.done(member.seal(fragments[0]))
    assert [queue.add(member.seal(fragment)) for fragment in fragments] == [None] * len(fragments)
    assert repr(queue) == "<SealedQueue: 0 secrets wait>"
    with pytest.raises(DecodeError, match="not a sealed fragment"):
        queue.add(fragments[0].to_bytes())
    with pytest.raises(DecodeError, match="not as agreed"):
        SealedQueue(Agreed(K, N, 3)).add(member.seal(fragments[0]))


def test_with_checks_the_queue_waits_for_more_than_half() -> None:
    member, _ = ends()
    queue = SealedQueue(Agreed(2, 5, 1, checked=True))
    fragments = Fragment.of(SECRET, 2, checked=5).split(5)
    assert [queue.add(member.seal(one)) is None for one in fragments] == [True] * 2 + [False] * 3


def test_the_queue_forgets_the_oldest_and_what_is_refused() -> None:
    member, forger = ends()
    queue = SealedQueue(Agreed(2, 2, 1), most=2)
    halves = [Fragment.of(b"a secret", 2).split(2) for _ in range(3)]
    for first, _ in halves:
        assert queue.add(member.seal(first)) is None
    assert repr(queue) == "<SealedQueue: 2 secrets wait>"
    came = [queue.add(member.seal(second)) for _, second in halves[1:]]
    assert [len(enough or ()) for enough in came] == [2, 2]
    assert queue.add(member.seal(halves[0][1])) is None
    for first, _ in halves:
        queue.done(member.seal(first))
    # The first one's name is forgotten again, so that its fragments would wait.
    assert [queue.add(member.seal(first)) for first, _ in halves] == [None] * 3
    assert repr(queue) == "<SealedQueue: 1 secrets wait>"
    # A forged ciphertext that came first does not keep the good one out; floods are bounded.
    first, second = Fragment.of(b"a secret", 2).split(2)
    queue = SealedQueue(Agreed(2, 2, 1))
    flood = [forger.seal(first) for _ in range(100)]
    assert [queue.add(one) for one in flood] == [None] * 100
    enough = queue.add(member.seal(second))
    assert enough is not None and len(enough) == 4 + 1
    queue.drop(enough[:4])
    assert queue.add(member.seal(second)) is None
    enough = queue.add(member.seal(first))
    assert enough is not None and len(enough) == 3


def test_policies(place: Place) -> None:
    policy = place.policy
    assert Policy.from_bytes(policy.to_bytes()) == policy
    reordered = structs.replace(policy, members=dict(reversed([*policy.members.items()])))
    other = structs.replace(policy, splits={**policy.splits, "first": 2})
    assert reordered.digest() == policy.digest() != other.digest()
    for wrong in (
        {"k": 4},
        {"platform": b""},
        {"members": {**policy.members, "after 0": b"short"}},
        {"members": {**policy.members, "fourth": ENCLAVE}},
        {"sources": {**policy.sources, "first": ("before 0", "before 1")}},
        {"sources": {**policy.sources, "before 0": ("before 1",)}},
        {"splits": {**policy.splits, "first": -1}},
        {"splits": {**policy.splits, "first": 256}},
        {"splits": {**policy.splits, "first": True}},
        {"checked": 0},
        {"members": [*policy.members]},
        {"routes": {**policy.routes, "after 0": ("after 1",)}},
        {"routes": {**policy.routes, "first": ("after 0", "after 1")}},
        {"routes": {**policy.routes, "first": ("nobody",)}},
    ):
        with pytest.raises(ParameterError):
            structs.replace(policy, **wrong)
    for garbage in (b"", b"\x90", b"[]", b"\x91" * 200_000, policy.to_bytes()[:-9], b"\xff"):
        with pytest.raises(DecodeError, match="not a policy"):
            Policy.from_bytes(garbage)
    with pytest.raises(ParameterError, match="no enclave named"):
        place.platform.launch("after 0", policy)


@settings(max_examples=examples(50))
@given(st.lists(st.binary(max_size=20)))
def test_frames(parts: list[bytes]) -> None:
    stream = io.BytesIO()
    for part in parts:
        write_frame(stream, part)
    stream.seek(0)
    assert [read_frame(stream) for _ in parts] == parts
    assert read_frame(stream) is None


def test_requests_that_are_cut_off_or_longer_are_refused(place: Place) -> None:
    inside, request = _Inside("first", place.policy), write([b"report", bytes(32)])
    assert inside.handle(request)[:1] == enclave_process.DONE
    for wrong in (request[:-1], b"", request + b"\0", request + request):
        assert inside.handle(wrong)[:1] == enclave_process.REFUSED
    for request in ([b"report"], [b"report", bytes(32), b""], [b"challenge_for", b"\xff"]):
        assert inside.handle(write(request)) == enclave_process.FAILED


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (b"\1\0", "a length of 4 bytes"),
        ((enclave_process.MOST_BYTES + 1).to_bytes(4, "little"), "at most 16777216"),
        (b"\5\0\0\0four", "5 bytes was cut off at 4"),
    ],
)
def test_made_up_lengths_are_refused(stream: bytes, message: str) -> None:
    with pytest.raises(DecodeError, match=message):
        read_frame(io.BytesIO(stream))
