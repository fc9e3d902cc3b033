"""Decisions: making them, their rewards and withdrawals, reading and exporting them."""

from __future__ import annotations

import asyncio
import hashlib
import re
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from fedfairx.service import schemas
from fedfairx.service.endpoint import Parameter, Window, body_as, endpoint, query_of
from fedfairx.service.explanation import explain
from fedfairx.service.export import FORMATS, LINES, read_whole, write_parquet
from fedfairx.service.fast_path import body_of, header_of
from fedfairx.service.problems import ProblemError
from fedfairx.service.serializers import seen
from fedfairx.service.served_agent import ServedAgent, Wish
from fedfairx.storage.queries import matching

KEY = r"[!-~]{1,200}"
IDEMPOTENCY = Parameter(
    "Idempotency-Key",
    "header",
    "Any text, such as a UUID: a repeated request with the same key gets the same decision.",
    {"type": "string", "pattern": f"^{KEY}$"},
)
MATCHES = re.compile(KEY).fullmatch
MAKING: dict[str, Any] = {"status": 201, "problems": ("key-reused", "archived"), "headers": (IDEMPOTENCY,)}
ENDED = ("unknown-decision", "conflict", "gone")  # why a decision may not be ended


class DecisionQuery(Window):
    """Which decisions.

    status: Their status.
    action: The position, among those not excluded, of an action that was shown in any slot.
    action_id: The id of an action that was shown in any slot.
    group: The group of an action that was shown in any slot; together with `action_id`, of that action.
    after: `next` of the previous page.
    limit: Decisions on a page.
    """

    status: Literal["pending", "rewarded", "withdrawn", "expired"] | None = None
    action: Annotated[int, Meta(ge=0, le=2**31)] | None = None
    action_id: schemas.Name | None = None
    group: schemas.Name | None = None
    after: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class ExportQuery(Window):
    """Which decisions, and how they are written.

    format: How they are written.
    """

    format: Literal["jsonl", "csv", "parquet"] = "jsonl"


@endpoint("POST", "/v1/decisions", role="writer", takes=schemas.DecisionRequest, **MAKING)
async def decide(served: ServedAgent, request: Request) -> schemas.DecisionMade:
    """Make a decision."""
    body = await body_of(request, served.settings.max_body)
    return (await served.decide(body, _wish(request, body)))[0]


@endpoint("POST", "/v1/decisions/batch", role="writer", takes=schemas.DecisionBatch, **MAKING)
async def decide_many(served: ServedAgent, request: Request) -> schemas.DecisionsMade:
    """Make several decisions: all, or none."""
    body = await body_of(request, served.settings.max_body)
    return schemas.DecisionsMade(await served.decide(body, _wish(request, body), batch=True))


def _wish(request: Request, body: bytes) -> Wish | None:
    """The idempotency key of a request, with the digest of its body, where it has one."""
    key = header_of(request, b"idempotency-key")
    if key is None:
        return None
    if not MATCHES(key):
        raise ProblemError("invalid", "Idempotency-Key must be 1 to 200 characters of ASCII without spaces.")
    return Wish(key, hashlib.sha256(body).hexdigest())


@endpoint("PUT", "/v1/decisions/{decision_id}/reward", role="writer", takes=schemas.Reward, problems=ENDED)
async def reward(served: ServedAgent, request: Request) -> None:
    """Give the reward of a decision, or rewards of its slots; the same ones may be sent again."""
    body = await body_as(schemas.Reward, served, request)
    identity = request.path_params["decision_id"]
    one = schemas.RewardOf(identity, body.reward, body.rewards, body.person)
    await _taking(served, request, body.replace)([one])


@endpoint("POST", "/v1/rewards", role="writer", takes=schemas.RewardBatch, problems=ENDED)
async def reward_many(served: ServedAgent, request: Request) -> None:
    """Give several rewards: all are taken, or none."""
    body = await body_as(schemas.RewardBatch, served, request)
    served.check_work(len(body.rewards))
    await _taking(served, request, body.replace)(body.rewards)


def _taking(
    served: ServedAgent, request: Request, replace: bool
) -> Callable[[Sequence[schemas.RewardOf]], Awaitable[None]]:
    """How rewards are taken: writers add them, and only admins may replace them."""
    if replace and request.scope["role"] != "admin":
        raise ProblemError("forbidden", "Only an admin's key may replace a reward.")
    return served.replace if replace else served.reward


@endpoint("DELETE", "/v1/decisions/{decision_id}", role="writer", problems=ENDED)
async def withdraw(served: ServedAgent, request: Request) -> None:
    """Withdraw a decision that was never shown, or those of its slots that wait: no reward will come."""
    await served.withdraw([request.path_params["decision_id"]])


@endpoint("POST", "/v1/withdrawals", role="writer", takes=schemas.WithdrawalBatch, problems=ENDED)
async def withdraw_many(served: ServedAgent, request: Request) -> None:
    """Withdraw several decisions that were never shown: all, or none."""
    identities = (await body_as(schemas.WithdrawalBatch, served, request)).decision_ids
    served.check_batch(len(identities))
    await served.withdraw(identities)


@endpoint("GET", "/v1/decisions", role="reader", query=DecisionQuery)
async def decisions(served: ServedAgent, request: Request) -> schemas.DecisionPage:
    """List decisions in the order in which they were made, page by page."""
    query = query_of(request, DecisionQuery)
    rows, following = await served.read(
        lambda journal: matching(
            journal,
            name=query.action_id,
            group=query.group,
            since=query.since,
            until=query.until,
            status=query.status,
            action=query.action,
            after=-1 if query.after is None else query.after,
            limit=query.limit,
        )
    )
    return schemas.DecisionPage([seen(stored) for stored in rows], following)


@endpoint("GET", "/v1/decisions/{decision_id}", role="reader", problems=("unknown-decision", "gone"))
async def decision(served: ServedAgent, request: Request) -> schemas.DecisionSeen:
    """Show a decision and its status; to auditors and admins, with its reward."""
    (stored,) = await served.stored([request.path_params["decision_id"]])
    shown = seen(stored)
    shown.reward = stored.reward
    for slot, outcome in zip(shown.shown or (), stored.slots, strict=True):
        slot.reward = outcome.reward
    return shown


@endpoint(
    "GET", "/v1/decisions/{decision_id}/explanation", role="auditor", problems=("unknown-decision", "gone")
)
async def explanation(served: ServedAgent, request: Request) -> schemas.Explanation:
    """Explain why each action of a decision has its share."""
    (stored,) = await served.stored([request.path_params["decision_id"]])
    return await asyncio.to_thread(explain, served, stored)


@endpoint("GET", "/v1/export", role="auditor", media_types=tuple(FORMATS.values()), query=ExportQuery)
async def export(served: ServedAgent, request: Request) -> Response:
    """Export decisions with contexts, propensities and rewards; a header says what is gone."""
    query = query_of(request, ExportQuery)
    rows = await served.read(lambda journal: journal.decisions(since=query.since, until=query.until))
    gone = await served.read(lambda journal: journal.amendments().gone(query.since))
    headers = {"content-disposition": f'attachment; filename="decisions.{query.format}"'}
    headers |= {} if gone is None else {"fedfairx-gone": gone}
    kind = FORMATS[query.format]
    own = {"contexts": not served.featureless}
    if query.format != "parquet":
        lines = LINES[query.format](rows, **own)
        return StreamingResponse(lines, media_type=kind, headers=headers)
    # A file without a name: it is gone with the response, however that ends.
    file = tempfile.TemporaryFile()  # noqa: SIM115
    try:
        await asyncio.to_thread(write_parquet, rows, file, **own)
    except BaseException:
        file.close()
        raise
    headers["content-length"] = str(file.tell())
    return StreamingResponse(read_whole(file), media_type=kind, headers=headers)
