"""Draw diagrams: the parties and their messages, the choice of a matcher, the jobs of Spark."""

from __future__ import annotations

from drawing import BROKER, IDENTITY, INK, PUBLISHER, QUIET, SUBSCRIBER, TILE, WIDTH, Drawing

Colours = tuple[str, str, str]

# (condition, matcher, what it is for; colours)
CHOICES: tuple[tuple[str, tuple[tuple[str, str], ...], Colours], ...] = (
    (
        "1  There are three brokers, no two of which work together",
        (("any of the predicates of FormulaMatch; encoded once", "ThreeBrokerMatch"),),
        BROKER,
    ),
    (
        "2  The broker may not even learn who matched",
        (("equality of topics; all receive an event, few can open it", "ObliviousTopicMatch"),),
        SUBSCRIBER,
    ),
    (
        "3  It may learn who matched, and nothing else: a message per event and subscription",
        (
            ("AND of intervals; which attributes are constrained is hidden", "FormulaMatch.box"),
            ("any formula; its form may be known, its constants not", "FormulaMatch, template"),
            ("any formula of so many leaves; its form is hidden", "FormulaMatch.hidden"),
            ("any of these, an event encoded once for all subscriptions", "BroadcastMatch"),
            ("one private value, or one of several", "EqualityMatch, MembershipMatch"),
            ("Hamming distances, scores; limit and weights are private", "ThresholdMatch"),
            ("anything at all, on at most 20 bits", "TruthTableMatch"),
            ("OR of few equalities, small sets; encoded once; slow", "InnerProductMatch"),
            ("at_least over some 40 conditions or more; public form", "BranchingMatch"),
            ("a public function of private bits of both sides", "PublicFunctionMatch"),
            ("a public circuit of many gates: sums, long distances, files", "GarbledMatch"),
            ("for comparison only: earlier constructions", "OFSGPMatch, FSGPMatch, UGPMatch"),
        ),
        BROKER,
    ),
    (
        "4  There are too many events for that, and the broker may also learn what the card lists",
        (
            ("AND of intervals", "TagMatch"),
            ("AND of equalities; users can be revoked at the broker", "KeywordMatch"),
            ("equality of all attributes together; hop by hop", "CommutativeMatch"),
            ("equality of all attributes together; cheapest", "MaskedTopicMatch"),
            ("AND of equalities and ranges widened to given points", "KeywordDictionaryMatch"),
            ("the same with fewer bytes and some false matches", "KeywordFilterMatch"),
        ),
        PUBLISHER,
    ),
    (
        "5  Never to protect data: broken, here for study and comparison",
        (
            ("intervals", "AdditiveMaskMatch, PrefixMatch"),
            ("intervals", "PaillierRangeMatch, AspeMatch"),
            ("AND, OR, at_least", "AccessTreeMatch"),
        ),
        IDENTITY,
    ),
)


def draw_choice() -> str:
    """Draw all matchers under five headings, the first of which that holds decides."""
    rows = sum(len(choices) for _, choices, _ in CHOICES)
    height = 16 + len(CHOICES) * 38 + rows * (TILE + 7)
    drawing = Drawing(
        "Which matcher to take: the first heading that is true, then its lines", height
    )
    y = 10.0
    for heading, choices, colours in CHOICES:
        y += 20
        drawing.text(14, y, heading, INK, size=13.5)
        y += 10
        top = y
        for what, name in choices:
            middle = y + TILE / 2
            drawing.line([(26, top - 6), (26, middle), (44, middle)])
            drawing.text(50, middle + 4.5, what, QUIET)
            drawing.tile(WIDTH - 276, y, 262, name, colours)
            y += TILE + 7
        y += 8
    return drawing.svg()


def draw_parties() -> str:
    """Draw the data and messages of each party: one-time matchers above, reusable below."""
    drawing = Drawing("The parties, what they hold and what they send", 384)
    wide = 190
    left, middle, right = 14.0, (WIDTH - wide) / 2, WIDTH - 14.0 - wide

    def row(y: float, kind: str, below: tuple[tuple[str, ...], ...]) -> None:
        drawing.text(left, y - 10, kind, INK, size=13.5)
        parties = ("publisher", PUBLISHER), ("broker", BROKER), ("subscribers", SUBSCRIBER)
        for x, (name, colours), lines in zip((left, middle, right), parties, below, strict=True):
            drawing.tile(x, y + 62, wide, name, colours)
            for i, text in enumerate(lines):
                place = x + wide / 2, y + 108 + 17 * i
                drawing.text(*place, text, QUIET, anchor="middle", size=11.5)
        drawing.line([(left + wide, y + 76), (middle, y + 76)])
        drawing.line([(right, y + 76), (middle + wide, y + 76)])

    y = 36.0
    row(
        y,
        "One-time matchers",
        (
            ("has: events, the seed", "sends a message per", "event and subscription"),
            ("has: messages", "finds one answer for each pair", "of messages, nothing else"),
            ("have: predicates, the seed", "send a message per", "round, in advance"),
        ),
    )
    ends = left + wide / 2, right + wide / 2
    corners = (ends[0], 62), (ends[0], 20), (ends[1], 20), (ends[1], 62)
    drawing.line([(x, y + down) for x, down in corners], arrow=False)
    text = "a seed for each pair, which the broker must not have"
    drawing.text(WIDTH / 2, y + 13, text, QUIET, anchor="middle", size=11.5)

    y = 228.0
    row(
        y,
        "Reusable matchers",
        (
            ("has: events, a key", "sends one message", "per event"),
            ("has: messages, a key", "finds answers for all pairs,", "and what the card lists"),
            ("have: predicates, keys", "send one message", "per subscription"),
        ),
    )
    drawing.tile(middle, y + 2, wide, "key server", IDENTITY)
    drawing.line([(middle, y + 16), (ends[0], y + 16), (ends[0], y + 62)])
    drawing.line([(WIDTH / 2, y + 2 + TILE), (WIDTH / 2, y + 62)])
    drawing.line([(middle + wide, y + 16), (ends[1], y + 16), (ends[1], y + 62)])
    return drawing.svg()


def draw_trio() -> str:
    """Draw three brokers: what clients send each of them, what each holds, and the ring."""
    drawing = Drawing("Three brokers: what each gets, what it holds, and what it passes on", 330)
    wide, side = 260.0, 150.0
    middle, right = (WIDTH - wide) / 2, WIDTH - 14.0 - side
    tops = (34.0, 140.0, 246.0)
    held = (
        ("has x0, x1, y0, y1", "masks from k0 and k1"),
        ("has x1, x2, y1, y2", "masks from k1 and k2"),
        ("has x2, x0, y2, y0", "masks from k2 and k0"),
    )
    drawing.tile(14, tops[1], side, "publisher: x", PUBLISHER)
    drawing.tile(right, tops[1], side, "subscriber: y", SUBSCRIBER)
    for number, (top, lines) in enumerate(zip(tops, held, strict=True)):
        drawing.tile(middle, top, wide, f"broker {number}", BROKER)
        for place, line in enumerate(lines):
            y = top + TILE + 17 + 16 * place
            drawing.text(WIDTH / 2, y, line, QUIET, anchor="middle", size=11.5)
        for start, end, name in ((14 + side, middle, "x"), (right, middle + wide, "y")):
            drawing.line([(start, tops[1] + TILE / 2), (end, top + TILE / 2)])
            text = "a nonce" if number == 0 else f"{name}2"
            # Beside the line, two thirds of its way.
            x, y = start + (end - start) * 0.62, tops[1] + (top - tops[1]) * 0.62 + TILE / 2
            drawing.text(x, y - 8, text, INK, anchor="middle", size=11.5)
    for top in tops[1:]:
        drawing.line([(middle + 22, top), (middle + 22, top - 106 + TILE)])
    for top in tops[:2]:  # from broker 0 to broker 2, behind broker 1
        drawing.line(
            [(middle + wide - 22, top + TILE), (middle + wide - 22, top + 106)],
            arrow=top == tops[1],
        )
    return drawing.svg()


def draw_p3s() -> str:
    """Draw P3S: the authority's keys, an announcement for everybody, an item for whoever asks."""
    drawing = Drawing("P3S: subscribers match, and no server can", 250)
    wide, side = 230.0, 150.0
    middle, right = (WIDTH - wide) / 2, WIDTH - 14.0 - side
    tops = (16.0, 96.0, 190.0)
    clients = 143.0
    drawing.tile(middle, tops[0], wide, "token authority", IDENTITY)
    drawing.tile(14, clients, side, "publisher", PUBLISHER)
    drawing.tile(right, clients, side, "subscribers", SUBSCRIBER)
    servers = (
        (tops[1], "dissemination server", "gives every announcement to everybody"),
        (tops[2], "repository", "gives an item for its GUID"),
    )
    for top, name, does in servers:
        drawing.tile(middle, top, wide, name, BROKER)
        drawing.text(WIDTH / 2, top + TILE + 17, does, QUIET, anchor="middle", size=11.5)
        line = clients + TILE / 2, top + TILE / 2
        drawing.line([(14 + side, line[0]), (middle, line[1])])
        drawing.line([(middle + wide, line[1]), (right, line[0])])
    keys = (
        (14 + side / 2, middle, "public keys"),
        (right + side / 2, middle + wide, "a token, a key for payloads"),
    )
    for end, start, text in keys:
        y = tops[0] + TILE / 2
        drawing.line([(start, y), (end, y), (end, clients)])
        drawing.text((start + end) / 2, y - 5, text, QUIET, anchor="middle", size=11.5)
    between = (14 + side + middle) / 2, (middle + wide + right) / 2
    for x, text in zip(between, ("announcement", "all of them"), strict=True):
        drawing.text(x, tops[1] + 6, text, QUIET, anchor="middle", size=11.5)
    for x, text in zip(between, ("item", "by GUID"), strict=True):
        drawing.text(x, clients + TILE + 32, text, QUIET, anchor="middle", size=11.5)
    return drawing.svg()


def draw_job() -> str:
    """Draw the three jobs of the Spark tutorial, and the stores between them."""
    drawing = Drawing("Three jobs: subscribers and publisher write stores, a broker matches", 184)
    wide, gap, left = 152.0, 44.0, 14.0
    places = [left + (wide + gap) * i for i in range(4)]
    tops = (36.0, 124.0)
    rows = (
        ("subscribers", "predicates", "encode_interests", "write_messages", SUBSCRIBER),
        ("publisher", "events", "encode_events", "write_messages", PUBLISHER),
    )
    notes = (
        ("has: a ring of keys", "for rounds to come", "a store of interests"),
        ("has: the seed", "rounds from a ledger", "a store of events"),
    )
    for y, (who, data, encode, write, colours), (key, how, what) in zip(
        tops, rows, notes, strict=True
    ):
        drawing.text(left, y - 12, who, INK, size=13.5)
        for x, text in zip(places, (data, encode, write), strict=False):
            drawing.tile(x, y, wide, text, colours)
        for x, text in zip(places, (key, how, what), strict=False):
            drawing.text(x + wide / 2, y + TILE + 17, text, QUIET, anchor="middle", size=11.5)
        for x in places[:2]:
            drawing.line([(x + wide, y + TILE / 2), (x + wide + gap, y + TILE / 2)])
    middle = (tops[0] + tops[1]) / 2 + TILE / 2
    end = places[3]
    drawing.text(end, middle - 26, "broker", INK, size=13.5)
    drawing.tile(end, middle - TILE / 2, WIDTH - left - end, "match_messages", BROKER)
    for y in tops:
        x = places[2] + wide
        turn = x + gap / 2
        drawing.line(
            [(x, y + TILE / 2), (turn, y + TILE / 2), (turn, middle), (end, middle)],
            arrow=y == tops[0],
        )
    centre = end + (WIDTH - left - end) / 2
    for i, text in enumerate(("has: no key", "learns one bit a pair")):
        drawing.text(centre, middle + 32 + 17 * i, text, QUIET, anchor="middle", size=11.5)
    return drawing.svg()
