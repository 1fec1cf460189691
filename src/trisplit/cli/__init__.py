"""The one place where parts are put together: commands parse, build parts, call one spine, print."""

from trisplit.cli.app import main

__all__ = ["main"]
