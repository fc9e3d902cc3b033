"""One table of settings: where values come from, what is refused, and that help tells the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedfairx.cli.main import main
from fedfairx.errors import InvalidInput
from fedfairx.features import Feature
from fedfairx.service.settings import Settings, load, schema_of, table


def test_the_nearest_source_counts(tmp_path: Path) -> None:
    file = tmp_path / "service.toml"
    file.write_text(
        'port = 1\nmax_body = 5000\nmode = "shadow"\nintercept = true\nfeatures = {a = [0, 1], b = [2, 3]}\n'
    )
    environment = {"FEDFAIRX_PORT": "2", "FEDFAIRX_MAX_BODY": "6000", "FEDFAIRX_ELSEWHERE": "x"}
    found = load({"port": "3", "mode": None}, environment=environment, config=file)
    assert (found.port, found.max_body, found.mode, found.intercept) == (3, 6000, "shadow", True)
    assert found.features == (Feature("a", (0.0, 1.0)), Feature("b", (2.0, 3.0)))
    assert found.given == {"port", "max_body", "mode", "intercept", "features"}
    assert load({}, environment={"FEDFAIRX_CONFIG": str(file)}).port == 1
    assert load({}, environment={}) == Settings()


def test_slots_are_a_number_or_weights(tmp_path: Path) -> None:
    file = tmp_path / "service.toml"
    file.write_text("slots = [1, 0.5]\n")
    assert load({}, environment={}, config=file).slots == (1.0, 0.5)
    assert load({}, environment={"FEDFAIRX_SLOTS": "2"}, config=file).slots == (1.0, 1.0)
    assert load({"slots": "1,0.63,0.5"}, environment={}, config=file).slots == (1.0, 0.63, 0.5)
    file.write_text("slots = 3\n")
    assert load({}, environment={}, config=file).slots == (1.0, 1.0, 1.0)
    with pytest.raises(InvalidInput, match="slots must be left out: the federation's roster"):
        load({"slots": "2", "federation": str(tmp_path)}, environment={}, config=file)


def test_a_member_cannot_bound_a_persons_records(tmp_path: Path) -> None:
    file = tmp_path / "service.toml"
    file.write_text("person_records = 3\n")
    with pytest.raises(InvalidInput, match="person_records must be left out: a federation's terms"):
        load({"federation": str(tmp_path)}, environment={}, config=file)


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("port", "70000", ">= 0 and <= 65535"),
        ("port", "x", "whole number"),
        ("port", True, "whole number"),
        ("port", 1.5, "whole number"),
        ("dimension", "401", "<= 400"),
        ("control_share", "1.5", "<= 1"),
        ("control_share", "nan", "finite"),
        ("window", "0", "> 0"),
        ("mode", "dead", "one of live, shadow"),
        ("intercept", "maybe", "yes or no"),
        ("features", "price", "price=0:10"),
        ("features", "price=1:0", "low < high"),
        ("features", "price=0:1,price=0:2", "named differently"),
        ("features", "=0:1", "must have names"),
        ("features", [1], "a range, levels or bool"),
        ("features", {"a": [0, "1"]}, "range"),
        ("max_body", "10", ">= 1024"),
        ("database", "mysql://me:secret@there", "postgresql://"),
        ("rule", "best", "one of expected-merit"),
        ("reward_range", "5", "2 values, each a finite number >= -1e+30 and <= 1e+30; for instance 1:5, got"),
        (
            "reward_range",
            "1-0",
            "2 values, each a finite number >= -1e+30 and <= 1e+30; for instance 1:5, got",
        ),
        ("reward_range", "5:1", "low < high"),
        ("reward_range", [1], "2 values, each a finite number"),
        ("slots", "0", "number of slots >= 1"),
        ("slots", "0.5,1", "must not increase"),
        ("slots", "1,x", "must not increase"),
        ("slots", 1.5, "got slots of type float"),
        ("wrong", "1", "not a setting"),
    ],
)
def test_bad_values_are_named(name: str, value: object, word: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(word)) as caught:
        load({name: value}, environment={})
    assert name in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        {"tls_key": "key.pem"},
        {"mode": "shadow", "control_share": 0.1},
        {"default_reward": 0.0},
        {"features": "a=0:1,b=0:1", "dimension": 3},
    ],
)
def test_settings_that_do_not_fit(given: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match=next(reversed(given))):
        load(given, environment={})


def test_features_of_too_many_numbers() -> None:
    """Products of categories soon are: a model has the square of their number."""
    many = "|".join(f"c{number}" for number in range(50))
    given = {"features": f"a={many},b={many}", "shared": "b", "products": "a:b"}
    with pytest.raises(InvalidInput, match=r"features must make at most 400 numbers.*got features=2"):
        schema_of(load(given, environment={}))


def test_a_bad_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="nowhere"):
        load({}, environment={}, config=tmp_path / "nowhere.toml")
    (tmp_path / "bad.toml").write_text("port = ")
    with pytest.raises(InvalidInput, match=r"must be TOML.*bad\.toml"):
        load({}, environment={}, config=tmp_path / "bad.toml")


def test_help_is_made_from_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for one in table():
        value = f"[{one.metavar}]" if one.kinds == (bool,) and not one.optional else one.metavar
        choices = f"; choices: {', '.join(one.choices)}" if one.choices else ""
        assert f"{one.flags[0]} {value} {one.help}{one.example}{choices} (default: {one.default})" in shown


def test_an_error_tells_where_the_value_came_from(tmp_path: Path) -> None:
    file = tmp_path / "service.toml"
    file.write_text("port = 70000\n")
    rule = "port must be a whole number >= 0 and <= 65535, got port="
    for arguments, told in (
        ({"flags": {"port": "70000"}, "environment": {}}, f"{rule}'70000' (--port)"),
        ({"environment": {"FEDFAIRX_PORT": "x"}}, f"{rule}'x' (FEDFAIRX_PORT)"),
        ({"environment": {}, "config": file}, f"{rule}70000 ({file})"),
    ):
        with pytest.raises(InvalidInput, match=re.escape(told)):
            load(**arguments)  # type: ignore[arg-type]


def test_a_data_folder_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As where a container's volume belongs to somebody else: a line that names the setting, no traceback."""
    file = tmp_path / "file"
    file.touch()
    for place in (file, file / "below"):
        assert main(["serve", "--dimension", "2", "--port", "0", "--data", str(place)]) == 2
        said = capsys.readouterr().err
        assert said.startswith("fedfairx: data must be a folder, or one that can be made ("), said
