"""Every listed mistake is caught, by the check that is made for it."""

from __future__ import annotations

import json

import pytest

import mistakes
from fedfairx.privacy.mechanisms.gaussian import Gaussian
from mistakes import MISTAKES, RELEASES, Mistake

#: By statistics of the draws; the other checks are exact, or attacks with runs of their own.
BY_DRAWS = ("draws: sd", "draws: distance", "draws: correlation")
#: They show after many records, or in few numbers of many.
RARE = ("clipping that stops after 100 records", "exact sums that leak at 1e-9, before the grid")


def named(name: str) -> Mistake:
    return next(each for each in MISTAKES if each.name == name)


@pytest.mark.long
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_every_mistake_is_caught(mistake: Mistake, request: pytest.FixtureRequest) -> None:
    smaller = {
        "_few_draws": not mistake.check.startswith(BY_DRAWS),
        "_few_large_draws": mistake.check != mistakes.TAILS,
        "_few_canaries": mistake.check != mistakes.SENSITIVITY,
        "_few_inputs": mistake.check != mistakes.ALIKE,
        "_few_keys": mistake.check != mistakes.KEYS,
        "_few_records": mistake.name not in RARE,
    }
    for fixture in (name for name, wanted in smaller.items() if wanted):
        request.getfixturevalue(fixture)
    if not mistake.by_audit:
        assert mistake.caught_by(mistake.whole())
        return
    report = mistake.audit()
    assert mistake.caught_by(report.failed), str(report)
    assert not report.ok
    assert "THE CLAIM IS FALSE" in str(report)
    assert json.loads(json.dumps(report.to_dict(), allow_nan=False))["failed"] == list(report.failed)


@pytest.mark.long
@pytest.mark.usefixtures("_few_draws", "_few_large_draws")
@pytest.mark.parametrize(
    ("name", "mechanism"),
    [
        ("(N+Nᵀ)/2", "tree"),
        ("no composition over levels", "tree"),
        ("noise reused when the tree does not grow", "tree"),
        ("contexts unclipped", "blt"),
        ("rewards unclipped below", "tree"),
        ("a record in two leaves", "blt"),
        ("noise reused at lag 2", "blt"),
        ("release number mod 16", "blt"),
        ("calibrated to 10 δ", "tree"),
        ("1/h of the noise in the place of 1/h of its variance", "blt"),
    ],
)
def test_the_black_box_catches(name: str, mechanism: str) -> None:
    report = named(name).audit(mechanism=mechanism, releases=64, runs=3_000)
    assert report.found_mu > report.claimed_mu
    assert report.found_epsilon > 0
    assert "attack on leaf" in report.failed[0]


@pytest.mark.long
@pytest.mark.usefixtures("_few_inputs", "_few_keys", "_few_records", "_no_middle")
@pytest.mark.parametrize("mechanism", ["paper-tree", "blt"])
def test_a_last_release_without_noise_is_caught_in_any_mechanism(mechanism: str) -> None:
    mistake = named("a last release without noise beyond 2 048")
    assert mistake.caught_by(mistake.whole(mechanism=mechanism, releases=2_049))


def test_a_mistake_is_taken_out_again() -> None:
    right = vars(Gaussian)["stream"]
    with pytest.raises(ZeroDivisionError), named("noise halved").inserted():
        assert vars(Gaussian)["stream"] is not right
        raise ZeroDivisionError
    assert vars(Gaussian)["stream"] is right


def test_each_mistake_is_one() -> None:
    assert len({mistake.name for mistake in MISTAKES}) == len(MISTAKES)
    assert {mistake.releases for mistake in MISTAKES} == {RELEASES, 2_100}


@pytest.mark.long
@pytest.mark.usefixtures("_few_inputs", "_few_records")
def test_the_score_counts_what_is_caught(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistake that is none is missed, and one that another check notices is not caught by its own."""
    none = Mistake("no mistake", Gaussian, "stream", lambda right: right, "agents: numbers")
    other = Mistake("noise halved", Gaussian, "stream", named("noise halved").wrong, "keys: ")
    monkeypatch.setattr(mistakes, "MISTAKES", (none, other, named("keys of 16 bits")))
    assert mistakes.main([]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "MISSED  no mistake  (nothing failed)"
    assert lines[1].startswith("MISSED  noise halved  (agents: numbers other than grid(truth + noise)")
    assert lines[2] == "caught  keys of 16 bits  (keys: too short or made twice, of 16384)"
    assert lines[3:] == ["mutation score: 1 of 3 mistakes detected (33%)"]


@pytest.mark.long
@pytest.mark.usefixtures("_few_inputs", "_few_records")
def test_the_command_ends_with_0_when_all_are_caught(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mistakes, "MISTAKES", (named("keys of 16 bits"),))
    assert mistakes.main(["--seed", "1"]) == 0
    assert "mutation score: 1 of 1 mistakes detected (100%)" in capsys.readouterr().out
