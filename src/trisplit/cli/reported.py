"""What a mesh reports of itself, as a table with some lines or as JSON."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from msgspec import structs

from trisplit.cli.printing import print_result
from trisplit.mesh.batching import BatchVerdict
from trisplit.table import Cell, Table, size
from trisplit.wire.questions import Reported, StationReport


def as_facts(reported: Reported) -> dict[str, Any]:
    """The same facts as the table and its lines."""
    facts: dict[str, Any] = msgspec.to_builtins(reported)
    del facts["type"]
    return facts


def show(reported: Reported, *, as_json: bool) -> None:
    """For `trisplit status`."""
    print_result(as_facts(reported) if as_json else None, [_table(reported)], _lines(reported))


def announce(address: str, reported: Reported, *, as_json: bool) -> None:
    """For `trisplit up`: where the mesh is, and what it is made of."""
    if as_json:
        print(json.dumps({"listening": address, **as_facts(reported)}), flush=True)
        return
    show(reported, as_json=False)
    print(f"\nlistening on {address}", flush=True)


def _table(reported: Reported) -> Table:
    """One row per process; of different kinds, with its kind."""
    columns = ("station", "stages", "weights", "kv", "of", "rss", "streams", "frames", "rtt ms")
    rows = [_row(station) for station in reported.stations]
    if reported.mixed:
        rows = [(*row, station.cpu) for row, station in zip(rows, reported.stations)]
    return Table(columns=(*columns, "cpu") if reported.mixed else columns, rows=tuple(rows))


def _row(s: StationReport) -> tuple[Cell, ...]:
    used, rss = (None if n_bytes is None else size(n_bytes) for n_bytes in (s.kv_used_bytes, s.rss_bytes))
    room = size(s.kv_bytes) if s.kv_bytes else None
    return s.name, s.stages, size(s.weight_bytes), used, room, rss, s.streams, s.frames, s.round_trip_ms


def _lines(r: Reported) -> list[str]:
    lines = [
        f"{r.model}, {r.dtype}: cut {r.cut}, {r.topology}, {r.legs_per_token} legs per token, "
        f"{r.context:,} tokens of context",
        f"{r.open} of {r.sessions} sessions open, {r.waiting} waiting; "
        f"{r.answered:,} answered, {r.refused:,} refused, {r.dropped:,} left",
    ]
    sends = "batched" if r.batched else "unbatched"
    if r.batch is not None:
        seen = BatchVerdict(**structs.asdict(r.batch))
        lines.append(f"sends {sends}; measured with {seen.sessions} sessions: {seen.reason}")
    elif r.batched:
        lines.append(f"sends {sends}, which was not measured")
    if r.spares:
        lines.append(f"spare stations: {', '.join(r.spares)}")
    if r.mixed:
        lines.append(f"identical to one machine: not claimed, {r.mixed}")
    if r.last_error:
        lines.append(f"last error: {r.last_error}")
    return lines
