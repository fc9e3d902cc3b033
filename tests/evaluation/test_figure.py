"""The figure of an evaluation: everything is drawn where its numbers say."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from fedfairx.evaluation.estimators import Estimate, PolicyValue
from fedfairx.evaluation.figure import draw


def value_of(name: str, reward: Estimate, ips: Estimate, shares: Mapping[str, float]) -> PolicyValue:
    return PolicyValue(
        name,
        reward=reward,
        gain=reward,
        ips=ips,
        snips=ips,
        fairness_regret=Estimate(0.0, 0.0, 0.0),
        action_shares=shares,
        group_shares={},
        effective=100.0,
        largest=1.0,
        unsupported=0.0,
    )


LOGGED = value_of("the log", Estimate(0.5, 0.4, 0.6), Estimate(0.52, 0.3, 0.7), {"ann": 0.25, "ben": 0.75})
OTHER = value_of("other", Estimate(0.7, 0.6, 0.8), Estimate(0.72, 0.5, 0.9), {"ann": 0.9, "ben": 0.1})


def test_intervals_lie_at_their_policy_and_those_of_ips_just_below() -> None:
    rewards, _ = draw([LOGGED, OTHER], 0.05).axes
    drawn = [(list(line.get_xdata()), list(line.get_ydata())) for line in rewards.get_lines()]
    for place, value in enumerate((LOGGED, OTHER)):
        for each, at in ((value.reward, place), (value.ips, place + 0.22)):
            assert ([each.low, each.high], [at, at]) in drawn
            assert ([each.value], [at]) in drawn
    assert rewards.yaxis_inverted()  # so a higher place is lower down


def test_bars_are_as_long_as_shares_and_beside_each_other() -> None:
    _, shares = draw([LOGGED, OTHER], 0.05).axes
    names = [label.get_text() for label in shares.get_yticklabels()]
    assert names == ["ben", "ann"]  # the log's most shown first
    bars = {bar.get_width(): bar.get_y() + bar.get_height() / 2 for bar in shares.patches}
    assert bars == pytest.approx({75.0: -0.2, 25.0: 0.8, 10.0: 0.2, 90.0: 1.2})
