"""Every field of what is simulated can be set by a flag and in a TOML file, and is explained."""

from __future__ import annotations

import argparse
import functools
import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.agent.options import SCALE, Options
from fedfairx.agent.schedules import Paper
from fedfairx.cli.main import main, parser
from fedfairx.cli.simulate import Running, prepare, settings, tables
from fedfairx.errors import InvalidInput
from fedfairx.privacy import Bounds, Centring
from fedfairx.util.config import Setting, explained

KINDS = {
    "scenario": (ffx.Scenario,),
    "run": (Options, Running),
    "prior": (ffx.Prior,),
    "confidence": (ffx.Confidence,),
    "bounds": (Bounds,),
    "centring": (Centring,),
}
PARTS = {"merit", "prior", "confidence", "bounds", "centring"}  # tables of their own, or the scenario's
ALL = [each for table in tables().values() for each in table]
# Text of a flag, the same in TOML, and what both mean, by what a setting takes.
SAMPLES: dict[str, tuple[str, str, Any]] = {
    "INT": ("7", "7", 7),
    "FLOAT": ("0.25", "0.25", 0.25),
    "NAME": ("some", '"some"', "some"),
    "yes|no": ("yes", "true", True),
    "NUMBER,…": ("0.5,0.25", "[0.5, 0.25]", (0.5, 0.25)),
    "LOW:HIGH": ("1:5", "[1, 5]", (1.0, 5.0)),
}
NAMES = {
    "merit": ("affine:slope=2", '"affine:slope=2"', ffx.merit.Affine(slope=2.0)),
    "schedule": ("paper:gap=50", '"paper:gap=50"', Paper(gap=50)),
}

all_commands = functools.cache(parser)


def given(*argv: str) -> argparse.Namespace:
    return all_commands().parse_args(["simulate", *argv])


def written(path: Path, text: str) -> dict[str, dict[str, Any]]:
    path.write_text(text)
    return settings(given(), path)


def test_the_settings_are_the_fields() -> None:
    for table, kinds in KINDS.items():
        wanted = {item.name for kind in kinds for item in fields(kind)}
        if table == "run":  # `centring` here is the choice that Running has
            wanted -= PARTS - {"centring"} | {"slots", "half_life"}  # one slot, and none
        assert {each.name for each in tables()[table]} == wanted
    flags = [flag for each in ALL for flag in each.flags]
    assert len(flags) == len(set(flags))


@pytest.mark.parametrize("setting", ALL, ids=lambda each: each.dest)
def test_every_field_is_reachable_by_flag_and_by_file(setting: Setting, tmp_path: Path) -> None:
    flag, toml, wanted = NAMES.get(setting.name) or SAMPLES[setting.metavar]
    if setting.choices and flag == "some":
        flag = wanted = setting.choices[-1]
        toml = f'"{flag}"'
    for name in setting.flags:
        assert settings(given(name, flag), None)[setting.table] == {setting.name: wanted}
    found = written(tmp_path / "mine.toml", f"[{setting.table}]\n{setting.name} = {toml}\n")
    assert found[setting.table] == {setting.name: wanted}


@pytest.mark.parametrize("setting", ALL, ids=lambda each: each.dest)
def test_every_flag_says_what_it_is_and_its_default(setting: Setting) -> None:
    assert len(setting.help) >= 12
    assert setting.default


def test_every_flag_of_every_verb_is_explained() -> None:
    verbs = next(action for action in all_commands()._actions if action.dest == "verb").choices
    assert verbs is not None
    for name, verb in verbs.items():
        for action in verb.filled()._actions:
            assert action.help, f"{name} {action.option_strings}"
            # A switch, what must be given, or what is passed on.
            plain = action.nargs == 0 or action.required or action.dest in ("arguments", "part")
            assert plain or "default: " in action.help, f"{name} {action.option_strings}: {action.help}"


def test_how_it_is_run_is_what_simulate_takes() -> None:
    keywords = inspect.signature(ffx.simulate).parameters
    defaults = {
        item.name: item.default for item in fields(Running) if item.name not in ("baselines", "centring")
    }
    assert defaults == {name: keywords[name].default for name in defaults}


def test_what_the_settings_mean() -> None:
    scenario, options, running = prepare(
        settings(
            given(
                *(
                    "--agents",
                    "2",
                    "--dimension",
                    "2",
                    "--arms",
                    "3",
                    "--horizon",
                    "40",
                    "--theta",
                    "0.6,0.8",
                ),
                *("--merit", "affine", "--merit", "logistic", "--algorithm", "priv-fairx-linucb"),
                *("--epsilon", "2", "--failure", "0.2", "--bounds-adjacency", "add-remove"),
                *("--centring-reward-radius", "0.75", "--seeds", "3"),
            ),
            None,
        )
    )
    merits = ffx.merit.Affine(), ffx.merit.Logistic()
    world = ffx.Scenario(agents=2, dimension=2, arms=3, horizon=40, theta=(0.6, 0.8), merit=merits)
    assert scenario == world
    assert running == Running(seeds=3)
    own = scenario.centring
    assert own is not None
    assert options == Options(
        algorithm="priv-fairx-linucb",
        epsilon=2.0,
        confidence=ffx.Confidence(failure=0.2, scale=SCALE),
        bounds=Bounds(reward=scenario.bounds.reward, adjacency="add-remove"),
        centring=Centring(
            context=own.context, context_radius=0.5, reward=own.reward, reward_radius=0.75, constant=0.25
        ),
    )
    plain = prepare(settings(given("--algorithm", "b2", "--epsilon", "1", "--centring", "none"), None))[1]
    assert plain.centring is None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("[run]\nseeds = true\n", "seeds"),
        ("[run]\nexposure = 1\n", "exposure"),
        ('[scenario]\ntheta = ["a"]\n', "theta"),
        ("[scenario]\nmerit = 3\n", "[scenario]"),
        ('[run]\ncentring = "middle"\n', "centring must be one of scenario, none"),
        ('[scenario]\ncontexts = "unit-norm"\n[centring]\nreward = 0.5\n', "[centring] must have context,"),
    ],
)
def test_a_file_that_can_not_be_meant(text: str, name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=re.escape(name)):
        prepare(written(tmp_path / "bad.toml", text))


def test_an_error_names_the_setting_the_rule_the_value_and_its_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InvalidInput) as refused:
        written(tmp_path / "bad.toml", "[run]\nseeds = true\n")
    assert str(refused.value) == (
        f"seeds must be a whole number, got seeds=True ([run] in {tmp_path / 'bad.toml'})"
    )
    assert main(["simulate", "--prior-mean", "1,x"]) == 2
    told = capsys.readouterr().err.strip()
    assert told.startswith("fedfairx: mean must be a finite number >= -1e+30 and <= 1e+30 or a list of")
    assert told.endswith("got mean='1,x' (--prior-mean)")
    assert main(["simulate", "--schedule", "paper:gap=x"]) == 2
    assert "(--schedule)" in capsys.readouterr().err


def test_help_is_the_first_sentence_of_the_docstring() -> None:
    class Some:
        """Some.

        one, other: of two lines
            that go on. And more.
        last: alone.

        Text: that is none.
        """

    assert explained(Some) == {
        "one": "of two lines that go on",
        "other": "of two lines that go on",
        "last": "alone",
    }


# --- baselines ---------------------------------------------------------------------------------------


def test_learning_alone_and_perfect_pooling_stand_beside_the_figure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    import json

    world = ffx.Scenario(agents=3, arms=3, dimension=2, horizon=60)
    flags = ["--agents", "3", "--arms", "3", "--dimension", "2", "--horizon", "60", "--seeds", "2"]
    asked = ["simulate", *flags, "--algorithm", "priv-fairx-bayes", "--epsilon", "1"]
    assert main([*asked, "--json", "--exposure", "yes"]) == 0
    found = json.loads(capsys.readouterr().out)
    for name, algorithm, schedule in (
        ("alone", "fairx-bayes", None),
        ("perfect pooling", "fed-fairx-bayes", "every-round"),
    ):
        expected = ffx.simulate(world, algorithm=algorithm, schedule=schedule, seeds=2)
        np.testing.assert_array_equal(found["baselines"][name]["fairness_regret"], expected.fairness_regret)
    assert np.array(found["exposure"]).shape == (2, 3)
    assert len(found["weakest_share"]) == 2
    assert main([*asked, "--exposure", "yes"]) == 0
    out = capsys.readouterr().out
    assert "\nalone  " in out
    assert "\nperfect pooling  " in out
    assert "the weakest action got" in out
    assert main([*asked, "--baselines", "no"]) == 0
    assert "alone" not in capsys.readouterr().out
