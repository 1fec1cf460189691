"""Has running stations load a model and run it, to see what each stage takes there."""

from __future__ import annotations

from trisplit.cli.engines import loaded
from trisplit.cli.settings import Settings
from trisplit.mesh.clocking import LENGTH, StageTimes, apart, stage_times
from trisplit.mesh.costs import plan_model
from trisplit.mesh.distances import Distances
from trisplit.mesh.room import Room
from trisplit.mesh.trust import Trust
from trisplit.models.convert import Dtype
from trisplit.models.model import Model


async def clocked(model: Model, seen: Distances, trust: Trust, dtype: Dtype) -> StageTimes:
    """What stages take with one thread a station; Problems as of loading a mesh."""
    rooms = [Room(name, limit) for name, limit in zip(seen.addresses, seen.limits)]
    whole = plan_model(model, rooms, cut="layers", topology="chain", dtype=dtype, context=LENGTH)
    stations = ",".join(seen.addresses.values())
    how = Settings(stations=stations, topology="chain", dtype=dtype, trust=trust)
    used = {share.station: seen.addresses[share.station] for share in whole.shares}
    async with loaded(model, how, apart(whole), used, LENGTH) as mesh:
        return await stage_times(mesh.coordinator)
