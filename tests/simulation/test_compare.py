"""Results in a few lines, a table or a figure."""

from __future__ import annotations

import builtins

import pytest

import fedfairx as ffx
from fedfairx.errors import InvalidInput, MissingLibrary

WORLD = ffx.Scenario(agents=2, arms=3, dimension=2, horizon=40)


@pytest.fixture(scope="module")
def result() -> ffx.Result:
    return ffx.simulate(WORLD, algorithm="fairx-bayes", seeds=2)


def test_a_result_in_one_line(result: ffx.Result) -> None:
    text = repr(result)
    assert text.startswith("Result('fairx-bayes', T=40, 2 seeds, fairness regret ")
    assert text.endswith("0 syncs)")
    assert len(text) < 200


def test_the_summary_has_every_seed_and_the_mean(result: ffx.Result) -> None:
    lines = result.summary().splitlines()
    assert lines[0] == "fairx-bayes, T=40, regret per agent at T"
    assert [line.split()[0] for line in lines[3:]] == ["0", "1", "mean"]
    assert f"{result.fairness_regret[:, -1].mean():.3g} ± " in lines[-1]
    assert result._repr_html_().count("<tr>") == 4


@pytest.mark.long
def test_a_figure(result: ffx.Result) -> None:
    figure = result.plot()
    assert [text.get_text() for text in figure.axes[0].texts] == ["fairx-bayes"]


@pytest.mark.long
def test_names_are_run_in_one_scenario_private_or_not(result: ffx.Result) -> None:
    table = ffx.compare(["fairx-bayes", "priv-fairx-bayes"], scenario=WORLD, seeds=2, epsilon=1.0)
    assert list(table.results) == ["fairx-bayes", "priv-fairx-bayes"]
    assert (table.results["fairx-bayes"].fairness_regret == result.fairness_regret).all()
    assert table.results["priv-fairx-bayes"].options["epsilon"] == 1.0
    assert [line.split()[0] for line in repr(table).splitlines()[2:]] == list(table.results)
    assert table._repr_html_().count("<tr>") == 3
    assert len(table.plot().axes) == 2


def test_one_algorithm_twice_is_told_apart(result: ffx.Result) -> None:
    assert list(ffx.compare([result, result]).results) == ["fairx-bayes (1)", "fairx-bayes (2)"]
    assert list(ffx.compare({"mine": result, "yours": result}).results) == ["mine", "yours"]


@pytest.mark.parametrize(
    ("what", "text"),
    [
        (["fairx-bayes"], "scenario must be given to run an algorithm, got 'fairx-bayes'"),
        ("fairx-bayes", "what must be a list of results or names of algorithms, got what='str'"),
        ([], "what must be at least one"),
        ({"mine": 3}, "what must hold results, got what='mine: int'"),
        (["nope"], "algorithm must be one of"),
    ],
)
def test_what_can_not_be_compared(what, text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        ffx.compare(what)
    assert str(refused.value).startswith(text)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"prior": 0.5}, "prior must be a Prior, got prior=0.5"),
        ({"confidence": 0.1}, "confidence must be a Confidence, got confidence=0.1"),
        ({"bounds": 1.0}, "bounds must be a Bounds, got bounds=1.0"),
    ],
)
def test_a_number_where_a_setting_belongs(options, text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        ffx.simulate(WORLD, **options)
    assert str(refused.value) == text
    with pytest.raises(InvalidInput, match="scenario must be a Scenario"):
        ffx.simulate(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("library", "call", "extra"),
    [("pandas", "to_frame", "frames"), ("matplotlib", "plot", "plots")],
)
def test_a_missing_library_is_named_with_its_extra(
    result: ffx.Result, monkeypatch: pytest.MonkeyPatch, library: str, call: str, extra: str
) -> None:
    real = builtins.__import__

    def without(name: str, *rest, **more):
        if name.split(".")[0] == library:
            raise ModuleNotFoundError(f"No module named {library!r}", name=library)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingLibrary) as refused:
        getattr(result, call)()
    assert str(refused.value) == f"this needs {library}: pip install 'fedfairx[{extra}]'"
