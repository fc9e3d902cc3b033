"""Single changes of a source file, from its syntax tree: what `mutants.py` tries out.

A mutant replaces the text of one node, or of one operator, and leaves the rest of the file as it is. Left out
is what no test should notice: annotations, decorators, imports, texts of errors, `repr`, f-strings, logging.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any

KINDS = ("comparison", "sign", "constant", "dropped statement", "swapped arguments", "off by one")

COMPARISONS: dict[type[ast.cmpop], tuple[str, ...]] = {
    ast.Lt: ("<=", ">="),
    ast.LtE: ("<", ">"),
    ast.Gt: (">=", "<="),
    ast.GtE: (">", "<"),
    ast.Eq: ("!=",),
    ast.NotEq: ("==",),
    ast.Is: ("is not",),
    ast.IsNot: ("is",),
    ast.In: ("not in",),
    ast.NotIn: ("in",),
}
COMPARISON = rb"not\s+in|is\s+not|in|is|[<>=!]=|[<>]"
OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.Mod: "*",
    ast.Pow: "*",
    ast.BitAnd: "|",
    ast.BitOr: "&",
    ast.LShift: ">>",
    ast.RShift: "<<",
}
OPERATOR = rb"\*\*|//|<<|>>|[-+*/%&|]"

#: Methods that only make text.
TEXTS = {"__repr__", "__str__", "_repr_html_"}
#: Keywords that change no result, or that only type checkers and readers see.
COSMETIC = {
    "strict",
    "copy",
    "repr",
    "daemon",
    "maxsize",
    "stacklevel",
    "indent",
    "ensure_ascii",
    "sort_keys",
}
#: Calls whose arguments are types or text.
DECLARATIONS = {"TypeVar", "ParamSpec", "NewType", "warn", "field", "namedtuple"}
#: Calls that don't depend on the order of the first two arguments, or fail at once if it is wrong.
COMMUTATIVE = {
    "max",
    "min",
    "maximum",
    "minimum",
    "larger",
    "smaller",
    "fma",
    "inner",
    "array_equal",
    "isinstance",
    "issubclass",
    "cast",
}
LOGGERS = {"LOG", "LOGGER"}
#: A smaller number is a tolerance: twice as much of it is as good.
TOLERANCE = 1e-6

MODULE = "<module>"


@dataclass(frozen=True)
class Mutant:
    """In `file` (relative to the package), the bytes from `start` to `end` become `new`."""

    file: str
    function: str  # qualified, of the outermost function; a class where it is in none; or <module>
    kind: str
    line: int
    start: int
    end: int
    new: str
    change: str  # the expression or statement before and after
    number: int = 0  # among the same changes of the same function

    @property
    def id(self) -> str:
        """A name that stays the same while the function does."""
        text = f"{self.function}\0{self.kind}\0{self.change}\0{self.number}"
        return f"{self.file}:{hashlib.sha256(text.encode()).hexdigest()[:8]}"

    def apply(self, source: bytes) -> bytes:
        """The file with the change."""
        return source[: self.start] + self.new.encode() + source[self.end :]


def mutants_of(file: str, source: bytes) -> list[Mutant]:
    """All mutants of a file, in the order of their places."""
    finder = _Finder(file, source)
    finder.visit(ast.parse(source), None, MODULE)
    times: Counter[tuple[str, str, str]] = Counter()
    mutants = []
    for each in sorted(finder.mutants, key=lambda mutant: (mutant.start, mutant.end, mutant.new)):
        same = each.function, each.kind, each.change
        mutants.append(replace(each, number=times[same]))
        times[same] += 1
    return mutants


class _Finder:
    def __init__(self, file: str, source: bytes) -> None:
        self.file, self.source = file, source
        self.lines = [0, *(match.end() for match in re.finditer(b"\n", source))]
        self.mutants: list[Mutant] = []
        self.bounds: dict[ast.AST, int] = {}  # what indexes, with the step that makes it off by one
        self.bindings: Counter[str] = Counter()  # how often the function binds each name

    def span(self, node: Any) -> tuple[int, int]:
        """Offsets of its first byte and after its last."""
        return self.lines[node.lineno - 1] + node.col_offset, self.lines[
            node.end_lineno - 1
        ] + node.end_col_offset

    def text(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self.source[start:end].decode()

    def add(self, kind: str, function: str, whole: Any, new: str, start: int, end: int) -> None:
        """One mutant; `whole` is the expression or statement that shows the change to a reader."""
        first, last = self.span(whole)
        changed = self.source[first:start].decode() + new + self.source[end:last].decode()
        change = " ".join(f"{self.text(whole)} -> {changed}".split())
        line = self.source.count(b"\n", 0, start) + 1
        self.mutants.append(Mutant(self.file, function, kind, line, start, end, new, change))

    def add_operator(
        self, kind: str, function: str, whole: ast.AST, left: ast.AST, right: ast.AST, token: bytes, new: str
    ) -> None:
        """The operator between two operands becomes another."""
        start, end = self.span(left)[1], self.span(right)[0]
        match = re.search(token, self.source[start:end])
        if match and b"#" not in self.source[start:end]:
            self.add(kind, function, whole, new, start + match.start(), start + match.end())

    def visit(self, node: ast.AST, parent: Any, function: str) -> None:
        """Add the mutants of a node and of all below it."""
        if function == MODULE or isinstance(parent, ast.ClassDef | ast.Module):
            function = _name(node, function)
            self.bindings = _bindings(node) if _is_function(node) else Counter()
        self.change(node, parent, function)
        for child in _children(node):
            self.visit(child, node, function)

    def change(self, node: Any, parent: Any, function: str) -> None:
        match node:
            case ast.Compare():
                for (left, right), operator in zip(
                    pairwise([node.left, *node.comparators]), node.ops, strict=True
                ):
                    for new in COMPARISONS[type(operator)]:
                        self.add_operator("comparison", function, node, left, right, COMPARISON, new)
            case ast.BoolOp():
                new = "or" if isinstance(node.op, ast.And) else "and"
                for left, right in pairwise(node.values):
                    self.add_operator("sign", function, node, left, right, rb"\b(and|or)\b", new)
            case ast.BinOp() if (
                type(node.op) in OPERATORS and not _is_text(node.left) and not _is_text(node.right)
            ):
                if not (isinstance(node.op, ast.BitOr) and not self.bindings):  # a type
                    new = OPERATORS[type(node.op)]
                    self.add_operator("sign", function, node, node.left, node.right, OPERATOR, new)
            case ast.AugAssign() if type(node.op) in OPERATORS and not _is_text(node.value):
                new = OPERATORS[type(node.op)] + "="
                self.add_operator("sign", function, node, node.target, node.value, OPERATOR + b"=", new)
            case ast.UnaryOp(op=ast.USub() | ast.Not()):
                start = self.span(node)[0]
                width = 1 if isinstance(node.op, ast.USub) else len("not")
                self.add("sign", function, node, "", start, start + width)
            case ast.Constant():
                self.change_constant(node, parent, function)
            case ast.Call():
                self.change_call(node, function)
            case ast.Subscript():
                for each in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
                    if isinstance(each, ast.Slice):
                        self.change_bound(each.lower, node, function, 1)
                        self.change_bound(each.upper, node, function, -1)
                    elif isinstance(each, ast.Constant):
                        self.bounds[each] = 1
            case ast.If() | ast.While() | ast.IfExp() if self.bindings:
                if isinstance(node.test, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
                    start, end = self.span(node.test)
                    self.add("comparison", function, node.test, f"not {self.text(node.test)}", start, end)
        if self.bindings and isinstance(node, ast.stmt) and self.is_droppable(node, parent):
            self.add("dropped statement", function, node, "pass", *self.span(node))

    def change_constant(self, node: ast.Constant, parent: Any, function: str) -> None:
        value: Any = node.value
        whole = parent if isinstance(parent, ast.expr | ast.Assign | ast.AnnAssign | ast.Return) else node
        if isinstance(value, bool):
            self.add("constant", function, whole, str(not value), *self.span(node))
        elif isinstance(value, int):
            kind = "off by one" if node in self.bounds else "constant"
            self.add(kind, function, whole, str(value + self.bounds.get(node, 1)), *self.span(node))
        elif isinstance(value, float) and (value == 0 or abs(value) >= TOLERANCE):
            self.add("constant", function, whole, repr(2 * value if value else 1.0), *self.span(node))

    def change_call(self, node: ast.Call, function: str) -> None:
        name, arguments = _called(node), node.args
        if name == "range" and arguments:
            self.change_bound(arguments[min(1, len(arguments) - 1)], node, function, -1)
            if len(arguments) > 1:
                self.change_bound(arguments[0], node, function, 1)
        if name in COMMUTATIVE | DECLARATIONS or len(arguments) < 2:
            return
        if any(isinstance(each, ast.Starred | ast.GeneratorExp) for each in arguments[:2]):
            return
        (start, after), (before, end) = self.span(arguments[0]), self.span(arguments[1])
        first, second = self.text(arguments[0]), self.text(arguments[1])
        if first != second:
            swapped = second + self.source[after:before].decode() + first
            self.add("swapped arguments", function, node, swapped, start, end)

    def change_bound(self, bound: ast.expr | None, whole: ast.expr, function: str, step: int) -> None:
        if isinstance(bound, ast.UnaryOp) and isinstance(bound.operand, ast.Constant):
            self.bounds[bound.operand] = 1
        elif isinstance(bound, ast.Constant):
            self.bounds[bound] = step
        elif bound is not None and not isinstance(bound, ast.Starred):
            plain = isinstance(bound, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
            text = self.text(bound) if plain else f"({self.text(bound)})"
            self.add(
                "off by one",
                function,
                whole,
                f"{text} {step:+d}".replace("+", "+ ").replace(" -", " - "),
                *self.span(bound),
            )

    def is_droppable(self, node: ast.stmt, parent: Any) -> bool:
        """Whether the function still runs without it: a name that nothing else binds would be missing."""
        match node:
            case ast.Expr(value=ast.Constant()):
                return False
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))) if name in LOGGERS:
                return False
            case (
                ast.Assign(targets=[ast.Name(id=name)])
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr())
            ):
                return self.bindings[name] > 1
            case ast.Assign(targets=[ast.Tuple(elts=names)]):
                return all(isinstance(each, ast.Name) and self.bindings[each.id] > 1 for each in names)
            case ast.Return() | ast.Continue() | ast.Break():
                return not _is_function(parent)  # what follows is run instead
            case ast.AnnAssign(value=None):
                return False
        return isinstance(
            node, ast.Expr | ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Raise | ast.Delete
        )


def _name(node: ast.AST, outer: str) -> str:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return outer
    return node.name if outer == MODULE else f"{outer}.{node.name}"


def _is_function(node: object) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _bindings(function: ast.AST) -> Counter[str]:
    """How often a function binds each name, its own included, so that it is never empty."""
    names = [
        each.id
        for each in ast.walk(function)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    ]
    arguments = [each.arg for each in ast.walk(function) if isinstance(each, ast.arg)]
    return Counter([*names, *arguments, getattr(function, "name", "")])


def _children(node: Any) -> Iterator[ast.AST]:
    """The children whose changes tests should notice."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            overload = any(
                isinstance(each, ast.Name) and each.id == "overload" for each in node.decorator_list
            )
            if node.name not in TEXTS and not overload:
                yield from (each for each in chain(node.args.defaults, node.args.kw_defaults) if each)
                yield from node.body
        case ast.ClassDef():
            yield from node.body
        case ast.AnnAssign():
            if node.value:
                yield node.value
        case ast.Assign(targets=[ast.Name(id="__slots__" | "__all__" | "__match_args__")]):
            return
        case ast.JoinedStr() | ast.Raise() | ast.Assert() | ast.Import() | ast.ImportFrom() | ast.pattern():
            return
        case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Compare(left=ast.Name(id="__name__"))):
            return
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))) if name in LOGGERS:
            return
        case ast.Call():
            name = _called(node)
            if name not in DECLARATIONS:
                yield node.func
                yield from {"cast": node.args[1:], "isinstance": node.args[:1]}.get(name, node.args)
                yield from (each.value for each in node.keywords if each.arg not in COSMETIC)
        case _:
            yield from ast.iter_child_nodes(node)
