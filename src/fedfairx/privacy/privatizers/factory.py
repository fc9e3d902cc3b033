"""One call from (ε, δ) to a privatizer: bounds, calibration, noise and ledger, fitted together."""

from __future__ import annotations

from typing import Any

from fedfairx.errors import require
from fedfairx.privacy.bounds import Bounds
from fedfairx.privacy.centring import CentredPrivatizer, Centring
from fedfairx.privacy.guarantee import DecideFrom
from fedfairx.privacy.ledger.ledger import Ledger
from fedfairx.privacy.ledger.rollback import Confirm
from fedfairx.privacy.mechanisms.gaussian import calibrate
from fedfairx.privacy.mechanisms.noise import NoiseSource
from fedfairx.privacy.privatizers.stream import StreamPrivatizer


def private(
    dimension: int,
    *,
    epsilon: float,
    delta: float = 1e-6,
    releases: int,
    noise: NoiseSource,
    mechanism: str = "blt",
    bounds: Bounds | None = None,
    centring: Centring | None = None,
    decide_from: DecideFrom = "own+released",
    ledger: Ledger | None = None,
    public_schedule: bool = True,
    confirm: Confirm | None = None,
) -> StreamPrivatizer | CentredPrivatizer:
    """A privatizer whose whole transcript of `releases` messages is (epsilon, delta)-DP.

    `bounds` clip every record (norm 1 and reward 1 by default); with `centring` records are clipped around a
    public point instead, and of `bounds` only the adjacency and the gram_share count. `confirm` asks the
    peers whether this ledger is the latest: see `privacy.peers`. By default the claim is for one record of
    the log replaced, the others as recorded; `decide_from="released"` is the strict mode, which also covers
    what the record changes in later decisions.

    Guarantees:
    - The noise is calibrated to the sensitivity of the very bounds that clip.
    """
    bounds = Bounds() if bounds is None else bounds
    if centring is not None:
        require(
            centring.dimension == dimension,
            "centring",
            f"must have dimension {dimension}",
            centring.dimension,
        )
        bounds = centring.inner_bounds(adjacency=bounds.adjacency, gram_share=bounds.gram_share)
    return assemble(
        dimension,
        mechanism=calibrate(
            mechanism, epsilon=epsilon, delta=delta, releases=releases, sensitivity=bounds.sensitivity
        ),
        bounds=bounds,
        centring=centring,
        noise=noise,
        decide_from=decide_from,
        ledger=ledger,
        public_schedule=public_schedule,
        confirm=confirm,
    )


def assemble(
    dimension: int, *, bounds: Bounds, centring: Centring | None = None, **other: Any
) -> StreamPrivatizer | CentredPrivatizer:
    """A privatizer from parts that fit: with `centring`, `bounds` are its `inner_bounds`.

    `other` is as for `StreamPrivatizer`.

    Guarantees:
    - Parts that do not fit are refused.
    """
    if centring is None:
        return StreamPrivatizer(dimension, bounds=bounds, **other)
    inner = StreamPrivatizer(dimension + 1, bounds=bounds, public_point=centring, **other)
    return CentredPrivatizer(inner, centring=centring)
