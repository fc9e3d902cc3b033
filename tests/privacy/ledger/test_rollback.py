"""A ledger that is not the latest is refused when its peers know better."""

from __future__ import annotations

import json

import pytest

from fedfairx.errors import LedgerMismatch
from fedfairx.privacy.ledger.rollback import refuse_old_copy
from fedfairx.privacy.privatizers.stream import StreamPrivatizer
from fedfairx.privacy.release import Release
from streams import configured, feed


def test_a_ledger_that_is_behind_its_peers_is_refused_on_opening() -> None:
    configuration = configured()
    privatizer = StreamPrivatizer(3, **configuration)
    feed(privatizer, 1, 3)
    saved = json.dumps(privatizer.state())

    def opened(*held: Release) -> StreamPrivatizer:
        state = json.loads(saved)
        return StreamPrivatizer.from_state(state, dimension=3, confirm=refuse_old_copy(held), **configuration)

    third, fourth = privatizer.release(3), privatizer.release()
    second = privatizer.release(2)
    for fine in ((), (second,), (third, second), (third, third)):
        opened(*fine)
    with pytest.raises(
        LedgerMismatch, match="ends at release 3, and peers hold release 4: it is an old copy"
    ):
        opened(second, fourth)
    went_on = opened()
    other_fourth = went_on.release()
    saved = json.dumps(went_on.state())
    opened(other_fourth)
    with pytest.raises(LedgerMismatch, match="peers hold release 4 with other content"):
        opened(fourth)
    with pytest.raises(LedgerMismatch, match="ends at release 0, and peers hold release 4"):
        StreamPrivatizer(3, confirm=refuse_old_copy([fourth]), **configuration)
