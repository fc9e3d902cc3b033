"""What came of it: rewards, and decisions that were never shown; one or several."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from starlette.requests import Request
from starlette.responses import Response

from fedfairx.service import schemas
from fedfairx.service.endpoint import Operation, Parameter, body_of, decoder, reply
from fedfairx.service.problems import ProblemError
from fedfairx.service.service import Service

ONE, MANY = decoder(schemas.Reward), decoder(schemas.RewardBatch)
WITHDRAWN = decoder(schemas.WithdrawalBatch)
DECISION_ID = Parameter(
    "decision_id",
    "path",
    "As the decision was answered.",
    {"type": "string", "minLength": 1, "maxLength": 200},
)


async def reward(service: Service, request: Request) -> Response:
    given = ONE(await body_of(request, service.settings.max_body))
    identity = request.path_params["decision_id"]
    await _way(service, request, given.replace)([schemas.RewardOf(identity, given.reward, given.person)])
    return reply(None)


async def reward_many(service: Service, request: Request) -> Response:
    given = MANY(await body_of(request, service.settings.max_body))
    service.check_batch(len(given.rewards))
    await _way(service, request, given.replace)(given.rewards)
    return reply(None)


def _way(
    service: Service, request: Request, replace: bool
) -> Callable[[Sequence[schemas.RewardOf]], Awaitable[None]]:
    """How rewards are taken: writers add, and admins alone may change what is booked."""
    if replace and request.scope["role"] != "admin":
        raise ProblemError("forbidden", "Only an admin's key may replace a reward.")
    return service.replace if replace else service.reward


async def withdraw(service: Service, request: Request) -> Response:
    await service.withdraw([request.path_params["decision_id"]])
    return reply(None)


async def withdraw_many(service: Service, request: Request) -> Response:
    identities = WITHDRAWN(await body_of(request, service.settings.max_body)).decision_ids
    service.check_batch(len(identities))
    await service.withdraw(identities)
    return reply(None)


OPERATIONS = (
    Operation(
        method="PUT",
        path="/v1/decisions/{decision_id}/reward",
        name="reward",
        summary="The reward of a decision; the same one may be sent again",
        handler=reward,
        role="writer",
        takes=schemas.Reward,
        status=204,
        problems=("unknown-decision", "conflict"),
        parameters=(DECISION_ID,),
    ),
    Operation(
        method="POST",
        path="/v1/rewards",
        name="reward_many",
        summary="Several rewards: all are taken, or none",
        handler=reward_many,
        role="writer",
        takes=schemas.RewardBatch,
        status=204,
        problems=("unknown-decision", "conflict"),
    ),
    Operation(
        method="DELETE",
        path="/v1/decisions/{decision_id}",
        name="withdraw",
        summary="It was never shown: no reward will come",
        handler=withdraw,
        role="writer",
        status=204,
        problems=("unknown-decision", "conflict"),
        parameters=(DECISION_ID,),
    ),
    Operation(
        method="POST",
        path="/v1/withdrawals",
        name="withdraw_many",
        summary="Several that were never shown: all are withdrawn, or none",
        handler=withdraw_many,
        role="writer",
        takes=schemas.WithdrawalBatch,
        status=204,
        problems=("unknown-decision", "conflict"),
    ),
)
