"""Simulated links: order, loss, crashes and counts."""

from __future__ import annotations

from typing import Any

import pytest

from ccbps.errors import ParameterError
from ccbps.overlay import Links


class Listener:
    """Code of a node that keeps what it receives."""

    def __init__(self) -> None:
        self.got: list[Any] = []

    def receive(self, sender: str, message: Any) -> None:
        self.got.append(message)


def pair(**options: Any) -> tuple[Links, Listener]:
    links, end = Links([("a", "b")], **options), Listener()
    links.attach("a", Listener())
    links.attach("b", end)
    return links, end


def test_messages_keep_their_order_whatever_their_delays() -> None:
    links, end = pair(delay=(0.1, 9))
    for number in range(200):
        links.send("a", "b", number)
    links.run()
    assert end.got == list(range(200))
    assert links.sent == {("a", "b"): 200}
    links, end = pair(delay=(0.1, 9), fifo=False)
    for number in range(200):
        links.send("a", "b", number)
    links.run()
    assert end.got != sorted(end.got) == list(range(200))


def test_lost_messages_are_counted_and_a_run_can_be_repeated() -> None:
    seen = []
    for _ in range(2):
        links, end = pair(loss=0.3, seed=5)
        for number in range(1000):
            links.send("a", "b", number)
        links.run()
        assert links.messages == 1000 == links.lost + len(end.got)
        assert 230 < links.lost < 370
        seen.append(end.got)
    assert seen[0] == seen[1]


def test_a_crashed_node_gets_nothing_of_before_and_its_timers_do_not_run() -> None:
    links, end = pair()
    links.send("a", "b", "on its way")
    links.after(5, lambda: end.got.append("timer"), "b")
    links.crash("b")
    links.crash("b")
    assert not links.is_up("b")
    links.send("a", "b", "while down")
    links.send("b", "a", "nothing")
    links.run(until=0.5)
    links.restore("b")
    links.send("a", "b", "after")
    links.run()
    assert end.got == ["after"]
    assert (links.sent["b", "a"], links.lost) == (0, 2)


def test_links_come_and_go() -> None:
    links, end = pair()
    links.send("a", "b", 1)
    links.unlink("a", "b")
    links.run()
    assert (end.got, links.lost, links.neighbours("a")) == ([], 1, [])
    with pytest.raises(ParameterError, match="no link from 'a' to 'b'"):
        links.send("a", "b", 2)
    with pytest.raises(ParameterError, match="two ends"):
        links.link("a", "a")
    links.link("a", "b")
    links.send("a", "b", 3)
    links.link("a", "b")  # it is there
    assert links.run(until=100) == 100
    assert end.got == [3]
    # A message of a link that was removed does not travel on the one that is there later.
    links.send("a", "b", 4)
    links.unlink("a", "b")
    links.link("a", "b")
    links.run()
    assert end.got == [3]


def test_arguments_are_checked() -> None:
    for options in (
        {"delay": -1},
        {"loss": 1.5},
        {"seed": -1},
        {"fifo": 3},
        {"delay": (1, "a")},
        {"delay": (3, 1)},
    ):
        with pytest.raises(ParameterError):
            Links([], **options)


def test_endless_messages_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccbps.overlay.links.MOST_STEPS", 100)
    links = Links([("a", "b")])

    class Echo:
        def receive(self, sender: str, message: Any) -> None:
            links.send("b" if sender == "a" else "a", sender, message)

    for name in "ab":
        links.attach(name, Echo())
    links.send("a", "b", 1)
    with pytest.raises(ParameterError, match="no end after 100 steps"):
        links.run()
