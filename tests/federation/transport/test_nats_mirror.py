"""Whether an agent has missed something of what a stream has told."""

from __future__ import annotations

from fedfairx.federation.transport.nats.mirror import Mirror


def hear(mirror: Mirror, *revisions: int) -> int:
    for revision in revisions:
        mirror.receive("a", revision, b"%d" % revision)
    return mirror.whole


def test_what_is_heard_without_a_gap_need_not_be_fetched() -> None:
    mirror = Mirror()
    assert hear(mirror, 4) == -1  # how much there was before nobody knows
    mirror.fetched(3, mirror.doubts)
    assert mirror.whole == 4
    assert hear(mirror, 5, 6) == 6


def test_a_gap_stays_until_all_was_fetched() -> None:
    mirror = Mirror()
    mirror.fetched(3, mirror.doubts)
    assert hear(mirror, 5, 6, 7) == 3
    mirror.fetched(6, mirror.doubts)  # 7 came while it was fetched
    assert mirror.whole == 7
    mirror.fetched(5, mirror.doubts)
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


def grown_to(revision: int) -> Mirror:
    mirror = Mirror()
    mirror.same_stream("made", last=0, highest=0)
    mirror.fetched(0, mirror.doubts)
    assert hear(mirror, *range(1, revision + 1)) == mirror.highest == revision
    return mirror


def test_a_stream_that_has_grown_is_not_in_doubt() -> None:
    mirror = grown_to(2)
    doubts = mirror.doubts
    assert mirror.same_stream("made", last=2, highest=2)
    assert mirror.same_stream("made", last=9, highest=2)
    assert (mirror.whole, mirror.doubts, mirror.of("a")) == (2, doubts, (2, b"2"))


def test_another_stream_or_an_earlier_one_is_fetched_whole() -> None:
    for made, last in (("again", 2), ("again", 5), ("made", 1), ("made", 0)):
        mirror, told = grown_to(2), []
        mirror.watchers.add(lambda told=told: told.append(1))
        assert not mirror.same_stream(made, last=last, highest=2)
        assert (mirror.whole, mirror.highest, mirror.of("a")) == (-1, -1, (0, None))
        assert mirror.latest() == {"a": b"2"}  # until somebody has looked
        mirror.keep("b", 1, b"other")
        assert mirror.latest() == {"a": b"2", "b": b"other"}
        told.clear()
        mirror.fetched(1, mirror.doubts)
        assert mirror.latest() == {"b": b"other"}
        assert told  # what is gone is news, too: whoever has sent it sends it again


def test_a_revision_told_twice_puts_all_in_doubt() -> None:
    mirror = grown_to(4)
    doubts = mirror.doubts
    assert not mirror.receive("a", 3, b"new three")
    assert mirror.doubts == doubts + 1
    assert mirror.of("a") == (3, b"new three")
    assert mirror.whole == -1
    assert mirror.receive("a", 4, b"new four")  # and from there it grows
    mirror.fetched(2, mirror.doubts)
    assert (mirror.whole, mirror.latest()) == (4, {"a": b"new four"})


def test_a_look_that_a_doubt_has_overtaken_says_nothing() -> None:
    mirror = grown_to(4)
    doubts = mirror.doubts
    mirror.doubt()
    mirror.fetched(9, doubts)
    assert mirror.whole == -1
    assert mirror.latest() == {"a": b"4"}


def test_only_what_came_after_a_point_is_in_doubt() -> None:
    mirror = grown_to(2)
    mirror.keep("b", 1, b"one")
    mirror.receive("c", 3, b"three")
    mirror.doubt(since=2)
    assert (mirror.whole, mirror.highest) == (2, 2)
    assert mirror.of("a") == (2, b"2")
    assert mirror.of("c") == (0, None)
    assert mirror.latest() == {"a": b"2", "b": b"one", "c": b"three"}  # shown until all was fetched
    assert mirror.receive("d", 3, b"other")  # the number that "c" had
    assert mirror.whole == 3
    mirror.fetched(3, mirror.doubts)
    assert mirror.latest() == {"a": b"2", "b": b"one", "d": b"other"}


def test_doubt_never_makes_more_known_than_was() -> None:
    mirror = Mirror()
    mirror.doubt(since=5)
    assert mirror.whole == -1
