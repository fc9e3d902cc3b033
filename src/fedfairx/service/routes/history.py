"""What leaves the log, and what is undone: the records of a person, and rollbacks."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct
from starlette.requests import Request

from fedfairx.errors import InvalidInput
from fedfairx.service import schemas
from fedfairx.service.endpoint import body_as, endpoint, query_of
from fedfairx.service.routes.model import name_in
from fedfairx.service.served_agent import ServedAgent
from fedfairx.storage.erasure import Deletion, Rollback


class PersonQuery(Struct, forbid_unknown_fields=True):
    """What else is deleted.

    decisions: Ids of more decisions of this person, with commas between: ones that wait for a reward, or
        whose reward came without a person.
    """

    decisions: Annotated[str, Meta(min_length=1, max_length=2_000)] | None = None


@endpoint(
    "DELETE",
    "/v1/persons/{person}",
    role="admin",
    query=PersonQuery,
    problems=("unknown-decision", "conflict"),
)
async def delete_person(agent: ServedAgent, request: Request) -> Deletion:
    """Delete the records of a person from the log, and from what was learnt."""
    more = query_of(request, PersonQuery).decisions
    person = name_in(request, "person")
    if "\0" in person:
        raise InvalidInput("person must have no NUL in it, as in rewards")
    return await agent.delete_person(person, [] if more is None else more.split(","))


@endpoint("POST", "/v1/rollback", role="admin", takes=schemas.RollbackRequest)
async def roll_back(agent: ServedAgent, request: Request) -> Rollback:
    """Return to what was known at a time; an agent whose messages are private can't."""
    to = (await body_as(schemas.RollbackRequest, agent, request)).to
    return await agent.roll_back(to)
