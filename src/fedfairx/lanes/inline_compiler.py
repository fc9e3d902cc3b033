"""Numba compilers: one for functions that Python calls, and one for functions that only compiled code calls.

Numba makes machine code of every function, and again of all its callees at each level of calls, which would
be most of the time until a first decision. Here the second compiler stops at LLVM's intermediate code. The
function that Python calls is linked with that of all its callees, at any depth, and the whole is optimised
and made into machine code once. Both leave out those passes of Numba that do nothing for stages.
"""

# mypy: allow-untyped-calls, allow-untyped-decorators, allow-subclassing-any

from __future__ import annotations

from typing import Any, ClassVar

from numba._dynfunc import make_function
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering

#: For closures, `with`, Python code that is inlined, literals, exceptions with data, expressions of arrays;
#: and passes that only check, or annotate for people.
NOT_FOR_STAGES = {
    "with_lifting",
    "inline_closure_likes",
    "make_function_op_code_to_jit_function",
    "Rewrite dynamic raises",
    "inline_inlinables",
    "find_literally",
    "literal_unroll",
    "LiteralPropagation",
    "inline_overloads",
    "nopython_rewrites",
    "nopython_supported_feature_validation",
    "annotate_types",
    "dump_parfor_diagnostics",
}


class Intermediate(JITCodeLibrary):
    """A library of intermediate code, which is linked with what calls it."""

    def finalize(self) -> None:
        """Neither link callees nor optimise: `Whole` does."""
        self._finalized = True


class Whole(JITCodeLibrary):
    """The library of a function that Python calls."""

    def finalize(self) -> None:
        """Link the libraries of all callees, each after all that call it, and make machine code.

        LLVM links a function only if what is linked already calls it, and a library that calls it may itself
        have been left out so.
        """
        order: dict[int, Any] = {}  # by identity; each after all that it calls
        waiting: list[tuple[Any, bool]] = [(library, False) for library in self._linking_libraries]
        while waiting:
            library, done = waiting.pop()
            if done:
                order[id(library)] = library
            elif id(library) not in order:
                waiting.append((library, True))
                if isinstance(library, Intermediate):
                    waiting += [(callee, False) for callee in library._linking_libraries]
        self._linking_libraries = list(reversed(order.values()))
        super().finalize()

    def _optimize_final_module(self) -> None:
        """Optimise once: Numba's first round only helps to remove counts of references, which there are none
        of."""
        passes, builder = self._codegen._module_pass_manager()
        passes.run(self._final_module, builder)


@register_pass(mutates_CFG=True, analysis_only=False)
class InnerLowering(NativeLowering):
    """Numba's lowering, into an `Intermediate`."""

    _name = "inner_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library = Intermediate(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        super().run_pass(state)
        function = state["cr"].fndesc
        # Callers look a function up by its Python object, which is never called: its address is 0.
        called = make_function(
            function.lookup_module(), function.qualname, "", 0, state["cr"].env, (state.library,)
        )
        state.targetctx.insert_user_function(called, function, [state.library])
        state["cr"] = state["cr"]._replace(cfunc=called)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class OuterLowering(NativeLowering):
    """Numba's lowering, into a `Whole`."""

    _name = "outer_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library = Whole(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        super().run_pass(state)
        return True


class OuterCompiler(Compiler):
    """The compiler of functions that Python calls."""

    lowering: ClassVar[Any] = OuterLowering
    _managers: ClassVar[dict[Any, Any]] = {}  # by lowering: making one takes longer than some passes

    def define_pipelines(self) -> Any:
        if self.lowering not in self._managers:
            (manager,) = super().define_pipelines()
            manager.add_pass_after(self.lowering, NativeLowering)
            left_out = {*NOT_FOR_STAGES, NativeLowering._name}
            manager.passes = [item for item in manager.passes if item[0]._name not in left_out]
            manager.finalize()
            self._managers[self.lowering] = manager
        return [self._managers[self.lowering]]


class InnerCompiler(OuterCompiler):
    """The compiler of functions that only compiled code calls."""

    lowering = InnerLowering
