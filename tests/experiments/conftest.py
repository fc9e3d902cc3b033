"""One smoke-sized reproduction of everything, shared by the tests that look at what it leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedfairx.experiments import SMOKE
from fedfairx.experiments.registry import choose
from fedfairx.experiments.reproduce import Reproduction, reproduce


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Reproduction:
    return reproduce(choose(["all"]), size=SMOKE, out=Path(tmp_path_factory.mktemp("smoke")), workers=2)
