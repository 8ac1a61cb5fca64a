"""Garlic: messages that travel in bulbs of b cloves, which relays take apart and mix.

A clove is a message under a layer for each relay of its path. Each layer holds instructions: the
next relay or, for the last one, a topic, and a delay. A *bulb* is b cloves, encrypted for one
relay. The relay opens it, opens the cloves, and keeps them in a pool. When a set number of bulbs
has come, it shuffles the pool, and sends it on in new bulbs, one or more to each next relay,
independent of the bulbs that the cloves came in. Dummies fill bulbs up; the next relay drops them.
All bulbs have one size.

All cloves have the same number of layers. A relay learns the layer that it opened, and so its place
on the path.

Layers and bulbs are X25519 with a fresh key each, HKDF-SHA256 and AES-256-GCM.

With larger bulbs fewer of them travel, so a relay waits for the cloves of more senders before it
sends. This gives an observer of all links more candidates for the sender, and delays messages.
As long as it has its key, a relay drops bulbs and cloves that it opened before: a replayed clove
would reveal its way. It keeps `MOST_KEPT` cloves at most.
Hazards: an attacker that fills a pool with own bulbs but for one can trace that one. Relays that
collude can trace their cloves.
Source: [Survey] chapter 6, as future work.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ccbps.arrays import Randomness
from ccbps.checks import Printable, octets, text, whole
from ccbps.errors import DecodeError, ParameterError
from ccbps.keys.secret import Confined
from ccbps.overlay.onion.cells import KEY_BYTES, RelayKey, shuffled

TEXT_BYTES: Final = 48
"""Largest number of bytes of a relay's name or of a topic."""
HEAD_BYTES: Final = 4 + TEXT_BYTES
LAYER_BYTES: Final = KEY_BYTES + 16
LENGTH_BYTES: Final = 2
MOST_KEPT: Final = 1 << 16
"""Largest number of cloves that a relay keeps in its pool, or for a delay."""
PASS_ON: Final = 0
DELIVER: Final = 1


class Garlic(Printable):
    """The sizes of bulbs and the relays of a network. It holds no secret.

    Args:
        relays: public key of each relay by name.
        cloves: number b of cloves in a bulb.
        hops: number of relays on each path.
        content_bytes: largest number of bytes of a message.
        randomness: source of uniform bytes.

    Attributes:
        bulb_bytes: bytes of a bulb.

    Example:
        >>> from ccbps.overlay import Garlic, GarlicRelay, RelayKey
        >>> keys = {name: RelayKey.generate() for name in ("a", "b")}
        >>> publics = {name: key.public for name, key in keys.items()}
        >>> garlic, heard = Garlic(publics, cloves=2, hops=2, content_bytes=100), []
        >>> relays = {}
        >>> for name, key in keys.items():
        ...     send = lambda to, bulb: relays[to].receive(bulb)
        ...     deliver = lambda topic, content: heard.append((topic, content))
        ...     now = lambda delay, action: action()
        ...     relays[name] = GarlicRelay(garlic, key, send, deliver, now, bulbs=1)
        >>> relays["a"].receive(garlic.bulb("a", [garlic.clove(["a", "b"], "news", b"hello")]))
        >>> heard
        [('news', b'hello')]
    """

    def __init__(
        self,
        relays: Mapping[str, bytes],
        *,
        cloves: int,
        hops: int,
        content_bytes: int,
        randomness: Randomness = os.urandom,
    ) -> None:
        self.relays = {name: octets("relays", key, KEY_BYTES) for name, key in relays.items()}
        self.cloves, self.hops = whole("cloves", cloves, 1, 256), whole("hops", hops, 1, 16)
        self.content_bytes = whole("content_bytes", content_bytes, 1, 0xFFFF)
        self.randomness = randomness
        self.clove_bytes = self.size(self.hops)
        self.bulb_bytes = LAYER_BYTES + self.cloves * self.clove_bytes

    def __repr__(self) -> str:
        return f"<Garlic: {self.cloves} cloves, {self.bulb_bytes} bytes>"

    def size(self, layers: int) -> int:
        """Return the number of bytes of a clove with `layers` layers."""
        return LENGTH_BYTES + self.content_bytes + layers * (LAYER_BYTES + HEAD_BYTES)

    def clove(
        self, path: Sequence[str], topic: str, content: bytes, delays: Sequence[int] = ()
    ) -> bytes:
        """Return a clove for the first relay of a path.

        Args:
            path: names of `hops` distinct relays.
            topic: topic that the last relay delivers it under.
            content: message.
            delays: least time that each relay keeps it, 0 to 65,535; empty for no delays.

        Raises:
            ParameterError: an argument is malformed, or too long.
        """
        hops, times = [*path], [*delays] or [0] * len(path)
        if not len({*hops}) == len(times) == len(hops) == self.hops:
            raise ParameterError(
                f"path must have {self.hops} distinct relays, and a delay for each"
            )
        if not {*hops} <= self.relays.keys():
            raise ParameterError("path must have relays whose keys are known")
        if len(octets("content", content)) > self.content_bytes:
            raise ParameterError(f"content must have at most {self.content_bytes} bytes")
        inner = len(content).to_bytes(LENGTH_BYTES, "big") + content
        inner = inner.ljust(LENGTH_BYTES + self.content_bytes, b"\0")
        kinds = [PASS_ON] * (self.hops - 1) + [DELIVER]
        names = [*hops[1:], text("topic", topic)]
        for hop, kind, name, delay in reversed([*zip(hops, kinds, names, times, strict=True)]):
            encoded = name.encode()
            if len(encoded) > TEXT_BYTES:
                raise ParameterError(f"a name or topic has at most {TEXT_BYTES} bytes")
            time = whole("delays", delay, 0, 0xFFFF).to_bytes(2, "big")
            head = bytes([kind, len(encoded)]) + time + encoded.ljust(TEXT_BYTES, b"\0")
            inner = self._seal(hop, head + inner)
        return inner

    def bulb(self, relay: str, cloves: Sequence[bytes]) -> bytes:
        """Return a bulb for a relay: some cloves, and dummies."""
        if len(cloves) > self.cloves or relay not in self.relays:
            raise ParameterError(f"a bulb has at most {self.cloves} cloves, for a known relay")
        sizes = [self.clove_bytes - len(clove) for clove in cloves]
        slots = [c + self.randomness(more) for c, more in zip(cloves, sizes, strict=True)]
        slots += [self.randomness(self.clove_bytes) for _ in range(self.cloves - len(cloves))]
        return self._seal(relay, b"".join(shuffled(slots, self.randomness)))

    def _seal(self, relay: str, content: bytes) -> bytes:
        fresh = RelayKey(self.randomness(KEY_BYTES))
        public = fresh.public
        key = _key(fresh.agree(self.relays[relay]), public + self.relays[relay])
        return public + AESGCM(key).encrypt(bytes(12), content, None)


class GarlicRelay(Confined):
    """A relay of bulbs.

    Args:
        garlic: sizes and relays.
        key: static key of this relay.
        send: function that sends a bulb to a relay, by name.
        deliver: function that takes the topic and the content of a message.
        after: function that calls an action after a time, such as `ccbps.overlay.Port.after`.
        bulbs: number of bulbs that must have come before the pool is sent.

    Attributes:
        dropped: number of bulbs and cloves that were dropped, by cause: "bulb" (malformed or
            repeated), "dummy" (or a clove that was changed or repeated), "unknown" (an unknown
            relay), "full".
    """

    def __init__(
        self,
        garlic: Garlic,
        key: RelayKey,
        send: Callable[[str, bytes], None],
        deliver: Callable[[str, bytes], None],
        after: Callable[[float, Callable[[], None]], None],
        *,
        bulbs: int,
    ) -> None:
        self._garlic, self._key, self._public = garlic, key, key.public
        self._send, self._deliver, self._after = send, deliver, after
        self._threshold, self._came = whole("bulbs", bulbs, 1), 0
        self._pool: list[tuple[int, str, bytes]] = []
        self._delayed, self._seen = 0, set[bytes]()
        self.dropped: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"<GarlicRelay: {len(self._pool)} cloves in its pool>"

    def receive(self, bulb: bytes) -> None:
        """Take a bulb. No content of it raises an error."""
        if not isinstance(bulb, bytes) or len(bulb) != self._garlic.bulb_bytes:
            self.dropped["bulb"] += 1
            return
        _, content = self._open(bulb, [len(bulb)])
        if not content:
            self.dropped["bulb"] += 1
            return
        size = self._garlic.clove_bytes
        for at in range(0, len(content), size):
            self._take(content[at : at + size])
        self._came += 1
        if self._came >= self._threshold:
            self.flush()

    def flush(self) -> None:
        """Send the pool, and deliver the messages that end here."""
        pool, self._pool, self._came = self._pool, [], 0
        random, b = self._garlic.randomness, self._garlic.cloves
        ways: dict[str, list[bytes]] = {}
        ready: list[Callable[[], None]] = []
        for kind, name, inner in shuffled(pool, random):
            if kind == PASS_ON:
                ways.setdefault(name, []).append(inner)
            else:
                ready.append(_later(self._deliver, name, inner))
        for name, cloves in ways.items():
            for at in range(0, len(cloves), b):
                bulb = self._garlic.bulb(name, cloves[at : at + b])
                ready.append(_later(self._send, name, bulb))
        for action in shuffled(ready, random):
            action()

    def _take(self, clove: bytes) -> None:
        """Put a clove into the pool, after its delay."""
        all_layers = range(self._garlic.hops, 0, -1)
        place, content = self._open(clove, [self._garlic.size(layers) for layers in all_layers])
        if not content:
            self.dropped["dummy"] += 1
            return
        layers = all_layers[place]
        kind, length = content[0], content[1]
        name = content[4 : 4 + min(length, TEXT_BYTES)].decode("utf-8", "replace")
        inner = content[HEAD_BYTES:]
        if (kind == DELIVER) != (layers == 1) or (
            kind == PASS_ON and name not in self._garlic.relays
        ):
            self.dropped["unknown"] += 1
            return
        if kind == DELIVER:
            size = int.from_bytes(inner[:LENGTH_BYTES], "big")
            inner = inner[LENGTH_BYTES : LENGTH_BYTES + size]
        kept = kind, name, inner
        if len(self._pool) + self._delayed >= MOST_KEPT:
            self.dropped["full"] += 1
        elif delay := int.from_bytes(content[2:4], "big"):
            self._delayed += 1
            self._after(delay, lambda: self._ripen(kept))
        else:
            self._pool.append(kept)

    def _ripen(self, kept: tuple[int, str, bytes]) -> None:
        """Put a clove into the pool whose delay is over."""
        self._delayed -= 1
        self._pool.append(kept)

    def _open(self, sealed: bytes, sizes: Sequence[int]) -> tuple[int, bytes]:
        """Open a bulb or a clove, unless it was opened before.

        Returns:
            place of its size among some sizes, and content, which is empty if it does not open.
        """
        public = sealed[:KEY_BYTES]
        if public not in self._seen:
            with suppress(DecodeError):
                cipher = AESGCM(_key(self._key.agree(public), public + self._public))
                for place, size in enumerate(sizes):
                    with suppress(InvalidTag):
                        content = cipher.decrypt(bytes(12), sealed[KEY_BYTES:size], None)
                        self._seen.add(public)
                        return place, content
        return 0, b""


def _later(action: Callable[[str, bytes], None], name: str, content: bytes) -> Callable[[], None]:
    return lambda: action(name, content)


def _key(shared: bytes, context: bytes) -> bytes:
    return HKDF(SHA256(), 32, None, b"ccbps 1 garlic\0" + context).derive(shared)
