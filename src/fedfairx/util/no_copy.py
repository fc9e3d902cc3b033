"""A base class that refuses copy and pickle."""

from __future__ import annotations

from typing import Any, NoReturn

from fedfairx.errors import PrivacyError


class NoCopy:
    """Refuses `copy`, `deepcopy` and `pickle`, also as a part of what is copied.

    Guarantees:
    - No copy comes about: two of them would each make a release of the same number.
    """

    def __reduce_ex__(self, _protocol: Any) -> NoReturn:
        raise PrivacyError(
            f"a {type(self).__name__} can't be copied or pickled: two copies would make two messages of one "
            "number; open its ledger again, or use Agent.save, in one place only"
        )
