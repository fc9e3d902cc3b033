"""The audit's instruments: what they let one hear is what the privatizer did."""

from __future__ import annotations

import numpy as np
import pytest

from fedfairx.errors import InvalidInput
from fedfairx.privacy import Bounds, Centring, KeyedNoise, calibrate
from fedfairx.privacy.audit.subject import AuditedConfig, RecordingCentring, RecordingNoise, ZeroNoise
from fedfairx.privacy.privatizers.stream import StreamPrivatizer

BOX = Centring.unit_box(3)
SETTINGS = [
    pytest.param(Bounds(), None, id="plain"),
    pytest.param(Bounds(nonnegative=True, context_norm=2.0, gram_share=0.5), None, id="signs known"),
    pytest.param(BOX.inner_bounds(), BOX, id="centred"),
]


def _subject(bounds: Bounds, centring: Centring | None) -> AuditedConfig:
    return AuditedConfig(
        mechanism=calibrate("blt", epsilon=2.0, delta=0.1, releases=8, sensitivity=bounds.sensitivity),
        bounds=bounds,
        dimension=3,
        centring=None if centring is None else RecordingCentring.of(centring),
        make=StreamPrivatizer,
        source=KeyedNoise,
    )


@pytest.mark.parametrize(("bounds", "centring"), SETTINGS)
def test_without_noise_a_release_is_the_clipped_records(bounds: Bounds, centring: Centring | None) -> None:
    """The clip by the definition and the clip of the code agree, on records of which many are too large."""
    subject = _subject(bounds, centring)
    contexts, rewards = subject.random_records(np.random.default_rng(0), 40)
    truth = subject.truth(contexts, rewards)
    leaves = [
        list(zip(contexts[5 * i : 5 * i + 5], rewards[5 * i : 5 * i + 5], strict=True)) for i in range(8)
    ]
    assert subject.sums(leaves) == pytest.approx(truth.reshape(8, 5, -1).sum(axis=1), abs=subject.step)


@pytest.mark.parametrize(("bounds", "centring"), SETTINGS)
def test_the_noise_that_is_overheard_is_in_the_release(bounds: Bounds, centring: Centring | None) -> None:
    subject = _subject(bounds, centring)
    ear = RecordingNoise(subject.keyed("some", agent="0"))
    agent = subject.agent(ear)
    packed, unexplained = subject.release(agent)
    expected = ear.given[0] * subject.mechanism.base_sd * subject.scale
    assert packed == pytest.approx(expected, abs=subject.step)
    assert unexplained == 0.0
    assert len(ear.asked) == len(ear.given) == 1
    assert not agent.guarantee.is_private  # such noise is kept, and says so
    assert not subject.agent(ZeroNoise()).guarantee.is_private


def test_a_message_that_the_centring_did_not_make_is_noticed() -> None:
    subject = _subject(BOX.inner_bounds(), BOX)
    agent = subject.agent(ZeroNoise())
    agent.centring = BOX  # not the overheard one
    packed, unexplained = subject.release(agent)
    assert np.isnan(packed).all()
    assert unexplained == np.inf


def test_parts_that_do_not_fit_are_refused() -> None:
    bounds = Bounds(context_norm=0.1)
    mechanism = calibrate("tree", epsilon=1.0, delta=0.1, releases=1, sensitivity=1.0)
    with pytest.raises(InvalidInput, match="bounds must have the centring's context_norm"):
        StreamPrivatizer(3, mechanism=mechanism, bounds=bounds, centring=BOX, noise=ZeroNoise())
