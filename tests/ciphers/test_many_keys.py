"""AES under many keys: published vectors, and the bytes of `cryptography` in each of three ways."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ccbps.arrays import Bytes
from ccbps.ciphers import bit_sliced, many_keys
from ccbps.ciphers.many_keys import LONG_ROW, MANY_KEYS, SHORT_ROW, encipher_rows
from ccbps.errors import ParameterError, ShapeError
from tests.support.effort import examples

WAYS = ["contexts", "bit-sliced", "compiled"]


def compiled_kernels() -> Any:
    """The module, where this machine can run it."""
    pytest.importorskip("numba")
    from ccbps.ciphers import compiled_kernels

    if not compiled_kernels.has_instructions():
        pytest.skip("no AES instructions")
    return compiled_kernels


def function(way: str) -> Callable[[Bytes, Bytes, Bytes], None]:
    if way == "contexts":
        return many_keys._by_contexts
    if way == "bit-sliced":
        return bit_sliced.encipher_rows
    found: Callable[[Bytes, Bytes, Bytes], None] = compiled_kernels().encipher_rows
    return found


each_way = pytest.mark.parametrize("way", WAYS)


def by(way: str, keys: Bytes, blocks: Bytes, out: Bytes | None = None) -> Bytes:
    """`encipher_rows`, in one way."""
    chosen = function(way)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(many_keys, "_fastest", lambda rows, width: chosen)
        return encipher_rows(keys, blocks, out)


def drawn(rows: int, width: int, seed: int = 0) -> tuple[Bytes, Bytes]:
    rng = np.random.default_rng(seed)
    return (
        rng.integers(0, 256, (rows, 16), dtype=np.uint8),
        rng.integers(0, 256, (rows, width, 16), dtype=np.uint8),
    )


def reference(keys: Bytes, blocks: Bytes) -> Bytes:
    """Each row by itself."""
    found = [
        Cipher(algorithms.AES(key.tobytes()), modes.ECB()).encryptor().update(row.tobytes())
        for key, row in zip(keys, blocks, strict=True)
    ]
    return np.frombuffer(b"".join(found), dtype=np.uint8).reshape(blocks.shape)


# -- the cipher ---------------------------------------------------------------------------------

VECTORS = """
2b7e151628aed2a6abf7158809cf4f3c 3243f6a8885a308d313198a2e0370734 3925841d02dc09fbdc118597196a0b32
000102030405060708090a0b0c0d0e0f 00112233445566778899aabbccddeeff 69c4e0d86a7b0430d8cdb78070b4c55a
2b7e151628aed2a6abf7158809cf4f3c 6bc1bee22e409f96e93d7e117393172a 3ad77bb40d7a3660a89ecaf32466ef97
2b7e151628aed2a6abf7158809cf4f3c ae2d8a571e03ac9c9eb76fac45af8e51 f5d3d58503b9699de785895a96fdbaaf
2b7e151628aed2a6abf7158809cf4f3c 30c81c46a35ce411e5fbc1191a0a52ef 43b1cd7f598ece23881b00e3ed030688
2b7e151628aed2a6abf7158809cf4f3c f69f2445df4f9b17ad2b417be66c3710 7b0c785e27e8ad3f8223207104725dd4
"""
"""Key, block, enciphered block: FIPS 197, appendices B and C.1; SP 800-38A, appendix F.1.1."""


@each_way
def test_published_vectors(way: str) -> None:
    rows = [bytes.fromhex(row) for row in VECTORS.split("\n") if row]
    vectors = np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(6, 3, 16)
    keys, blocks, enciphered = vectors.transpose(1, 0, 2)
    assert np.array_equal(by(way, keys, blocks[:, None])[:, 0], enciphered)
    assert np.array_equal(by(way, keys[2:3], blocks[None, 2:])[0], enciphered[2:])


@each_way
@settings(max_examples=examples(60))
@given(st.integers(0, 70) | st.sampled_from([127, 128, 129]), st.integers(0, 19), st.integers(0))
@example(0, 3, 0)
@example(3, 0, 0)
@example(1, 1, 0)
@example(64, 1, 0)
@example(5, 8, 0)
@example(6, 27, 0)
def test_any_shape_is_enciphered_as_each_row_by_itself(
    way: str, rows: int, width: int, seed: int
) -> None:
    keys, blocks = drawn(rows, width, seed)
    found = by(way, keys, blocks)
    assert found.dtype == np.uint8
    assert np.array_equal(found, reference(keys, blocks))


@each_way
@pytest.mark.parametrize(("rows", "width"), [(3001, 1), (700, 3), (2, LONG_ROW + 1)])
def test_large_batches(way: str, rows: int, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bit_sliced, "LANES", 1000)  # several passes
    keys, blocks = drawn(rows, width)
    assert np.array_equal(by(way, keys, blocks), reference(keys, blocks))


def test_the_circuit_is_the_s_box() -> None:
    def times(a: int, b: int) -> int:
        product = 0
        for bit in range(8):
            product ^= (a << bit) * (b >> bit & 1)
        for bit in range(14, 7, -1):
            product ^= (0x11B << bit - 8) * (product >> bit & 1)
        return product

    def s_box(value: int) -> int:
        inverse = next((other for other in range(256) if times(value, other) == 1), 0)
        turned = inverse
        for by in range(1, 5):
            turned ^= (inverse << by | inverse >> 8 - by) & 255
        return turned ^ 0x63

    values = np.arange(256)
    planes = np.zeros((bit_sliced._PLACES, 256), dtype=np.int64)
    for bit in range(8):
        planes[bit] = values >> bit & 1
    for operation, left, right, to in bit_sliced._STEPS:
        planes[to] = operation(planes[left], planes[right])
    found = sum((planes[8 + bit] ^ (bit in bit_sliced.NEGATED)) << bit for bit in range(8))
    assert found.tolist() == [s_box(value) for value in range(256)]
    assert len(bit_sliced._STEPS) == 115


# -- arrays in and out --------------------------------------------------------------------------


@each_way
def test_arrays_may_lie_anywhere(way: str) -> None:
    keys, blocks = drawn(140, 6)
    wide = np.zeros((140, 6, 33), dtype=np.uint8)
    for own_keys, own_blocks in (
        (keys[::-2], blocks[::-2, ::2]),
        (np.asfortranarray(keys), np.asfortranarray(blocks)),
        (keys[:, ::-1], blocks[:, :, ::-1]),
        (np.broadcast_to(keys[:1], keys.shape), np.broadcast_to(blocks[:1, :1], blocks.shape)),
    ):
        wanted = reference(own_keys, own_blocks)
        assert np.array_equal(by(way, own_keys, own_blocks), wanted)
        out = wide[: len(own_keys), : own_blocks.shape[1], 1:33:2]
        assert by(way, own_keys, own_blocks, out) is out
        assert np.array_equal(out, wanted)
    assert not wide[:, :, ::2].any()  # nothing beside it is written


@each_way
@pytest.mark.parametrize("shape", [(1, 1), (5, 1), (5, 2), (4, 9)])
def test_out_is_filled_and_nothing_beside_it(way: str, shape: tuple[int, int]) -> None:
    keys, blocks = drawn(*shape)
    room = np.full((shape[0] + 2, *blocks.shape[1:]), 7, dtype=np.uint8)
    out = room[1:-1]
    assert by(way, keys, blocks, out) is out
    assert np.array_equal(out, reference(keys, blocks))
    assert (room[0] == 7).all() and (room[-1] == 7).all()


@each_way
def test_out_may_overlap_with_what_is_read(way: str) -> None:
    keys, blocks = drawn(70, 3)
    wanted = reference(keys, blocks)
    room = np.concatenate([blocks, np.zeros_like(blocks[:1])])
    assert np.array_equal(by(way, keys, room[:-1], room[1:]), wanted)  # a row later
    own = keys.copy()
    by(way, own, blocks[:, :1], own[:, None])
    assert np.array_equal(own, wanted[:, 0])
    by(way, keys, blocks, blocks)
    assert np.array_equal(blocks, wanted)


@each_way
def test_what_is_read_may_be_read_only_and_stays_as_it_is(way: str) -> None:
    keys, blocks = drawn(70, 3)
    kept = keys.copy(), blocks.copy()
    for array in (keys, blocks):
        array.flags.writeable = False
    by(way, keys, blocks)
    assert np.array_equal(keys, kept[0]) and np.array_equal(blocks, kept[1])


GOOD = drawn(2, 3)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("keys", (GOOD[0][0], GOOD[1])),
        ("keys", (GOOD[0][:, :15], GOOD[1])),
        ("keys", (np.zeros((2, 32), np.uint8), GOOD[1])),
        ("keys", (GOOD[0].astype(np.int8), GOOD[1])),
        ("keys", (bytes(32), GOOD[1])),
        ("blocks", (GOOD[0], GOOD[1][:1])),
        ("blocks", (GOOD[0][:1], GOOD[1])),
        ("blocks", (GOOD[0], GOOD[1][0])),
        ("blocks", (GOOD[0], GOOD[1][:, :, :8])),
        ("blocks", (GOOD[0], GOOD[1].view(np.uint64))),
        ("blocks", (GOOD[0], None)),
        ("out", (*GOOD, GOOD[1][:, :2].copy())),
        ("out", (*GOOD, np.zeros((2, 3, 16)))),
        ("out", (*GOOD, bytearray(96))),
        ("out", (*GOOD, np.frombuffer(bytes(96), dtype=np.uint8).reshape(2, 3, 16))),
    ],
)
def test_other_arrays_are_refused(name: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(
        ShapeError, match=rf"^{name} (must be a uint8 array of shape \(|is read-only)"
    ):
        encipher_rows(*arguments)


# -- which way is taken -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "width", "usual", "compiled"),
    [
        (52, LONG_ROW, "contexts", "contexts"),
        (52, LONG_ROW - 1, "contexts", "compiled"),
        (MANY_KEYS, SHORT_ROW, "bit-sliced", "compiled"),
        (MANY_KEYS - 1, SHORT_ROW, "contexts", "compiled"),
        (MANY_KEYS, SHORT_ROW + 1, "contexts", "compiled"),
        (1, 1, "contexts", "compiled"),
    ],
)
def test_sizes_choose_the_way(
    rows: int, width: int, usual: str, compiled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for wish, wanted in (("0", usual), ("1", compiled)):
        if wanted != "compiled" or compiled_kernels():
            monkeypatch.setenv("CCBPS_COMPILED", wish)
            assert many_keys._fastest(rows, width) is function(wanted)


def run(code: str, **environment: str) -> str:
    """What a fresh process prints."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name != "CCBPS_COMPILED" and not name.startswith("NUMBA_")
    }
    return subprocess.run(
        [sys.executable, "-c", code],
        env=kept | environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


LONG_WORK = """
import sys
from ccbps.ciphers import bit_sliced, many_keys
half = many_keys.LOADING_BLOCKS // 2
assert many_keys._fastest(10, 10**6) is many_keys._by_contexts
assert many_keys._fastest(half - 1, 1) is bit_sliced.encipher_rows
assert "numba" not in sys.modules
assert many_keys._fastest(half + 1, 1).__module__.endswith("compiled_kernels")
assert many_keys._fastest(1, 1).__module__.endswith("compiled_kernels")
"""


def test_long_work_loads_the_compiled_kernels() -> None:
    compiled_kernels()
    run(LONG_WORK)


@contextmanager
def unloaded() -> Iterator[None]:
    """The kernels have not been loaded; nor are they after it."""
    found = compiled_kernels()
    kept = (many_keys._numba_problem, many_keys._has_instructions, found._kernel)
    for function in kept:
        function.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(many_keys, "_treated", [many_keys.LOADING_BLOCKS])
        patch.delenv("CCBPS_COMPILED", raising=False)
        yield
    for function in kept:
        function.cache_clear()


def check_that_numpy_does_the_work(why: str) -> None:
    keys, blocks = drawn(MANY_KEYS, 1)
    with pytest.warns(RuntimeWarning, match=f"NumPy does the work: .*{why}"):
        found = encipher_rows(keys, blocks)
    assert np.array_equal(found, reference(keys, blocks))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it warns once
        assert many_keys._fastest(MANY_KEYS, 1) is bit_sliced.encipher_rows
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CCBPS_COMPILED", "1")
        with pytest.raises(ParameterError, match=f"CCBPS_COMPILED is 1, but .*{why}"):
            encipher_rows(keys, blocks)


@pytest.mark.parametrize("fault", range(0, 7 * 11, 9))
def test_kernels_that_differ_are_not_used(fault: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with unloaded():
        kernels = compiled_kernels()
        right = kernels._kernel()

        def wrong(keys: Bytes, blocks: Bytes, out: Bytes, rows: int, width: int) -> None:
            right(keys, blocks, out, rows, width)
            out[16 * fault + 15] ^= 128

        with monkeypatch.context() as patch:
            patch.setattr(kernels, "_kernel", lambda: wrong)
            check_that_numpy_does_the_work("differs from that of `cryptography`")


def refuse(*arguments: object, **options: object) -> None:
    raise NotImplementedError("no such instruction")


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("numba.njit", refuse, "no such instruction"),
        ("numba.config.DISABLE_JIT", 1, "NUMBA_DISABLE_JIT is set"),
    ],
)
def test_kernels_that_cannot_or_must_not_be_compiled_are_not_used(
    name: str, value: Any, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with unloaded(), monkeypatch.context() as patch:
        patch.setattr(name, value)
        check_that_numpy_does_the_work(why)


OTHER_PROCESSOR = """
import sys, warnings
warnings.simplefilter("error")
from ccbps.ciphers import bit_sliced, many_keys
way = many_keys._fastest(many_keys.LOADING_BLOCKS, 1)
print(way.__module__.rsplit(".", 1)[1], "numba" in sys.modules)
"""


@pytest.mark.parametrize("wish", ["", "1"])
@pytest.mark.parametrize(
    "processor", [{"NUMBA_CPU_NAME": "generic"}, {"NUMBA_CPU_FEATURES": "+sse2,-aes"}]
)
def test_without_instructions_numpy_does_the_work(processor: dict[str, str], wish: str) -> None:
    pytest.importorskip("numba")
    assert run(OTHER_PROCESSOR, CCBPS_COMPILED=wish, **processor) == "bit_sliced True\n"


def test_without_numba_numpy_does_the_work(tmp_path: Path) -> None:
    (tmp_path / "numba.py").write_text("raise ModuleNotFoundError('no such thing')\n")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    assert run(OTHER_PROCESSOR, PYTHONPATH=path) == "bit_sliced False\n"


@pytest.mark.slow
def test_kept_kernels_serve_the_processors_they_were_compiled_for(tmp_path: Path) -> None:
    compiled_kernels()
    check = "from ccbps.ciphers import compiled_kernels; compiled_kernels.check()"
    kept = []
    for processor in ({}, {}, {"NUMBA_ENABLE_AVX": "0"}, {"NUMBA_CPU_NAME": "x86-64-v3"}):
        run(check, NUMBA_CACHE_DIR=str(tmp_path), **processor)
        kept.append(len(list(tmp_path.rglob("*._rows-*.nbc"))))
    assert kept == [1, 1, 2, 3]
