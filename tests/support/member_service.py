"""Services that are members of a federation: founded in a folder, in this process or in one of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedfairx.agent.schedules import EveryRound
from fedfairx.federation.roster.terms import Terms
from fedfairx.federation.setup.create import create_federation
from fedfairx.federation.setup.member_folder import SETTINGS
from fedfairx.service import federation
from fedfairx.service.app import make_app
from fedfairx.service.factory import open_service
from fedfairx.service.settings import load
from in_process_client import InProcessClient
from service_helpers import CONTEXTS

federation.EVERY = 0.1  # seconds, and no longer: tests wait for what members send each other


def founded(
    base: Path,
    *,
    names: tuple[str, ...] = ("org1", "org2"),
    transport: str = "sqlite",
    port: int = 4222,
    **more: Any,
) -> Path:
    """A federation's folders; `transport` "engine" is of messages that somebody else carries."""
    options = {"dimension": 3, "agents": len(names), "horizon": 50, "epsilon": 2.0, "schedule": EveryRound()}
    given = "sqlite" if transport == "engine" else transport
    create_federation(base, Terms(**(options | more)), dict.fromkeys(names), transport=given, port=port)  # type: ignore[arg-type]
    if transport == "engine":
        for name in names:
            file = base / name / SETTINGS
            file.write_text(file.read_text().replace('transport = "sqlite"', 'transport = "engine"'))
    return base


@contextmanager
def member_of(
    folder: Path, *, clock: Callable[[], float] | None = None, **given: Any
) -> Iterator[InProcessClient]:
    """A client of a member's service in this process."""
    service = open_service(load({"federation": str(folder), **given}, environment={}))
    if clock is not None:
        assert service.default.membership is not None
        service.default.membership.member.clock = clock
    app = make_app(service)
    with InProcessClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


def rounds(client: Any, count: int, *, reward: float = 0.5) -> None:
    """Decisions and their rewards, in one batch each."""
    body = {"decisions": [{"contexts": CONTEXTS}] * count}
    made = client.post("/v1/decisions/batch", json=body).json()["decisions"]
    rewards = [{"decision_id": one["decision_id"], "reward": reward} for one in made]
    answer = client.post("/v1/rewards", json={"rewards": rewards})
    assert answer.status_code == 204, answer.text


def sync(client: Any) -> Any:
    return client.get("/v1/sync").json()
