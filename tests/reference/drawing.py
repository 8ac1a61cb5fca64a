"""Slow twin: the draws of A5 from a sequence's bytes, word by word, in Python integers."""

from __future__ import annotations

__all__ = ["wire_planes"]

ALL = (1 << 64) - 1


def wire_planes(randomness: bytes, words: int, block: int = 8192) -> list[list[int]]:
    """a0 a1 b0 b1 t0 t1, each a list of `words` words."""
    numbers = [
        int.from_bytes(randomness[i : i + 8], "little") for i in range(0, len(randomness), 8)
    ]
    planes = [numbers[i * words : (i + 1) * words] for i in range(10)]
    spare = numbers[10 * words :]
    budget, used = len(spare) // 4, 0
    for start in range(0, words, block):
        waiting = range(start, min(start + block, words))
        draws = {word: [planes[6 + plane][word] for plane in range(4)] for word in waiting}
        while draws:
            for word, draw in draws.items():
                nothing = ALL & ~(
                    planes[0][word] | planes[1][word] | planes[2][word] | planes[3][word]
                )
                for plane in range(4):
                    planes[plane][word] |= draw[plane] & nothing
            again = [
                word
                for word in draws
                if planes[0][word] | planes[1][word] | planes[2][word] | planes[3][word] != ALL
            ]
            draws = {}
            for word in again:
                assert used < budget
                draws[word] = [spare[plane * budget + used] for plane in range(4)]
                used += 1
    return planes[:6]
