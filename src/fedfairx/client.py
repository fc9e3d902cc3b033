"""Clients of a service, for threads and for asyncio.

`AsyncClient` has every call as a coroutine. `Client` runs the same coroutines over a connection that blocks,
where they never wait, and so need no event loop.
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, cast
from urllib.parse import quote, urlencode

from fedfairx.errors import FedFairXError, InvalidInput, needs, require
from fedfairx.util.frames import is_frame, names_in, rows_of, without_names

if TYPE_CHECKING:
    import ssl

    import httpx

AGAIN = (408, 429, 502, 503, 504)  # statuses of a service or a proxy after which a retry may succeed
ELSEWHERE = (502, 503, 504)  # those after which it may succeed at another address
PAUSE = 0.1  # seconds before the first retry; each pause is about twice the one before
LONGEST = 5.0
AGENTS = "/v1/agents"

#: Contexts (K, d), names of actions, or features by name (dicts, {name: dict}, a frame), as for `Agent`.
ActionsLike = Sequence[Any] | Mapping[str, Any] | Any
ARGUMENTS = {"contexts", "actions", "context", "excluded", "baseline", "slots"}  # of a decision
OFFER = {"id", "features", "group"}  # what the service takes for one action
#: An action, by its name or its index; of several slots, a list in their order.
Baseline = str | int | Sequence[str | int]
#: By action (its name or its index), or in the order of slots. None withdraws one that nobody saw.
Rewards = Mapping[Any, float | None] | Sequence[float | None]
P = ParamSpec("P")
T = TypeVar("T")


class ServiceError(FedFairXError):
    """The service refused (`status`, `kind`, `detail`, `remedy`), or could not be reached (`status` 0).

    `request_id` finds the request in the service's log.
    """

    def __init__(
        self, status: int, kind: str, detail: str, remedy: str = "", request_id: str | None = None
    ) -> None:
        super().__init__(f"{detail} {remedy}".strip())
        self.status = status
        self.kind = kind
        self.detail = detail
        self.remedy = remedy
        self.request_id = request_id


@dataclass(frozen=True)
class RemoteAction:
    """An action in a slot, the first of which is 1: its index in the request, and its `name`.

    `weight` is that of its slot. `exposure` is its expected weight, those of baselines included.
    """

    action: int
    name: str | None
    slot: int
    weight: float
    exposure: float


@dataclass(frozen=True)
class RemoteDecision:
    """The action to take: its index in the request, its `name`, and the policy from which it was drawn.

    `names` are the actions of the policy's shares, where actions have no features. `shown`, `actions` and
    `exposure` are for any number of slots; `action`, `name`, `probability` and `policy` are for one.
    """

    id: str
    shown: tuple[RemoteAction, ...]
    exposure: tuple[float, ...]
    model_version: int
    mode: str
    names: tuple[str, ...] = ()
    propensity: float | None = None  # None where there are several slots

    @property
    def actions(self) -> tuple[int, ...]:
        """The indices of the actions shown, in the order of slots."""
        return tuple(one.action for one in self.shown)

    @property
    def action(self) -> int:
        """The index of the action."""
        return self._only("action", "actions").action

    @property
    def name(self) -> str | None:
        """The name of the action."""
        return self._only("name", "shown").name

    @property
    def probability(self) -> float:
        """The probability with which the action was taken."""
        self._only("probability", "exposure")
        return cast("float", self.propensity)

    @property
    def policy(self) -> tuple[float, ...]:
        """Each action's share by the fair policy."""
        self._only("policy", "exposure")
        return self.exposure

    def _only(self, name: str, instead: str) -> RemoteAction:
        if self.propensity is None:
            slots = len(self.shown)
            raise InvalidInput(f"{name} is of one slot, and this decision has {slots}: use {instead}")
        return self.shown[0]


class AsyncClient:
    """`Client` for asyncio: the same names, awaited.

    >>> import asyncio
    >>> async def one_round():
    ...     async with AsyncClient(url) as client:
    ...         decision = await client.decide([[0.2, 0.4, 0.1], [0.5, 0.1, 0.3]])
    ...         await client.observe(decision, reward=1.0)
    >>> asyncio.run(one_round())
    """

    def __init__(
        self,
        url: str | Sequence[str],
        key: str | None = None,
        *,
        agent: str | None = None,
        timeout: float = 10.0,
        retries: int = 5,
    ) -> None:
        urls = [url] if isinstance(url, str) or not isinstance(url, Iterable) else list(url)
        require(bool(urls), "url", "must be at least one address", 0)
        for each in urls:
            is_address = isinstance(each, str) and each.lower().startswith(("http://", "https://"))
            require(is_address, "url", "must begin with http:// or https://", each)
            require(bool(each.partition("//")[2].strip("/")), "url", "must name a host", each)
        typed = key is None or (isinstance(key, str) and key.isascii())
        require(typed, "key", "must be text, as keys create printed it", type(key).__name__)
        require(agent is None or bool(agent), "agent", "must be a name, or left out", agent)
        number = isinstance(timeout, int | float) and timeout > 0
        require(number, "timeout", "must be a number of seconds above 0", timeout)
        require(isinstance(retries, int) and retries >= 0, "retries", "must be an integer >= 0", retries)
        self._urls = [each.rstrip("/") for each in urls]
        self._place = 0  # of the address that answered last
        self._model: dict[str, Any] | None = None  # of `_described`
        self._name = agent
        self._agent = "" if agent is None else f"{AGENTS}/{_quoted(agent)}"
        self._options: dict[str, Any] = {
            "headers": {} if key is None else {"authorization": f"Bearer {key}"},
            "timeout": timeout,
            "verify": _certificates(urls),
        }
        self._retries = retries
        with needs("client"):
            self._http = self._connect()

    def _connect(self) -> Any:
        import httpx

        return httpx.AsyncClient(**self._options)

    async def decide(
        self,
        contexts: ActionsLike | None = None,
        *,
        actions: ActionsLike | None = None,
        context: Any = None,
        excluded: Sequence[str | int] = (),
        baseline: Baseline | None = None,
        slots: int | Sequence[float] | None = None,
        key: str | None = None,
    ) -> RemoteDecision:
        """Choose an action. Give contexts (K, d) or `actions` as `Agent.decide` takes them.

        Actions are a list of dicts with features, {name: dict}, or a data frame of pandas or polars, whose
        column `name` or index of text has the names; rows without a name are called "0", "1" and so on. A
        dict may also be {"id": …, "features": …, "group": …}. Of a frame those columns are sent that the
        service has as features, which it is asked for once.

        `context` has the features that all actions share, by name, if the service has shared ones.
        If the service's actions have no features, give the names of some, or nothing for all of them. `slots`
        shows several actions, as `Agent.decide` does. `baseline` is what you would show: an action, or a list
        of them in the order of slots.
        """
        body = await self._request(contexts, actions, context, excluded, baseline, slots)
        return _decision(await self._ask("POST", "/v1/decisions", body, key or str(uuid.uuid4())))

    async def decide_many(
        self, requests: Sequence[ActionsLike], *, key: str | None = None
    ) -> list[RemoteDecision]:
        """Make several decisions: all, or none.

        requests: for each a mapping with the arguments of `decide`, or what that takes as its first one.
        """
        arguments: list[Any] = [each if _is_request(each) else {"contexts": each} for each in requests]
        body = {"decisions": [await self._request(**each) for each in arguments]}
        answer = await self._ask("POST", "/v1/decisions/batch", body, key or str(uuid.uuid4()))
        return [_decision(one) for one in answer["decisions"]]

    async def observe(
        self,
        decision: RemoteDecision | str,
        *,
        reward: float | None = None,
        rewards: Rewards | None = None,
        person: str | None = None,
        replace: bool = False,
    ) -> None:
        """Send the reward of a decision, now or any time later; `replace` overwrites an earlier one and needs
        an admin's key.

        rewards: of a decision with several slots: {action: reward} by name or index, for some or all of its
            actions, or a list in the order of slots. None withdraws an action that nobody saw.
        """
        if (reward is None) == (rewards is None):
            raise InvalidInput("either reward or rewards must be given")
        body: dict[str, Any] = {} if reward is None else {"reward": float(reward)}
        if rewards is not None:
            body["rewards"] = _by_action(decision, rewards)
        body |= ({} if person is None else {"person": person}) | ({"replace": True} if replace else {})
        await self._ask("PUT", f"/v1/decisions/{quote(_id(decision), safe='')}/reward", body)

    async def observe_many(
        self,
        decisions: Sequence[RemoteDecision | str],
        rewards: Sequence[float | Rewards],
        *,
        replace: bool = False,
    ) -> None:
        """Send several rewards, or what `observe` takes as `rewards`: all are accepted, or none."""
        pairs = zip(decisions, rewards, strict=True)
        body = [
            {"decision_id": _id(one), "rewards": _by_action(one, reward)}
            if isinstance(reward, Mapping | Sequence)
            else {"decision_id": _id(one), "reward": float(reward)}
            for one, reward in pairs
        ]
        await self._ask("POST", "/v1/rewards", {"rewards": body} | ({"replace": True} if replace else {}))

    async def forget(self, decision: RemoteDecision | str) -> None:
        """Withdraw a decision that was never shown, or those of its slots that wait."""
        await self._ask("DELETE", f"/v1/decisions/{quote(_id(decision), safe='')}")

    async def forget_many(self, decisions: Sequence[RemoteDecision | str]) -> None:
        """Withdraw several decisions: all, or none."""
        await self._ask("POST", "/v1/withdrawals", {"decision_ids": [_id(one) for one in decisions]})

    async def delete_person(
        self, person: str, *, decisions: Sequence[RemoteDecision | str] = ()
    ) -> dict[str, Any]:
        """Delete a person's records from the log, and from what was learnt; needs an admin's key.

        decisions: more of this person's decisions: ones that wait, or whose rewards came without a person.

        Returns what was deleted and what could not be, with a `statement` in words.
        """
        more = "?decisions=" + quote(",".join(map(_id, decisions)), safe=",") if decisions else ""
        return cast("dict[str, Any]", await self._ask("DELETE", f"/v1/persons/{_quoted(person)}{more}"))

    async def roll_back(self, *, to: float) -> dict[str, Any]:
        """Return the agent to what it knew at a time, in seconds since 1970; needs an admin's key."""
        return cast("dict[str, Any]", await self._ask("POST", "/v1/rollback", {"to": to}))

    async def actions(self) -> tuple[str, ...]:
        """The active actions of a service whose actions have no features."""
        answer = await self.get("/v1/actions")
        return tuple(action["id"] for action in answer["actions"] if action["status"] == "active")

    async def add_actions(self, *names: str) -> None:
        """Add actions, one after the other; needs an admin's key."""
        for name in names:
            await self._ask("PUT", f"/v1/actions/{_quoted(name)}")

    async def retire_actions(self, *names: str) -> None:
        """Retire actions, one after the other; needs an admin's key."""
        for name in names:
            await self._ask("DELETE", f"/v1/actions/{_quoted(name)}")

    async def agents(self) -> tuple[str, ...]:
        """The names of the agents of the service that make decisions."""
        answer = await self.get(AGENTS)
        return tuple(agent["name"] for agent in answer["agents"] if agent["status"] == "active")

    async def make_agent(self, name: str, /, **settings: Any) -> None:
        """Make an agent with these settings, or offer an archived one again; needs an admin's key.

        Settings are those of an agent in docs/reference/settings.md, such as dimension, features or actions,
        merit and window. The same call may be repeated. Of an agent that exists, only window, default_reward,
        mode, control_share, noise_sd, tolerance and exposure_decisions can be changed; others are refused.
        """
        await self._ask("PUT", f"{AGENTS}/{_quoted(name)}", settings)

    async def archive_agent(self, name: str) -> None:
        """Archive an agent: it makes no more decisions, but can be read; needs an admin's key."""
        await self._ask("DELETE", f"{AGENTS}/{_quoted(name)}")

    async def explain(self, decision: RemoteDecision | str) -> dict[str, Any]:
        """Why each action of a decision has its share, as `/v1/decisions/…/explanation`; needs an auditor's
        or admin's key."""
        explanation: dict[str, Any] = await self.get(
            f"/v1/decisions/{quote(_id(decision), safe='')}/explanation"
        )
        return explanation

    async def get(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        """Read a path, such as "/v1/decisions", of the client's agent, with a query such as {"limit": 10}."""
        return await self._ask("GET", f"{path}?{urlencode(query)}" if query else path)

    async def _request(
        self,
        contexts: ActionsLike | None = None,
        actions: ActionsLike | None = None,
        context: Any = None,
        excluded: Sequence[str | int] = (),
        baseline: Baseline | None = None,
        slots: int | Sequence[float] | None = None,
    ) -> dict[str, Any]:
        """The body of a request for a decision."""
        body: dict[str, Any] = {}
        require(contexts is None or actions is None, "contexts", "must be left out beside actions", "both")
        offered: Any = contexts if actions is None else actions
        if is_frame(offered):
            body |= await self._rows(offered, alone=context is not None)
        elif offered is not None:
            body |= _offer(offered, named=actions is not None)
        if context is not None:
            body["context"] = _features(context)
        if len(excluded):
            body["excluded"] = list(excluded)
        if baseline is not None:
            body["baseline"] = baseline if isinstance(baseline, str | int) else list(baseline)
        if slots is not None:
            body["slots"] = slots if isinstance(slots, int) else [float(weight) for weight in slots]
        return body

    async def _rows(self, frame: Any, *, alone: bool) -> dict[str, Any]:
        """The actions of a frame, by what the service's actions have; `alone` without shared features."""
        if self._model is None:
            self._model = await self.get("/v1/model")
        features, schema = self._model["features"], self._model["schema"]
        names = names_in(frame, features)
        if self._model["actions"] and not self._model["dimension"]:
            text = "must have a column `name`, or an index of text"
            require(names is not None, "actions", text, "a frame with neither")
            return {"actions": names}
        if schema is None:
            columns = list(without_names(frame).columns)
        else:
            columns = [each["name"] for each in schema["features"] if not (alone and each["shared"])]
            for name in columns:
                if name not in frame.columns:
                    raise InvalidInput(f"actions must have every feature, got no column {name}")
        rows: list[Any] = [[_plain(value) for value in row] for row in rows_of(frame, columns)]
        if schema is None and names is None:
            return {"contexts": rows}
        if schema is not None:
            rows = [dict(zip(columns, row, strict=True)) for row in rows]
        ids = map(str, range(len(rows))) if names is None else names
        return {"actions": [{"id": name, "features": row} for name, row in zip(ids, rows, strict=True)]}

    async def _ask(self, method: str, path: str, body: Any = None, key: str | None = None) -> Any:
        """Send a request until it is answered or there are no retries left; return the answer's content.

        After an address that does not answer comes the next one, and a pause after all of them. Pauses are
        random, so that clients do not retry at the same time.
        """
        import httpx

        if self._agent and path.startswith("/v1/") and not path.startswith(AGENTS):
            path = self._agent + path.removeprefix("/v1")
        headers = {} if key is None else {"idempotency-key": key}
        wait, pause, count = 0.0, PAUSE, len(self._urls)
        silent: dict[str, str] = {}  # addresses that did not answer, and why
        for attempt in range(1, (self._retries + 1) * count + 1):
            response: httpx.Response | None = None
            place = self._place
            try:
                url = self._urls[place] + path
                response = await self._send(wait, method=method, url=url, json=body, headers=headers)
                if response.status_code not in AGAIN:
                    break
            except httpx.TransportError as error:
                silent[self._urls[place]] = str(error) or type(error).__name__
            if response is None or response.status_code in ELSEWHERE:
                self._place = (place + 1) % count
            wait = 0.0
            if attempt % count == 0:
                wait, pause = pause * random.uniform(0.5, 1.5), min(2 * pause, LONGEST)
        if response is None:
            text = "; ".join(f"{url} did not answer: {reason}" for url, reason in silent.items())
            raise ServiceError(0, "unreached", f"{text}.")
        if response.is_success:
            return None if response.status_code == 204 else response.json()
        try:
            problem = dict(response.json())
        except (ValueError, TypeError):  # not a JSON object: from something between us and the service
            problem = {}
        kind = str(problem.get("type", "")).rpartition(":")[2]
        detail = str(problem.get("detail", f"The service answered {response.status_code}."))
        identity = response.headers.get("x-request-id")
        raise ServiceError(response.status_code, kind, detail, str(problem.get("remedy", "")), identity)

    async def _send(self, wait: float, **request: Any) -> httpx.Response:
        """Send a request after `wait` seconds."""
        await asyncio.sleep(wait)
        return cast("httpx.Response", await self._http.request(**request))

    def __repr__(self) -> str:
        return self._named(type(self))

    def _named(self, kind: type) -> str:
        agent = f", agent={self._name!r}" if self._name else ""
        return f"{kind.__name__}({', '.join(map(repr, self._urls))}{agent})"

    async def aclose(self) -> None:
        """Close its connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _is_request(request: object) -> bool:
    """Whether it has the arguments of `decide`, and is not {name: features}."""
    return isinstance(request, Mapping) and request.keys() <= ARGUMENTS


def _offer(actions: Any, *, named: bool) -> dict[str, Any]:
    """Actions as the service takes them; rows of numbers are contexts unless they are `named` actions."""
    if isinstance(actions, Mapping):
        return {"actions": [{"id": name, "features": _features(row)} for name, row in actions.items()]}
    rows = list(actions)
    if rows and all(isinstance(row, str) for row in rows):
        return {"actions": rows}
    if named or any(isinstance(row, Mapping) or hasattr(row, "to_dict") for row in rows):
        return {"actions": [_action(row, index) for index, row in enumerate(rows)]}
    return {"contexts": [[float(number) for number in row] for row in rows]}


def _action(row: Any, index: int) -> Any:
    """One action, by its name or with its features."""
    if isinstance(row, str):
        return row
    if isinstance(row, Mapping) and "id" in row and row.keys() <= OFFER:
        return dict(row) | ({"features": _features(row["features"])} if "features" in row else {})
    return {"id": str(index), "features": _features(row)}


def _features(row: Any) -> Any:
    """The features of an action, or of a situation, as plain values."""
    row = row.to_dict() if hasattr(row, "to_dict") else row  # a row of pandas
    if isinstance(row, Mapping):
        return {name: _plain(value) for name, value in row.items()}
    return row if isinstance(row, str | None) else [_plain(value) for value in row]


def _plain(value: Any) -> Any:
    """A value that JSON has: no scalar of NumPy, and null where it is missing."""
    value = value.item() if hasattr(value, "item") else value
    missing = type(value).__name__ in ("NAType", "NaTType") or value != value
    return None if missing else value


def _by_action(decision: RemoteDecision | str, rewards: Rewards) -> dict[str, float | None]:
    """Rewards as the service takes them: by the action's name, or its index as text."""
    if not isinstance(rewards, Mapping):
        if isinstance(decision, str):
            raise InvalidInput("rewards must be by action where a decision is given by its id")
        count = len(decision.shown)
        require(len(rewards) == count, "rewards", f"must be one for each of {count} slots", len(rewards))
        actions = [one.action if one.name is None else one.name for one in decision.shown]
        rewards = dict(zip(actions, rewards, strict=True))
    return {str(action): None if one is None else float(one) for action, one in rewards.items()}


def _decision(answer: dict[str, Any]) -> RemoteDecision:
    exposure = answer.get("exposure") or answer["policy"]
    shown = answer.get("shown")
    if shown is None:
        action = answer["action"]
        shown = [answer | {"slot": 1, "weight": 1.0, "exposure": exposure[action]}]
    return RemoteDecision(
        id=answer["decision_id"],
        shown=tuple(
            RemoteAction(one["action"], one["action_id"], one["slot"], one["weight"], one["exposure"])
            for one in shown
        ),
        exposure=tuple(exposure),
        propensity=answer["probability"],
        model_version=answer["model_version"],
        mode=answer["mode"],
        names=tuple(answer.get("action_ids", ())),
    )


def _id(decision: RemoteDecision | str) -> str:
    return decision if isinstance(decision, str) else decision.id


def _certificates(urls: Sequence[str]) -> ssl.SSLContext | bool:
    """True for those that are trusted; none without TLS, since to load them takes longer than a decision."""
    import ssl

    plain = all(url.lower().startswith("http:") for url in urls)
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if plain else True


def _quoted(name: str) -> str:
    """A name in a path; dots are quoted too, since "." and ".." mean other paths."""
    return quote(name, safe="").replace(".", "%2E")


class _Blocking(AsyncClient):
    """The same calls over a connection that blocks."""

    def _connect(self) -> Any:
        import httpx

        return httpx.Client(**self._options)

    async def _send(self, wait: float, **request: Any) -> httpx.Response:
        time.sleep(wait)
        return cast("httpx.Response", self._http.request(**request))


def _blocking(
    call: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, P], T]:
    """The method of `Client` that runs a call, which never suspends, to its end."""

    @wraps(call)
    def method(client: Client, /, *args: P.args, **keywords: P.kwargs) -> T:
        try:
            call(client._calls, *args, **keywords).send(None)
        except StopIteration as done:
            return cast("T", done.value)
        raise AssertionError("a blocking call was suspended")

    return method


class Client:
    """A client of the service at `url`, with an API `key` if it needs one.

    url: an address, or several of processes with one database, such as a service and its standby. While one
        can't be reached or answers 503, requests go to the next, each under its idempotency key: no decision
        is made twice.
    agent: the name of the agent that it asks; by default the service's default agent.
    timeout: seconds for one attempt.
    retries: how often an unanswered request is sent again, to each address.

    >>> with Client(url) as client:
    ...     decision = client.decide([[0.2, 0.4, 0.1], [0.5, 0.1, 0.3]])
    ...     client.observe(decision, reward=1.0)
    """

    def __init__(
        self,
        url: str | Sequence[str],
        key: str | None = None,
        *,
        agent: str | None = None,
        timeout: float = 10.0,
        retries: int = 5,
    ) -> None:
        self._calls = _Blocking(url, key, agent=agent, timeout=timeout, retries=retries)

    decide = _blocking(AsyncClient.decide)
    decide_many = _blocking(AsyncClient.decide_many)
    observe = _blocking(AsyncClient.observe)
    observe_many = _blocking(AsyncClient.observe_many)
    forget = _blocking(AsyncClient.forget)
    forget_many = _blocking(AsyncClient.forget_many)
    delete_person = _blocking(AsyncClient.delete_person)
    roll_back = _blocking(AsyncClient.roll_back)
    actions = _blocking(AsyncClient.actions)
    add_actions = _blocking(AsyncClient.add_actions)
    retire_actions = _blocking(AsyncClient.retire_actions)
    agents = _blocking(AsyncClient.agents)
    make_agent = _blocking(AsyncClient.make_agent)
    archive_agent = _blocking(AsyncClient.archive_agent)
    explain = _blocking(AsyncClient.explain)
    get = _blocking(AsyncClient.get)

    def __repr__(self) -> str:
        return self._calls._named(type(self))

    def close(self) -> None:
        """Close its connections."""
        self._calls._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
