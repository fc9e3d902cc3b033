"""What the audit takes for the truth is what the privatizer sums."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedfairx.agent.options import Options
from fedfairx.audit.subject import ZeroNoise
from fedfairx.errors import InvalidInput
from fedfairx.privacy import Bounds, Centring, calibrate
from fedfairx.privacy.privatizers.stream import StreamPrivatizer
from whole_config import WholeConfig

BOX = Centring.unit_box(3)
SETTINGS = [
    pytest.param({}, id="plain"),
    pytest.param(
        {"bounds": Bounds(nonnegative=True, context_norm=2.0, gram_share=0.5)},
        id="signs known",
    ),
    pytest.param({"centring": BOX}, id="centred"),
    pytest.param({"slots": (1.0, 0.5)}, id="slots"),
]


def _subject(**given: Any) -> WholeConfig:
    options = Options(algorithm="priv-fairx-bayes", epsilon=2.0, delta=0.1, **given)
    return WholeConfig(options=options, dimension=3, releases=8)


@pytest.mark.parametrize("given", SETTINGS)
def test_without_noise_a_release_is_the_clipped_records(given: dict[str, Any]) -> None:
    """The clip by the definition and the clip of the code agree, on records of which many are too large."""
    subject = _subject(**given)
    contexts, rewards = subject.random_records(np.random.default_rng(0), 40)
    rewards[:3] = np.nan, np.inf, -np.inf
    truth = subject.truth(contexts, rewards)
    contexts = subject.entered(contexts)
    leaves = [
        list(zip(contexts[5 * i : 5 * i + 5], rewards[5 * i : 5 * i + 5], strict=True)) for i in range(8)
    ]
    assert subject.sums(leaves) == pytest.approx(truth.reshape(8, 5, -1).sum(axis=1), abs=subject.step)
    assert not subject.privatizer(ZeroNoise()).guarantee.is_private


@pytest.mark.parametrize("given", SETTINGS)
def test_many_records_are_too_large_and_all_sums_grow(given: dict[str, Any]) -> None:
    subject = _subject(**given)
    contexts, rewards = subject.random_records(np.random.default_rng(0), 400)
    (point, level), (radius, limit) = subject.public_point, subject.radii
    outside = (np.linalg.norm(contexts - point, axis=1) > radius) | (np.abs(rewards - level) > limit)
    assert 0.3 < outside.mean() < 0.9
    assert np.abs(subject.truth(contexts, rewards).sum(axis=0)).min() > 10 * radius * min(radius, limit)


def test_a_message_that_the_centring_did_not_make_is_noticed() -> None:
    subject = _subject(centring=BOX)
    privatizer = subject.privatizer(ZeroNoise())
    privatizer.centring = replace(BOX, intercept=True)  # not the overheard one
    packed, unexplained = subject.noisy_sums(privatizer.release())
    assert np.isnan(packed).all()
    assert unexplained == np.inf


def test_parts_that_do_not_fit_are_refused() -> None:
    bounds = Bounds(context_norm=0.1)
    mechanism = calibrate("tree", epsilon=1.0, delta=0.1, releases=1, sensitivity=1.0)
    with pytest.raises(InvalidInput, match="bounds must have the centring's context_norm"):
        StreamPrivatizer(3, mechanism=mechanism, bounds=bounds, centring=BOX, noise=ZeroNoise())
