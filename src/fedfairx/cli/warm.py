"""`fedfairx warm`: compile in advance, so that the first decision does not wait for it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial

from fedfairx.cli.common import Output, as_json


@dataclass(frozen=True, kw_only=True)
class Warm(Output):
    """Compile in advance, for instance while a container image is built. Machine code is cached for this
    version and this machine; a second run takes a second or two.

        fedfairx warm
        fedfairx warm --all --json

    all: also compile the paper's optimistic rule and Thompson sampling.
    """

    all: bool = False

    def run(self) -> int:
        import fedfairx as ffx
        from fedfairx.agent.warm import warm
        from fedfairx.privacy import SimulatedNoise, private

        tiny = ffx.Scenario(agents=2, arms=2, dimension=2, horizon=4)
        rules = ("expected-merit", "thompson", "optimism") if self.all else ("expected-merit",)
        algorithms = ("fed-fairx-bayes", "fed-fairx-linucb") if self.all else ("fed-fairx-bayes",)
        made_private = partial(private, 2, epsilon=1.0, releases=4, noise=SimulatedNoise(0))
        seconds: dict[str, float] = {}

        def took(what: str, began: float) -> None:
            seconds[what] = round(time.perf_counter() - began, 3)
            if not self.json:
                print(f"{what}: {seconds[what]:.1f} s", flush=True)

        for rule in rules:
            began = time.perf_counter()
            warm(ffx.Agent(actions=["a", "b"], rule=rule))
            for noisy in (None, made_private(intercept=rule != "optimism")):
                warm(ffx.Agent(2, rule=rule, privatizer=noisy))
            took(f"decisions by {rule}", began)
        for algorithm in algorithms:
            began = time.perf_counter()
            ffx.simulate(tiny, algorithm=algorithm, seeds=1)
            took(f"a simulation of {algorithm}", began)
        if self.json:
            print(as_json(seconds))
        return 0
