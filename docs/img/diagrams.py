"""The diagrams of docs/explanation and docs/paper, computed from the code where they show what it does.

`python docs/img/diagrams.py` writes them again; a test fails when one is out of date.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import fedfairx as ffx
from fedfairx import steps
from fedfairx.agent.core import Core
from fedfairx.federation.setup.joining_gain import EPSILONS, HORIZONS, MEMBERS, RATIOS
from fedfairx.privacy import calibrate
from fedfairx.storage import Journal, Log

sys.path.insert(0, str(Path(__file__).parent))
from svg import Axes, Drawing

HERE = Path(__file__).parent
PACKAGE = Path(ffx.__file__).parent
APART = {"errors", "util", "cli", "demo", "__init__", "__main__"}  # below all rooms, or above them
PLACES = {
    "lanes": (70, 170),
    "core": (170, 170),
    "privacy": (280, 170),
    "storage": (390, 170),
    "steps": (390, 280),
    "decision": (280, 280),
    "features": (280, 345),
    "agent": (500, 170),
    "fairness": (390, 60),
    "evaluation": (610, 60),
    "federation": (610, 170),
    "simulation": (610, 280),
    "service": (730, 60),
    "audit": (730, 280),
    "client": (70, 60),
}


def room_imports() -> dict[str, set[str]]:
    """Which rooms each room imports, without what follows from other imports."""
    found: dict[str, set[str]] = {name: set() for name in PLACES}
    for file in PACKAGE.rglob("*.py"):
        room = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room in APART:
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                module = node.module or ""
                names = (
                    [f"{module}.{alias.name}" for alias in node.names] if module == "fedfairx" else [module]
                )
            found[room] |= (
                {name.split(".")[1] for name in names if name.startswith("fedfairx.")} - APART - {room}
            )

    def below(room: str) -> set[str]:
        return found[room].union(*(below(each) for each in found[room]))

    return {
        room: {one for one in each if not any(one in below(other) for other in each)}
        for room, each in found.items()
    }


def rooms() -> Drawing:
    drawing = Drawing(
        800, 375, "The packages of fedfairx; an arrow points from a package to one that it imports."
    )
    for room, below in room_imports().items():
        x, y = PLACES[room]
        for each in sorted(below):
            to_x, to_y = PLACES[each]
            if y == to_y:
                drawing.arrow((x - 45, y), (to_x + 47, to_y))
            elif x == to_x:
                drawing.arrow((x, y + 17 * np.sign(to_y - y)), (to_x, to_y - 19 * np.sign(to_y - y)))
            else:
                drawing.arrow((x - 45, y), (to_x + 40, to_y - 19 * np.sign(to_y - y)))
    for room, (x, y) in PLACES.items():
        drawing.box(x, y, 90, 34, room)
    drawing.label(
        250, 20, "cli and demo import all of these; all of these may import errors and util", kind="small"
    )
    return drawing


def durable() -> Drawing:
    """How a call becomes durable, and how a log becomes an agent again; names are those of the source."""
    drawing = Drawing(800, 320, "A call and an opening take the same steps through the core of an agent.")

    def name(function: Callable[..., object]) -> str:
        return function.__qualname__

    boxes = {
        "call": (90, 60, f"{name(ffx.Agent.decide)}\n{name(ffx.Agent.observe)}"),
        "step": (290, 60, "a step\nof steps.py"),
        "core": (490, 150, f"{name(Core.apply)}\nchanges the agent"),
        "log": (490, 60, f"{name(Journal.append)}\nbuffers its rows"),
        "disk": (700, 60, f"{name(Log.leave)}\ncommits them"),
        "entries": (290, 240, f"{name(Journal.entries)}\nreads steps"),
        "snapshot": (90, 240, f"{name(Core.restore)}\nfrom a snapshot"),
    }
    for x, y, text in boxes.values():
        drawing.box(x, y, 150, 50, text)
    for one, other in (("call", "step"), ("step", "log"), ("log", "disk"), ("snapshot", "entries")):
        drawing.arrow((boxes[one][0] + 75, boxes[one][1]), (boxes[other][0] - 77, boxes[other][1]))
    drawing.arrow((365, 75), (413, 140))
    drawing.arrow((365, 225), (413, 162))
    drawing.label(
        15, 105, "now: checked, applied, appended,\nin one transaction", anchor="start", kind="small"
    )
    drawing.label(15, 195, "when it is opened, or a commit failed", anchor="start", kind="small")
    drawing.label(700, 105, "only then is the call answered", kind="small")
    events = sorted(event.__name__ for event in steps.Step.__args__)
    drawing.label(600, 215, "all steps", kind="bold")
    lines = [", ".join(events[at : at + 4]) for at in range(0, len(events), 4)]
    drawing.label(600, 240, "\n".join(lines), kind="small")
    return drawing


def merit_to_share() -> Drawing:
    """Four actions, of which one is new: what the agent knows, and the shares that it gives."""
    names = ["ann", "ben", "cid", "new"]
    agent = ffx.Agent(actions=names, seed=0)
    rng = np.random.default_rng(0)
    for name, skill, count in (("ann", 0.5, 400), ("ben", 0.6, 400), ("cid", 0.7, 400), ("new", 0.6, 20)):
        rewards = np.zeros(count)
        rewards[: round(skill * count)] = 1.0
        agent.learn([name] * count, rng.permutation(rewards))
    records = [agent.record_of(name) for name in names]
    means = [float(agent.estimate[0]) + each.effect for each in records]
    sds, shares = [each.sd for each in records], agent.policy()
    drawing = Drawing(
        720, 290, "An uncertain action gets a larger share than a well-known one of the same mean."
    )
    left = Axes(drawing, (60, 330, 50, 230), (-0.5, 3.5), (0.4, 0.8))
    right = Axes(drawing, (430, 700, 50, 230), (-0.5, 3.5), (0.0, 0.6))
    left.ticks([], [0.4, 0.5, 0.6, 0.7, 0.8])
    right.ticks([], [0, 0.2, 0.4, 0.6], "{:.0%}")
    drawing.label(60, 25, "expected reward, mean ± sd", anchor="start", kind="bold")
    drawing.label(430, 25, "share", anchor="start", kind="bold")
    for at, (name, colour) in enumerate(zip(names, "abcd", strict=True)):
        x, low, high = left.x(at), left.y(means[at] - sds[at]), left.y(means[at] + sds[at])
        drawing.curve([x, x], [low, high], colour)
        drawing.bar(x, left.y(means[at]) - 4, left.y(means[at]) + 4, 26, colour)
        drawing.bar(right.x(at), right.y(shares[at]), right.y(0), 40, colour)
        drawing.label(right.x(at), right.y(shares[at]) - 11, f"{shares[at]:.0%}")
        drawing.label(x, 250, f"{name}\nn = {20 if name == 'new' else 400}", kind="small")
        drawing.label(right.x(at), 250, name, kind="small")
    return drawing


def three_shares() -> Drawing:
    """One seller's shares over 2 000 decisions: shown, by policy, and by true merit."""
    rng, features, theta = (
        np.random.default_rng(3),
        np.array([[0.9, 0.1], [0.5, 0.5], [0.2, 0.7]]),
        [0.7, 0.3],
    )
    agent = ffx.Agent(2, merit=ffx.merit.Exponential(4.0), seed=3)
    shown, policy = np.zeros(2000), np.zeros(2000)
    for at in range(2000):
        decision = agent.decide(features)
        agent.observe(decision, reward=float(rng.random() < features[decision.action] @ theta))
        shown[at], policy[at] = decision.action == 0, decision.policy[0]
    merits = np.exp(4.0 * features @ theta)
    drawing = Drawing(720, 300, "Shown, policy and entitled: shares of one action over 2 000 decisions.")
    axes = Axes(drawing, (60, 560, 20, 255), (1, 2000), (0.4, 0.7))
    axes.ticks([1, 500, 1000, 1500, 2000], [0.4, 0.5, 0.6, 0.7], "{:.0%}")
    rounds = np.arange(1, 2001)
    at = np.unique(np.r_[np.arange(19, 200, 10), np.arange(199, 2000, 20), 1999])
    ends = {}
    for name, colour, values in (
        ("shown", "a", np.cumsum(shown) / rounds),
        ("policy", "b", np.cumsum(policy) / rounds),
        ("entitled", "c", np.full(2000, merits[0] / merits.sum())),
    ):
        axes.curve(rounds[at], np.clip(values[at], 0.4, 0.7), colour, dashed=name == "entitled")
        ends[name] = (colour, float(axes.y(values[-1])))
    ordered = sorted(ends.items(), key=lambda each: each[1][1])
    for number, (name, (colour, _)) in enumerate(ordered):
        y = ordered[1][1][1] + 20 * (number - 1)
        drawing.label(570, y, name, anchor="start")
        drawing.bar(640, y - 3, y + 3, 14, colour)
    drawing.label(310, 290, "decisions", kind="small")
    return drawing


def decide_from() -> Drawing:
    drawing = Drawing(720, 330, "What a private agent decides from, in both modes.")
    for left, mode, text in (
        (0, "own+released", "own+released (default)"),
        (370, "released", "released (the strict mode)"),
    ):
        drawing.label(left + 175, 24, text, kind="bold")
        drawing.box(left + 80, 80, 130, 50, "own records,\nexact", kind="exact")
        drawing.box(left + 80, 190, 130, 50, "own release,\nnoisy", kind="noisy")
        drawing.box(left + 270, 190, 130, 50, "others' releases,\nnoisy", kind="noisy")
        drawing.box(left + 270, 80, 130, 50, "decision")
        drawing.arrow((left + 80, 105), (left + 80, 163))
        drawing.label(left + 88, 134, "+ noise", kind="small", anchor="start")
        drawing.arrow((left + 270, 165), (left + 270, 107))
        drawing.arrow((left + 80, 215), (left + 80, 247))
        drawing.label(left + 80, 260, "to the others", kind="small")
        drawing.arrow((left + 235, 55), (left + 235, 42), (left + 115, 42), (left + 115, 53), dashed=True)
        if mode == "own+released":
            drawing.arrow((left + 145, 80), (left + 203, 80))
            note = "A record may change later decisions,\nand so later records, of the same agent."
        else:
            drawing.arrow((left + 145, 180), (left + 205, 108))
            note = "A record changes later decisions\nonly through noise."
        drawing.label(left + 175, 290, note, kind="small")
    drawing.shapes.append('<path d="M360 15 V315" class="grid"/>')
    return drawing


def noise() -> Drawing:
    """Entry sd of each release in units of Δ/μ, by mechanism, for 200 releases."""
    drawing = Drawing(720, 300, "Noise of each of 200 releases, by mechanism.")
    axes = Axes(drawing, (60, 600, 20, 255), (1, 200), (0, 8))
    axes.ticks([1, 50, 100, 150, 200], [0, 2, 4, 6, 8])
    numbers = np.arange(1, 201)
    for name, colour in (("tree", "b"), ("blt", "a")):
        made = calibrate(name, epsilon=2.0, delta=1e-6, releases=200, sensitivity=1.0)
        sd = np.asarray(made.sd(numbers)) * made.mu
        axes.curve(numbers, sd, colour)
        drawing.label(612, axes.y(sd[-1]), name, anchor="start")
    drawing.label(330, 290, "number of the release", kind="small")
    return drawing


def federation() -> Drawing:
    drawing = Drawing(720, 300, "Three members exchange signed, noisy releases through a hub.")
    drawing.box(360, 60, 150, 44, "hub")
    drawing.label(450, 60, "keeps the latest envelope of each member", kind="small", anchor="start")
    for x, name in ((130, "member A"), (360, "member B"), (590, "member C")):
        drawing.label(x, 165, name, kind="bold")
        drawing.box(x - 47, 215, 90, 50, "records,\nexact", kind="exact")
        drawing.box(x + 53, 215, 90, 50, "release,\nnoisy", kind="noisy")
        drawing.arrow((x - 2, 215), (x + 6, 215))
        shape = f'<rect x="{x - 105}" y="148" width="215" height="106" rx="8" class="wire"/>'
        drawing.shapes.append(shape)
    drawing.arrow((130, 148), (290, 84))
    drawing.arrow((310, 84), (165, 147))
    drawing.arrow((352, 148), (352, 84))
    drawing.arrow((368, 84), (368, 146))
    drawing.arrow((590, 148), (430, 84))
    drawing.arrow((410, 84), (555, 147))
    drawing.label(
        360,
        282,
        "all members hold the same roster, signed by the convener: names, public keys, terms",
        kind="small",
    )
    return drawing


def aggregation() -> Drawing:
    drawing = Drawing(720, 320, "A round of secure aggregation with three members, two of them openers.")
    for x, text in (
        (80, "1. rows, on members"),
        (270, "2. shares, encrypted"),
        (460, "3. partials, of openers"),
        (640, "4. total"),
    ):
        drawing.label(x, 24, text, kind="bold")
    rows = {"ann": 80, "ben": 165, "cid": 250}
    for name, y in rows.items():
        drawing.box(80, y, 110, 46, f"row of {name},\nnoisy", kind="noisy")
        drawing.box(270, y - 14, 130, 24, f"{name}: random share")
        drawing.box(270, y + 14, 130, 24, f"{name}: the rest")
        drawing.arrow((135, y), (203, y - 14))
        drawing.arrow((135, y), (203, y + 14))
        drawing.arrow((335, y - 14), (403, 112 if y < 120 else 118 if y < 200 else 124))
        drawing.arrow((335, y + 14), (403, 206 if y < 120 else 212 if y < 200 else 218))
    drawing.box(460, 118, 110, 46, "opener ann:\nsum of shares")
    drawing.box(460, 212, 110, 46, "opener ben:\nsum of shares")
    drawing.box(640, 165, 110, 46, "sum of all\nrows, noisy", kind="noisy")
    drawing.arrow((515, 118), (583, 155))
    drawing.arrow((515, 212), (583, 175))
    drawing.label(
        360,
        300,
        "A share alone is a uniform random number. Both openers together could see a row, and its noise.",
        kind="small",
    )
    return drawing


def ledger() -> Drawing:
    drawing = Drawing(720, 200, "The order of a release: freeze, record, send.")
    steps = (
        (90, "open leaf:\nrecords come in"),
        (270, "freeze the leaf,\nwith its place"),
        (450, "record the\nmessage"),
        (630, "send"),
    )
    for x, text in steps:
        drawing.box(x, 60, 130, 50, text)
    for x, text in ((155, ""), (335, "noise"), (515, "")):
        drawing.arrow((x, 60), (x + 48, 60), text=text, up=11)
    for x, text in (
        (180, "crash: the leaf\nis still open"),
        (360, "crash: the same\nmessage is made again"),
        (540, "crash: the stored\nbytes are sent"),
    ):
        drawing.arrow((x, 125), (x, 74), dashed=True)
        drawing.label(x, 140, text, kind="small")
    drawing.label(360, 188, "Each step is on disk before the next begins.", kind="small")
    return drawing


def loop() -> Drawing:
    drawing = Drawing(720, 300, "The stages of a decision and of a synchronisation.")
    ring = (
        ((90, 60), "contexts"),
        ((250, 60), "confidence region,\noptimistic θ"),
        ((430, 60), "exposure π,\naction"),
        ((620, 60), "reward"),
    )
    for (x, y), text in ring:
        drawing.box(x, y, 130, 48, text)
    for start, end in ((155, 183), (315, 363), (495, 553)):
        drawing.arrow((start, 60), (end, 60))
    drawing.box(250, 160, 130, 48, "statistics,\nestimate θ̂", kind="exact")
    drawing.arrow((620, 84), (620, 160), (317, 160))
    drawing.label(470, 150, "record (x, y)", kind="small")
    drawing.arrow((250, 136), (250, 86))
    drawing.box(430, 245, 130, 48, "clip, add noise:\nrelease", kind="noisy")
    drawing.box(90, 245, 130, 48, "sum of all agents'\nreleases", kind="noisy")
    drawing.box(620, 245, 130, 48, "the other agents")
    drawing.arrow((290, 184), (290, 245), (363, 245))
    drawing.arrow((495, 245), (553, 245))
    drawing.arrow((600, 269), (600, 285), (90, 285), (90, 271))
    drawing.arrow((90, 221), (90, 160), (183, 160))
    drawing.label(330, 214, "when the schedule says so", kind="small", anchor="start")
    return drawing


def partners() -> Drawing:
    """The weight of a partner at several distances, as a member's own rewards come in."""
    drawing = Drawing(
        720, 300, "A partner's weight against the member's own rewards, by the distance of its parameter."
    )
    axes = Axes(drawing, (60, 560, 20, 255), (1, 1024), (0, 1), logarithmic=True)
    axes.ticks([1, 4, 16, 64, 256, 1024], [0, 0.25, 0.5, 0.75, 1])
    here = np.array([0.8, 0.1])
    counts = [4**power for power in range(6)]
    for distance, colour in ((0.0, "a"), (0.1, "c"), (0.5, "b")):
        there = here + distance * np.array([-0.6, 0.8])
        weights = np.zeros((10, len(counts)))
        for seed in range(10):
            rng = np.random.default_rng(seed)
            own, partner = (ffx.Agent(2, name=name, partners="differ", seed=0) for name in ("here", "there"))
            contexts = rng.random((1000, 2)) / np.sqrt(2)
            partner.learn(contexts, contexts @ there + 0.1 * rng.normal(size=1000))
            contexts = rng.random((counts[-1], 2)) / np.sqrt(2)
            rewards = contexts @ here + 0.1 * rng.normal(size=counts[-1])
            first = 0
            for number, count in enumerate(counts):
                own.learn(contexts[first:count], rewards[first:count])
                own.absorb({"here": own.release(), "there": partner.release()})
                weights[seed, number] = own.partners["there"].weight
                first = count
        axes.curve(counts, weights.mean(axis=0), colour)
        drawing.label(
            570,
            axes.y(weights.mean(axis=0)[-1]) - (10 if distance == 0.1 else 0),
            f"distance {distance:g}",
            anchor="start",
        )
    drawing.label(310, 290, "own rewards", kind="small")
    return drawing


def joining_gain() -> Drawing:
    """Regret of members over that alone against ε, from the stored table."""
    drawing = Drawing(720, 310, "Regret of a private federation's members over that alone, by ε and members.")
    for left, horizon in ((50, 10_000), (385, 100_000)):
        axes = Axes(
            drawing, (left, left + 230, 45, 255), (EPSILONS[0], EPSILONS[-1]), (0, 1.2), logarithmic=True
        )
        axes.ticks([], [0, 0.2, 0.4, 0.6, 0.8, 1, 1.2])
        for epsilon in EPSILONS:
            drawing.label(axes.x(epsilon), 271, f"{epsilon:g}", kind="small")
        title = f"{horizon:,} decisions of each".replace(",", " ")
        drawing.label(left, 22, title, anchor="start", kind="bold")
        drawing.label(left + 115, 297, "ε", kind="small")
        table = RATIOS["own+released"][HORIZONS.index(horizon)]
        for members, colour in ((3, "d"), (10, "a"), (30, "c"), (100, "b")):
            ratios = [row[MEMBERS.index(members)] for row in table]
            axes.curve(EPSILONS, ratios, colour)
            low = -12 if members == 3 else 0
            drawing.label(
                left + 237, axes.y(ratios[-1]) + low, f"m = {members}", anchor="start", kind="small"
            )
    return drawing


def evaluation() -> Drawing:
    """The value of choosing uniformly, estimated from a growing log of another policy."""
    rng, skill = np.random.default_rng(0), np.array([0.5, 0.6, 0.7])
    agent = ffx.Agent(actions=["ann", "ben", "cid"], seed=0)
    log = []
    for _ in range(6000):
        decision = agent.decide()
        reward = float(rng.random() < skill[decision.action])
        agent.observe(decision, reward=reward)
        log.append(ffx.Logged(decision.policy, decision.action, names=list(agent.actions), reward=reward))
    counts = [200, 400, 800, 1500, 3000, 6000]
    found = [ffx.evaluate(log[:count], {"uniform": "uniform"})["uniform"].reward for count in counts]
    drawing = Drawing(
        720, 300, "The interval of a policy's value narrows as the log grows, and holds at all times."
    )
    axes = Axes(drawing, (60, 560, 20, 255), (200, 6000), (0.2, 1.0), logarithmic=True)
    axes.ticks(counts, [0.2, 0.4, 0.6, 0.8, 1.0])
    for each, colour, dashed in (("low", "a", True), ("value", "a", False), ("high", "a", True)):
        axes.curve(counts, [getattr(one, each) for one in found], colour, dashed=dashed)
    axes.curve([200, 6000], [skill.mean(), skill.mean()], "c")
    for number, (text, colour) in enumerate((("estimate, interval", "a"), ("truth", "c"))):
        drawing.label(590, 60 + 22 * number, text, anchor="start", kind="small")
        drawing.bar(577, 57 + 22 * number, 63 + 22 * number, 14, colour)
    drawing.label(310, 290, "decisions in the log", kind="small")
    return drawing


DIAGRAMS: dict[str, Callable[[], Drawing]] = {
    "rooms": rooms,
    "durable": durable,
    "merit-to-share": merit_to_share,
    "three-shares": three_shares,
    "decide-from": decide_from,
    "noise": noise,
    "federation": federation,
    "aggregation": aggregation,
    "ledger": ledger,
    "loop": loop,
    "partners": partners,
    "joining-gain": joining_gain,
    "evaluation": evaluation,
}

if __name__ == "__main__":
    for name, draw in DIAGRAMS.items():
        (HERE / f"{name}.svg").write_text(draw().text, encoding="utf-8")
