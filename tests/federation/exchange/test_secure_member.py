"""Members with secure aggregation at their transport: rounds, totals, absences and restarts."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import pytest

from fedfairx.agent.exchange import TOTAL
from fedfairx.errors import (
    InvalidInput,
    LedgerMismatch,
    StorageUnavailable,
    TransportRefused,
    TransportUnavailable,
)
from fedfairx.federation.aggregation.messages import Partial, RowMessage, digest, parse, row_and_share, sign
from fedfairx.federation.aggregation.records import FileStore, MemoryStore
from fedfairx.federation.aggregation.shares import from_bytes, to_bytes
from fedfairx.federation.exchange.alive import RENEWED
from fedfairx.federation.exchange.envelope import SignedCodec
from fedfairx.federation.exchange.member import Member
from fedfairx.federation.exchange.secure_member import SecureMember
from fedfairx.federation.roster.rounds import Rounds
from fedfairx.federation.transport import MemoryTransport, SqliteTransport
from fedfairx.federation.transport.protocol import (
    ACCEPTED,
    OPENER,
    PARTIAL,
    aggregation_key,
    alive_key,
    own_keys,
    row_key,
)
from fedfairx.privacy import Centring
from member_helpers import BEGIN, work
from secure_helpers import NAMES, Flaky, SecureWorld, secure_world


def busy(here: SecureWorld, number: int) -> None:
    for place, member in enumerate(here.members.values()):
        work(member.agent, 3 + place, seed=10 * number + place)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"decide_from": "released"},
        {
            "agents": 3,
            "names": NAMES[:3],
            "centring": Centring.unit_box(3),
        },
        {"names": tuple(f"org{number}" for number in range(10)), "colluding": 3},
        pytest.param({"names": tuple(f"org{number}" for number in range(50))}, marks=pytest.mark.slow),
    ],
    ids=["default", "released", "centred", "ten", "fifty"],
)
def test_each_total_is_the_sum_of_all_rows(changes: dict[str, object]) -> None:
    here = secure_world(**changes).start_all()  # type: ignore[arg-type]
    here.turn()
    for number in range(1, 4):
        busy(here, number)
        here.round(number)
        here.check_total(number)
    assert not any(member.refusals for member in here.members.values())


def test_members_write_their_own_keys_and_nothing_else() -> None:
    """Least of all their rows as they are."""
    here = secure_world().start_all()
    for number in range(1, 3):
        busy(here, number)
        here.round(number)
        for member in here.members.values():
            member.show_life()
    openers = here.roster.openers
    written = {alive_key(name) for name in NAMES} | {aggregation_key(name, ACCEPTED) for name in NAMES}
    written |= {aggregation_key(name, kind) for name in openers for kind in (OPENER, PARTIAL)}
    written |= {row_key(name, opener) for name in NAMES for opener in openers}
    assert {*here.transport.latest()} == written
    allowed = [key for name in NAMES for key in own_keys(name, secure=True)]
    assert all(any(fnmatchcase(key, each) for each in allowed) for key in written)
    plain = [row.packed.tobytes() for row in here.rows(2)]
    sent = b"".join(here.transport.latest().values())
    assert not any(part in sent for row in plain for part in (row[:8], row[-8:]))


def test_no_other_kind_of_member_sends_such_an_agent() -> None:
    here = secure_world()
    with pytest.raises(InvalidInput, match="must not be of secure aggregation"):
        Member(here.agent("org1"), here.transport, SignedCodec(here.roster, "org1", here.keys["org1"]))


def test_a_member_without_news_takes_part() -> None:
    here = secure_world().start_all()
    here.round(1)
    here.check_total(1)
    assert all(member.agent.held[member.agent.name].count == 0 for member in here.members.values())


@pytest.mark.parametrize("away", ["org1", "org4"], ids=["opener", "other"])
def test_a_member_away_stops_totals_and_not_decisions(away: str) -> None:
    here = secure_world().start_all()
    here.round(1)
    for number in (2, 3, 4):
        busy(here, number)
        here.round(number, without=[away])
    other = here.members["org2"]
    assert other.progress.due == 4
    assert other.progress.sent == 4
    assert other.progress.opened == 1
    assert other.progress.waits_for == {away: "row"}
    here.turn()  # it is back, while round 4 is the last one
    here.check_total(4)
    assert other.progress.waits_for == {}
    rows = [here.members[away].agent.past_release(number).count for number in (2, 3, 4)]
    assert rows[0] == rows[2]  # leaves of rounds that it missed are empty but for the first


@pytest.mark.parametrize("error", [TransportUnavailable, TransportRefused])
def test_while_the_transport_is_away_nobody_is_waited_for(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = secure_world().start_all()
    here.round(1)
    member = here.members["org2"]
    with monkeypatch.context() as patch:
        patch.setattr(here.transport, "latest", _raising(error))
        here.now = float(BEGIN + 20)
        with suppress(TransportRefused):  # the thread of `watch` notes it
            member.exchange()
        assert (member.progress.due, member.progress.opened, member.progress.waits_for) == (2, 1, {})
        assert member.away == "not there"
    member.exchange()
    assert {*member.progress.waits_for} == {"org1", "org3", "org4"}


def _raising(error: type[Exception]) -> Callable[[], dict[str, bytes]]:
    def latest() -> dict[str, bytes]:
        raise error("not there")

    return latest


@pytest.mark.parametrize("who", ["org1", "org4"], ids=["opener", "other"])
@pytest.mark.parametrize("ahead", [120, -120])
def test_clocks_may_differ_by_more_than_some_rounds(who: str, ahead: int) -> None:
    here = secure_world(rounds=Rounds(begin=BEGIN, first=10, ratio=1, count=40)).start_all()
    here.members[who].clock = lambda: here.now + ahead
    for seconds in range(0, 200, 5):
        here.now = BEGIN + float(seconds)
        here.turn(times=1)
        here.check_opened()
    behind = max(0, -ahead) // 10  # the last one's time counts
    assert all(19 - behind - 1 <= member.progress.opened <= 19 for member in here.members.values())


def test_a_clock_that_is_far_ahead_sends_no_rows_of_rounds_to_come() -> None:
    """All would have to wait for the round of such a row."""
    here = secure_world().start_all()
    here.round(1)
    wrong = here.members["org4"]
    wrong.clock = lambda: here.now + 1e6
    here.round(2)
    assert wrong.progress.due == 12
    assert wrong.progress.sent == 1
    assert "the clock here is ahead" in wrong.trouble
    assert here.members["org1"].progress.waits_for == {"org4": "row"}
    wrong.clock = lambda: here.now
    here.turn()
    here.check_total(2)
    assert wrong.trouble == ""


def test_a_member_whose_row_is_of_a_round_to_come_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    here = secure_world(rounds=Rounds(begin=BEGIN, first=3600, ratio=1, count=12)).start_all()
    here.round(1)
    wrong = here.members["org4"]
    with monkeypatch.context() as patch:  # as two would whose clocks are wrong alike
        patch.setattr(SecureMember, "_alive", lambda _: frozenset(NAMES))
        wrong.clock = lambda: here.now + 3600.0 * 5
        wrong.exchange()
    wrong.clock = lambda: here.now
    here.round(2)
    openers = {name: here.members[name].progress.waits_for for name in here.roster.openers}
    assert openers == {name: {"org4": "row"} for name in here.roster.openers}
    assert here.members["org3"].progress.waits_for == dict.fromkeys(here.roster.openers, "partial")
    here.round(6)
    here.check_total(6)


def test_a_member_that_is_thirty_rounds_behind_takes_up_at_the_round_that_is_due() -> None:
    here = secure_world(rounds=Rounds(begin=BEGIN, first=10, ratio=1, count=40)).start_all()
    here.round(1)
    for number in range(2, 33):
        busy(here, number)
        here.round(number, without=["org4"])
    assert here.members["org1"].progress.opened == 1
    here.turn()
    here.check_total(32)
    assert here.members["org1"].progress.records == sum(m.agent.observed for m in here.members.values())


def test_rounds_that_were_over_before_the_members_began_are_left_out() -> None:
    here = secure_world().start_all()
    here.now = BEGIN + 75.0
    busy(here, 1)
    here.turn()
    here.check_total(7)
    here.now = BEGIN + 1e6
    busy(here, 2)
    here.turn()
    here.check_total(12)
    assert here.members["org1"].progress.records == sum(m.agent.observed for m in here.members.values())


def test_of_two_that_run_from_a_copied_folder_one_stops(tmp_path: Path) -> None:
    """With everything in it: key, database and vault."""
    (tmp_path / "one").mkdir()
    here = secure_world(names=NAMES[:3], folder=tmp_path / "one").start_all()
    here.round(1)
    here.stop("org1")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    first = here.start("org1")
    here.folder = tmp_path / "two"
    second = here.start("org1")
    here.members |= {"org1": first, "second": second}
    seen: dict[tuple[str, int], bytes] = {}
    for number in range(2, 6):
        here.now += 10.0
        work(first.agent, 3, seed=number)
        work(second.agent, 4, seed=number)
        for _ in range(4):
            here.turn(times=1)
            for key in ("org1.row.org1", "org1.row.org2", "org1.partial"):
                signed = here.transport.latest()[key]
                if ".row." in key:
                    signed, _ = row_and_share(signed)
                sent = parse(signed)
                assert isinstance(sent, RowMessage | Partial)
                assert seen.setdefault((key, sent.number), digest(signed)) == digest(signed)
    assert first.halted is None
    assert "runs twice" in str(second.halted)
    del here.members["second"]
    here.check_total(5)


def test_an_opener_keeps_the_latest_rows_of_each_member() -> None:
    here = secure_world(rounds=Rounds(begin=BEGIN, first=3600, ratio=1, count=12)).start_all()
    here.turn()
    for number in range(1, 8):  # with a sign of life of one that sends nothing
        here.now = float(BEGIN + 3600 * number)
        here.members["org4"].show_life()
        here.turn(without=["org4"])
    state = here.members["org1"]._state
    assert state is not None
    assert {*state.rows[7]} == {"org1", "org2", "org3"}
    assert sorted(state.rows) == [4, 5, 6, 7]
    here.turn()
    here.check_total(7)


def test_an_opener_away_after_its_row_is_waited_for() -> None:
    here = secure_world().start_all()
    here.round(1)
    opener, other = (here.members[name] for name in here.roster.openers)
    assert here.roster.terms.rounds is not None
    here.now = float(here.roster.terms.rounds.times[1])
    opener.exchange()
    here.turn(without=[opener.agent.name])
    assert other.progress.waits_for == {opener.agent.name: "partial"}
    here.turn()
    here.check_total(2)


def test_rounds_that_only_some_openers_have_opened_are_superseded() -> None:
    here = secure_world().start_all()
    here.round(1)
    here.now += 10
    late = here.roster.openers[0]
    here.members[late].exchange()  # sends row 2, and is away when all the others do
    here.turn(without=[late])
    busy(here, 3)
    here.round(3)
    here.check_total(3)


def test_nothing_is_sent_before_all_have_accepted_and_the_operator_has_confirmed() -> None:
    here = secure_world().start_all(NAMES[:3])
    here.round(1)
    assert here.members["org1"].progress.acceptances == ("org4",)
    assert not any(".row." in key for key in here.transport.latest())
    here.confirmed = ("org1", "org3", "org4")
    late = here.start("org4")
    here.turn()
    assert "openers must be confirmed" in late.progress.unconfirmed
    assert "org4.accepted" not in here.transport.latest()
    here.confirmed = NAMES
    here.turn()
    here.check_total(1)
    assert late.progress.unconfirmed == ""


def test_too_few_confirmed_members_are_refused() -> None:
    here = secure_world()
    here.confirmed = ("org2",)
    here.start_all()
    here.turn()
    assert "must be at least 4" in here.members["org1"].progress.unconfirmed


def test_while_confirmations_can_not_be_read_nothing_is_sent() -> None:
    here = secure_world().start_all()
    here.turn()

    def missing() -> dict[str, str]:
        raise FileNotFoundError("no key here")

    member = here.members["org4"]
    member._confirmed = missing
    here.round(1)
    assert "no key here" in member.progress.unconfirmed
    assert {each.progress.opened for each in here.members.values()} == {0}
    member._confirmed = here.confirmed_keys
    here.turn()
    assert {each.progress.opened for each in here.members.values()} == {1}


def test_before_the_first_openers_key_it_says_whose_is_missing() -> None:
    here = secure_world().start_all(["org4"])
    here.turn()
    assert here.members["org4"].progress.keys == here.roster.openers


def test_an_openers_key_for_another_federation_is_not_taken() -> None:
    here = secure_world().start_all(["org4"])
    other = secure_world(transport=MemoryTransport()).start_all(["org1"])
    other.turn()
    forged = other.transport.latest()["org1.opener"]
    here.transport.publish("org1.opener", forged, replacing=None)
    here.turn()
    assert "org1" in here.members["org4"].progress.keys


@pytest.mark.long
def test_durable_members_go_on_after_a_restart(tmp_path: Path, place: str) -> None:
    """All of them in one database."""
    here = secure_world(names=NAMES[:3], folder=tmp_path, database=place).start_all()
    for number in range(1, 6):
        busy(here, number)
        here.round(number)
        here.check_total(number)
        name = f"org{1 + number % 3}"
        here.stop(name)
        after = here.start(name)
        assert after.progress.opened == number
        here.turn()
        here.check_total(number)
    for member in here.members.values():
        member.agent.verify()


def test_a_member_restored_from_a_backup_halts(tmp_path: Path) -> None:
    here = secure_world(names=NAMES[:3], folder=tmp_path).start_all()
    here.round(1)
    here.stop("org3")
    shutil.copy(tmp_path / "org3.db", tmp_path / "backup.db")
    here.start("org3")
    busy(here, 2)
    here.round(2)
    here.check_total(2)
    here.stop("org3")
    shutil.copy(tmp_path / "backup.db", tmp_path / "org3.db")
    for left in tmp_path.glob("org3.db[.-]*"):  # as on another machine, without the mark of the last use
        left.unlink()
    restored = here.start("org3")
    row = here.transport.latest()["org3.row.org1"]
    here.round(3)
    assert restored.halted is not None
    assert "can't continue under its name" in restored.halted
    sign = here.transport.latest()["org3.alive"]
    here.now += 1000.0
    restored.show_life()  # the others make no rows whose total never comes
    assert here.transport.latest()["org3.alive"] == sign
    assert here.transport.latest()["org3.row.org1"] == row
    assert here.members["org1"].progress.waits_for == {"org3": "row"}


class Away(MemoryTransport):
    away = False

    def publish(self, agent: str, message: bytes, *, replacing: bytes | None) -> None:
        if self.away:
            raise TransportUnavailable("away")
        super().publish(agent, message, replacing=replacing)

    def latest(self) -> dict[str, bytes]:
        if self.away:
            raise TransportUnavailable("away")
        return super().latest()


def test_while_the_transport_is_away_nothing_is_lost() -> None:
    transport = Away()
    here = secure_world(transport=transport).start_all()
    here.round(1)
    transport.away = True
    busy(here, 2)
    here.round(2)
    assert here.members["org1"].away == "away"
    transport.away = False
    here.turn()
    here.check_total(2)
    assert here.members["org1"].away is None


class Full(MemoryStore):
    """A vault on a disk that is full."""

    def write(self, _value: bytes) -> None:
        raise StorageUnavailable("no space left on device")


@pytest.mark.parametrize("why", ["disk", "key"])
def test_a_member_that_can_not_send_or_open_shows_no_life(tmp_path: Path, why: str) -> None:
    """The others would make rows whose totals never come: leaves that are lost to all if it is removed."""
    here = secure_world(folder=tmp_path).start_all()
    here.turn()
    member, vault = here.members["org1"], here.members["org1"]._vault
    if why == "disk":
        member._vault = Full(vault.read())
    else:
        here.stop("org1")
        (tmp_path / "org1.vault").unlink()
        member = here.start("org1")
        assert "no key" in member.trouble
    signs = []
    for seconds in (20.0, RENEWED):  # a round is due, then a sign of life
        here.now += seconds
        with suppress(StorageUnavailable):
            member.exchange()
        member.show_life()
        signs.append(here.transport.latest()[alive_key("org1")])
    assert signs[0] == signs[1]
    if why == "disk":
        member._vault = vault
        here.turn()
        here.check_total(5)
        assert here.transport.latest()[alive_key("org1")] != signs[0]
    for name in here.members:
        here.stop(name)


@pytest.mark.parametrize("seed", range(3))
def test_whatever_a_transport_does_each_total_is_the_sum_of_all_rows(seed: int) -> None:
    """It loses, delays, repeats and reorders messages, and shows members different ones."""
    transport = Flaky(seed)
    here = secure_world(names=NAMES[: 3 + seed % 2], transport=transport).start_all()
    opened = 0
    for number in range(1, 11):
        busy(here, number)
        away = transport.random.sample(sorted(here.members), transport.random.randrange(2))
        here.round(number, without=away)
        opened += here.check_opened()
    assert opened > 0
    transport.trouble = 0.0
    here.round(11)
    here.check_total(11)
    assert not any(member.halted for member in here.members.values())
    assert not any(member.refusals for member in here.members.values())


def test_a_hub_that_has_lost_everything_gets_it_again() -> None:
    transport = MemoryTransport()
    here = secure_world(transport=transport).start_all()
    here.round(1)
    transport._messages.clear()
    here.turn()
    assert not here.members["org1"].waiting
    here.round(2)
    here.check_total(2)


def test_a_total_that_no_records_can_have_is_not_taken() -> None:
    """An opener that sees the others' part can set a total to anything; `plausible` limits it."""
    here = secure_world().start_all()
    here.round(1)
    name = here.roster.openers[0]
    before = here.members["org4"].agent.held
    here.now += 10
    for member in here.members.values():
        if member.agent.name != name:
            member.exchange()
    here.members[name].exchange()
    signed = here.transport.latest()[f"{name}.partial"]
    sent = parse(signed)
    assert isinstance(sent, Partial)
    assert sent.number == 2
    numbers = from_bytes(sent.total)
    numbers[0] += np.uint64(2**40)  # within the range, and more than all records can add up to
    absurd = Partial(sent.epoch, name, 2, sent.rows, to_bytes(numbers), sent.digests)
    here.transport.publish(f"{name}.partial", sign(absurd, here.keys[name]), replacing=signed)
    here.turn(without=[name])
    refusals = here.members["org4"].refusals
    assert refusals[name, "absurd"] + refusals[here.roster.openers[1], "absurd"] == 1
    assert here.members["org4"].agent.held.keys() == before.keys()
    assert here.members["org4"].progress.opened == 1


def test_the_last_total_is_learnt_in_the_place_of_the_one_before() -> None:
    here = secure_world(decide_from="released").start_all()
    work(here.members["org1"].agent, 200, seed=1)
    other = here.members["org2"].agent
    here.round(1)
    first = other.held[TOTAL]
    assert (first.number, first.count) == (1, 200)
    work(here.members["org3"].agent, 100, seed=2)
    here.round(2)
    assert (other.held[TOTAL].number, other.held[TOTAL].count) == (2, 300)


def test_a_member_that_is_closed_leaves_its_transport_and_its_vault(tmp_path: Path) -> None:
    here = secure_world(transport=SqliteTransport(tmp_path / "hub.db"), folder=tmp_path)
    name = here.roster.openers[0]
    member = here.start(name)
    assert member.exchange()
    with pytest.raises(LedgerMismatch, match="locked"):
        here.vault(name)
    member.close()
    with pytest.raises(TransportRefused, match="closed"):
        member.transport.latest()
    vault = here.vault(name)
    assert isinstance(vault, FileStore)
    vault.close()
    member.agent.close()
