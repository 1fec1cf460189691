"""Gathers what a plan is chosen from, as a person typed it, and has it chosen."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import ValidationError, convert
from msgspec.structs import replace

from trisplit.cli.names import find_model
from trisplit.cli.outlook import Outlook, Subject
from trisplit.cli.overlap import NONE, ahead_typed
from trisplit.cli.typed import addresses_typed
from trisplit.errors import RequestProblem, UnknownName
from trisplit.mesh.choose import Choice, Placements, choose
from trisplit.mesh.costs import ends_costs, stage_costs
from trisplit.mesh.cuts import CUTS, NO_ENDS
from trisplit.mesh.levers import Ladder, ladder
from trisplit.mesh.overlap import Ahead
from trisplit.mesh.predict import Measured
from trisplit.mesh.profile import (
    Ends,
    Links,
    Profile,
    Speculation,
    Stages,
    Station,
    dumped,
    read_matrix,
    read_profile,
    stages_alike,
)
from trisplit.mesh.room import Room, parse_size
from trisplit.mesh.topology import TOPOLOGIES
from trisplit.models.convert import DTYPES
from trisplit.models.model import context_for, open_model

if TYPE_CHECKING:
    from trisplit.mesh.clocking import StageTimes
    from trisplit.mesh.distances import Distances

MOST_STATIONS: Final = 1000
STATIONS: Final = 4
ONE_A_LEG: Final = Links(1.0)  # where no link was measured, legs are counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a person typed; `distances` and `times` are what was measured of the addresses in `stations`."""

    model: str = ""
    stations: str | None = None
    memory: str | None = None
    cut: str | None = None
    topology: str | None = None
    profile: Path | None = None
    one_way_ms: str | None = None
    stage_ms: str | None = None
    ends_ms: float | None = None
    dtype: str = "f32"
    context: int | None = None
    overlap: str = NONE
    distances: Distances | None = None
    times: StageTimes | None = None

    @property
    def addresses(self) -> dict[str, str]:
        """Of stations that run, by name; none where their number was typed."""
        return addresses_typed(self.stations or "")


def understood(wish: Wish) -> tuple[Profile, Subject, list[Room]]:
    """What is to be planned for what, or the Problem of words that make no sense, whatever is measured."""
    for kind, name, known in (("cut", wish.cut, CUTS), ("topology", wish.topology, TOPOLOGIES)):
        if name is not None and name not in known:
            raise UnknownName(kind, name, known)
    profile = _profile(wish)
    subject = _subject(wish, profile)
    return profile, subject, _rooms(wish, profile, knows_bytes=subject.context is not None)


def outlook(wish: Wish, *, explain: bool) -> Outlook:
    """The plan to take and what else there would be; any Problem of a wish that cannot be met."""
    profile, subject, rooms = understood(wish)
    cuts = [wish.cut] if wish.cut else list(CUTS)
    topologies = [wish.topology] if wish.topology else list(TOPOLOGIES)
    ahead = ahead_typed(wish.overlap, subject.layers, subject.model, subject.dtype or "f32")
    desk = _Desk(subject, rooms, {})
    choice, measured = desk.chosen(profile) if explain else desk.chosen(profile, cuts, topologies)
    choice = choice.with_ahead(ahead, measured)
    return Outlook(
        subject=subject,
        profile=profile,
        rooms=rooms,
        choice=choice.only(cuts, topologies),
        every=choice if explain else None,
        ladders=tuple(desk.ladders(profile, ahead)) if explain else (),
        overlap=wish.overlap,
        distances=wish.distances,
        times=wish.times,
    )


def keep(profile: Profile, path: Path) -> None:
    """Writes the profile to a file; RequestProblem when that cannot be."""
    try:
        path.write_text(dumped(profile), encoding="utf-8")
    except OSError as error:
        what = f"profile {path} cannot be written: {error.strerror}"
        raise RequestProblem(what, fix="name a file in a folder that is there and yours") from None


@dataclass(frozen=True, slots=True)
class _Desk:
    """What is to be placed and where, and the placements found so far."""

    subject: Subject
    rooms: Sequence[Room]
    placements: Placements

    def chosen(
        self, profile: Profile, cuts: Sequence[str] = (), topologies: Sequence[str] = ()
    ) -> tuple[Choice, Measured]:
        """The best of these cuts and topologies, of all where none is named, and what it was told from."""
        subject = self.subject
        counted = profile if profile.knows_times else replace(profile, links=ONE_A_LEG)
        measured = counted.measured([room.name for room in self.rooms], subject.layers)
        choice = choose(
            subject.chain,
            self.rooms,
            measured,
            ends=subject.ends,
            cuts=cuts or list(CUTS),
            topologies=topologies or list(TOPOLOGIES),
            placements=self.placements,
        )
        return choice, measured

    def ladders(self, profile: Profile, ahead: Ahead | None) -> Iterator[Ladder]:
        """What each lever would give; twice where legs may be anything between nothing and a bound.

        The lever `overlap` has the layers that are `ahead`, or all of them.
        """
        layers = ahead.layers if ahead else None
        if not profile.knows_times:
            return
        run, speculation = profile.run, profile.speculation or Speculation()
        most, bounds = profile.most_one_way_ms, {"": profile}
        if most is not None:
            bounds = {f", if legs take {ms:g} ms": replace(profile, links=Links(ms)) for ms in (0.0, most)}
        for remark, supposed in bounds.items():
            every, measured = self.chosen(supposed)
            how = {"cut": run.cut, "topology": run.topology, "remark": remark}
            yield ladder(every, measured, speculation=speculation, ahead=layers, **how)


def _profile(wish: Wish) -> Profile:
    """What the file says, and over it what was typed."""
    profile = read_profile(wish.profile) if wish.profile else Profile()
    if wish.one_way_ms is not None and wish.addresses:
        what = "the links of stations that run are measured, and --one-way-ms says how long they are"
        raise RequestProblem(what, fix="leave it out, or say how many stations there are")
    if wish.one_way_ms is not None:
        profile = replace(profile, links=links_typed(wish.one_way_ms))
    if wish.stage_ms is not None:
        profile = replace(profile, stages=stages_typed(wish.stage_ms))
    if wish.ends_ms is not None:
        if not 0 <= wish.ends_ms <= 1e9:
            raise RequestProblem(f"--ends-ms {wish.ends_ms:g} makes no sense", fix="use 0 or more")
        profile = replace(profile, ends=Ends(wish.ends_ms))
    if wish.distances is not None:
        profile = _with_distances(profile, wish.distances)
    return profile if wish.times is None else wish.times.known_in(profile)


def _with_distances(profile: Profile, seen: Distances) -> Profile:
    """With what was measured of links, and of memory, in place of what is said there of them."""
    said = {station.name: station for station in profile.station}
    measured = [
        Station(name, slower=(said.get(name) or Station(name)).slower, memory_bytes=limit, address=address)
        for (name, address), limit in zip(seen.addresses.items(), seen.limits)
    ]
    strangers = [station for station in profile.station if station.name not in seen.addresses]
    return replace(profile, links=seen.links, station=(*measured, *strangers))


def links_typed(text: str) -> Links:
    """A number of milliseconds, or a file of rows of them."""
    try:
        return convert({"one_way_ms": float(text)}, type=Links)
    except ValidationError as error:
        raise RequestProblem(f"--one-way-ms {text}: {error}", fix="use 0 or more") from None
    except ValueError:
        return Links(read_matrix(Path(text)))


def stages_typed(text: str) -> Stages:
    """Three times with commas between them."""
    try:
        return convert({"p50_ms": [float(ms) for ms in text.split(",")]}, type=Stages)
    except ValueError as error:
        what = f"--stage-ms {text}: {error}"
        raise RequestProblem(what, fix="give three times, such as 187,148,207") from None


def _subject(wish: Wish, profile: Profile) -> Subject:
    """A model with its bytes, or the layers of a profile."""
    if not wish.model:
        if profile.layers is None:
            raise RequestProblem(
                "there is neither a model nor a profile with layers to plan for",
                fix="name a model, or give --profile a file with layers in it",
            )
        chain = stages_alike(profile.layers)
        return Subject(name=profile.what or "profile", chain=chain, ends=NO_ENDS)
    dtype = next((d for d in DTYPES if d == wish.dtype), None)
    if dtype is None:
        raise UnknownName("dtype", wish.dtype, DTYPES)
    model = open_model(find_model(wish.model))
    if profile.layers not in (None, model.config.layers):
        raise RequestProblem(
            f"the profile is of {profile.layers} layers, {wish.model} has {model.config.layers}",
            fix="measure this model, or leave the layers out of the profile",
        )
    context = context_for(model.config, wish.context)
    return Subject(
        model=model,
        name=wish.model,
        chain=stage_costs(model, dtype, context),
        ends=ends_costs(model, dtype),
        dtype=dtype,
        context=context,
    )


def _rooms(wish: Wish, profile: Profile, *, knows_bytes: bool) -> list[Room]:
    """The stations asked for, named s1, s2, …"""
    if wish.stations is not None and wish.memory is not None and not wish.addresses:
        raise RequestProblem(
            "--stations and --memory both say how many stations there are", fix="give one of them"
        )
    if wish.memory is not None and not knows_bytes:
        raise RequestProblem("a profile does not say how many bytes its stages have", fix="give --stations")
    limits: list[int | None] = [None] * _count(wish, profile)
    if wish.memory is not None:
        limits = [parse_size(limit) for limit in wish.memory.split(",")]
    if wish.addresses and len(limits) != len(wish.addresses):
        what = f"--memory states {len(limits)} limits for {len(wish.addresses)} stations"
        raise RequestProblem(what, fix="state one for each, or leave it out: it is measured")
    names = [f"s{i}" for i in range(1, len(limits) + 1)]
    rooms = profile.rooms(names, limits)
    return rooms if knows_bytes else [dataclasses.replace(room, memory_bytes=None) for room in rooms]


def _count(wish: Wish, profile: Profile) -> int:
    """How many stations."""
    if wish.addresses:
        return len(wish.addresses)
    typed = str(profile.stations or STATIONS) if wish.stations is None else wish.stations
    if not (typed.isascii() and typed.isdecimal() and 1 <= int(typed[:9]) <= MOST_STATIONS):
        fix = f"use 1 to {MOST_STATIONS}, or the addresses of running stations"
        raise RequestProblem(f"--stations {typed} makes no sense", fix=fix)
    return int(typed)
