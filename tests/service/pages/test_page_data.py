"""Pages from plain values: states that a simple service does not reach."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from typing import Any

from starlette.datastructures import QueryParams

import fedfairx as ffx
from fedfairx.fairness import Row, Share
from fedfairx.privacy import Guarantee
from fedfairx.service.exposure_cache import ExposureSnapshot
from fedfairx.service.pages.exposure_page import view_of
from fedfairx.service.pages.jinja import page
from fedfairx.service.pages.periods import Window
from fedfairx.service.schemas import PeerSeen, Privacy, Sync
from market import fill, looking

FRAME = {
    "agent": "clinic-3",
    "agents": ["clinic-3"],
    "archived": False,
    "mode": "shadow",
    "now": 1.8e9,
    "signed_in": True,
    "batch": None,
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
    text = html("privacy", {"privacy": told, "guarantee": guarantee, "records": 400, "silent": False})
    assert told.statement in text
    assert guarantee.warnings[0] in unescape(text)
    assert "<strong>988</strong> left of 1\u202f000" in text
    assert "Sign out" in text
    assert "shadow" in text


def federation(**peers: PeerSeen) -> str:
    sync = Sync("clinic-3", None, None, 4, None, None, False, None, None, {}, peers, {})
    return html("federation", {"sync": sync, "observed": 90, "records": 80, "refused": {}})


def test_peers_are_listed() -> None:
    text = federation(other=PeerSeen(7, 90, None, 1.8e9 - 7200.0, True, 0))
    assert ">2 hours ago</time> <strong" in text
    assert "other" in text
    assert "alone" not in text


def test_how_far_a_peer_is_believed_and_why() -> None:
    why = "contradicts our rewards: 40 times likelier if it differs"
    text = federation(
        one=PeerSeen(7, 90, None, None, False, 0, 0.0, why), two=PeerSeen(0, 0, None, None, True, 0)
    )
    assert 'data-label="Believed">0' in text
    assert "Contradicts our rewards: 40 times likelier if it differs." in text
    assert 'data-label="Why">–' in text  # nothing came from it yet


def exposure(looked: ExposureSnapshot) -> str:
    return html("exposure", view_of(looked, Window("All", ""), QueryParams(), exact=True))


def test_a_table_that_leaves_decisions_out_says_so() -> None:
    table = ffx.exposure([ffx.Logged([0.5, 0.5], t % 2) for t in range(100)])
    for bounded in (True, False):
        looked = ExposureSnapshot(table, 1.7e9, 1.8e9, 1.8e9, 0.0, bounded, 0, 0, 100)
        assert ("its start moves" in exposure(looked)) == bounded


def test_the_page_to_sign_has_the_ends_of_each_interval_in_order(tmp_path) -> None:
    row = Row("ann", 10, 3, Share(0.3, 0.2, 0.4), 0.3, Share(0.5, 0.45, 0.6), "below")
    table = replace(ffx.exposure([ffx.Logged([0.5, 0.5], t % 2) for t in range(100)]), actions=(row,))
    looked = ExposureSnapshot(table, 1.7e9, 1.8e9, 1.8e9, 0.0, False, 0, 0, 100)
    text = " ".join(re.sub(r"<[^>]*>", " ", exposure(looked)).split())
    assert "30.0 % 20.0 – 40.0 % 50.0 % 45.0 – 60.0 % +20.0 +5.0 to +40.0 10 3 shown" in text
    place = str(tmp_path / "agent.sqlite")
    fill(place, 60)
    with looking(place) as client:  # the report has the same table
        between = re.findall(r'between">([+−][\d.]+) to ([+−][\d.]+)<', client.get("/report").text)
    assert len(between) >= 5
    assert all(float(low.replace("−", "-")) < float(high.replace("−", "-")) for low, high in between)


def test_a_log_that_was_drawn_otherwise_is_said_aloud() -> None:
    table = ffx.exposure([ffx.Logged([0.5, 0.5], 0) for _ in range(200)])
    text = exposure(ExposureSnapshot(table, 1.7e9, 1.8e9, 1.8e9, 0.0, False, 0, 0, 200))
    assert "Actions were NOT drawn as the policy said" in text
    assert 'class="draws bad"' in text
