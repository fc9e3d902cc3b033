"""Contents of a report: texts, measures, and what takes their place."""

from __future__ import annotations

import pytest

from experiment_helpers import outcome
from fedfairx.experiments import Bar, Compared, Contents, Grid, Hypothesis, below, over, regret, words
from fedfairx.experiments.contents import regret_grid, seeds_of, shown, syncs
from fedfairx.experiments.scores import number

OUTCOMES = {"alone": outcome(), "fed": outcome(scale=0.5), "large": outcome(scale=3000.0)}


def test_a_table_has_texts_and_what_is_measured():
    table = Grid(
        words("Of {seeds} seeds", seeds=seeds_of("fed")),
        ("run", "regret", "syncs", "over alone"),
        [("Fed", regret("fed"), syncs("fed"), words("{.value:.2f}", over("fed", "alone")))],
        "A note.",
    ).filled(OUTCOMES)
    low, high = (OUTCOMES["fed"].final()[i] for i in (0, 1))
    assert (table.title, table.columns, table.note) == (
        "Of 2 seeds",
        ("run", "regret", "syncs", "over alone"),
        "A note.",
    )
    ((run, level, releases, share),) = table.rows
    assert (run, releases) == ("Fed", "7")
    assert level.startswith(f"{number((low + high) / 2)} [")
    ratios = OUTCOMES["fed"].final() / OUTCOMES["alone"].final()
    assert share == f"{float(ratios.prod()) ** 0.5:.2f}"


def test_rows_may_follow_from_the_outcomes():
    def rows(outcomes):
        return [(name, "x") for name in sorted(outcomes, key=lambda run: outcomes[run].final().mean())]

    assert [row[0] for row in Grid("", ("run", ""), rows).filled(OUTCOMES).rows] == ["fed", "alone", "large"]


def test_a_table_of_runs_has_both_regrets_and_synchronisations():
    table = regret_grid("Regret", ("algorithm",), [("fed", "Fed")]).filled(OUTCOMES)
    assert table.columns[1:] == ("fairness regret at T", "reward regret at T", "synchronisations")
    assert [cell.split(" ")[0] for cell in table.rows[0]] == ["Fed", "2.05", "-1.95", "7"]


def test_numbers_are_shown_for_people():
    assert words("{}", shown(lambda outcomes: float(outcomes["large"].final().mean())))(OUTCOMES) == "12 000"


MEASURES = {"first": over("fed", "alone"), "second": over("large", "alone")}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{each}", "first: {first}; second: {second}"),
        ("{worst} at {where}, of {count}", "{second} at second, of 2"),
        (words("by {}", over("fed", "alone")), "by {first}"),
    ],
)
def test_what_was_found_is_said(template, text):
    values = {name: measure(OUTCOMES) for name, measure in MEASURES.items()}
    claim = Hypothesis("s", "c", (Bar(MEASURES, high=9.0),), template).judged(OUTCOMES)
    assert claim.found == text.format(**values)
    assert (claim.statement, claim.criterion, claim.verdict) == ("s", "c", "does not hold")


def test_what_refutes_is_named():
    bar = Bar(MEASURES, high=1.0, by="doubt")
    claim = Hypothesis("s", "c", (bar,), "none", refuted="worse: {outside}").judged(OUTCOMES)
    assert claim.found == f"worse: second: {MEASURES['second'](OUTCOMES)}"
    fine = Bar({"first": MEASURES["first"]}, high=1.0, by="doubt")
    assert Hypothesis("s", "c", (fine,), "none", refuted="worse").judged(OUTCOMES).found == "none"


def test_all_bars_must_be_met():
    met, missed = Bar({"": lambda _: 1.0}, low=0.5), Bar({"": lambda _: 1.0}, low=2.0)
    assert Hypothesis("s", "c", (met, met)).judged(OUTCOMES).verdict == "holds"
    assert Hypothesis("s", "c", (met, missed)).judged(OUTCOMES).verdict == "does not hold"


def test_contents_become_scores():
    scores = Contents(
        ratios=(Compared("Fed / alone", 0.5, over("fed", "alone"), "a note"),),
        claims=(below("sharing pays", "Fed/alone", 1.0, over("fed", "alone"), note=" here"),),
        notes=("plain", words("{}", seeds_of("fed"))),
        headline=words("{} found", seeds_of("fed")),
    ).measured(OUTCOMES)
    (ratio,), (claim,) = scores.ratios, scores.claims
    assert (ratio.name, ratio.paper, ratio.ours, ratio.note) == (
        "Fed / alone",
        0.5,
        over("fed", "alone")(OUTCOMES),
        "a note",
    )
    assert claim.criterion == "the 95 % interval of Fed/alone lies below 1 here"
    assert (claim.verdict, claim.found) == ("holds", str(ratio.ours))
    assert (scores.notes, scores.headline) == (("plain", "2"), "2 found")
