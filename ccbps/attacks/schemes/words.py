"""Attacks on matchers of words, `KeywordFilterMatch` and `KeywordDictionaryMatch`.

The adversary is the broker. It has bodies of messages, as
`ccbps.matching.contract.access.bodies_of` cuts them out, the public parameters, and its own key.
Equal words look alike in all subscriptions, and each word can be tried alone on every event. A
range by partitions is the words of all cells that it touches:

1. Two ranges that overlap share cells, neighbours most often. So subscriptions alone put all cells
   of a partition in their order, or in the reverse one.
2. The cells that contain an event, one of each partition, overlap as well. So the cells of all
   partitions have one order, and each event lies between its neighbours.
3. Words of one clause belong to one attribute, and so do words that never occur together. The
   numbers of cells are public, and identify the attribute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from ccbps.arrays import Bools, Bytes, Index, Reals
from ccbps.attacks.catalogue import Curve, Figure, Outcome, attack
from ccbps.attacks.schemes.views import make_broken, read_answers
from ccbps.checks import whole
from ccbps.keys.role_key import RoleKey
from ccbps.keys.seeds import SharedSeed
from ccbps.matching.contract.access import bodies_of
from ccbps.matching.one_time.formula import FormulaMatch
from ccbps.matching.words.keyword_dictionary import KeywordDictionaryMatch
from ccbps.matching.words.words import KeywordFilterMatch, WordMatcher
from ccbps.predicates import Category, Schema, UInt

Clause: TypeAlias = tuple[bytes, ...]
"""Words of a clause, one of which an event must have."""


def clauses_of(matcher: WordMatcher, interests: Bytes) -> list[list[Clause]]:
    """Read the words of subscriptions, clause by clause.

    Args:
        matcher: the matcher; its parameters are public.
        interests: bodies of subscriptions.
    """
    shape = len(interests), matcher.vocabulary.clauses, matcher.vocabulary.slots, -1
    clauses = [
        # A place without a word has no key behind its first four bytes.
        [tuple(word for word in map(bytes, clause) if any(word[4:])) for clause in body]
        for body in interests.reshape(shape)
    ]
    return [[clause for clause in body if clause] for body in clauses]


def hits_of(matcher: WordMatcher, key: RoleKey, events: Bytes, words: Sequence[bytes]) -> Bools:
    """Try words alone, each as a subscription that the broker makes of it.

    Args:
        matcher: the matcher.
        key: the broker's key.
        events: bodies of events.
        words: words by `clauses_of`.

    Returns:
        words that are found, shape (events, words).
    """
    alone = np.zeros((len(words), matcher.sizes.interest // len(words[0]), len(words[0])), np.uint8)
    if isinstance(matcher, KeywordDictionaryMatch):
        alone[..., :4] = 255
    alone[:, 0] = np.frombuffer(b"".join(words), np.uint8).reshape(len(words), -1)
    data = key.export_secret_data()
    return matcher.match(data, events, matcher.table(data, alone.reshape(len(words), -1)))


def words_in_common(clauses: Sequence[Clause]) -> tuple[list[bytes], Reals]:
    """Return the different words, and the number of clauses in which two stand together.

    Args:
        clauses: clauses of all subscriptions.
    """
    words = list(dict.fromkeys(word for clause in clauses for word in clause))
    number = {word: place for place, word in enumerate(words)}
    member = np.zeros((len(clauses), len(words)))
    for row, clause in enumerate(clauses):
        member[row, [number[word] for word in clause]] = 1
    return words, member.T @ member


def in_line(common: Reals) -> Index:
    """Put items in line, so that those with much in common are neighbours.

    The second eigenvector of the Laplacian sorts what can be sorted at all [ABH98]. The line may
    come out from its end.

    Args:
        common: number of elements that two items have in common.
    """
    rest = common - np.diag(np.diag(common))
    return np.argsort(np.linalg.eigh(np.diag(rest.sum(axis=1)) - rest)[1][:, 1])


def connected(common: Reals) -> Index:
    """Find the connected part that each item is in, and return the first item of that part.

    Args:
        common: number of elements that two items have in common.
    """
    least = np.arange(len(common))
    while True:
        new = np.array([least[row > 0].min() for row in common])
        if np.array_equal(new, least):
            return least
        least = new


def values_from_cells(hits: Bools, width: float, size: int) -> Reals:
    """Estimate the values of events from the cells that they are in.

    Args:
        hits: cells of several partitions that events are in, shape (events, cells).
        width: values from the start of a cell to that of the next one, over all partitions.
        size: number of values of the domain.

    Returns:
        values, or all of them reflected.
    """
    counts = hits.astype(float)
    common = counts.T @ counts
    common[common < 4] = 0  # false positives
    ranks = np.argsort(in_line(common))
    middles = size / 2 + (ranks + 0.5 - hits.shape[1] / 2) * width
    return np.array([np.median(middles[row]) if row.any() else size / 2 for row in hits])


def attributes_of_words(common: Reals, hits: Bools, cells: Mapping[str, int]) -> list[str]:
    """Find the attribute of each word by clauses and hits.

    Words that stand in one clause belong to one attribute, which the number of its cells tells. A
    word that stands alone belongs to an attribute without cells, unless it is never found together
    with the cells of another.

    Args:
        common: number of clauses in which two words stand, by `words_in_common`.
        hits: hits by `hits_of`.
        cells: number of cells of a partition, by the name of the attribute; 1 for the one attribute
            without partitions.
    """
    numbers = hits.astype(float)
    together, count = numbers.T @ numbers, numbers.sum(axis=0)
    part = connected(common)
    size = np.bincount(part, minlength=len(common))[part]
    few = 3  # a cell that was asked for alone, or with one or two others
    by_size = sorted((number, name) for name, number in cells.items())
    alone = by_size[0][1]
    names = [
        alone if own <= few else next(name for number, name in by_size if number >= own)
        for own in size.tolist()
    ]
    for word in np.flatnonzero(size <= few):
        for other in np.unique(part[size > few]):
            inside = np.flatnonzero(part == other)
            by_chance = count[word] * count[inside].sum() / len(hits)
            if by_chance > few and together[word, inside].sum() < 0.15 * by_chance:
                names[word] = names[other]
    return names


def null_of(hits: Bools) -> tuple[int, int]:
    """Find the word of IS NOT NULL, and that of IS NULL, among all words of an attribute.

    Wherever any other word is found, that of IS NOT NULL is found, too, with one exception.

    Args:
        hits: hits of the words.

    Returns:
        places of IS NOT NULL and of IS NULL.
    """
    counts = hits.astype(int)
    inside = (counts.T @ counts / counts.sum(axis=0)).T  # share of a word's events with another
    present = int((inside > 0.9).sum(axis=0).argmax())
    return present, int(inside[:, present].argmin())


def named_by_frequency(
    shares: Sequence[Sequence[float]], first: Reals, second: Reals, events: int
) -> list[int]:
    """Name the values of conjunctions ``x = v AND y > p`` by how often each word is found.

    The two words of a subscription stand in any order.

    Args:
        shares: shares of events with each word; of a subscription with one share, that of both.
        first: frequencies of the values v.
        second: frequencies of ``y > p``, by p.
        events: number of events, for the error of a share.

    Returns:
        the most likely v of each subscription.
    """

    def surprise(share: float, expected: Reals) -> Reals:
        return np.asarray((share - expected) ** 2 / (expected * (1 - expected) / events))

    named = []
    for mine in shares:
        if len(mine) == 1:
            likely = surprise(mine[0], np.multiply.outer(first, second))
        else:
            likely = np.minimum(
                np.add.outer(surprise(mine[0], first), surprise(mine[1], second)),
                np.add.outer(surprise(mine[1], first), surprise(mine[0], second)),
            )
        named.append(int(likely.min(axis=1).argmin()))
    return named


# -- the catalogue ---------------------------------------------------------------------------------


@attack(
    title="Ranges give the order of all cells away, and with it their bounds",
    goal="confidentiality",
    adversary="the broker of `KeywordFilterMatch` with partitions, with subscriptions alone",
    defence="no partitions; a matcher whose subscriptions have nothing in common, such as "
    "`InnerProductMatch` or `FormulaMatch`",
    source="[ABH98]",
)
def word_cells_in_order(
    *, ranges: int = 150, cells: int = 32, bits: int = 12, seed: int = 1
) -> Outcome:
    """Read the bounds of ranges by the cells that they have in common.

    A range is sent as the words of all cells of a partition that it touches. Neighbours stand in
    more ranges together than cells that lie apart, which puts them in line. The places of a range's
    first and last cell are its bounds. The line may be reversed, so the better of both is counted.

    Args:
        ranges: number of subscriptions, 10 or more.
        cells: number of cells of the partition, 4 or more.
        bits: number of bits of a value, 4 to 20.
        seed: seed of the ranges.

    Example:
        >>> from ccbps.attacks import word_cells_in_order
        >>> error = word_cells_in_order(ranges=80)["median error of bounds"]
        >>> error.undefended < 2 and error.defended > 15
        True
    """
    whole("ranges", ranges, 10)
    random = np.random.default_rng(whole("seed", seed, 0))
    size = 1 << whole("bits", bits, 4, 20)
    whole("cells", cells, 4, size // 4)
    width = random.integers(2, size // 2, ranges)
    low = random.integers(0, size - width)
    bounds = np.stack([low, low + width - 1], axis=1)
    texts = [f"x BETWEEN {first} AND {last}" for first, last in bounds]
    schema = Schema(x=UInt(bits))

    matcher = make_broken(KeywordFilterMatch, schema, partitions={"x": (cells, 1)})
    interests = matcher.subscriber(
        matcher.key_server(randomness=random.bytes).subscriber_key("client")
    ).encode(texts)
    seen = [body[0] for body in clauses_of(matcher, bodies_of(matcher, interests, "interest"))]
    once = FormulaMatch.box(schema)
    others = once.subscriber(SharedSeed(random.bytes(32))).encode(texts, range(ranges))
    # The same attack takes every piece of a message for a word.
    pieces = [
        tuple(body[at : at + 6].tobytes() + bytes([at]) for at in range(0, len(body), 6))
        for body in bodies_of(once, others, "interest")
    ]

    def error(clauses: list[Clause]) -> float:
        words, common = words_in_common(clauses)
        place = {words[at]: rank for rank, at in enumerate(in_line(common).tolist())}
        ranks = [[place[word] for word in clause] for clause in clauses]
        ends = np.array([[min(each), max(each) + 1] for each in ranks]) * size / len(words)
        mirrored = size - ends[:, ::-1]
        truth = bounds[: len(clauses)]
        return min(float(np.median(np.abs(each - truth))) for each in (ends, mirrored)) / size

    counts = sorted({max(5, round(ranges * part)) for part in (0.05, 0.1, 0.3, 1)})
    without = [100 * error(seen[:count]) for count in counts]
    defended = [100 * error(pieces[:count]) for count in counts]
    return Outcome(
        (Figure("median error of bounds", "% of the domain", without[-1], defended[-1]),),
        Curve(
            "ranges",
            "median error of bounds (% of the domain)",
            tuple(counts),
            {"without defence": tuple(without), "with FormulaMatch": tuple(defended)},
        ),
    )


@attack(
    title="Frequencies give words their names",
    goal="confidentiality",
    adversary="the broker of `KeywordFilterMatch`, which knows how frequent values are",
    defence="a matcher that shows the answers of whole subscriptions only, such as "
    "`InnerProductMatch` or `FormulaMatch`",
)
def word_frequencies(*, values: int = 8, events: int = 4000, seed: int = 1) -> Outcome:
    """Name the values in subscriptions ``issue = v AND price > p``.

    Issues are known to have Zipf's frequencies, and prices to be uniform. The broker takes
    subscriptions apart, and counts the events that have each word. With a matcher that shows the
    answers of whole subscriptions only, it counts those, and looks for v and p that together occur
    as often. For fewer events than all, the share is the mean over several windows.

    Args:
        values: number of issues, 2 to 15.
        events: number of events, 100 or more.
        seed: seed of events and subscriptions.

    Example:
        >>> from ccbps.attacks import word_frequencies
        >>> named = word_frequencies(events=2000)["subscriptions whose issue is named"]
        >>> named.undefended > 0.6 > named.defended
        True
    """
    whole("values", values, 2, 15)
    whole("events", events, 100)
    random = np.random.default_rng(whole("seed", seed, 0))
    names = [f"S{number}" for number in range(values)]
    points = np.arange(16, 256, 16)
    schema = Schema(issue=Category(names), price=UInt(8))
    frequencies = 1 / np.arange(1, values + 1)
    frequencies /= frequencies.sum()
    above = (255 - points) / 256
    drawn = random.choice(values, events, p=frequencies)
    records = {"issue": np.array(names)[drawn], "price": random.integers(0, 256, events)}
    # Each issue with each of five limits.
    truth = np.repeat(np.arange(values), 5)
    texts = [
        f"issue = '{names[v]}' AND price > {p}"
        for v, p in zip(truth, random.choice(points, len(truth)), strict=True)
    ]

    matcher = KeywordFilterMatch(schema, points={"price": points.tolist()})
    server = matcher.key_server(randomness=random.bytes)
    interests = matcher.subscriber(server.subscriber_key("client")).encode(texts)
    publisher = matcher.publisher(server.publisher_key(), randomness=random.bytes)
    sent = publisher.encode(records)
    clauses = clauses_of(matcher, bodies_of(matcher, interests, "interest"))
    words = sorted({word for body in clauses for (word,) in body})
    number = {word: place for place, word in enumerate(words)}
    hits = hits_of(matcher, server.broker_key(), bodies_of(matcher, sent, "event"), words)

    answers = read_answers(schema, records, texts)[:, :, 0].T
    counts = sorted({round(events * part) for part in (0.025, 0.05, 0.1, 0.25, 0.5, 1)})
    lines: list[list[float]] = [[], []]
    for count in counts:
        right = np.zeros((2, len(texts)))
        windows = range(0, events - count + 1, count)
        for start in windows:
            some = slice(start, start + count)
            share = hits[some].mean(axis=0).tolist()
            views = (
                [[share[number[word]] for (word,) in body] for body in clauses],
                [[mine] for mine in answers[:, some].mean(axis=1).tolist()],
            )
            for row, view in zip(right, views, strict=True):
                row += named_by_frequency(view, frequencies, above, count) == truth
        for line, mean in zip(lines, right.mean(axis=1) / len(windows), strict=True):
            line.append(float(mean))
    return Outcome(
        (Figure("subscriptions whose issue is named", "", lines[0][-1], lines[1][-1]),),
        Curve(
            "events",
            "subscriptions whose issue is named (share)",
            tuple(counts),
            {"without defence": tuple(lines[0]), "with FormulaMatch": tuple(lines[1])},
            log="x",
        ),
    )
