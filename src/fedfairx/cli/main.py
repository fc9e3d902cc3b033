"""The command line: the entry point, errors and interruptions. Each command is a file beside it."""

from __future__ import annotations

import argparse
import atexit
import gc
import os
import pkgutil
import sys
from collections.abc import Sequence
from typing import NoReturn

from fedfairx import __version__
from fedfairx.cli.common import VerbParser, print_help
from fedfairx.errors import FedFairXError, MissingLibrary

#: The class of each command by group, imported when the parser is made.
VERBS = {
    "See it run": {"demo": "cli.demo:Demo"},
    "Services": {
        "serve": "cli.serve:Serve",
        "keys": "cli.keys:Keys",
        "verify": "cli.verify:Verify",
        "rollback": "cli.rollback:RollBack",
        "warm": "cli.warm:Warm",
    },
    "Federations and privacy": {
        "federate": "cli.federate:Federate",
        "privacy": "cli.privacy:PrivacyVerb",
        "audit": "cli.audit:Audit",
    },
    "Logs and simulations": {
        "evaluate": "cli.evaluate:Evaluate",
        "simulate": "cli.simulate:Simulate",
        "list": "cli.list:List",
    },
}
WIDEST = 9  # letters of a command
EXIT_REFUSED = 2
EXIT_INTERRUPTED = 130


def parser() -> VerbParser:
    """The parser of all commands; each adds its flags when it is used. Without a command it prints help."""
    top = VerbParser(
        prog="fedfairx",
        usage="fedfairx VERB [--flags]",
        epilog="`fedfairx VERB --help` shows the flags of a command, with examples.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action=_Version, nargs=0, help="print the version")
    top.set_defaults(run=lambda _: print_help(top))
    verbs = top.add_subparsers(dest="verb", metavar="VERB", prog="fedfairx", help=argparse.SUPPRESS)
    lines = ["Fair, private, federated contextual bandits."]
    for group, places in VERBS.items():
        lines += ["", f"{group}:"]
        for name, place in places.items():
            summary = pkgutil.resolve_name(f"fedfairx.{place}").add_to(verbs, name)
            lines.append(f"  {name:{WIDEST}}  {summary}")
    top.description = "\n".join(lines)
    return top


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        print(f"fedfairx {__version__}")
        parser.exit()


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 done, 1 failed, 2 refused, 130 interrupted."""
    args = parser().parse_args(argv)
    atexit.register(gc.freeze)  # collecting Numba's objects at exit takes long and gains nothing
    try:
        code: int = args.run(args)
    except KeyboardInterrupt:
        return _interrupted()
    except MissingLibrary as error:
        print(f"fedfairx: {error}", file=sys.stderr)
        return EXIT_REFUSED
    except ImportError as error:
        if error.name is None or error.name.startswith("fedfairx"):
            raise
        print(f"fedfairx: this needs {error.name}: pip install 'fedfairx[frames]'", file=sys.stderr)
        return EXIT_REFUSED
    except FedFairXError as error:
        print(f"fedfairx: {error}", file=sys.stderr)
        return EXIT_REFUSED
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _interrupted() -> NoReturn:
    print("fedfairx: stopped", file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(EXIT_INTERRUPTED)  # threads inside a compiled kernel would keep the process alive


if __name__ == "__main__":
    sys.exit(main())
