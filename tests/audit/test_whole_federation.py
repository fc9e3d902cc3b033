"""Totals of a right federation pass, and a row that is off by one step of the grid does not."""

from __future__ import annotations

from typing import Any

import pytest

from fedfairx.agent.options import Options
from fedfairx.federation.exchange.secure_member import SecureMember
from fedfairx.privacy.centring import Centring
from mistakes import MISTAKES
from whole_config import WholeConfig
from whole_federation import whole_federation

TOTALS, ROWS, COUNTS, WAITING, EPOCHS = range(5)  # the checks, in their order


def secure(releases: int = 4, *, agents: int = 3, **options: Any) -> WholeConfig:
    claim: dict[str, Any] = {"algorithm": "priv-fairx-bayes", "epsilon": 2.0, "aggregation": "secure"}
    made = Options(**(claim | options))
    return WholeConfig(options=made, dimension=2, releases=releases, agents=agents)


def wrong(subject: WholeConfig) -> list[float]:
    checks, _ = whole_federation(subject, seed=0)
    return [check.found for check in checks]


def test_what_is_seen_has_the_noise_of_one_agent_alone() -> None:
    for agents, colluding in ((3, None), (5, 2), (10, None)):
        subject, c = secure(agents=agents, colluding=colluding), colluding or max(1, agents // 5)
        alone = WholeConfig(
            options=Options(algorithm="priv-fairx-bayes", epsilon=2.0), dimension=2, releases=4
        )
        assert subject.seen == agents - c
        assert subject.seen_sd == pytest.approx(alone.mechanism.base_sd)
        assert subject.own_sd * (agents - c) ** 0.5 == pytest.approx(alone.own_sd)
        assert alone.seen_sd == alone.own_sd == alone.mechanism.base_sd
        assert (subject.rows, alone.rows) == (True, False)


@pytest.mark.parametrize("releases", [1, 2, 3, 40])
def test_right_totals_pass(releases: int) -> None:
    checks, draws = whole_federation(secure(releases), seed=releases)
    assert [check.found for check in checks] == [0, 0, 0, 0, 0]
    opened, made = {1: (1, 1), 2: (1, 2), 3: (2, 3), 40: (3, 4)}[releases]
    assert f"of {10 * opened}" in checks[TOTALS].name  # 9 sums and a count; round 2 has no total
    # A member that misses the last round has not made its row.
    assert len(draws) == 3 * made - (releases == 2)


def test_right_totals_of_centred_records_and_more_members_pass() -> None:
    centred = secure(centring=Centring.unit_box(2), agents=5, colluding=2, decide_from="released")
    assert wrong(centred) == [0, 0, 0, 0, 0]


def test_one_number_of_one_row_spoils_each_total(monkeypatch: pytest.MonkeyPatch) -> None:
    right = SecureMember._integers

    def integers(self: SecureMember, release: Any) -> Any:
        row = right(self, release)
        row[1] += self.agent.name == "member-1"
        return row

    monkeypatch.setattr(SecureMember, "_integers", integers)
    assert wrong(secure()) == [3, 0, 0, 0, 0]


@pytest.mark.long
def test_a_row_of_another_round_spoils_the_totals_after_it() -> None:
    """The first total is right; of the other two every number is taken for wrong."""
    named = {each.name: each for each in MISTAKES}
    with named["rows that are misaligned after a missed round"].inserted():
        assert wrong(secure())[TOTALS] == 20
    with named["rows that count a leaf twice"].inserted():
        assert wrong(secure())[TOTALS] == 20
    with named["a row without noise"].inserted():
        found = wrong(secure())
        assert found[TOTALS] == 0
        # 3 members, 4 rows, 9 sums. Noise of 1 024 grid steps or more rounds to none once in 2 500 numbers or
        # less, so that three of 108 are right by chance about 13 times in a million runs.
        assert 106 <= found[ROWS] <= 108


@pytest.mark.parametrize("releases", [1, 2, 4])
def test_a_leaf_that_was_shown_and_is_sent_again_is_noticed(releases: int) -> None:
    with {each.name: each for each in MISTAKES}["a frozen leaf that moves into the next epoch"].inserted():
        found = wrong(secure(releases))
    assert found[:EPOCHS] == [0, 0, 0, 0]
    assert found[EPOCHS] > 0


def test_a_member_that_sends_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SecureMember, "_alive", lambda _self: frozenset())
    assert wrong(secure())[WAITING] == 1
