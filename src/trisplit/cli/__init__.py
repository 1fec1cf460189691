"""The one place where parts are put together: commands parse, build parts, call one spine, print."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command line. What was printed before takes a way of its own, which loads little."""
    if sys.argv[1:2] == ["run"]:
        try:
            from trisplit.cli.quick import printed

            if printed(sys.argv[2:]):
                return
        except KeyboardInterrupt:
            sys.exit(130)
    from trisplit.cli.app import main as whole

    whole()
