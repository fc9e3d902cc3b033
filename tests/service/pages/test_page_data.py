"""Pages from plain values: states that a simple service does not reach."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from typing import Any

import numpy as np
import pytest
from starlette.datastructures import QueryParams

import fedfairx as ffx
from fedfairx.fairness import Likely, Row, Share
from fedfairx.fairness.credible import OverTime
from fedfairx.federation.exchange.member import Peer
from fedfairx.privacy import Guarantee
from fedfairx.service.exposure_cache import ExposureSnapshot
from fedfairx.service.pages.exposure_page import view_of
from fedfairx.service.pages.jinja import page
from fedfairx.service.pages.periods import Period
from fedfairx.service.routes.exposure import _written
from fedfairx.service.schemas import Privacy, Sync

FRAME = {
    "agent": "clinic-3",
    "agents": ["clinic-3"],
    "archived": False,
    "mode": "shadow",
    "now": 1.8e9,
    "signed_in": True,
    "pages": {"overview": "/", "exposure": "/exposure"},
    "everything": True,
}


def html(name: str, view: Any) -> str:
    return bytes(page(name, view=view, frame=FRAME, root="").body).decode()


def test_a_private_agent() -> None:
    guarantee = Guarantee(
        mechanism="blt",
        epsilon=2.0,
        delta=0.2,
        mu=0.44,
        adjacency="replace",
        context_norm=1.0,
        reward=1.0,
        releases=1_000,
        spent=12,
        decide_from="own+released",
    )
    told = Privacy(True, "All releases together are (2, 1e-06)-DP.", "blt", 2.0, 1e-6, 1_000, 12, 3)
    view = {"privacy": told, "guarantee": guarantee, "records": 400, "silent": False}
    text = html("privacy", view | {"statement": told.statement})
    assert told.statement in text
    assert guarantee.warnings[0] in unescape(text)
    assert "<strong>988</strong> left of 1\u202f000" in text
    assert "Sign out" in text
    assert "shadow" in text


def federation(**peers: Peer) -> str:
    sync = Sync("clinic-3", None, None, 4, None, None, False, None, None, {}, peers, {})
    return html("federation", {"sync": sync, "observed": 90, "records": 80, "refused": {}})


def test_peers_are_listed() -> None:
    text = federation(other=Peer(7, 90, None, 1.8e9 - 7200.0, True, 0))
    assert ">2 hours ago</time> <strong" in text
    assert "other" in text
    assert "alone" not in text


def test_how_far_a_peer_is_believed_and_why() -> None:
    why = "contradicts our rewards: 40 times likelier if it differs"
    text = federation(one=Peer(7, 90, None, None, False, 0, 0.0, why), two=Peer(0, 0, None, None, True, 0))
    assert 'data-label="Believed">0' in text
    assert "Contradicts our rewards: 40 times likelier if it differs." in text
    assert 'data-label="Why">–' in text  # nothing came from it yet


def exposure(looked: ExposureSnapshot) -> str:
    return html("exposure", view_of(looked, Period("All", ""), QueryParams(), "-verdict"))


def test_a_table_that_leaves_decisions_out_says_so() -> None:
    table = ffx.exposure([ffx.Logged([0.5, 0.5], t % 2) for t in range(100)])
    for bounded in (True, False):
        looked = ExposureSnapshot(table, 1.7e9, 1.8e9, 1.8e9, 0.0, bounded, 0, 0, 100)
        assert ("its start moves" in exposure(looked)) == bounded


def test_a_table_of_the_latest_decisions_says_that_it_is_not_all() -> None:
    table = ffx.exposure([ffx.Logged([0.5, 0.5], t % 2) for t in range(100)])
    looked = ExposureSnapshot(table, 1.7e9, 1.8e9, 1.8e9, 0.0, True, 0, 0, 100, partial=True)
    said = "So far this is of the latest 100 decisions; the table of all is being computed."
    assert said in exposure(looked)
    assert "its start moves" not in exposure(looked)
    assert said not in exposure(replace(looked, partial=False))
    none = html("exposure", view_of(None, Period("All", ""), QueryParams(), "-verdict"))
    assert "The table is being computed." in none


def judged(verdict: str, *, more: int | None = None, left: bool = False, shown: float = 0.3) -> Row:
    """A row with both tiers, which differ."""
    share, due = Share(shown, 0.2, 0.4), Share(0.5, 0.45, 0.6)
    told = Likely(verdict, 0.0, 0.0, 0.0, more)
    return Row("ann", 10, 3, share, 0.3, due, "below", Share(0.52, 0.48, 0.56), None, told, left)


def looked_at(*rows: Row, groups: tuple[Row, ...] = (), seconds: float = 100.0) -> ExposureSnapshot:
    log = [ffx.Logged([0.5, 0.5], t % 2, [0, 1], reward=0.5) for t in range(101)]
    table = ffx.exposure(log, posterior=(np.full(2, 0.5), 0.1 * np.eye(2)))
    over_time = OverTime([0.0], *({row.name: [0.3] for row in rows} for _ in range(2)))
    table = replace(table, actions=rows, groups=groups, over_time=over_time)
    return ExposureSnapshot(table, 1.7e9, 1.7e9 + seconds, 1.8e9, 0.0, False, 0, 0, 100)


def words(text: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", text).split())


def test_tiers_are_apart() -> None:
    """The table has what is likely, and what can be opened has what is certain."""
    text = exposure(looked_at(judged("not known yet", more=2_300, left=True)))
    before, inside = text.split("<details>\n    <summary>Verdicts that are certain")
    table = words(before.split('<table class="exposure"')[1])
    assert "ann left not known yet about 2 300 more decisions, 38 minutes" in table
    assert "30.0 % 52.0 % 48.0 – 56.0 % +22.0 10 3 shown" in table
    assert 'class="chip below"' not in before
    assert "ann below 20.0 – 40.0 % 45.0 – 60.0 % +5.0 to +40.0" in words(inside)
    assert "can’t see that the model is wrong" in before
    colours = {"likely below": "below", "likely above": "above", "in line": "within"}
    for verdict, kind in colours.items():
        assert f'<span class="chip {kind}">' in exposure(looked_at(judged(verdict))).split("<details>")[0]


def test_nothing_is_forecast_beyond_a_year() -> None:
    year = 365.25 * 86_400
    for seconds, said in ((0.9 * year, True), (1.1 * year, False)):
        looked = looked_at(judged("not known yet", more=100), seconds=seconds)
        text = words(exposure(looked))
        assert ("about 100 more decisions" in text) == said
        assert ("not within a year at this rate" in text) == (not said)
        told = _written(looked).actions[0].likely
        assert told is not None
        assert (told.more_decisions, told.more_days) == (
            (100, pytest.approx(0.9 * 365.25)) if said else (None, None)
        )
    many = replace(judged("in line"), more=10_000, verdict="too little data")
    assert "not within a year" in words(exposure(looked_at(many, seconds=year)))
    assert _written(looked_at(many, seconds=year)).actions[0].more_rewards is None
    assert _written(looked_at(many)).actions[0].more_rewards == 10_000


def test_groups_come_first_and_the_worst_of_each() -> None:
    rows = [
        replace(judged(verdict), name=f"{verdict}!")
        for verdict in ("in line", "likely above", "likely below")
    ]
    worse = replace(judged("likely below", shown=0.1), name="worse")
    group = replace(judged("in line"), name="the group")
    text = exposure(looked_at(*rows, worse, groups=(group,)))
    places = [
        re.search(rf">\s*{name}\s*<", text).start()  # type: ignore[union-attr]
        for name in ("the group", "worse", "likely below!", "likely above!", "in line!")
    ]
    assert places == sorted(places)
    assert 'Verdict<span class="arrow" aria-hidden="true">↓' in text
    assert 'Shown<span class="arrow" aria-hidden="true">↕' in text


def test_of_those_likely_above_who_has_most_too_much_comes_first() -> None:
    rows = [
        replace(judged("likely above", shown=shown), name=f"has{100 * shown:.0f}")
        for shown in (0.6, 0.9, 0.7)
    ]
    text = exposure(looked_at(*rows))
    assert re.findall(r">\s*(has\d+)\s*<", text)[:3] == ["has90", "has70", "has60"]


def test_a_log_that_was_drawn_otherwise_is_said_aloud() -> None:
    table = ffx.exposure([ffx.Logged([0.5, 0.5], 0) for _ in range(200)])
    text = exposure(ExposureSnapshot(table, 1.7e9, 1.8e9, 1.8e9, 0.0, False, 0, 0, 200))
    assert "Actions were NOT drawn as the policy said" in text
    assert 'class="draws bad"' in text
