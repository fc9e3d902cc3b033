"""What every transport must do, held to all of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedfairx.errors import TransportRefused
from fedfairx.federation.exchange.alive import SignsOfLife
from fedfairx.federation.transport import Conflict
from fedfairx.federation.transport.protocol import alive_key
from nats_server import wait_until
from transport_helpers import Opening, ends_of

#: An engine such as Flower visits agents, instead of being called; what holds there too: test_carried.py.
KINDS = ("memory", "sqlite", "nats")


@pytest.fixture(scope="module", params=KINDS)
def ends(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opening]:
    with ends_of(request.param, tmp_path_factory.mktemp("transport")) as opening:
        yield opening


def held(transport: object, agent: str) -> bytes | None:
    return transport.latest().get(agent)  # type: ignore[attr-defined]


def test_what_is_published_is_the_latest_for_everybody(ends: Opening) -> None:
    first, second = ends("a1"), ends("b1")
    first.publish("a1", b"one", replacing=None)
    second.publish("b1", b"uno", replacing=None)
    first.publish("a1", b"two" * 10_000, replacing=b"one")
    for end in (first, second):
        wait_until(lambda end=end: held(end, "a1") == b"two" * 10_000 and held(end, "b1") == b"uno")


def test_publishing_again_does_nothing(ends: Opening) -> None:
    end = ends("a2")
    end.publish("a2", b"one", replacing=None)
    end.publish("a2", b"one", replacing=None)
    end.publish("a2", b"one", replacing=b"something else")
    assert held(end, "a2") == b"one"


@pytest.mark.parametrize("expected", [None, b"zero"])
def test_of_two_writers_under_one_name_neither_overwrites_the_other_unseen(
    ends: Opening, expected: bytes | None
) -> None:
    name = f"a3-{'none' if expected is None else 'zero'}"
    original, copy = ends(name), ends(name)
    if expected is not None:
        original.publish(name, expected, replacing=None)
        wait_until(lambda: held(copy, name) == expected)
    original.publish(name, b"mine", replacing=expected)
    with pytest.raises(Conflict) as taken:
        copy.publish(name, b"other", replacing=expected)
    assert taken.value.held == b"mine"
    wait_until(lambda: held(copy, name) == b"mine")
    copy.publish(name, b"other", replacing=b"mine")
    with pytest.raises(Conflict) as taken:
        original.publish(name, b"third", replacing=b"mine")
    assert taken.value.held == b"other"


def test_to_replace_what_is_not_there_is_refused(ends: Opening) -> None:
    with pytest.raises(Conflict) as taken:
        ends("a4").publish("a4", b"two", replacing=b"one")
    assert taken.value.held is None


def test_who_watches_is_told(ends: Opening) -> None:
    watcher, writer = ends("b5"), ends("a5")
    told = threading.Event()
    watcher.latest()
    stop = watcher.watch(told.set)
    writer.publish("a5", b"one", replacing=None)
    assert told.wait(10)
    wait_until(lambda: held(watcher, "a5") == b"one")
    for number in range(20):  # every change ends in a call after which it can be seen
        told.clear()
        writer.publish("a5", b"%d" % number, replacing=b"one" if number == 0 else b"%d" % (number - 1))
        while held(watcher, "a5") != b"%d" % number:
            assert told.wait(10)
            told.clear()
    stop()
    stop()


def test_many_writers_at_once(ends: Opening) -> None:
    names = [f"a6-{i}" for i in range(4)]
    failures: list[BaseException] = []

    def write(name: str) -> None:
        try:
            end, before = ends(name), None
            for number in range(25):
                message = f"{name} {number}".encode()
                end.publish(name, message, replacing=before)
                before = message
        except BaseException as error:  # shown below
            failures.append(error)

    threads = [threading.Thread(target=write, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    reader = ends("b6")
    wait_until(lambda: all(held(reader, name) == f"{name} 24".encode() for name in names))


def test_idle_members_tell_nobody_anything_between_their_signs_of_life(ends: Opening) -> None:
    """An hour by the members' clock, with a look each second, as one of 120: a sign every two minutes."""
    writer, watcher, signs = ends("a7"), ends("b7"), SignsOfLife()
    news: list[int] = []
    watcher.latest()
    key, signed = alive_key("a7"), set()
    for second in range(3600):
        signs.renew(writer, "a7", lambda now: b"%d" % now, now=float(second), members=120)
        signed.add(signs.ours)
        if second == 1:
            wait_until(lambda: held(watcher, key) == b"0")
            stop = watcher.watch(lambda: news.append(1))
    last = b"%d" % int(signs.ours or 0.0)
    wait_until(lambda: held(watcher, key) == last)
    stop()
    assert len(signed) == 31
    assert len(news) <= 30  # once for each, or less if several came at once; SQLite tells of the first again


@pytest.mark.parametrize("kind", ["sqlite", "nats"])
def test_after_closing_nothing_goes(kind: str, tmp_path: Path) -> None:
    with ends_of(kind, tmp_path) as opening:
        end = opening("a")
        end.publish("a", b"one", replacing=None)
        end.close()
        end.close()
        with pytest.raises(TransportRefused, match="closed"):
            end.latest()
        assert opening("b").latest() == {"a": b"one"}  # and what was published is there
