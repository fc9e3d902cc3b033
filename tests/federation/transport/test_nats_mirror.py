"""Whether an agent has missed something of what a stream has told."""

from __future__ import annotations

from fedfairx.federation.transport.nats.mirror import Mirror


def hear(mirror: Mirror, *revisions: int) -> int:
    for revision in revisions:
        mirror.hear("a", revision, b"%d" % revision)
    return mirror.whole


def test_what_is_heard_without_a_gap_need_not_be_fetched() -> None:
    mirror = Mirror()
    mirror.of_stream("first")
    assert hear(mirror, 4) == -1  # how much there was before nobody knows
    mirror.looked(3)
    assert mirror.whole == 4
    assert hear(mirror, 5, 6) == 6


def test_a_gap_stays_until_all_was_fetched() -> None:
    mirror = Mirror()
    mirror.of_stream("first")
    mirror.looked(3)
    assert hear(mirror, 5, 6, 7) == 3
    mirror.looked(6)  # 7 came while it was fetched
    assert mirror.whole == 7
    mirror.looked(5)
    assert mirror.whole == 7


def test_the_latest_of_each_stays_and_who_watches_is_told() -> None:
    mirror, told = Mirror(), []
    stop = mirror.watchers.add(lambda: told.append(mirror.latest()))
    mirror.keep("a", 2, b"two")
    mirror.keep("a", 1, b"one")
    mirror.keep("a", 2, b"two")
    assert told == [{"a": b"two"}]
    assert (mirror.of("a"), mirror.of("b")) == ((2, b"two"), (0, None))
    stop()
    mirror.keep("a", 3, b"three")
    assert len(told) == 1


def test_another_stream_begins_anew() -> None:
    mirror = Mirror()
    mirror.of_stream("first")
    mirror.looked(0)
    assert hear(mirror, 1, 2) == 2
    mirror.of_stream("first")
    assert mirror.latest() == {"a": b"2"}
    mirror.of_stream("second")
    assert (mirror.latest(), mirror.whole) == ({}, -1)
    mirror.keep("a", 1, b"new")
    assert mirror.latest() == {"a": b"new"}
