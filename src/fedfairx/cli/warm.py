"""`fedfairx warm`: compile in advance, so that the first decision does not wait for it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from fedfairx.cli.common import Output, add_verb, print_json


@dataclass(frozen=True, kw_only=True)
class Warm(Output):
    """Flags of `fedfairx warm`.

    all: compile the paper's rule and Thompson's too.
    """

    all: bool = False


def add(verbs: Any) -> None:
    add_verb(
        verbs,
        "warm",
        run,
        Warm,
        summary="Compile in advance, for instance while a container is built. "
        "Machine code is kept for this version and this machine; a second run takes a second or two.",
        example="fedfairx warm\nfedfairx warm --all --json",
    )


def run(args: Warm) -> int:
    import fedfairx as ffx

    tiny = ffx.Scenario(agents=2, arms=2, dimension=2, horizon=4)
    rules = ("expected-merit", "thompson", "optimism") if args.all else ("expected-merit",)
    algorithms = ("fed-fairx-bayes", "fed-fairx-linucb") if args.all else ("fed-fairx-bayes",)
    seconds: dict[str, float] = {}

    def took(what: str, began: float) -> None:
        seconds[what] = round(time.perf_counter() - began, 3)
        if not args.json:
            print(f"{what}: {seconds[what]:.1f} s", flush=True)

    for rule in rules:
        began = time.perf_counter()
        agent = ffx.Agent(2, rule=rule, seed=0)
        agent.observe(agent.decide([[1.0, 0.0], [0.0, 1.0]]), reward=0.5)
        took(f"a decision by {rule}", began)
    for algorithm in algorithms:
        began = time.perf_counter()
        ffx.simulate(tiny, algorithm=algorithm, seeds=1)
        took(f"a simulation of {algorithm}", began)
    if args.json:
        print_json(seconds)
    return 0
