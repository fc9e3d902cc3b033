"""Decorators that compile functions over lanes, and the cache of their machine code.

Numba's own file cache looks at one source file at a time, so that a function whose callee changed in
another file would be loaded stale. Here the cache folder's name is a digest of every compiled source of
the package: a changed line means another folder, never old machine code. Nothing in it depends on where the
package lies, so that all installations and checkouts of the same source share it.

No `fastmath`: a lane's result must not depend on its place in the block or on the number of lanes, so
that the same seed gives the same bytes whatever the number of workers.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.core.compiler import Compiler
from numba.extending import typeof_impl

from fedfairx.lanes import rows_llvm, vector
from fedfairx.lanes.compile_hooks import install_compile_hooks
from fedfairx.lanes.inline_compiler import InnerCompiler, OuterCompiler
from fedfairx.util.file_lock import WaitingLock

#: Modules that register types with Numba when they are imported, before anything is compiled.
NUMBERS = (vector, rows_llvm)
config: Any = numba.config  # numba.config makes its attributes at run time
caching: Any = numba.core.caching

Function = TypeVar("Function", bound=Callable[..., Any])

PACKAGE = Path(__file__).resolve().parent.parent
COMPILED_SOURCES = ("lanes", "core", "privacy", "simulation")
DAYS_KEPT = 30

#: True when Numba compiles; False under NUMBA_DISABLE_JIT=1, where the same source runs as plain Python.
COMPILING = not config.DISABLE_JIT


@functools.cache
def cache_folder() -> str | None:
    """The cache folder of this source digest; None when no folder is writable."""
    digest = hashlib.sha256(numba.__version__.encode())
    for folder in COMPILED_SOURCES:
        for source in sorted((PACKAGE / folder).rglob("*.py")):
            digest.update(str(source.relative_to(PACKAGE)).encode() + b"\0" + source.read_bytes())
    base = os.environ.get("NUMBA_CACHE_DIR") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache"), "fedfairx"
    )
    folder_path = os.path.join(base, f"fedfairx-{digest.hexdigest()[:16]}")
    try:
        new = not os.path.isdir(folder_path)
        os.makedirs(folder_path, exist_ok=True)
        os.utime(folder_path)  # says that it is used
        if new:
            remove_unused(base)
    except OSError:
        return None
    return folder_path if os.access(folder_path, os.W_OK) else None


@functools.cache
def _listen() -> None:
    """Install the compile hooks, once for a process."""
    install_compile_hooks(cache_folder())


def remove_unused(base: str) -> None:
    """Remove machine code that has not been used for `DAYS_KEPT` days."""
    for folder in Path(base).glob("fedfairx-*"):
        with contextlib.suppress(OSError):  # another process may be at it too
            if time.time() - folder.stat().st_mtime > DAYS_KEPT * 86_400:
                shutil.rmtree(folder)


class _Locator(caching._CacheLocator):  # type: ignore[misc]
    """The place of a function's machine code in the cache folder."""

    def __init__(self, function: FunctionType, source: Path) -> None:
        self._line = function.__code__.co_firstlineno
        self._folder = Path(cast(str, cache_folder()))
        if source.is_relative_to(PACKAGE):
            self._stamp = ""  # the folder's name is the digest of the source
            self._folder /= source.parent.relative_to(PACKAGE)
        else:
            self._stamp = hashlib.sha256(source.read_bytes()).hexdigest()
            self._folder /= self.get_suitable_cache_subpath(str(source))

    @classmethod
    def from_function(cls, py_func: FunctionType, py_file: str) -> _Locator | None:
        """Return the place, or None for a function without a source file."""
        source = Path(py_file).resolve()
        return cls(py_func, source) if source.exists() else None

    def get_cache_path(self) -> str:
        """Return the folder."""
        return str(self._folder)

    def get_source_stamp(self) -> str:
        """Return what changes with the source."""
        return self._stamp

    def get_disambiguator(self) -> str:
        """Return what tells apart functions of one name in one file."""
        return str(self._line)


class _Place(caching.CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = [_Locator, *caching.CompileResultCacheImpl._locator_classes]  # noqa: RUF012


class _Cache(caching.FunctionCache):  # type: ignore[misc]
    """The machine code of a function on disk. One process compiles it, and others wait for that one."""

    _impl_class = _Place

    def __init__(self, function: FunctionType, *, allocates: bool) -> None:
        super().__init__(function)
        self._allocates = allocates
        self._lock: WaitingLock | None = None

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the machine code for these types; None if it must be compiled, which then is locked.

        Numba first imports all that it can compile, SciPy's linear algebra included. That takes half a
        second, and only compiling and machine code that allocates need it.
        """
        if self._allocates:
            target_context.refresh()
        with self._guard_against_spurious_io_errors():
            loaded = self._load_overload(sig, target_context)
            if loaded is None and self._lock is None:
                os.makedirs(self.cache_path, exist_ok=True)
                self._lock = WaitingLock(Path(self._cache_file._index_path).with_suffix(".lock"))
                loaded = self._load_overload(sig, target_context)
                if loaded is not None:
                    self.free()
            return loaded

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the machine code for these types."""
        try:
            super().save_overload(sig, data)
        finally:
            self.free()

    def free(self) -> None:
        """Let other processes compile."""
        if self._lock is not None:
            self._lock.free()
            self._lock = None


def _compile(function: Function, **more: Any) -> Function:
    if not COMPILING:  # machine code doesn't warn where a number overflows: it wraps around, or is infinite
        quiet: Function = np.errstate(all="ignore")(function)
        return quiet
    _listen()
    keep = more.pop("cache", True) and cache_folder() is not None
    more["no_cfunc_wrapper"] = True  # what C calls, `callback.Pointer`, is not compiled here
    more.setdefault("pipeline_class", OuterCompiler)
    compiled: Any = numba.njit(error_model="numpy", **more)(function)
    if keep:
        compiled._cache = _Cache(cast(FunctionType, function), allocates=more["_nrt"])
    return cast(Function, compiled)


class _Inner:
    """A function that is inlined into compiled callers; Python calls a separately compiled copy."""

    def __init__(
        self, function: Callable[..., Any], called: Callable[[], Callable[..., Any]], *, forced: bool = False
    ) -> None:
        functools.update_wrapper(self, function)
        self.py_func, self._forced = function, forced
        self._called = functools.cache(called)

    @functools.cached_property
    def inside(self) -> Any:
        """What callers are compiled with; made for the first of them, so not where all is cached."""
        # It is not cached on disk: its callers' machine code contains it. `forceinline` is always set,
        # because a function without it takes its caller's.
        return _compile(
            self.py_func,
            cache=False,
            no_cpython_wrapper=True,
            forceinline=self._forced,
            _nrt=False,
            pipeline_class=InnerCompiler,
        )

    def __call__(self, *arguments: Any) -> Any:
        return self._called()(*arguments)


@typeof_impl.register(_Inner)
def _typeof_inner(value: _Inner, context: Any) -> Any:
    return typeof_impl(value.inside, context)


def stage(function: Function) -> Function:
    """A function over lanes that compiled code calls and inlines (see `inline_compiler`).

    Nesting costs nothing: the compiler decides what to inline and what to call. A call from Python, as in
    tests, compiles a copy.
    """
    return _stage(function, forced=False)


def body(function: Function) -> Function:
    """A stage that is the whole body of a loop: always inlined.

    Passing tuples of many arrays at each call would take a tenth of a round.
    """
    return _stage(function, forced=True)


def _stage(function: Function, *, forced: bool) -> Function:
    def for_python() -> Function:
        twin = FunctionType(
            function.__code__, function.__globals__, closure=function.__closure__, name=function.__name__
        )
        twin.__module__ = function.__module__
        twin.__qualname__ = f"{function.__qualname__}_for_python"  # machine code is kept by name
        return compiled(cast(Function, twin))

    return cast(Function, _Inner(function, for_python, forced=forced)) if COMPILING else _compile(function)


def compiled(function: Function) -> Function:
    """A function that Python calls.

    IEEE division, cached by the digest of the source. It may neither allocate nor return arrays, so that
    references need not be counted, which would cost more than the arithmetic. It keeps the GIL: releasing and
    taking it back takes longer than some microseconds of work.
    """
    return _compile(function, _nrt=False)


def releasing(function: Function) -> Function:
    """`compiled` for a function that may take longer: it releases the GIL."""
    return _compile(function, _nrt=False, nogil=True)


def allocating(function: Function) -> Function:
    """`releasing` for a function that allocates or returns arrays: by Numba's own compiler."""
    return _compile(function, _nrt=True, nogil=True, pipeline_class=Compiler)


def layout(function: Function) -> Function:
    """A stage that lays out memory in flat rows; `rows.size_of` measures it.

    Python calls it uncompiled, because compiled code can't return rows.
    """
    return cast(Function, _Inner(function, lambda: function)) if COMPILING else function
