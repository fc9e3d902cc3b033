"""Tables of thousands of rows: search by name, sort, and one page at a time, all by the address."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from fedfairx.service.problems import ProblemError

Item = TypeVar("Item")
#: How to sort: by title, a key; the first is the default. "-" in front sorts downwards.
Keys = Mapping[str, Callable[[Any], Any]]
LINES = 50  # rows on a page
LONGEST = 200  # characters of a search


@dataclass(frozen=True)
class Listing(Generic[Item]):
    """Rows that were asked for: all that match, in order, and the page of them to show."""

    matching: Sequence[Item]
    total: int  # without a search
    page: int  # from 1
    search: str
    sort: str
    keys: Sequence[str]
    query: Mapping[str, str]
    prefix: str = ""  # of its parameters, where a page has several

    @property
    def rows(self) -> Sequence[Item]:
        return self.matching[LINES * (self.page - 1) : LINES * self.page]

    @property
    def first(self) -> int:
        """The place of the page's first row, from 1."""
        return LINES * (self.page - 1) + 1

    @property
    def pages(self) -> int:
        return max(1, -(-len(self.matching) // LINES))

    def link(self, **changes: object) -> str:
        """The address's query with some values changed; None removes one."""
        if self.prefix:
            changes = {
                name if name == "format" else f"{self.prefix}{name}": each for name, each in changes.items()
            }
            changes |= {"table": self.prefix.rstrip("_")} if "format" in changes else {}
        return link(self.query, **changes)


def link(query: Mapping[str, str], **changes: object) -> str:
    """A query with some values changed; None removes one."""
    values = {**query, **changes}
    text = urlencode({name: str(value) for name, value in values.items() if value not in (None, "")})
    return f"?{text}" if text else "?"


def listed(
    items: Sequence[Item],
    query: QueryParams,
    keys: Keys,
    name: Callable[[Item], str],
    default: str = "",
    prefix: str = "",
) -> Listing[Item]:
    """The items whose name has the text `q` in it, sorted by `sort`, and the page `page` of them."""
    search, page = query.get(f"{prefix}q", "").strip(), query.get(f"{prefix}page", "1")
    sort = query.get(f"{prefix}sort", default)
    if len(search) > LONGEST or sort.lstrip("-") not in {"", *keys}:
        raise ProblemError("invalid", "q or sort must be as the page's own links and forms give them.")
    if not (page.isascii() and page.isdigit() and 1 <= int(page[:9]) == int(page)):
        raise ProblemError("invalid", "page must be a number from 1 on.")
    low = search.casefold()
    rows = [item for item in items if low in name(item).casefold()]
    if sort:
        rows.sort(key=keys[sort.lstrip("-")], reverse=sort.startswith("-"))
    number = min(int(page), max(1, -(-len(rows) // LINES)))
    parameters = {each: value for each, value in query.items() if each not in (f"{prefix}page", "format")}
    return Listing(rows, len(items), number, search, sort, list(keys), parameters, prefix)
