"""The digest of a federation's terms: rosters that exist must stay readable, so that it never changes."""

from __future__ import annotations

from typing import Any

import pytest

import fedfairx as ffx
from fedfairx.agent.schedules import SCHEDULES
from fedfairx.federation.roster.rounds import Rounds
from fedfairx.federation.roster.terms import Terms
from fedfairx.privacy import Bounds, Centring

SIZE: dict[str, Any] = {"dimension": 3, "agents": 4, "horizon": 500}
SECURE: dict[str, Any] = {"epsilon": 2.0, "aggregation": "secure", "rounds": Rounds(begin=1_000)}
SCHEMA = ffx.features.Schema({"a": (0, 1), "b": ["x", "y"]})
CASES: dict[str, dict[str, Any]] = {
    "private": {"epsilon": 2, "delta": 1e-5, "minimum_share": 0, "spare": 10},
    "slots": {"epsilon": 1.5, "slots": [1, 0.63, 0.5], "merit": ffx.merit.Affine(2, 1)},
    "centred": {"epsilon": 1.5, "centring": Centring.unit_box(3)},
    "bounds": {"epsilon": 1.5, "bounds": Bounds(context_norm=2, record_norm=1)},
    "exact": {"algorithm": "fed-fairx-bayes", "prior": ffx.Prior(mean=(0, 1, 2), sd=1, learn=False)},
    "range": {"algorithm": "fed-fairx-bayes", "reward_range": (1, 5)},
    "optimism": {"algorithm": "priv-fairx-linucb", "epsilon": 2.0, "confidence": ffx.Confidence(scale=1)},
    "timed by data": {"algorithm": "b1", "epsilon": 1.0},
    "tree": {"algorithm": "b2", "epsilon": 3.0, "mechanism": "tree"},
    "features": {"epsilon": 2.0, "schema": SCHEMA, "dimension": None},
    "secure": SECURE,
    "strict": {**SECURE, "colluding": 2, "decide_from": "released", "records": 1_000},
    **{name: {"algorithm": "fed-fairx-bayes", "schedule": name} for name in SCHEDULES},
    "intercept": {"epsilon": 2},
    "intercept in a range": {"epsilon": 2, "reward_range": (1, 5)},
    "intercept, exact": {"algorithm": "fed-fairx-bayes"},
}
#: The first digits of the digests.
DIGESTS = {
    "private": "dea3545649fd1fa9",
    "slots": "64706295d6dd7c33",
    "centred": "c866536d0a440c9d",
    "bounds": "de6190cc0e783f7a",
    "exact": "452c5f5bbf7bf2fc",
    "range": "b67f503952817bad",
    "optimism": "d0b4f5a01478d595",
    "timed by data": "725938416b08f02b",
    "tree": "759b8572027a4294",
    "features": "31c98918f5fb6cb0",
    "secure": "ceeca2311bbcd058",
    "strict": "0f0d03726d94cf84",
    "paper": "97479adf63473748",
    "figure-gap": "87a89d9207a9d119",
    "doubling": "ce50685390d1a020",
    "geometric": "d366cac7421858a1",
    "determinant": "a71b3cf6e923c377",
    "every-round": "53eac814a0a52d73",
    "never": "a1b955fe2722767b",
    "intercept": "aaf7dfeb1d6f91a9",
    "intercept in a range": "164a755c8373e60c",
    "intercept, exact": "074152a88bc524cf",
}


@pytest.mark.parametrize("name", CASES)
def test_the_digest_stays(name: str) -> None:
    terms = Terms(**SIZE | {"intercept": name.startswith("intercept")} | CASES[name])
    assert terms.digest.startswith(DIGESTS[name])
    again = Terms.from_dict(terms.to_dict())
    assert again == terms
    assert again.digest == terms.digest


def test_a_member_has_what_its_agent_keeps_of_the_terms() -> None:
    terms = Terms(**SIZE, epsilon=2.0, minimum_share=0.05, slots=2, merit=ffx.merit.Affine(2, 1))
    agent = terms.agent("one", noise=ffx.privacy.SimulatedNoise(0), half_life=None)
    assert agent.options.minimum_share == 0.05
    assert agent.options.slots == (1.0, 1.0)
    assert agent.options.merit == ffx.merit.Affine(2, 1)
    assert agent.options.partners == "differ"
    assert agent.options.reward_range == (-1.0, 1.0)
    assert agent.options.epsilon is None  # its privatizer has it
