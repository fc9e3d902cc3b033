"""Names: whose release is whose, and one's own from nobody else."""

from __future__ import annotations

import numpy as np
import pytest

import fedfairx as ffx
from federation_helpers import D, taught
from fedfairx.errors import MessageRefused


def test_agents_have_names_of_their_own() -> None:
    names = {ffx.Agent(D, seed=0).name for _ in range(20)}
    assert len(names) == 20
    assert all(name.startswith("agent-") for name in names)
    assert ffx.Agent(D, name="north").name == "north"


def test_two_agents_learn_from_each_other_without_naming_anybody() -> None:
    first, second = (
        taught(ffx.Agent(D, rule="optimism", confidence=ffx.Confidence(), seed=seed), count, seed=seed)
        for seed, count in ((0, 20), (1, 30))
    )
    both = first.gram + second.gram - np.eye(D)
    first.release()
    first.absorb({second.name: second.release()})
    assert first.gram == pytest.approx(both, abs=1e-12)
    assert first.radius == pytest.approx(ffx.Confidence().radius(50, D))


def test_the_models_version_grows_with_rewards_and_with_messages() -> None:
    ours, theirs = (taught(ffx.Agent(D, seed=seed), 3, seed) for seed in range(2))
    versions = [ours.model_version]
    taught(ours, 1)
    versions.append(ours.model_version)
    for _ in range(2):
        ours.absorb({theirs.name: theirs.release()})
        versions.append(ours.model_version)
        taught(theirs, 1)
    assert versions[0] > 0
    assert versions == sorted(set(versions))


@pytest.mark.parametrize("released", [False, True])
def test_another_agent_of_the_same_name_is_refused_and_changes_nothing(released: bool) -> None:
    ours, theirs = (taught(ffx.Agent(D, seed=seed, name="north"), 20, seed) for seed in range(2))
    own = ours.release() if released else None
    before = ours.gram
    with pytest.raises(MessageRefused, match="release of 'north', which is this agent's own name, "):
        ours.absorb({"south": taught(ffx.Agent(D, seed=2), 5).release(), "north": theirs.release()})
    assert (ours.gram == before).all()
    if own is not None:
        ours.absorb({"north": own})  # its own comes back to it, as in a synchronisation
        taught(ours, 1).release()
        with pytest.raises(MessageRefused, match="own name"):
            ours.absorb({"north": own})  # no longer its latest
