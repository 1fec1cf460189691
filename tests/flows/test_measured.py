"""Plans and meshes ordered by what running stations measure of their links; one is far from all others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import facts_of, run
from tests.flows.stations import station
from tests.flows.test_up import started
from trisplit.bench.delays import Delay
from trisplit.bench.relay import RelayLink, relays

Tiny = Callable[[str], Path]
FAR_MS = 20.0


def with_one_far(places: list[str], story: Callable[[list[str]], None]) -> None:
    """Tells the story of these stations, the last of them behind a relay, for whoever calls it."""

    async def behind_a_relay() -> None:
        far = RelayLink(caller="all", station="far", address=places[-1], delay=Delay(one_way_ms=FAR_MS))
        async with relays([far]) as slow:
            await asyncio.to_thread(story, [*places[:-1], slow.addresses_for["all"]["far"]])

    asyncio.run(behind_a_relay())


def test_a_plan_leaves_out_who_is_far(tiny: Tiny, stations: dict[str, str], tmp_path: Path) -> None:
    kept = tmp_path / "mesh.toml"
    model, sizes = tiny("llama"), ("--memory", "520kB,520kB,520kB", "--context", "16")

    def story(places: list[str]) -> None:
        places = [places[0], places[2], places[1]]  # the far one is named second
        how = ("--stations", ",".join(places), "--rounds", "3", "--stage-ms", "1,2,1", "--save", kept)
        how = (*how, "--topology", "ring")
        facts = facts_of("plan", model, *how, *sizes)
        seen = facts["measured"]
        assert (seen["names"], seen["addresses"]) == (["coordinator", "s1", "s2", "s3"], places)
        assert all(free > 0 for free in seen["free_bytes"])
        assert [row[2] >= 2 * FAR_MS for row in seen["best_ms"]] == [True, True, False, True]
        assert [one["name"] for one in facts["stations"]] in (["s1", "s3"], ["s3", "s1"])
        assert facts["spares"] == ["s2"]
        assert facts["predicted"]["wire_ms"] < FAR_MS
        assert facts["predicted"]["compute_ms"] == 4 * (1 + 2 + 1)
        order = ",".join(places[int(one["name"][1]) - 1] for one in facts["stations"])
        assert f"to run it: --stations {order} --cut layers --topology ring" in facts["notes"]
        again = facts_of("plan", model, "--profile", kept, "--topology", "ring", *sizes)
        assert {key: again[key] for key in ("stations", "spares", "predicted")} == {
            key: facts[key] for key in ("stations", "spares", "predicted")
        }

    with_one_far([stations[name] for name in ("s1", "s2", "s3")], story)
    assert 'address = "127.0.0.1:' in kept.read_text()


def test_what_is_measured_is_shown(tiny: Tiny, stations: dict[str, str]) -> None:
    """One host of two stations, each of which could hold everything: a ring on one has no legs."""
    places = [stations[name] for name in ("s1", "s2")]
    shown = run("plan", tiny("llama"), "--stations", ",".join(places), "--rounds", "1").stdout
    head, columns, _, *rows = shown.splitlines()
    assert head == "round trips in ms, medians of 1"
    assert columns.split() == ["from", "us", "s1", "s2", "address", "to", "spare"]
    assert [row.split()[0] for row in rows[:3]] == ["coordinator", "s1", "s2"]
    assert f"to run it: --stations {places[0]} --cut layers --topology ring" in shown
    assert "left out: s2" in shown


def test_stages_are_measured_too(tiny: Tiny, stations: dict[str, str], tmp_path: Path) -> None:
    """And kept: what is planned from the file is what was planned from the stations."""
    kept = tmp_path / "mesh.toml"
    places = ",".join(stations[name] for name in ("s1", "s2"))
    how = ("plan", tiny("llama"), "--context", "64")
    facts = facts_of(*how, "--stations", places, "--rounds", "1", "--measure-stages", "--save", kept)
    seen = facts["measured"]
    assert [*seen["stage_ms"]] == ["s1", "s2"]
    assert facts["predicted"]["compute_ms"] >= 4 * sum(min(seen["stage_ms"].values(), key=sum)) - 0.01
    again = facts_of(*how, "--profile", kept)
    assert again["predicted"] == facts["predicted"]
    shown = run(*how, "--stations", places, "--rounds", "1", "--measure-stages").stdout
    assert "stages in ms, medians" in shown


def test_a_mesh_takes_its_stations_in_the_order_of_their_links(tiny: Tiny, stations: dict[str, str]) -> None:
    """In a chain the last station's way back is as long as the way to it: nobody far is last."""

    def story(places: list[str]) -> None:
        words = ("--stations", ",".join(places), "--topology", "chain", "--order", "measured")
        mesh = started("up", tiny("llama"), *words, "--context", "64", "--json")
        assert mesh.stdout is not None
        try:
            said: dict[str, Any] = json.loads(mesh.stdout.readline())
            names = [one["name"].split()[0] for one in said["stations"]]
            assert sorted(names) == ["coordinator", "s1", "s2", "s3"]
            assert names[-2:] != ["s3", "coordinator"]
            run("down", said["listening"])
        finally:
            mesh.kill()
            _, told = mesh.communicate()
        assert f"({places[2]})" in told.split("; in the order they were named ")[0]

    with_one_far([stations[name] for name in ("s1", "s2", "s3")], story)


def test_stations_with_a_secret_are_measured_with_it(tiny: Tiny, tmp_path: Path) -> None:
    secret = tmp_path / "mesh.secret"
    secret.write_text("a secret of the tests, long enough")
    secret.chmod(0o600)
    with station("--secret-file", secret) as place:
        words = ("plan", tiny("llama"), "--stations", place, "--rounds", "1")
        assert facts_of(*words, "--secret-file", secret)["measured"]["rounds"] == 1
        refused = run(*words).exception
        assert f"the coordinator has no link to station s1 at {place}" in str(refused)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--stations", "2", "--order", "measured"), "stations that are started here are all as near"),
        (("--stations", "2", "--order", "longest"), "'longest'"),
    ],
)
def test_what_makes_no_sense_is_refused(tiny: Tiny, words: tuple[str, ...], why: str) -> None:
    assert why in str(run("up", tiny("llama"), *words).exception)
