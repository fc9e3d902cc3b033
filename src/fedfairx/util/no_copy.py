"""A base class that refuses copy and pickle."""

from __future__ import annotations

from typing import Any, NoReturn

from fedfairx.errors import PrivacyError


class NoCopy:
    """Base class that refuses `copy`, `deepcopy` and `pickle`, also inside a copied container.

    Guarantees:
    - There is never a second copy, which would make a second release of the same number.
    """

    def __reduce_ex__(self, _protocol: Any) -> NoReturn:
        raise PrivacyError(
            f"a {type(self).__name__} can't be copied or pickled: two copies would make two messages of one "
            "number; open its ledger again, or use Agent.save, in one place only"
        )
