"""`python -m trisplit.harness` is the `lm_eval` command, which knows the model `trisplit` then."""

from __future__ import annotations

import sys

from trisplit.errors import Problem, RequestProblem


def main() -> None:
    """Runs the harness's command line; a Problem of ours becomes two lines on stderr and its exit code."""
    try:
        try:
            from lm_eval.__main__ import cli_evaluate

            import trisplit.harness.model  # noqa: F401 it makes itself known
        except ImportError as error:
            what = f"lm-evaluation-harness is not installed here: {error}"
            raise RequestProblem(what, fix="pip install 'trisplit[eval]'") from None
        cli_evaluate()
    except Problem as problem:
        print(f"error: {problem.what}\n  fix: {problem.fix}", file=sys.stderr)
        sys.exit(problem.exit_code)


if __name__ == "__main__":
    main()
