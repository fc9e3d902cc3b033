"""One smoke-sized reproduction of everything, shared by the tests that look at what it leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedfairx.experiments import SMOKE
from fedfairx.experiments.registry import choose
from fedfairx.experiments.reproduce import Reproduction, reproduce
from fedfairx.util import figure_style


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Reproduction:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(figure_style._DATA["style"], "savefig.dpi", 80)  # half: it is not how sharp they are
        return reproduce(choose(["all"]), size=SMOKE, out=Path(tmp_path_factory.mktemp("smoke")), workers=2)
