"""What a run is to be read against: the same agents alone, and with everything pooled at once."""

from __future__ import annotations

from dataclasses import replace

from fedfairx.federation.options import Options
from fedfairx.federation.schedules import EveryRound, Never, Schedule


def baselines(options: Options) -> dict[str, Options]:
    """The same rule "alone", and with "perfect pooling": exact sums of all, at the end of every round.

    Learning alone is what joining must beat, and pooling what no schedule and no noise can.
    """
    schedules: dict[str, Schedule] = {"alone": Never(), "perfect pooling": EveryRound()}
    return {
        name: replace(
            options,
            algorithm=replace(
                options.composed, name=name, schedule=schedule, private=False, decide_from="released+local"
            ),
            schedule=None,
            solver=None,
            epsilon=None,
            decide_from=None,
        )
        for name, schedule in schedules.items()
    }
