"""BLT parameters: within 1 % of the square root for every τ, from a table that its command writes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fedfairx.errors import InvalidInput
from fedfairx.privacy.mechanisms import blt
from fedfairx.privacy.mechanisms.blt import GRID, Blt, blt_for, fit, render

K = np.arange(1, 1_000_000)
#: ‖B_t‖² of the square root, whose coefficients are those of (1−z)^{-1/2}.
SUMS = np.cumsum(np.square(np.cumprod(np.concatenate([[1.0], (2.0 * K - 1.0) / (2.0 * K)]))))
GRID_OF_TAU = np.unique(
    np.concatenate(
        [
            np.arange(1, 70),
            np.geomspace(70, 1_000_000, 60).astype(int),
            *[[4**k, 4**k + 1] for k in range(1, 10)],
            [20_000, 20_002],
        ]
    )
)


@pytest.mark.parametrize("releases", GRID_OF_TAU.tolist())
def test_every_release_is_within_one_percent_of_the_square_root(releases: int) -> None:
    factor = blt_for(releases)
    numbers = np.unique(np.geomspace(1, releases, 200).astype(int))
    ratio = factor.column_norm * factor.row_norm(numbers) / np.sqrt(SUMS[releases - 1] * SUMS[numbers - 1])
    assert ratio.max() <= 1.01
    assert ratio[-1] <= 1.002  # the noisiest release


def test_the_projects_own_parameters_for_20_000_give_its_vector() -> None:
    omega = (0.317895, 0.113065, 0.030269, 0.010347)
    theta = (0.76260948, 0.98189957, 0.99877611, 0.99994511)
    factor = Blt(20_000, omega, tuple(1 - t for t in theta))
    sd = factor.column_norm * factor.row_norm(np.arange(1, 20_001))
    assert sd.max() == pytest.approx(4.22, abs=0.015)
    assert sd.mean() == pytest.approx(4.05, abs=0.015)
    # Four buffers against the table's five: ours must not be worse.
    assert blt_for(20_000).column_norm * blt_for(20_000).row_norm(np.array([20_000]))[0] <= sd.max()


@pytest.mark.long
@pytest.mark.parametrize("at", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_the_table_is_what_the_command_writes(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fitted again, a grid point gives the table's noise; digits may differ by the optimiser's last steps."""
    monkeypatch.setattr(blt, "GRID", GRID[at : at + 1])
    [entry] = json.loads(render())
    releases = entry["releases"]
    again, stored = Blt(releases, tuple(entry["omega"]), tuple(entry["gap"])), blt_for(releases)
    numbers = np.array([1, releases])
    np.testing.assert_allclose(
        again.column_norm * again.row_norm(numbers),
        stored.column_norm * stored.row_norm(numbers),
        rtol=1e-4,
    )
    assert releases == GRID[at]
    assert [entry[0] for entry in blt.table()] == list(GRID)


@pytest.mark.long
def test_beyond_the_table_it_is_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    first = blt.table()[:1]
    monkeypatch.setattr(blt, "table", lambda: first)
    factor = blt_for(300)
    assert factor.column_norm * factor.row_norm(np.array([300]))[0] <= 1.002 * SUMS[299]
    assert len(factor.omega) == 4


@pytest.mark.long
def test_the_fit_improves_on_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """An optimiser that goes astray is not followed: then the start is kept."""
    numbers = np.array([64])
    good = fit(64, buffers=3)

    class Astray:
        x, fun = np.full(6, -30.0), 49.0

    monkeypatch.setattr("scipy.optimize.minimize", lambda *_args, **_kwargs: Astray)
    start = fit(64, buffers=3)
    assert good.column_norm * good.row_norm(numbers)[0] < start.column_norm * start.row_norm(numbers)[0] < 5


def test_releases_must_be_positive() -> None:
    with pytest.raises(InvalidInput, match="releases"):
        blt_for(0)
