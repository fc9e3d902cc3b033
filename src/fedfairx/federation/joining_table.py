"""Regret of members over the same agents alone, written by `benchmarks/joining_gain.py --write`."""

from __future__ import annotations

WORLD = "10 arms, 5 features, noise 0.1, members alike"
DELTA = 1e-06
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
MEMBERS = (2, 3, 10, 30, 100)
HORIZONS = (1000, 10000, 100000)
#: By mode: [horizon][ε][members]; without privacy there is one ε.
RATIOS: dict[str, tuple[tuple[tuple[float, ...], ...], ...]] = {}
