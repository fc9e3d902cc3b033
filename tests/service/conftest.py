"""Services of tests compute tables to the end before they answer, however busy the machine is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fedfairx.service import exposure_cache


@pytest.fixture(scope="session", autouse=True)
def patient() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exposure_cache, "PATIENCE", 60.0)
        yield
