"""What joining gains is read off the stored table: its entries, between them, and at its edges."""

from __future__ import annotations

import importlib.util
import math
import sys
from itertools import product
from pathlib import Path

import pytest

from fedfairx.errors import InvalidInput
from fedfairx.federation.setup.joining_gain import (
    EPSILONS,
    FILE,
    HORIZONS,
    MEMBERS,
    RATIOS,
    SMALL,
    WORLD,
    Gain,
    expected_gain,
)
from fedfairx.privacy import mu_for

BENCHMARK = Path(__file__).resolve().parents[3] / "benchmarks" / "joining_gain.py"
MODES = ("own+released", "own+released, centred", "released", "released, centred", "exact")


def ratio(
    epsilon: float | None = 2.0,
    *,
    members: int = 10,
    horizon: int = 10_000,
    decide_from: str = "own+released",
    centred: bool = False,
    delta: float = 1e-6,
) -> float:
    found = expected_gain(
        members=members,
        horizon=horizon,
        epsilon=epsilon,
        delta=delta,
        decide_from=decide_from,
        centred=centred,
    )
    assert found is not None
    return found.ratio


def made(ratio: float, **other: object) -> Gain:
    given = {
        "members": 10,
        "horizon": 10_000,
        "epsilon": 2.0,
        "decide_from": "own+released",
        "centred": False,
    }
    return Gain(**(given | other), ratio=ratio)  # type: ignore[arg-type]


def test_the_table_is_whole() -> None:
    assert set(RATIOS) == set(MODES)
    for mode, values in RATIOS.items():
        assert len(values) == len(HORIZONS)
        for rows in values:
            assert len(rows) == (1 if mode == "exact" else len(EPSILONS))
            assert all(len(row) == len(MEMBERS) and all(0 < entry < 100 for entry in row) for row in rows)


def test_the_table_says_what_was_found() -> None:
    """Of the default: joining hardly ever costs, and the strict mode costs far more; exact sums gain most."""
    for t, e, m in product(range(len(HORIZONS)), range(len(EPSILONS)), range(len(MEMBERS))):
        default, strict, exact = (
            RATIOS[mode][t][e if mode != "exact" else 0][m] for mode in ("own+released", "released", "exact")
        )
        assert default < 1.05
        assert exact < default < strict


@pytest.mark.parametrize("mode", MODES[:4])
def test_entries_are_hit_exactly(mode: str) -> None:
    rule, _, centred = mode.partition(", ")
    for (t, horizon), (e, epsilon), (m, members) in product(
        enumerate(HORIZONS), enumerate(EPSILONS), enumerate(MEMBERS)
    ):
        found = expected_gain(
            members=members, horizon=horizon, epsilon=epsilon, decide_from=rule, centred=bool(centred)
        )
        assert found is not None
        assert found.ratio == RATIOS[mode][t][e][m]
        assert found.nearest == ()


def test_between_entries_it_is_linear_in_logarithms() -> None:
    assert ratio(math.sqrt(8.0)) == pytest.approx((ratio(2.0) + ratio(4.0)) / 2)
    low, high = ratio(horizon=1_000), ratio(horizon=10_000)
    assert ratio(horizon=3_000) == pytest.approx(low + math.log10(3) * (high - low))
    few, many = ratio(members=10), ratio(members=30)
    assert ratio(members=20) == pytest.approx(few + math.log(2) / math.log(3) * (many - few))
    corners = [ratio(e, members=m, horizon=t) for e, m, t in product((4.0, 8.0), (10, 30), (10_000, 100_000))]
    inside = ratio(math.sqrt(32.0), members=17, horizon=30_000)
    assert min(corners) < inside < max(corners)


def test_outside_the_nearest_entry_is_taken_and_named() -> None:
    for asked, nearest, words in (
        ({"epsilon": 0.1}, {"epsilon": 0.5}, "ε = 0.5 at δ = 1e-06"),
        ({"epsilon": 50.0}, {"epsilon": 8.0}, "ε = 8 at δ = 1e-06"),
        ({"members": 1_000}, {"members": 100}, "100 members"),
        ({"horizon": 50}, {"horizon": 1_000}, "1 000 decisions each"),
        ({"horizon": 10**7}, {"horizon": 100_000}, "100 000 decisions each"),
    ):
        given = {"members": 10, "horizon": 10_000, "epsilon": 2.0}
        far, near = expected_gain(**(given | asked)), expected_gain(**(given | nearest))  # type: ignore[arg-type]
        assert far is not None
        assert near is not None
        assert far.ratio == near.ratio
        assert far.nearest == (words,)
        assert far.sentence.endswith(f"The nearest that was simulated is {words}.")
        assert "nearest" not in near.sentence


def test_another_delta_is_read_at_as_much_noise() -> None:
    """(2, 0.1) has μ = 1.37, as ε = 7 has at δ = 1e-6."""
    assert mu_for(2.0, 0.1) == pytest.approx(mu_for(7.0, 1e-6), rel=1e-3)
    assert ratio(2.0, delta=0.1) == pytest.approx(ratio(7.0), abs=1e-3)
    assert ratio(2.0, delta=0.1) < ratio(4.0)


def test_what_was_not_simulated_has_no_gain() -> None:
    assert expected_gain(members=10, horizon=1_000, epsilon=2.0, decide_from="released+local") is None
    assert expected_gain(members=1, horizon=1_000, epsilon=2.0) is None
    with pytest.raises(InvalidInput, match="horizon must be >= 1"):
        expected_gain(members=2, horizon=0, epsilon=2.0)


@pytest.mark.parametrize(
    ("value", "words", "warned"),
    [
        (0.75, "25 % less regret at", False),
        (0.9, "10 % less regret at", False),
        (0.904, "9.6 % less regret at", True),
        (0.92, "8 % less regret at", True),
        (0.998, "none; as much regret at", True),
        (1.04, "none; 4 % more regret at", True),
        (6.27, "none; 6.3 times the regret at", True),
    ],
)
def test_the_gain_in_words(value: float, words: str, warned: bool) -> None:
    found = made(value)
    assert found.sentence.startswith(f"Expected gain over deciding alone: {words} 10 members, ε = 2, 10 000 ")
    assert f"simulated: {WORLD}, geometric schedule, records clipped around zero; " in found.sentence
    assert (found.warning is not None) == warned
    assert found.to_dict()["gain"] == pytest.approx(1 - value)


def test_the_documentation_has_the_table() -> None:
    told = (BENCHMARK.parents[1] / "docs" / "paper" / "cost-of-privacy.md").read_text(encoding="utf-8")
    rows = [f"$10^{round(math.log10(x))}$" for x in HORIZONS]
    shown = [(EPSILONS.index(epsilon), epsilon) for epsilon in (0.5, 2.0, 8.0)]
    for (t, horizon), (e, epsilon) in product(enumerate(rows), shown):
        entries = " | ".join(f"{x:.2f}" for x in RATIOS["own+released"][t][e])
        assert f"| {horizon} | {epsilon:g} | {entries} |" in told
    for t, horizon in enumerate(rows):
        entries = " | ".join(f"{x:.2f}" for x in RATIOS["exact"][t][0])
        assert f"| {horizon} | exact | {entries} |" in told
    ten = MEMBERS.index(10)
    for e, epsilon in shown:
        pairs = [", ".join(f"{RATIOS[mode][t][e][ten]:.2f}" for t in (1, 2)) for mode in MODES[:4]]
        assert f"| {epsilon:g} | {' | '.join(pairs)} |" in told


def test_a_warning_says_what_to_do() -> None:
    default = made(1 - SMALL / 2).warning
    assert default is not None
    for remedy in ("less than a tenth", "a larger ε", "centre records", "more members", "working alone"):
        assert remedy in default
    assert "own+released" not in default
    strict = made(3.0, decide_from="released", centred=True).warning
    assert strict is not None
    assert 'decide_from="own+released"' in strict
    assert "centre records" not in strict
    exact = made(0.95, epsilon=None)
    assert "exact sums" in exact.sentence
    assert "clipped" not in exact.sentence
    assert exact.warning is not None
    assert "ε" not in exact.warning


def test_the_benchmark_measures_and_writes_such_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = importlib.util.spec_from_file_location("joining_gain_benchmark", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    monkeypatch.setattr(benchmark, "SEEDS", ((math.inf, 2),))
    found = benchmark.measure("own+released", "alike", (50,), (2,), (2.0, 8.0))
    assert [len(row) for row in found[0]] == [1, 1]
    assert "own+released" in capsys.readouterr().out
    assert set(benchmark.MODES) == set(RATIOS)
    assert benchmark.text(RATIOS) == FILE.read_text(encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["joining_gain.py", "--quick", "--write"])
    before = FILE.read_bytes()
    with pytest.raises(SystemExit):
        benchmark.main()
    assert FILE.read_bytes() == before
