"""Count what each package holds, and what four calls run: `make structure` prints it for CONTRIBUTING.md.

A room is a top-level package of `src/fedfairx`; its top-level modules together are one more. Of each room:

- code lines: those that hold more than a docstring, a comment or blanks.
- value types: dataclasses, Structs of msgspec, NamedTuples and TypedDicts, and classes derived from one of
  these. Enums and Protocols are none.
- public names: functions, classes and constants at the top level of its modules, without a leading
  underscore. Names that a module imports are not its own.

A call is traced in this process, through all threads, after some calls of the same kind, so that neither
compiling nor the filling of caches is counted. Its functions are the code objects of the package that it
enters: lambdas count too, and in Python 3.11 comprehensions. Functions that Numba compiled are not seen. Its
depth is the largest number of their frames in one stack. Some calls do more than others, such as a fit of the
model that is due: the table has a call with the median number of functions.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import statistics
import sys
import threading
import time
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any

import fedfairx
from fedfairx.federation.roster.rounds import Rounds

sys.path.insert(0, str(Path(__file__).resolve().parent / "support"))
from member_helpers import BEGIN, work, world
from secure_helpers import secure_world
from service_helpers import CONTEXTS, asking, decide

PACKAGE = Path(fedfairx.__file__).parent
KINDS = {"dataclass", "Struct", "NamedTuple", "TypedDict"}
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
WARM_UP, TIMES = 10, 5  # calls before those that are traced, and those
PAUSE = 0.02  # seconds; a call sooner after another would not check the database's lock again
Row = dict[str, str | int]


# --- rooms ------------------------------------------------------------------------------------------------


def code_lines(text: str) -> int:
    """Count the lines of a module that hold more than a docstring, a comment or blanks."""
    numbers: set[int] = set()
    statement: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NEWLINE:
            if any(each.type != tokenize.STRING for each in statement):
                for each in statement:
                    numbers.update(range(each.start[0], each.end[0] + 1))
            statement = []
        elif token.type not in LAYOUT:
            statement.append(token)
    lines = text.split("\n")
    return sum(bool(lines[number - 1].strip()) for number in numbers)


def value_types(modules: Mapping[str, ast.Module]) -> set[str]:
    """The value types among the classes of modules, as `module.Class`."""
    parents: dict[str, set[str]] = {}  # bases and decorators
    for module, tree in modules.items():
        nodes = [*ast.walk(tree)]
        origins = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in nodes
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                names = parents.setdefault(f"{module}.{node.name}", set())
                for each in (*node.bases, *node.decorator_list):
                    first, *rest = ast.unparse(each).partition("(")[0].partition("[")[0].split(".")
                    names.add(".".join((origins.get(first, f"{module}.{first}"), *rest)))
    types = {
        name for name, above in parents.items() if any(each.rpartition(".")[2] in KINDS for each in above)
    }
    while derived := {name for name, above in parents.items() if above & types} - types:
        types |= derived
    return types


def public_names(tree: ast.Module) -> set[str]:
    """The names without a leading underscore that a module defines at its top level."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            parts = [part for target in targets for part in ast.walk(target)]
            names |= {p.id for p in parts if isinstance(p, ast.Name) and isinstance(p.ctx, ast.Store)}
    return {name for name in names if not name.startswith("_")}


def rooms(package: Path = PACKAGE) -> list[Row]:
    """One row for each room of a package, and one for all."""
    texts = {path.relative_to(package): path.read_text("utf-8") for path in sorted(package.rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    modules = {path: ".".join((package.name, *path.with_suffix("").parts)) for path in texts}
    modules = {path: name.removesuffix(".__init__") for path, name in modules.items()}
    types = Counter(
        name.rpartition(".")[0] for name in value_types({modules[path]: trees[path] for path in trees})
    )
    counts: dict[str, Counter[str]] = {"all": Counter()}
    for path, text in texts.items():
        parts = {
            "files": 1,
            "code lines": code_lines(text),
            "value types": types[modules[path]],
            "public names": len(public_names(trees[path])),
        }
        for room in (f"`{path.parts[0]}/`" if len(path.parts) > 1 else "`*.py`", "all"):
            counts.setdefault(room, Counter()).update(parts)
    return [{"room": room, **counts[room]} for room in sorted(counts)]


# --- calls ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trace:
    """The functions of the package that a call enters, and how deep their frames lie in its stacks."""

    functions: set[CodeType] = field(default_factory=set)
    depths: set[int] = field(default_factory=set)

    def row(self, call: str) -> Row:
        files = {each.co_filename for each in self.functions}
        depth = max(self.depths, default=0)
        return {"call": call, "functions": len(self.functions), "files": len(files), "depth": depth}


class Tracer:
    """Follows calls into a package, in the thread that traces them and in those that start within it.

    Other threads that run already can't be followed, so it is entered before there is a service.
    """

    def __init__(self, package: Path = PACKAGE) -> None:
        self._folder = str(package) + os.sep
        self._trace: Trace | None = None

    def __enter__(self) -> Tracer:
        self._before = threading.getprofile()
        threading.setprofile(self._follow)
        return self

    def __exit__(self, *_: object) -> None:
        threading.setprofile(self._before)

    @contextmanager
    def trace(self) -> Iterator[Trace]:
        """Trace what is called within a `with` statement."""
        self._trace, before = Trace(), sys.getprofile()
        sys.setprofile(self._follow)
        try:
            yield self._trace
        finally:
            sys.setprofile(before)
            self._trace = None

    def _follow(self, frame: FrameType, event: str, _: Any) -> None:
        trace = self._trace
        if trace is None or event != "call" or not frame.f_code.co_filename.startswith(self._folder):
            return
        trace.functions.add(frame.f_code)
        depth, above = 0, frame
        while above is not None:
            depth += above.f_code.co_filename.startswith(self._folder)
            above = above.f_back  # type: ignore[assignment]  # None above the first
        trace.depths.add(depth)


def typical(traces: Sequence[Trace]) -> Trace:
    """The trace with the median number of functions, of those after the warm-up."""
    counts = {len(each.functions): each for each in traces[WARM_UP:]}
    return counts[statistics.median_high(len(each.functions) for each in traces[WARM_UP:])]


def http(tracer: Tracer) -> tuple[Trace, Trace]:
    """A decision and its reward, through the application of a service with SQLite."""
    decisions, rewards = [], []
    with TemporaryDirectory() as folder, asking(f"{folder}/service.db") as client:
        for _ in range(WARM_UP + TIMES):
            time.sleep(PAUSE)
            with tracer.trace() as trace:
                decision = decide(client)
            decisions.append(trace)
            time.sleep(PAUSE)
            with tracer.trace() as trace:
                answer = client.put(f"/v1/decisions/{decision['decision_id']}/reward", json={"reward": 1.0})
            rewards.append(trace)
            assert answer.is_success, answer.text
    return typical(decisions), typical(rewards)


def release(tracer: Tracer) -> Trace:
    """A reward, the release that holds it, and a peer that learns from it; both members have SQLite."""
    traces, place = [], world(names=("org1", "org2"), agents=2)
    with TemporaryDirectory() as folder, ExitStack() as stack:

        def open_agent(name: str) -> fedfairx.Agent:
            agent = place.roster.terms.open_agent(name, Path(folder) / f"{name}.db")
            return stack.enter_context(closing(agent))

        sender, peer = (place.member(name, open_agent(name)) for name in ("org1", "org2"))
        for number in range(1, WARM_UP + TIMES + 1):
            decision = sender.agent.decide(CONTEXTS)
            with tracer.trace() as trace:
                sender.agent.observe(decision, reward=0.5)
                sender.send(sender.agent.release())
                peer.exchange()
                _ = peer.agent.estimate
            traces.append(trace)
            assert peer.agent.held["org1"].number == number
    return typical(traces)


def secure_exchange(tracer: Tracer) -> Trace:
    """The exchange in which one of four secure members, an opener with SQLite, makes and sends its row."""
    traces = []
    with TemporaryDirectory() as folder, ExitStack() as stack:
        rounds = Rounds(begin=BEGIN, first=10, ratio=1, count=WARM_UP + TIMES)
        place = secure_world(folder=Path(folder), rounds=rounds).start_all()
        for member in place.members.values():
            stack.enter_context(closing(member.agent))
            stack.callback(member.close)
        place.turn()
        one = place.members["org1"]
        for number in range(1, WARM_UP + TIMES + 1):
            work(one.agent, 1, seed=number)
            place.now = float(rounds.times[number - 1])
            with tracer.trace() as trace:
                one.exchange()
            traces.append(trace)
            assert (one.progress.sent, one.progress.opened) == (number, number - 1)
            place.turn()
            place.check_total(number)
    return typical(traces)


def calls() -> list[Row]:
    """One row for each of the four calls."""
    with Tracer() as tracer:
        decision, reward = http(tracer)
        return [
            decision.row("one decision over HTTP"),
            reward.row("one reward over HTTP"),
            release(tracer).row("observe, release, a peer's model"),
            secure_exchange(tracer).row("one exchange of a secure member"),
        ]


# --- the report -------------------------------------------------------------------------------------------


def table(rows: Sequence[Row]) -> str:
    """Rows as a table in Markdown."""
    lines = [[*rows[0]], ["---"] * len(rows[0])]
    for row in rows:
        lines.append(
            [cell if isinstance(cell, str) else f"{cell:,}".replace(",", " ") for cell in row.values()]
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON instead of Markdown")
    as_json = parser.parse_args(arguments).json
    report = {"rooms": rooms(), "calls": calls()}
    print(json.dumps(report, indent=1) if as_json else "\n\n".join(table(rows) for rows in report.values()))


if __name__ == "__main__":
    main()
