"""A ledger that is not the latest is refused when its peers know better."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fedfairx.errors import LedgerMismatch
from fedfairx.privacy.ledger.rollback import refuse_old_copy
from fedfairx.privacy.privatizers.stream import StreamPrivatizer
from fedfairx.privacy.release import Release
from stored_ledger import stored_ledger
from streams import configured, feed


def test_a_ledger_that_is_behind_its_peers_is_refused_on_opening(tmp_path: Path) -> None:
    configuration, place = configured(), tmp_path / "ledger"
    with stored_ledger(place) as ledger:
        feed(StreamPrivatizer(3, ledger=ledger, **configuration), 1, 3)

    def opened(*held: Release, number: int = 0) -> Release | None:
        """The release of this number of a ledger that is opened again."""
        with stored_ledger(place) as ledger:
            confirm = refuse_old_copy(held)
            privatizer = StreamPrivatizer(3, ledger=ledger, confirm=confirm, **configuration)
            return privatizer.release(number) if number else None

    shutil.copy(place, tmp_path / "copy")

    second, third, fourth = (opened(number=number) for number in (2, 3, 4))
    (tmp_path / "ledger.lock").unlink()
    shutil.copy(tmp_path / "copy", place)
    for fine in ((), (second,), (third, second), (third, third)):
        opened(*fine)
    with pytest.raises(
        LedgerMismatch, match="ends at release 3, and peers hold release 4: it is an old copy"
    ):
        opened(second, fourth)
    opened(opened(number=4))
    with pytest.raises(LedgerMismatch, match="peers hold release 4 with other content"):
        opened(fourth)
    with pytest.raises(LedgerMismatch, match="ends at release 0, and peers hold release 4"):
        StreamPrivatizer(3, confirm=refuse_old_copy([fourth]), **configuration)
