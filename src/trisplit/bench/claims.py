"""What the origin states, what our commands say to it, and the verdict: data, as a table and as a page."""

from __future__ import annotations

from importlib.resources import files
from typing import Literal

import msgspec

from trisplit.table import Table

NOT_MEASURED = "not measured yet"

Verdict = Literal["holds", "holds in part", "does not hold", "not measured yet"]


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One statement of the origin's, and our command that judges it."""

    area: Literal["wire", "mesh", "shrink", "skip"]
    statement: str
    command: str
    figure: str = NOT_MEASURED
    verdict: Verdict
    why: str


class _Claims(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    claim: tuple[Claim, ...]


def claims() -> tuple[Claim, ...]:
    """All of them, in the order of the data file."""
    data = files("trisplit.bench").joinpath("claims.toml").read_bytes()
    return msgspec.toml.decode(data, type=_Claims).claim


def claims_table() -> Table:
    """A row for each claim; why is on the page."""
    rows = tuple((one.area, one.statement, one.command, one.figure, one.verdict) for one in claims())
    return Table(("area", "the origin states", "our command", "our figure", "verdict"), rows)


HEAD = """# Claims

What the documents this project started from state, and what our commands say to it. A figure stands here
only if the command beside it printed it. The data are in `src/trisplit/bench/claims.toml`; `trisplit claims`
prints them, `trisplit claims --markdown` this page.
"""


def claims_page() -> str:
    """docs/claims.md."""
    said, parts = claims(), [HEAD.rstrip()]
    for area in dict.fromkeys(one.area for one in said):
        parts += [f"\n## The {area}\n", "| the origin states | our command | our figure | verdict |"]
        parts.append("|---|---|---|---|")
        parts += [
            f"| {one.statement} | `{one.command}` | {one.figure} | **{one.verdict}**: {one.why} |"
            for one in said
            if one.area == area
        ]
    return "\n".join(parts) + "\n"
