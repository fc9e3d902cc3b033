"""Data frames of pandas and polars, without importing either: the names of their rows, and their values."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

NAME = "name"  # the column of names


def is_frame(value: object) -> bool:
    """Whether this is a data frame."""
    return hasattr(value, "columns")


def names_in(frame: Any, features: Collection[str] = ()) -> list[Any] | None:
    """The names of rows: the column `name`, if that is no feature, or else an index of text; None without.

    >>> import pandas as pd
    >>> names_in(pd.DataFrame({"price": [4, 9]}, index=["soup", "roast"]))
    ['soup', 'roast']
    """
    if NAME in frame.columns and NAME not in features:
        return list(frame[NAME].to_list())
    index = list(getattr(frame, "index", ()))  # polars has none
    return index if index and all(isinstance(name, str) for name in index) else None


def without_names(frame: Any) -> Any:
    """The frame without its column of names."""
    columns = [column for column in frame.columns if column != NAME]
    return frame if len(columns) == len(frame.columns) else frame[columns]


def rows_of(frame: Any, columns: Sequence[Any]) -> list[list[Any]]:
    """The values of these columns, row by row."""
    return [list(row) for row in zip(*(frame[column].to_list() for column in columns), strict=True)]
