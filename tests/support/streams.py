"""Small privatizers, and something for them to do."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedfairx.privacy.bounds import Bounds
from fedfairx.privacy.mechanisms.gaussian import calibrate
from fedfairx.privacy.mechanisms.noise import KeyedNoise
from fedfairx.privacy.privatizers.stream import StreamPrivatizer

KEY = bytes(range(32))


def configured(
    *, name: str = "blt", releases: int = 40, bounds: Bounds | None = None, delta: float = 1e-6
) -> dict[str, Any]:
    bounds = bounds or Bounds()
    return {
        "mechanism": calibrate(
            name, epsilon=2.0, delta=delta, releases=releases, sensitivity=bounds.sensitivity
        ),
        "bounds": bounds,
        "noise": KeyedNoise(KEY, agent="a", run="r"),
    }


def feed(privatizer: StreamPrivatizer, seed: int, leaves: int) -> list[bytes]:
    generator = np.random.default_rng(seed)
    messages = []
    for _ in range(leaves):
        for _ in range(generator.integers(0, 4)):
            privatizer.add(generator.normal(size=privatizer.dimension), generator.normal())
        messages.append(privatizer.release().to_bytes())
    return messages
