"""The one place where parts are put together: commands parse, build parts, call one spine, print."""

from __future__ import annotations

import sys

from trisplit.errors import Problem


def main() -> None:
    """Runs the command line. A script alone takes a way of its own, which loads little."""
    if sys.argv[1:2] == ["run"]:
        try:
            from trisplit.cli.quick import answered

            exit_code = answered(sys.argv[2:])
        except KeyboardInterrupt:
            sys.exit(130)
        except (Problem, OSError) as error:
            from trisplit.cli.app import end_with

            end_with(error)
        if exit_code is not None:
            sys.exit(exit_code)
    from trisplit.cli.app import main as whole

    whole()
