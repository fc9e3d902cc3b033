"""Another process without the start of an interpreter, forked before there is anything it could share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def elsewhere(work: Callable[[], object]) -> Iterator[Callable[[], str]]:
    """A function that lets the process, which is forked now, do `work`: the result or the error, as text."""
    asked, ask = os.pipe()
    said, say = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(ask)
            if os.read(asked, 1):
                try:
                    answer = str(work())
                except Exception as error:
                    answer = f"{type(error).__name__}: {error}"
                os.write(say, answer.encode())
        finally:
            os._exit(0)
    os.close(asked)
    os.close(say)

    def run() -> str:
        os.write(ask, b"1")
        with os.fdopen(said, closefd=False) as file:
            return file.read()

    try:
        yield run
    finally:
        os.close(ask)
        os.close(said)
        os.waitpid(child, 0)
