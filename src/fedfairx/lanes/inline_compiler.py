"""A Numba compiler that stops at LLVM's intermediate code, for functions that only compiled code calls.

Numba makes machine code of every function, and again of all its callees at each level of calls, which would
be most of the time until a first decision. Here the function that Python calls contains the intermediate code
of all callees, and the whole is optimised and made into machine code once.
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
    """A library of intermediate code, for callers to link."""

    def _optimize_final_module(self) -> None:
        """Do nothing: the caller's library is optimised."""

    def _finalize_final_module(self) -> None:
        """Do nothing: no machine code is made."""
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class Lowering(NativeLowering):
    """Numba's lowering, into a `Library`."""

    _name = "inner_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library = Library(state.targetctx.codegen(), state.func_id.func_qualname)
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


class InnerCompiler(Compiler):
    """Numba's passes with another last one."""

    def define_pipelines(self) -> Any:
        (manager,) = super().define_pipelines()
        manager.add_pass_after(Lowering, NativeLowering)
        manager.passes = [step for step in manager.passes if step[0] is not NativeLowering]
        manager.finalize()
        return [manager]
