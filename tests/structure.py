"""Measure the structure of the source against `structure.json`: `make structure`, which `make test` runs.

No measure may be above its limit. `--write` lowers limits to what is found and never raises one: a higher
limit is an edit of the file, with its reason in the commit.

- Tests of an axis: conditions that mention it. A condition is that of an `if`, `while`, `assert`, conditional
  expression, comprehension or case, or the first argument of `require`. It mentions an axis if one of the
  names in `AXES` is an operand of it, or is compared by `is`, `==` or `!=`. `a and b` is one condition.
- Methods of `Agent`, with properties.
- Functions of a call: those of the package that each of some traced calls enters, in any thread, after
  others of the same kind. Comprehensions, and what Numba compiled, are not seen.
- Types on a decision's way: dataclasses, Structs and NamedTuples of the package of which these calls make
  objects that their functions take, return or name, directly or inside others: a decision over HTTP, its
  reward, and reading it back.
- Own files and lines that README's first program loads.

Files, lines of code and value types of each package are printed only.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import io
import json
import os
import re
import subprocess
import sys
import threading
import time
import tokenize
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any

import msgspec

import fedfairx
from fedfairx.federation.roster.rounds import Rounds

sys.path.insert(0, str(Path(__file__).resolve().parent / "support"))
from member_helpers import BEGIN, work, world
from secure_helpers import secure_world
from service_helpers import CONTEXTS, asking, decide

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path(fedfairx.__file__).parent
FILE = Path(__file__).with_suffix(".json")
KINDS = {"dataclass", "Struct", "NamedTuple", "TypedDict"} | {"msgspec.Struct", "dataclasses.dataclass"}
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
WARM_UP, TIMES = 10, 5  # calls before those that are traced, and those
PAUSE = 0.02  # seconds; a call sooner after another would not check the database's lock again

AXES = {
    "several processes": {"replica", "leases"},
    "names or features": {"actions", "all_actions", "schema", "features", "names", "shown_names", "by_name"},
    "one slot or several": {"ONE", "slots", "several"},
    "private or exact": {"private", "is_private", "privatizer", "stream"},
    "plain or secure": {"secure", "SECURE", "PLAIN", "share"},
}


# --- the source -------------------------------------------------------------------------------------------


def conditions(tree: ast.Module) -> Iterator[ast.expr]:
    """The conditions of a module; that of a `case` with what is matched."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
            yield node.test
        elif isinstance(node, ast.comprehension):
            yield from node.ifs
        elif isinstance(node, ast.Match):
            yield node.subject
            yield from (case.guard for case in node.cases if case.guard is not None)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "require":
            yield node.args[0]


def tested(condition: ast.expr) -> Iterator[str]:
    """The last names of what a condition takes as true or false, or compares by `is`, `==` or `!=`."""
    if isinstance(condition, ast.BoolOp):
        for each in condition.values:
            yield from tested(each)
    elif isinstance(condition, ast.UnaryOp):
        yield from tested(condition.operand)
    elif isinstance(condition, ast.Compare):
        if isinstance(condition.ops[0], ast.Is | ast.IsNot | ast.Eq | ast.NotEq):
            for each in (condition.left, *condition.comparators):
                yield from tested(each)
    elif isinstance(condition, ast.Name | ast.Attribute):
        yield condition.id if isinstance(condition, ast.Name) else condition.attr


def axes(trees: list[ast.Module]) -> dict[str, int]:
    """How many tests of each axis there are."""
    names = [{*tested(each)} for tree in trees for each in conditions(tree)]
    return {f"tests: {axis}": sum(bool(words & each) for each in names) for axis, words in AXES.items()}


def methods_of_agent(trees: list[ast.Module]) -> int:
    classes = [node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    (agent,) = (each for each in classes if each.name == "Agent")
    return sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in agent.body)


def packages() -> str:
    """Files, lines of code and value types of each top-level package, which have no limit."""
    counts: dict[str, Counter[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        text, room = path.read_text("utf-8"), path.relative_to(PACKAGE).parts[0]
        tree = ast.parse(text)
        strings = [node for node in ast.walk(tree) if isinstance(node, ast.Expr) and is_text(node.value)]
        documents = {row for node in strings for row in range(node.lineno, (node.end_lineno or 0) + 1)}
        tokens = [t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type not in LAYOUT]
        rows = {row for token in tokens for row in range(token.start[0], token.end[0] + 1)}
        types = 0
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                above = {ast.unparse(each).partition("(")[0] for each in (*node.bases, *node.decorator_list)}
                types += bool(above & KINDS)
        here = {"files": 1, "lines of code": len(rows - documents), "value types": types}
        for name in (room if room.find(".") < 0 else "*.py", "all"):
            counts.setdefault(name, Counter()).update(here)
    return "\n".join(
        f"{name:12} " + ", ".join(f"{count:,} {what}" for what, count in counts[name].items())
        for name in sorted(counts)
    )


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def first_program() -> dict[str, int]:
    """Own files and lines that the README's first program loads."""
    (program, *_) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    after = "import sys\nfor name, module in sorted(sys.modules.items()):\n"
    after += "    if name.partition('.')[0] == 'fedfairx': print('loaded', module.__file__)\n"
    ran = subprocess.run([sys.executable, "-c", program + after], capture_output=True, text=True, check=True)
    files = [line.split(" ", 1)[1] for line in ran.stdout.splitlines() if line.startswith("loaded ")]
    lines = sum(len(Path(file).read_text("utf-8").splitlines()) for file in files)
    return {"first program: files": len(files), "first program: lines": lines}


# --- calls ------------------------------------------------------------------------------------------------


class Trace:
    """The functions of the package that a call enters, and the values of its types that they handle."""

    def __init__(self) -> None:
        self.functions: set[CodeType] = set()
        self.values: dict[int, Any] = {}  # by id, and kept, so that no id is used twice

    def handle(self, value: Any, depth: int = 4) -> None:
        """Note a value, and those inside it."""
        kind = type(value)
        own = kind.__module__.partition(".")[0] == PACKAGE.name
        if id(value) in self.values or not depth or not (own or kind in (list, tuple, dict)):
            return
        if dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct) or hasattr(kind, "_fields"):
            self.values[id(value)] = value
            names = getattr(kind, "__dataclass_fields__", None) or getattr(kind, "__struct_fields__", ())
            inside = [*value] if isinstance(value, tuple) else [getattr(value, name, None) for name in names]
        else:
            inside = [*value.values()] if kind is dict else [*value] if kind in (list, tuple) else []
        for each in inside[:16]:
            self.handle(each, depth - 1)


class Tracer:
    """Follows calls into the package, in the thread that traces them and in those that start within it.

    Other threads that run already can't be followed, so it is entered before there is a service.
    """

    def __init__(self) -> None:
        self._folder = str(PACKAGE) + os.sep
        self._trace: Trace | None = None

    def __enter__(self) -> Tracer:
        threading.setprofile(self._follow)
        return self

    def __exit__(self, *_: object) -> None:
        threading.setprofile(None)

    @contextmanager
    def trace(self) -> Iterator[Trace]:
        """Trace what is called within a `with` statement."""
        self._trace = trace = Trace()
        sys.setprofile(self._follow)
        try:
            yield trace
        finally:
            sys.setprofile(None)
            self._trace = None

    def _follow(self, frame: FrameType, event: str, result: Any) -> None:
        trace, code = self._trace, frame.f_code
        if trace is None or event not in ("call", "return") or not code.co_filename.startswith(self._folder):
            return
        if code.co_name not in ("<listcomp>", "<setcomp>", "<dictcomp>"):  # Python 3.12 has none
            trace.functions.add(code)
        for value in [*frame.f_locals.values(), result]:
            trace.handle(value)


def functions(traces: list[Trace]) -> int:
    """How many functions each of the calls enters after the warm-up."""
    return len(set.intersection(*(each.functions for each in traces[WARM_UP:])))


def types(traces: list[Trace]) -> set[type]:
    """The types of which each call after the warm-up makes objects that the calls before do not have."""
    found, before = [], set[int]()
    for number, trace in enumerate(traces):
        if number >= WARM_UP:
            found.append({type(value) for key, value in trace.values.items() if key not in before})
        before |= trace.values.keys()
    return set.intersection(*found)


def http(tracer: Tracer) -> tuple[dict[str, int], set[type]]:
    """A decision, its reward, and reading it back, through the application of a service with SQLite."""
    decisions, rewards, read = [], [], []
    with TemporaryDirectory() as folder, asking(f"{folder}/service.db") as client:
        for _ in range(WARM_UP + TIMES):
            time.sleep(PAUSE)
            with tracer.trace() as trace:
                path = f"/v1/decisions/{decide(client)['decision_id']}"
            decisions.append(trace)
            time.sleep(PAUSE)
            with tracer.trace() as trace:
                client.put(f"{path}/reward", json={"reward": 1.0}).raise_for_status()
            rewards.append(trace)
            time.sleep(PAUSE)
            with tracer.trace() as trace:
                assert client.get(path).raise_for_status().json()["reward"] == 1.0
            read.append(trace)
    counts = {"one decision over HTTP": functions(decisions), "one reward over HTTP": functions(rewards)}
    return counts, types(decisions) | types(rewards) | types(read)


def release(tracer: Tracer) -> int:
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
    return functions(traces)


def secure_exchange(tracer: Tracer) -> int:
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
    return functions(traces)


def measure() -> tuple[dict[str, int], set[type]]:
    """All that has a limit, and the types on a decision's way."""
    trees = [ast.parse(path.read_text("utf-8")) for path in sorted(PACKAGE.rglob("*.py"))]
    with Tracer() as tracer:
        calls, on_the_way = http(tracer)
        calls["observe, release, a peer's model"] = release(tracer)
        calls["one exchange of a secure member"] = secure_exchange(tracer)
    found = axes(trees) | {"methods of Agent": methods_of_agent(trees)}
    found |= {"types on a decision's way": len(on_the_way)} | first_program()
    return found | {f"functions: {call}": count for call, count in calls.items()}, on_the_way


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="lower limits to what is found; none is raised")
    write = parser.parse_args().write
    found, on_the_way = measure()
    limits = json.loads(FILE.read_text("utf-8")) if FILE.exists() else found
    for _ in range(2):  # on a busy machine, what other threads do may fall into each of the calls
        if any(count > limits.get(name, -1) for name, count in found.items()):
            found = {name: min(count, found[name]) for name, count in measure()[0].items()}
    if write:
        limits = {name: min(count, limits.get(name, count)) for name, count in found.items()}
        FILE.write_text(json.dumps(limits, indent=1) + "\n", "utf-8")
    print(packages())
    print("\nOn a decision's way:", ", ".join(sorted(each.__name__ for each in on_the_way)), end="\n\n")
    for name, count in found.items():
        limit = limits.get(name, -1)
        print(f"{name:46} {count:6} of {limit}" + ("  TOO MANY" if count > limit else ""))
    if any(count < limits.get(name, -1) for name, count in found.items()):
        print("\nSome are below their limits: `python tests/structure.py --write` lowers these.")
    above = [name for name, count in found.items() if count > limits.get(name, -1)]
    if above or found.keys() != limits.keys():
        print(
            f"\nAbove the limits of {FILE.name}, or not in it: {', '.join(above) or 'names that are gone'}."
        )
        print("Take something out; or raise the limit by hand, with the reason in the commit.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
