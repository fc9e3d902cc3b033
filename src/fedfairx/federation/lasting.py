"""A federation of one process that can be closed and opened: where its steps are kept, if anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from typing import Any, Self, cast

from fedfairx.federation.agent import Agent
from fedfairx.federation.durable_local import Kept, refuse_others, settings_from
from fedfairx.federation.options import Options
from fedfairx.federation.schedules import Plan

#: How far a federation has come.
_KEPT = ("round", "syncs", "_last_sync", "_runs", "_began", "_syncs_before")


class Lasting:
    """The lasting half of a `Federation`, which rounds and shares beside it."""

    options: Options
    plan: Plan
    agents: list[Agent]
    _names: list[str]
    _seed: int | None
    _kept: Kept | None = None  # where a durable one keeps its steps

    def _begin_run(self, plan: Plan) -> None:
        raise NotImplementedError

    def _renew_transport(self) -> None:
        raise NotImplementedError

    @classmethod
    def open(cls, place: str | PathLike[str], **settings: Any) -> Self:
        """A federation that lives in a file (SQLite) or a `postgresql://` database; see docs/durable.md.

        The first opening takes what `Federation` takes and keeps it; later ones need nothing but the place.
        Each call of an agent, and each end of a round, is on disk before it returns, or has changed nothing.
        """
        kept, make = Kept(place), cast(Callable[..., Self], cls)
        try:
            before = kept.made_before()
            if before is None:
                fed = make(**settings)
                merits = [agent.merit for agent in fed.agents]
                kept.make(fed.options, fed.plan, merits, fed._names, fed._seed)
                progress = fed._progress()
            else:
                stored, progress = settings_from(before[0]), before[1]
                refuse_others(stored, settings)
                fed = make(**stored)
            fed._kept, fed.agents = kept, kept.agents()
            if before is None:
                with fed._step():
                    pass
            else:
                fed._resume(progress)
            kept.log.restorers.append(lambda: fed._resume(kept.progress()))
            kept.log.restorers.append(fed._renew_transport)
        except BaseException:
            kept.log.close()
            raise
        return fed

    def close(self) -> None:
        """Let go of the database; a federation in memory has none."""
        if self._kept is not None:
            self._kept.log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    @contextmanager
    def _step(self) -> Iterator[None]:
        """One step: kept, whole or not at all, where the federation is durable."""
        if self._kept is None:
            yield
            return
        with self._kept.log.step():
            yield
            self._kept.keep(self._progress())

    def _progress(self) -> dict[str, Any]:
        options = {"epsilon": self.options.epsilon, "delta": self.options.delta}
        return {name: getattr(self, name) for name in _KEPT} | {"horizon": self.plan.horizon, **options}

    def _resume(self, progress: dict[str, Any]) -> None:
        self.options = replace(self.options, epsilon=progress["epsilon"], delta=progress["delta"])
        self._begin_run(replace(self.plan, horizon=progress["horizon"]))
        for name in _KEPT:
            setattr(self, name, progress[name])
