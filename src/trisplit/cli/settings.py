"""How a model is run, as a person has typed it, checked before anything is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trisplit.cli.overlap import NONE
from trisplit.cli.typed import addresses_typed
from trisplit.errors import RequestProblem, UnknownName
from trisplit.machine import usable_cores
from trisplit.mesh.cuts import CUTS
from trisplit.mesh.drafting import way_of_drafts
from trisplit.mesh.drafts import DRAFTS
from trisplit.mesh.pushing import WEIGHTS, Weights
from trisplit.mesh.topology import TOPOLOGIES
from trisplit.mesh.trust import NOBODY, Trust, read_trust
from trisplit.models.convert import DTYPES, Dtype

MOST_STATIONS = 1000
ORDERS = ("named", "measured")  # of stations: as they were named, or as their links are short


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a model is run, whatever it is asked. `stations` is a number of local processes, or addresses.

    `spares` are started beside that number, or are the last of those addresses. What `recovers` goes on
    when a station is lost. `overlap` says which layers start ahead: see `ahead_typed`. `memory` is what each
    station offers for weights and KV, or all of them if it is one; none, no limit. `order` is one of ORDERS.
    `speculate` and `drafts_go`: see `speculating.drafting_for`.
    """

    stations: str = "0"
    cut: str = "layers"
    topology: str = "ring"
    dtype: Dtype = "f32"
    weights: Weights = "auto"
    threads: int | None = None
    context: int | None = None
    overlap: str = NONE
    sessions: int = 1
    spares: int = 0
    recovers: bool = False
    memory: tuple[int, ...] = ()
    order: str = "named"
    speculate: str = "auto"
    drafts_go: str = "auto"
    trust: Trust = NOBODY

    @property
    def addresses(self) -> Mapping[str, str]:
        """Name → address of stations already running; empty when processes are to be started."""
        return addresses_typed(self.stations)

    @property
    def processes(self) -> int:
        """Station processes to start here."""
        if ":" in self.stations:
            return 0
        if not (self.stations.isascii() and self.stations.isdecimal()):
            raise RequestProblem(
                f"--stations {self.stations!r} is neither a number nor addresses",
                fix="write --stations 4, or --stations 127.0.0.1:4001,127.0.0.1:4002",
            )
        if int(self.stations[:9]) + self.spares > MOST_STATIONS:
            beside = f" and --spares {self.spares}" if self.spares else ""
            raise RequestProblem(
                f"--stations {self.stations}{beside} are too many processes for one machine",
                fix=f"use {MOST_STATIONS} at most",
            )
        return int(self.stations)

    @property
    def names(self) -> list[str]:
        """All stations, spares last. RequestProblem when there would be spares alone."""
        names = [*self.addresses] or [f"s{i + 1}" for i in range(self.processes + self.spares)]
        if len(names) <= self.spares:
            what = f"--spares {self.spares} of {len(names)} stations leave none to hold the model"
            raise RequestProblem(what, fix=f"name more stations with --stations, {self.spares + 1} at least")
        return names

    @property
    def names_draft(self) -> bool:
        """Whether a person has named a draft, to be used whatever the links are."""
        return self.speculate not in ("auto", "none")

    @property
    def limits(self) -> dict[str, int | None]:
        """What each station offers, in bytes. RequestProblem when limits and stations are not as many."""
        names, limits = self.names, self.memory
        if len(limits) not in (0, 1, len(names)):
            what = f"--memory states {len(limits)} limits for {len(names)} stations"
            raise RequestProblem(what, fix="state one for all of them, or one for each, spares last")
        return dict.fromkeys(names, *limits) if len(limits) < 2 else dict(zip(names, limits))


def settings(
    *,
    stations: str,
    cut: str,
    dtype: str,
    threads: int | None,
    context: int | None,
    weights: str = "auto",
    topology: str = "ring",
    overlap: str = NONE,
    speculate: str = "auto",
    drafts_go: str = "auto",
    secret_file: Path | None = None,
    ca: Path | None = None,
) -> Settings:
    """Checks the words a person typed."""
    for kind, name, names in (("cut", cut, CUTS), ("topology", topology, TOPOLOGIES)):
        if name not in names:
            raise UnknownName(kind, name, names)
    known = next((d for d in DTYPES if d == dtype), None)
    if known is None:
        raise UnknownName("dtype", dtype, DTYPES)
    where = next((w for w in WEIGHTS if w == weights), None)
    if where is None:
        raise UnknownName("way to get weights", weights, WEIGHTS)
    if threads is not None and not 1 <= threads <= usable_cores():
        cores = usable_cores()
        raise RequestProblem(f"--threads {threads} on {cores} cores", fix=f"use 1 to {cores}")
    chosen = Settings(
        stations=stations,
        cut=cut,
        topology=topology,
        dtype=known,
        weights=where,
        threads=threads,
        context=context,
        overlap=overlap,
        speculate=speculate,
        drafts_go=drafts_go,
        trust=read_trust(secret_file, ca),
    )
    if not (chosen.addresses or chosen.processes) and overlap != NONE:
        what = "in one process no layer starts ahead of the one before"
        raise RequestProblem(what, fix="split it with --stations and --cut thirds, or leave --overlap out")
    _check_drafts(chosen)
    return chosen


def _check_drafts(s: Settings) -> None:
    """RequestProblem for drafts where there is nothing to draft for, or that could go no such way."""
    kind = s.speculate.partition(":")[0]
    if kind not in DRAFTS:
        raise UnknownName("draft", kind, DRAFTS)
    way_of_drafts(s.drafts_go)
    if s.names_draft and not (s.addresses or s.processes):
        what = f"drafts ({s.speculate}) are for a mesh, and this is one process"
        raise RequestProblem(what, fix="split the model with --stations, or leave --speculate out")
