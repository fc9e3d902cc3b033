"""One smoke-sized reproduction of everything, shared by the tests that look at what it leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from paper import SMOKE, figures
from paper.registry import EXPERIMENTS
from paper.sweep import Reproduction, reproduce


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Reproduction:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(figures._STYLE["style"], "savefig.dpi", 80)  # half: it is not how sharp they are
        out = Path(tmp_path_factory.mktemp("smoke"))
        return reproduce(list(EXPERIMENTS.values()), size=SMOKE, out=out, workers=2)
