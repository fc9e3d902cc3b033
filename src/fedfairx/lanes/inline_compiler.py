"""How functions that only compiled code calls are compiled: to LLVM's intermediate code, and no further.

Numba makes machine code of every function, and again of all that it calls, at each level of calls: most of
what a first decision would wait for, and of no use to anybody. Here the function that Python calls takes in
all below it, and only then is the whole optimised and made into machine code, once.
"""

# mypy: allow-untyped-calls, allow-untyped-decorators, allow-subclassing-any

from __future__ import annotations

from typing import Any

from numba._dynfunc import make_function
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering


class Library(JITCodeLibrary):
    """Intermediate code for callers to take in."""

    def _optimize_final_module(self) -> None:
        """Whoever takes it in does."""

    def _finalize_final_module(self) -> None:
        """No machine code."""
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class Lowering(NativeLowering):
    """Numba's way to intermediate code, into a library of that kind."""

    _name = "inner_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library = Library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        super().run_pass(state)
        function = state["cr"].fndesc
        # Callers find a function by the object that Python would call; nobody does, so its address is 0.
        called = make_function(
            function.lookup_module(), function.qualname, "", 0, state["cr"].env, (state.library,)
        )
        state.targetctx.insert_user_function(called, function, [state.library])
        state["cr"] = state["cr"]._replace(cfunc=called)
        return True


class InnerCompiler(Compiler):
    """Numba's passes, the last one exchanged."""

    def define_pipelines(self) -> Any:
        (manager,) = super().define_pipelines()
        manager.add_pass_after(Lowering, NativeLowering)
        manager.passes = [step for step in manager.passes if step[0] is not NativeLowering]
        manager.finalize()
        return [manager]
