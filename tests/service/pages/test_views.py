"""Pages from plain values: states that a simple service does not reach."""

from __future__ import annotations

from typing import Any

import fedfairx as ffx
from fedfairx.service.exposure_cache import ExposureSnapshot
from fedfairx.service.pages.jinja import page
from fedfairx.service.pages.view_models import ExposurePage, FederationPage, Frame, Partner, PrivacyPage

FRAME = Frame("clinic-3", "shadow", 1.8e9, signed_in=True)


def html(name: str, view: Any) -> str:
    return bytes(page(name, view=view, frame=FRAME, root="").body).decode()


def test_a_private_agent() -> None:
    view = PrivacyPage(
        private=True,
        simulated=False,
        statement="All messages together are (2, 1e-06)-DP.",
        caveats=("A caveat.",),
        epsilon=2.0,
        delta=1e-6,
        mu=0.44,
        mechanism="blt",
        spent=12,
        releases=1_000,
        clipped=3,
        records=400,
    )
    text = html("privacy", view)
    assert "All messages together are (2, 1e-06)-DP." in text
    assert "A caveat." in text
    assert "<strong>988</strong> left of 1\u202f000" in text
    assert "Sign out" in text
    assert "shadow" in text


def test_partners_are_listed() -> None:
    text = html(
        "federation", FederationPage("clinic-3", 4, partners=[Partner("clinic-1", 7, 90, None, 0, [])])
    )
    assert "clinic-1" in text
    assert "alone" not in text


def test_how_far_a_partner_is_believed_and_why() -> None:
    why = "contradicts our rewards: 40 times likelier if it differs"
    partners = [Partner("clinic-1", 7, 90, None, 0, [], 0.0, why), Partner("clinic-2", 0, 0, None, 7, [])]
    text = html("federation", FederationPage("clinic-3", 4, partners=partners))
    assert 'data-label="Believed">0' in text
    assert "Contradicts our rewards: 40 times likelier if it differs." in text
    assert 'data-label="Why">–' in text  # of whom nothing came yet


def test_a_table_that_leaves_decisions_out_says_so() -> None:
    table = ffx.exposure([ffx.Logged([0.5, 0.5], t % 2) for t in range(100)])
    for bounded in (True, False):
        looked = ExposureSnapshot(table, 1.7e9, 1.8e9, 1.8e9, 0.0, bounded, 0, 0)
        assert ("its start moves" in html("exposure", ExposurePage(looked, ()))) == bounded


def test_a_log_that_was_drawn_otherwise_is_said_aloud() -> None:
    table = ffx.exposure([ffx.Logged([0.5, 0.5], 0) for _ in range(200)])
    text = html("exposure", ExposurePage(ExposureSnapshot(table, 1.7e9, 1.8e9, 1.8e9, 0.0, False, 0, 0), ()))
    assert "Actions were NOT drawn as the policy said" in text
    assert 'class="draws bad"' in text
