"""What was measured of a mesh, ours or somebody else's, as a TOML file says it; it may stand for a model."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from trisplit.errors import RequestProblem
from trisplit.mesh.cuts import StageCost
from trisplit.mesh.predict import COORDINATOR, Measured
from trisplit.mesh.room import Room
from trisplit.models.config import layer_stages

Ms = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Factor = Annotated[float, msgspec.Meta(ge=0.01, le=100)]
Count = Annotated[int, msgspec.Meta(ge=1, le=1000)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Matrix = tuple[tuple[Ms, ...], ...]


class Stages(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Milliseconds of attention, gate_up and down, and of a whole layer where that was measured too.

    `hops_inside`: each contains the two legs of a star, from the coordinator and back.
    """

    p50_ms: tuple[Ms, Ms, Ms]
    best_ms: tuple[Ms, Ms, Ms] | None = None
    layer_ms: Ms | None = None
    hops_inside: bool = False

    @property
    def between_ms(self) -> float:
        """What a layer takes beyond its stages, where that was measured."""
        return 0.0 if self.layer_ms is None else self.layer_ms - sum(self.p50_ms)


class Ends(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Milliseconds of embed and head together. Embedding is a look-up: all of it is counted as the head's."""

    ms: Ms


class Links(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One-way milliseconds: of every link, or a row for the coordinator and each station, from it to each."""

    one_way_ms: Ms | Matrix


class Station(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How one station differs: its links so many times longer, its stages so many times slower, its room.

    `address` is where it was when it was measured.
    """

    name: str
    farther: Factor = 1.0
    slower: Factor = 1.0
    memory_bytes: Annotated[int, msgspec.Meta(ge=0)] | None = None
    address: str = ""


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How the mesh ran when it was measured."""

    cut: str = "thirds"
    topology: str = "star"
    stations: Count | None = None


class Speculation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Tokens drafted in a round, the share of them that is accepted, what drafting one takes."""

    drafted: Count = 5
    acceptance: Share = 0.8
    draft_ms: Ms = 0.0


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A mesh as measured. What is not there was not measured; with `layers` it can stand for a model."""

    what: str = ""
    layers: Count | None = None
    stages: Stages | None = None
    ends: Ends | None = None
    links: Links | None = None
    station: tuple[Station, ...] = ()
    run: Run = Run()
    speculation: Speculation | None = None

    @property
    def knows_times(self) -> bool:
        """Whether anything was measured that a prediction can be made from."""
        return not (self.links is None and self.stages is None and self.ends is None)

    @property
    def stations(self) -> int | None:
        """How many stations were measured, where that is said."""
        rows = self.links.one_way_ms if self.links else None
        return len(rows) - 1 if isinstance(rows, tuple) else self.run.stations

    @property
    def most_one_way_ms(self) -> float | None:
        """The longest legs that fit into stages with hops inside; None where legs are known or not there."""
        if self.links is not None or self.stages is None or not self.stages.hops_inside:
            return None
        return min(self.stages.best_ms or self.stages.p50_ms) / 2

    def measured(self, stations: Sequence[str], layers: int) -> Measured:
        """Links and times of these stations; 0 ms where nothing was measured.

        RequestProblem where the profile speaks of other stations, or of hops longer than the
        stages they are said to be in.
        """
        special = self._special(stations)
        names = (COORDINATOR, *stations)
        links = self._links(names, special)
        stages, ends = self.stages, self.ends.ms if self.ends else 0.0
        rows: list[tuple[float, ...]] = [(0.0, 0.0, 0.0, 0.0, ends)]
        for at, name in enumerate(stations, 1):
            inside = links[0][at] + links[at][0] if stages and stages.hops_inside else 0.0
            thirds = [ms - inside for ms in stages.p50_ms] if stages else [0.0, 0.0, 0.0]
            if min(thirds) < 0:
                raise RequestProblem(
                    f"hops of {inside:g} ms are said to be inside stages of {min(thirds) + inside:g} ms",
                    fix="give shorter links, or say hops_inside = false",
                )
            slower = special[name].slower if name in special else 1.0
            rows.append((0.0, *(ms * slower for ms in thirds), ends * slower))
        between = layers * stages.between_ms if stages else 0.0
        return Measured(names, links, tuple(rows), between)

    def rooms(self, stations: Sequence[str], limits: Sequence[int | None]) -> list[Room]:
        """The stations with their limits, else those measured, and how slow each is beside the quickest."""
        special = self._special(stations)
        limits = [
            special[name].memory_bytes if limit is None and name in special else limit
            for name, limit in zip(stations, limits)
        ]
        slower = [special[name].slower if name in special else 1.0 for name in stations]
        return [
            Room(name, limit, round(100 * factor / min(slower)))
            for name, limit, factor in zip(stations, limits, slower)
        ]

    def _special(self, stations: Sequence[str]) -> dict[str, Station]:
        for station in self.station:
            if station.name not in stations:
                raise RequestProblem(
                    f"the profile speaks of a station {station.name!r}",
                    fix=f"the stations are {_few(stations)}",
                )
        return {station.name: station for station in self.station}

    def _links(self, names: Sequence[str], special: dict[str, Station]) -> Matrix:
        one_way, n = self.links.one_way_ms if self.links else 0.0, len(names)
        rows = one_way if isinstance(one_way, tuple) else ((one_way,) * n,) * n
        if {len(rows), *map(len, rows)} != {n}:
            widths = _few(sorted({len(row) for row in rows}))
            raise RequestProblem(
                f"the links are {len(rows)} rows of {widths} numbers",
                fix=f"give {n} rows of {n} numbers: the coordinator first, then {n - 1} stations",
            )
        farther = [special[name].farther if name in special else 1.0 for name in names]
        return tuple(
            tuple(ms * max(farther[a], farther[b]) * (a != b) for b, ms in enumerate(row))
            for a, row in enumerate(rows)
        )


def read_profile(path: Path) -> Profile:
    """A profile from its file; RequestProblem for one that is not there or makes no sense."""
    try:
        return msgspec.toml.decode(path.read_bytes(), type=Profile)
    except OSError as error:
        raise RequestProblem(
            f"profile {path} cannot be read: {error.strerror}", fix="name a TOML file; see docs/planning.md"
        ) from None
    except (msgspec.DecodeError, ValueError) as error:
        raise RequestProblem(f"profile {path}: {error}", fix="docs/planning.md says what is in it") from None


def dumped(profile: Profile) -> str:
    """The profile as `read_profile` takes it, without what is as it is anyway."""
    said: dict[str, Any] = msgspec.to_builtins(profile)
    stations = said.pop("station", ())
    tables = {name: said.pop(name) for name in [*said] if isinstance(said[name], dict)}
    blocks = [("", said), *((f"[{name}]", table) for name, table in tables.items() if table)]
    blocks += [("[[station]]", station) for station in stations]
    return "\n".join(_block(head, fields) for head, fields in blocks)


def _block(head: str, fields: Mapping[str, Any]) -> str:
    lines = (f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in fields.items())
    return f"{head}\n" * bool(head) + "".join(lines)


def read_matrix(path: Path) -> Matrix:
    """One-way milliseconds as rows of numbers, a line each, the coordinator first; `#` begins a remark.

    RequestProblem for a file that is not there or not that.
    """
    try:
        lines = [line.split("#")[0].strip() for line in path.read_text().splitlines()]
        rows = [tuple(map(float, re.split(r"[\s,;]+", line.strip(",;")))) for line in lines if line]
        return msgspec.convert(rows, type=Matrix)
    except OSError as error:
        what = f"links {path} cannot be read: {error.strerror}"
        raise RequestProblem(what, fix="give a number of milliseconds, or a file of rows of them") from None
    except ValueError as error:
        raise RequestProblem(
            f"links {path}: {error}", fix="write rows of milliseconds, one line each"
        ) from None


def stages_alike(layers: int) -> list[StageCost]:
    """Stages of which no bytes are known: all alike, so that they are shared out by number."""
    return [StageCost(stage.layer, stage.kind, 1, 0) for stage in layer_stages(range(layers))]


def _few(things: Sequence[object]) -> str:
    """`s1, s2, s3`, `s1, s2 … s180`."""
    if len(things) <= 4:
        return ", ".join(map(str, things))
    return f"{things[0]}, {things[1]} … {things[-1]}"
