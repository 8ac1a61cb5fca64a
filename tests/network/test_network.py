"""Connections with pinned peers: nobody else gets in, nothing is altered, nobody waits for ever."""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import queue
import socket
import ssl
import struct
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from ccbps.errors import (
    DecodeError,
    KeyMismatchError,
    NetworkError,
    ParameterError,
    PeerError,
    SerializationError,
)
from ccbps.network import Certificate, Channel, Credentials, Identity, Server, channel, connect
from ccbps.network.identity import tls_context
from tests.support.relay import place_of, read_or_end, records, relayed

ALICE, BOB, MALLORY = (Identity.derive(bytes(32), name) for name in (b"a", b"b", b"m"))
SECONDS = 60.0
MOST = 1 << 21


def answering(peer: Channel) -> None:
    """Send back what comes."""
    while True:
        peer.send(peer.receive(MOST))


@contextmanager
def serving(
    serve: Callable[[Channel], object] = answering,
    identity: Identity = BOB,
    peers: tuple[Identity, ...] = (ALICE,),
    **options: Any,
) -> Iterator[Server]:
    credentials = Credentials(identity, tuple(peer.certificate() for peer in peers))
    with Server(credentials, serve, **{"frame_seconds": SECONDS, **options}) as server:
        yield server


def to_bob(
    address: str, identity: Identity = ALICE, peer: Identity = BOB, seconds: float = SECONDS
) -> Channel:
    return connect(address, identity, peer.certificate(), seconds=seconds)


@pytest.fixture(scope="module")
def echo() -> Iterator[Server]:
    """A server that all tests share; so many strangers come that it logs them no more."""
    with serving() as server:
        yield server


@pytest.fixture
def fresh() -> Iterator[Server]:
    """A server whose log tells of all refusals."""
    with serving() as server:
        yield server


# -- frames --------------------------------------------------------------------------------------


CONTENT = st.binary(max_size=50) | st.builds(
    lambda size, byte: bytes([byte]) * size,
    st.sampled_from([2**14 - 5, 2**14 - 4, 2**14 - 3, 2**14, 2**14 + 1, 2**20 + 1]),
    st.integers(0, 255),
)


@given(frames=st.lists(st.lists(CONTENT, max_size=3), max_size=3))
def test_frames_arrive_as_they_were_sent(echo: Server, frames: list[list[bytes]]) -> None:
    with to_bob(echo.address) as client:
        for parts in frames:
            content = b"".join(parts)
            if len(content) > MOST:
                continue
            client.send(*map(memoryview, parts), memoryview(np.zeros((0, 3))))
            assert client.receive(len(content)) == content


def test_a_quiet_channel_is_one_where_nothing_waits_and_nobody_left(echo: Server) -> None:
    with to_bob(echo.address) as client:
        assert client.is_quiet()
        client.send(b"one")
        until = time.monotonic() + SECONDS
        while client.is_quiet():
            assert time.monotonic() < until
        assert client.receive(3) == b"one"
        assert client.is_quiet()
    assert not client.is_quiet()
    with serving(lambda _: None) as server, to_bob(server.address) as left:
        until = time.monotonic() + SECONDS
        while left.is_quiet():
            assert time.monotonic() < until
        with pytest.raises(NetworkError):
            left.receive(0)


def test_a_large_frame_arrives_in_time() -> None:
    """32 MB: copies that grow with the square of the length would take minutes."""
    content, digests = os.urandom(1 << 20) * 32, queue.Queue[bytes]()
    with (
        serving(lambda peer: digests.put(sha256(peer.receive(1 << 26)).digest())) as server,
        to_bob(server.address) as client,
    ):
        client.send(memoryview(content)[:5], bytearray(content[5:]))
        assert digests.get(timeout=60) == sha256(content).digest()


def test_a_frame_that_is_too_long_is_refused(
    fresh: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with to_bob(fresh.address) as client:
        client.send(b"12345")
        with pytest.raises(PeerError, match="a frame of 5 bytes came, at most 4 were expected"):
            client.receive(4)
        for again in (lambda: client.receive(5), lambda: client.send(b"1")):
            with pytest.raises(NetworkError, match="the channel is closed: connect again"):
                again()
    with to_bob(fresh.address) as client, suppress(NetworkError):
        client.send(bytes(MOST), b"1")
        assert not client.receive(MOST)
    until_logged(caplog, f"a frame of {MOST + 1} bytes came, at most {MOST} were expected")
    monkeypatch.setattr(channel, "MOST_BYTES", 4)
    with to_bob(fresh.address) as client:
        with pytest.raises(ParameterError, match="a frame has at most 4 bytes, got 5: split it"):
            client.send(b"123", b"45")
        client.send(b"1234")  # nothing of the other was sent
        assert client.receive(4) == b"1234"


def until_logged(caplog: pytest.LogCaptureFixture, text: str) -> None:
    until = time.monotonic() + SECONDS
    while text not in caplog.text:
        assert time.monotonic() < until, caplog.text
        time.sleep(0.01)


def as_frame(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


FRAMES = st.binary(max_size=99).map(as_frame)


@given(sent=st.lists(st.binary(max_size=9) | FRAMES, max_size=4).map(b"".join))
def test_whatever_a_pinned_peer_sends_is_frames_or_one_clear_error(sent: bytes) -> None:
    frames, rest = [], sent
    while len(rest) >= 4 and (size := int.from_bytes(rest[:4], "big")) <= min(64, len(rest) - 4):
        frames.append(rest[4 : 4 + size])
        rest = rest[4 + size :]
    long = len(rest) >= 4 and int.from_bytes(rest[:4], "big") > 64
    came, errors = list[bytes](), queue.Queue[Exception]()

    def read(peer: Channel) -> None:
        try:
            while True:
                came.append(bytes(peer.receive(64)))
        except Exception as error:
            errors.put(error)

    with serving(read) as server, raw_tls(server.address, ALICE) as client:
        client.sendall(sent)
        socket.socket.shutdown(client, socket.SHUT_WR)
        error = errors.get(timeout=SECONDS)
    assert came == frames
    assert type(error) is (PeerError if long else NetworkError)
    assert str(error) == (
        f"a frame of {int.from_bytes(rest[:4], 'big')} bytes came, at most 64 were expected"
        if long
        else "the connection ended"
    )


@contextmanager
def raw_tls(address: str, identity: Identity) -> Iterator[ssl.SSLSocket]:
    """Connect as a pinned peer that does not know of frames."""
    context = identity.context([BOB.certificate()], server=False)
    with (
        socket.create_connection(place_of(address), SECONDS) as raw,
        context.wrap_socket(raw, server_hostname=name_of(BOB)) as client,
    ):
        assert client.recv(4) == bytes(4)
        yield client


def name_of(identity: Identity) -> str:
    fingerprint = identity.certificate().fingerprint
    return f"{fingerprint[:32]}.{fingerprint[32:]}"


# -- who is let in -------------------------------------------------------------------------------


def test_only_pinned_peers_are_let_in_and_believed(
    fresh: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with to_bob(fresh.address) as client:
        assert client.peer == BOB.certificate()
    # Who is not pinned; who asks for a certificate that the server does not have.
    for identity, peer in ((MALLORY, BOB), (BOB, BOB), (ALICE, MALLORY), (ALICE, ALICE)):
        with pytest.raises(KeyMismatchError, match="does not have the certificate that was asked"):
            to_bob(fresh.address, identity, peer)
    until_logged(caplog, "the server refused 127.0.0.1:")
    # A server that says that it is Bob.
    with Server(lambda _: Credentials(MALLORY, (ALICE.certificate(),)), answering) as server:
        with pytest.raises(PeerError, match="certificate of the other side is refused"):
            to_bob(server.address)
        with to_bob(server.address, peer=MALLORY) as client:
            assert client.peer == MALLORY.certificate()


def test_a_server_tells_its_peers_apart() -> None:
    names = {ALICE.certificate(): b"alice", MALLORY.certificate(): b"mallory"}
    with serving(lambda peer: peer.send(names[peer.peer]), peers=(ALICE, MALLORY)) as server:
        for identity, name in ((MALLORY, b"mallory"), (ALICE, b"alice")):
            with to_bob(server.address, identity) as client:
                assert client.receive(9) == name


class Forged(Identity):
    """An identity with another certificate for its key.

    Attributes:
        signer: whose key signs it.
        year: when it begins; it is good for fifty years.
    """

    __slots__ = ("signer", "year")
    signer: Identity
    year: int

    def _certificate(self) -> x509.Certificate:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "forged")])
        issuer = subject if self.signer is self else self.signer._certificate().subject
        builder = x509.CertificateBuilder().issuer_name(issuer).subject_name(subject)
        builder = builder.public_key(self._key().public_key()).serial_number(5)
        builder = builder.not_valid_before(datetime(self.year, 1, 1, tzinfo=UTC))
        builder = builder.not_valid_after(datetime(self.year + 50, 1, 1, tzinfo=UTC))
        return builder.sign(self.signer._key(), None)


def forged(key: Identity, signer: Identity | None = None, year: int = 2020) -> Forged:
    identity = Forged(key.export_secret())
    identity.signer, identity.year = signer or identity, year
    return identity


def test_certificates_that_are_expired_vouched_for_or_made_anew_are_refused() -> None:
    expired = forged(BOB, year=1960)
    # An expired certificate is refused though it is pinned.
    with serving(identity=expired) as server, pytest.raises(PeerError, match="expired"):
        to_bob(server.address, peer=expired)
    # A pinned peer cannot vouch for others; and its key alone is not its certificate.
    vouched = forged(MALLORY, BOB)
    again = forged(BOB)
    for identity in (vouched, again):
        credentials = Credentials(identity, (ALICE.certificate(),))
        with (
            Server(lambda _, found=credentials: found, answering) as server,
            pytest.raises(PeerError, match="is refused"),
        ):
            to_bob(server.address)
    # The same the other way round.
    with serving(identity=ALICE, peers=(BOB,)) as server:
        for identity in (vouched, again):
            with pytest.raises(KeyMismatchError):
                to_bob(server.address, identity, peer=ALICE)
    with (
        serving(identity=ALICE, peers=(expired,)) as server,
        pytest.raises(PeerError, match="EXPIRED"),
    ):
        to_bob(server.address, expired, peer=ALICE)


def test_a_certificate_that_tls_alone_would_accept_is_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    context = Identity.context

    def trusting(own: Identity, peers: list[Certificate], *, server: bool) -> ssl.SSLContext:
        return context(own, [*peers, MALLORY.certificate()], server=server)

    monkeypatch.setattr(Identity, "context", trusting)
    with serving() as server, pytest.raises(NetworkError, match="ended"):
        to_bob(server.address, MALLORY)
    until_logged(caplog, "the certificate of the other side is not pinned")


def test_an_identity_has_one_certificate() -> None:
    """Machines that derive it from a common secret get the same bytes, whatever their versions."""
    identity = Identity(bytes(range(32)))
    assert identity.certificate() == Identity(bytes(range(32))).certificate() != BOB.certificate()
    assert identity.certificate().fingerprint == GOLDEN
    assert Identity.generate() != Identity.generate()
    assert Identity.derive(bytes(32), b"a") != Identity.derive(bytes(32), b"b")
    assert Identity.derive(bytes(32), b"a") == ALICE


GOLDEN = "6176212f9640ed45f4efbf3ac92155984cd79d49ceda9835328f0e8f09ed0f93"


@given(der=st.binary(max_size=99) | st.just(BOB.certificate().der + ALICE.certificate().der))
def test_bytes_that_are_no_certificate_are_one_clear_error(der: bytes) -> None:
    with pytest.raises(DecodeError, match=r"der must be one X.509 certificate in DER form"):
        Certificate(der)


# -- what is on the wire -------------------------------------------------------------------------


def test_what_was_recorded_cannot_be_opened_with_the_long_term_keys(echo: Server) -> None:
    """TLS 1.3, a fresh key exchange in each connection, and no tickets: keys are gone with it."""
    shares, said = [], []
    for _ in range(2):
        with relayed(echo.address) as relay, to_bob(relay.address) as client:
            tls: Any = client._connection
            assert tls.version() == "TLSv1.3"
            client.send(b"the same content")
            assert client.receive(99) == b"the same content"
            assert not tls.session_reused and not tls.session.has_ticket
        hellos = [extensions(said) for said in relay.seen]
        # pre_shared_key would be 41; key_share is 51.
        assert all(41 not in hello and 51 in hello for hello in hellos)
        shares += [hello[51] for hello in hellos]
        said.append(relay.seen)
    assert len({*shares}) == 4
    hidden = [b"the same content", ALICE.export_secret(), ALICE.certificate().der]
    hidden += [BOB.export_secret(), BOB.certificate().der]
    assert not any(one in side for sides in said for side in sides for one in hidden)


def extensions(said: bytes) -> dict[int, bytes]:
    """Parse the extensions of the first message that one side sent, a hello (RFC 8446, 4.1)."""
    hello = said[5 : 5 + int.from_bytes(said[3:5], "big")]
    at = 4 + 2 + 32
    at += 1 + hello[at]  # session
    if hello[0] == 1:
        at += 2 + int.from_bytes(hello[at : at + 2], "big")  # ciphers
        at += 1 + hello[at]  # compressions
    else:
        assert hello[0] == 2
        at += 2 + 1
    end, at, found = at + 2 + int.from_bytes(hello[at : at + 2], "big"), at + 2, {}
    while at < end:
        kind, length = struct.unpack(">HH", hello[at : at + 4])
        found[kind] = hello[at + 4 : at + 4 + length]
        at += 4 + length
    return found


def test_an_older_tls_is_refused(echo: Server) -> None:
    context = BOB.context([BOB.certificate()], server=False)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    with (
        socket.create_connection(place_of(echo.address), SECONDS) as raw,
        pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"),
    ):
        context.wrap_socket(raw, server_hostname=name_of(BOB))


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("harm", ["flip", "drop", "swap", "repeat", "insert"])
def test_records_that_were_altered_on_their_way_are_not_read(
    echo: Server, side: int, harm: str
) -> None:
    """Whichever record it is: the handshake's, the frame that lets a client in, or a later one."""
    with ThreadPoolExecutor(6) as others:
        results = [*others.map(lambda place: reached(echo.address, side, harm, place), range(12))]
    for came, done, error in results:
        assert came == [bytes([number]) for number in range(len(came))]
        assert not done or error is not None
    assert sum(done for _, done, _ in results) >= 8


Altered: TypeAlias = tuple[list[bytearray], bool, NetworkError | None]


def reached(address: str, side: int, harm: str, place: int) -> Altered:
    """What `altered` returns; with more time if a slow machine did not come to the record."""
    came, done, error = [], False, None
    for seconds in (1.0, SECONDS):
        met = list[int]()
        came, done, error = altered(address, side, harm, place, met, seconds)
        if met or error is None:
            break
    return came, done, error


def altered(
    address: str, side: int, harm: str, place: int, met: list[int], seconds: float
) -> Altered:
    """What came of twelve frames, whether a record was altered, and what the client met.

    Args:
        met: gets the place, if a record came there that matters.
    """
    held, done, came = list[bytes](), list[int](), list[bytearray]()

    def change(number: int, record: bytes) -> bytes:
        # Of type 20 is a record that says nothing and may be left out (RFC 8446, D.4).
        if number == place:
            met.append(number)
        if harm == "swap" and number == place and record[0] != 20:
            held.append(record)
            return b""
        if held:
            if record[0] != 20:
                done.append(number)
            return record + held.pop()
        if harm == "swap" or number != place or record[0] == 20:
            return record
        done.append(number)
        return {
            "flip": record[:-1] + bytes([record[-1] ^ 1]),
            "drop": b"",
            "repeat": record + record,
            "insert": b"\x17\x03\x03\x00\x20" + bytes(32) + record,
        }[harm]

    with relayed(address, change, side, records) as relay:
        try:
            # What was left out is waited for.
            with to_bob(relay.address, seconds=seconds) as client:
                for number in range(12):
                    client.send(bytes([number]))
                for _ in range(12):
                    came.append(client.receive(9))
        except NetworkError as error:
            return came, bool(done), error
    return came, bool(done), None


def test_nobody_can_play_one_side_s_record_to_the_other(
    fresh: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with relayed(fresh.address) as relay, to_bob(relay.address) as client:
        client.send(b"content")
        assert client.receive(99) == b"content"
    said, answered = relay.seen
    # A client's record, played to the server.
    caplog.clear()
    with socket.create_connection(place_of(fresh.address), SECONDS) as stranger:
        stranger.sendall(said)
        assert b"content" not in b"".join(iter(lambda: read_or_end(stranger), b""))
    until_logged(caplog, "the server refused 127.0.0.1:")
    # A server's record, played to a client.
    with playing(answered) as address, pytest.raises(PeerError, match="TLS failed"):
        to_bob(address)


@contextmanager
def playing(content: bytes, *, end: bool = False) -> Iterator[str]:
    """A server that says something to whoever comes, and nothing else."""
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as other:

        def play() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(content)
                if end:
                    connection.shutdown(socket.SHUT_WR)
                while read_or_end(connection):
                    pass

        playing = other.submit(play)
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        playing.result()


RECORDS = st.binary(max_size=99).map(lambda rest: b"\x16\x03\x03" + rest)


@given(content=st.binary(max_size=99) | RECORDS)
def test_whatever_a_stranger_says_is_one_clear_error(echo: Server, content: bytes) -> None:
    with playing(content, end=True) as address, pytest.raises(NetworkError):
        to_bob(address)
    with socket.create_connection(place_of(echo.address), SECONDS) as stranger:
        stranger.sendall(content)
        stranger.shutdown(socket.SHUT_WR)
        while read_or_end(stranger):
            pass


def test_strangers_did_no_harm(echo: Server) -> None:
    with to_bob(echo.address) as client:
        client.send(b"content")
        assert client.receive(99) == b"content"
    # The last ones may still be on their way out.
    until = time.monotonic() + SECONDS
    while len(echo._served) > 1:
        assert time.monotonic() < until
        time.sleep(0.01)


# -- nobody waits for ever -----------------------------------------------------------------------


def test_a_client_waits_for_a_while() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(NetworkError, match="the peer took too long"):
            to_bob(address, seconds=0.3)
    with pytest.raises(NetworkError, match=f"{address} cannot be reached: "):
        to_bob(address, seconds=0.3)
    with pytest.raises(NetworkError, match="cannot be reached: "):
        to_bob(f"{'a' * 70}.example:1", seconds=0.3)


def test_peers_that_are_slow_are_given_up_and_others_are_served(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silent before the handshake or after it, byte by byte, or writing and never reading."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(channel, "HANDSHAKE_SECONDS", 3)
    monkeypatch.setattr(channel, "PARTING_SECONDS", 0.2)
    with (
        serving(frame_seconds=3, connections=4) as server,
        ExitStack() as stack,
        ThreadPoolExecutor(3) as others,
    ):
        # No thread of the server is left for the last one until another one is given up.
        stack.enter_context(socket.create_connection(place_of(server.address)))
        stack.enter_context(to_bob(server.address))
        dribbling = stack.enter_context(raw_tls(server.address, ALICE))
        flooding = stack.enter_context(to_bob(server.address))
        ended = threading.Event()

        def dribble() -> None:
            with suppress(OSError):
                dribbling.sendall(b"\0\0\0\x63")
                while not ended.is_set():
                    dribbling.sendall(b"x")
                    time.sleep(0.05)

        def flood() -> int:
            sent = 0
            with suppress(NetworkError):
                while not ended.is_set():
                    flooding.send(bytes(MOST), seconds=30)
                    sent += MOST
            return sent

        others.submit(dribble)
        flooded = others.submit(flood)
        with to_bob(server.address) as client:
            client.send(b"content")
            assert client.receive(9) == b"content"
        # What is not read waits at its sender: kernels take some megabytes and no more.
        assert flooded.result(timeout=SECONDS) < 64 << 20
        until = time.monotonic() + SECONDS
        while caplog.text.count("the peer took too long") < 4:
            assert time.monotonic() < until, caplog.text
            time.sleep(0.01)
        ended.set()


def test_who_writes_to_a_peer_that_does_not_read_gives_up() -> None:
    ended = threading.Event()
    with serving(lambda _: ended.wait(SECONDS)) as server, to_bob(server.address) as client:
        with pytest.raises(NetworkError, match="the peer took too long"):
            client.send(bytes(1 << 26), seconds=0.5)
        with pytest.raises(NetworkError, match="the channel is closed"):
            client.send(b"")
        ended.set()


def test_many_clients_are_served_some_at_a_time() -> None:
    lock, now, most = threading.Lock(), [0], [0]

    def count(peer: Channel) -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        try:
            peer.send(peer.receive(99))
            with suppress(NetworkError):
                peer.receive(0)  # until it goes
        finally:
            with lock:
                now[0] -= 1

    def ask(number: int) -> None:
        with to_bob(server.address, seconds=60) as client:
            client.send(str(number).encode())
            assert client.receive(99) == str(number).encode()

    with serving(count, connections=3) as server, ThreadPoolExecutor(16) as others:
        assert len([*others.map(ask, range(60))]) == 60
    assert most[0] <= 3
    assert not server._served


def test_a_server_that_closes_ends_all_and_frees_its_port() -> None:
    with serving() as server, to_bob(server.address) as client, ThreadPoolExecutor(1) as other:
        waiting = other.submit(client.receive, 9)
        server.close()
        with pytest.raises(NetworkError, match="ended"):
            waiting.result(timeout=SECONDS)
        server.close()  # again is nothing
        with serving(port=place_of(server.address)[1]) as later:
            assert later.address == server.address
            with pytest.raises(NetworkError, match=r"no server can listen at 127.0.0.1, port"):
                Server(lambda _: None, answering, port=place_of(server.address)[1])


def test_a_thread_that_uses_a_channel_closes_it_itself(
    echo: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file number must not be another file's while TLS still reads from it and writes to it."""
    closed_by, reading, closed = list[int](), threading.Event(), threading.Event()
    with to_bob(echo.address) as client, ThreadPoolExecutor(1) as other:
        connection = client._connection
        close, receive = connection.close, connection.recv_into

        def noted() -> None:
            closed_by.append(threading.get_ident())
            close()

        def slow(view: memoryview) -> int:
            reading.set()
            count = receive(view)
            assert closed.wait(SECONDS)
            return count

        monkeypatch.setattr(connection, "close", noted)
        monkeypatch.setattr(connection, "recv_into", slow)
        waiting = other.submit(client.receive, 9)
        assert reading.wait(SECONDS)
        client.close()
        assert not closed_by and not client.is_quiet()
        with pytest.raises(NetworkError, match="the channel is closed"):
            client.send(b"")
        closed.set()
        with pytest.raises(NetworkError, match="ended"):
            waiting.result(timeout=SECONDS)
        assert closed_by == [other.submit(threading.get_ident).result()]


def test_a_channel_that_is_looked_at_is_not_closed_meanwhile(
    echo: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with to_bob(echo.address) as client:
        connection = client._connection

        def pending() -> int:
            client.close()
            assert connection.fileno() >= 0
            return 0

        monkeypatch.setattr(connection, "pending", pending)
        assert not client.is_quiet()  # it has ended
        assert connection.fileno() < 0


def test_a_server_listens_on_ipv6() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("there is no IPv6 on this machine")
    with serving(host="::1") as server, to_bob(server.address) as client:
        assert server.address.startswith("[::1]:")
        client.send(b"content")
        assert client.receive(9) == b"content"


def test_what_a_server_s_function_raises_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def failing(peer: Channel) -> None:
        raise ValueError(peer.receive(99).decode())

    with serving(failing) as server:
        for text in ("first", "second"):
            with to_bob(server.address) as client:
                client.send(text.encode())
                with pytest.raises(NetworkError, match="ended"):
                    client.receive(9)
            until_logged(caplog, f"ValueError: {text}")
        assert "the server failed to serve 127.0.0.1:" in caplog.text


# -- forks ---------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_a_forked_process_cannot_use_a_channel_nor_keep_or_end_one() -> None:
    """Two processes would encrypt different frames under one nonce."""
    context = multiprocessing.get_context("fork")
    told, end, gone = context.Queue(), context.Event(), threading.Event()

    def serve(peer: Channel) -> None:
        with suppress(NetworkError):
            answering(peer)
        gone.set()

    with (
        serving(serve, frame_seconds=5 * SECONDS) as server,
        to_bob(server.address) as client,
        to_bob(server.address) as forgotten,
    ):

        def use() -> None:
            server.close()
            for attempt in (lambda: client.send(b"1"), lambda: client.receive(9)):
                try:
                    attempt()
                except NetworkError as error:
                    told.put(str(error))
            client.close()
            end.wait(5 * SECONDS)

        child = context.Process(target=use, daemon=True)
        child.start()
        for _ in range(2):
            assert "connect in the new process" in told.get(timeout=SECONDS)
        client.send(b"content")
        assert client.receive(9) == b"content"
        # The child has copies of all sockets; what ends here ends nevertheless.
        forgotten.close()
        assert gone.wait(SECONDS)
        server.close()
        with pytest.raises(NetworkError, match="ended"):
            client.receive(9)
        with serving(port=place_of(server.address)[1]):
            pass
        end.set()
        child.join()


# -- secrets -------------------------------------------------------------------------------------


def test_secrets_do_not_print_pickle_or_stay_in_tracebacks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    credentials = Credentials(ALICE, (BOB.certificate(),))
    with serving() as server, to_bob(server.address) as client:
        shown = [repr(one) for one in (ALICE, credentials, server, client, client.peer)]
        for one in (ALICE, credentials, server, client):
            with pytest.raises(SerializationError):
                pickle.dumps(one)
        for identity, peer in ((ALICE, MALLORY), (MALLORY, BOB)):
            with pytest.raises(KeyMismatchError) as refused:
                to_bob(server.address, identity, peer)
            trace = traceback.TracebackException.from_exception(refused.value, capture_locals=True)
            shown += trace.format()
    with pytest.raises(ssl.SSLError) as failed:
        ALICE.context([forged_garbage()], server=False)
    trace = traceback.TracebackException.from_exception(failed.value, capture_locals=True)
    text = "".join([*shown, *trace.format(), caplog.text])
    for secret in (ALICE, BOB, MALLORY):
        raw = secret.export_secret()
        assert raw.hex() not in text and repr(raw)[2:-1] not in text
    assert "PRIVATE KEY" not in text


def forged_garbage() -> Certificate:
    certificate = BOB.certificate()
    object.__setattr__(certificate, "der", b"garbage")
    return certificate


@pytest.mark.parametrize("memory", [True, False])
def test_private_keys_leave_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, memory: bool
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    load, modes = ssl.SSLContext.load_cert_chain, list[tuple[str, int]]()

    def watched(context: ssl.SSLContext, path: str) -> None:
        modes.append((path, Path(path).stat().st_mode & 0o777))
        load(context, path)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", watched)
    if not memory:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    descriptors = Path("/proc/self/fd")
    files = {*descriptors.iterdir()} if descriptors.exists() else set[Path]()
    ALICE.context([BOB.certificate()], server=True)
    (path, mode), *_ = modes
    if memory and hasattr(os, "memfd_create"):
        assert path.startswith("/proc/self/fd/")
    else:
        assert Path(path).parent == tmp_path
        assert mode == 0o600 or os.name == "nt"
        assert not Path(path).exists()
    assert [*tmp_path.iterdir()] == []
    # Threads of other tests may close some meanwhile.
    assert not files or {*descriptors.iterdir()} <= files

    def failing(*_: object) -> None:
        raise OSError("no more files")

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", failing)
    with pytest.raises(OSError, match="no more files"):
        ALICE.context([BOB.certificate()], server=True)
    assert [*tmp_path.iterdir()] == []


def test_arguments_are_checked() -> None:
    for address in (
        "here",
        "here:",
        ":7400",
        "here:0",
        "here:70000",
        "here:" + "1" * 5000,
        7400,
        None,
    ):
        with pytest.raises(ParameterError, match=r"address must be the server's 'host:port'"):
            connect(address, ALICE, BOB.certificate())  # type: ignore[arg-type]
    for port in (-1, 70000, "7400"):
        with pytest.raises(ParameterError, match=r"port must be .* from 0 to 65,535"):
            Server(lambda _: None, answering, port=port)  # type: ignore[arg-type]
    with pytest.raises(KeyMismatchError, match="a network identity has 32 bytes, got 31"):
        Identity(bytes(31))


def test_contexts_require_certificates() -> None:
    for server in (False, True):
        context = tls_context(server=server)
        assert context.verify_mode == ssl.CERT_REQUIRED
        assert context.minimum_version == ssl.TLSVersion.TLSv1_3
