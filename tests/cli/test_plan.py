"""`trisplit plan`: what is chosen, what is refused, and the origin's figures out of its profile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.cli.running import facts_of, problem_of, run
from tests.mesh.test_record import ANY
from trisplit.errors import PeerProblem, PlanProblem, Problem, RequestProblem, UnknownName
from trisplit.mesh.record import write_record

ROOT = Path(__file__).parents[2]
ORIGIN = ROOT / "examples" / "origin.toml"
# llama: 64 wide, 4 + 2 × 2 heads of 16, 96 neurons, 320 tokens, 4 layers, its own head; f32.
LAYER = 4 * (4 * ((64 + 2 * 32) * 64 + 64 * 64 + 64) + 4 * (2 * 96 * 64 + 64) + 4 * 64 * 96) // 4
EMBED, HEAD = 4 * 320 * 64, 4 * (320 * 64 + 64)
KV = 2 * 32 * 512 * 4  # a layer's keys and values, 2 heads of 16, for the model's own context

Build = Callable[[str], Path]


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


# --- a model --------------------------------------------------------------------------------------


def test_plan(tiny: Build) -> None:
    model = tiny("llama")
    assert facts_of("plan", model, "--stations", "2") == {
        "model": str(model),
        "dtype": "f32",
        "context": 512,
        "cut": "layers",
        "topology": "ring",
        "legs_per_token": 2,
        "ahead": None,
        "ends_bytes": 0,
        "stations": [
            {
                "name": name,
                "stages": stages,
                "groups": [stages],
                "weight_bytes": 2 * LAYER + end,
                "kv_bytes": 2 * KV,
                "memory_bytes": None,
            }
            for name, stages, end in (("s1", "embed, layers 0-1", EMBED), ("s2", "layers 2-3, head", HEAD))
        ],
        "spares": [],
        "predicted": None,
        "notes": ["chosen by legs alone, nothing was measured: see --one-way-ms, --stage-ms and --profile"],
    }


def test_plan_keeps_within_memory(tiny: Build) -> None:
    options = ("--memory", "150kB,1.2MB,0", "--context", "64", "--dtype", "int8", "--topology", "chain")
    facts = facts_of("plan", tiny("llama"), *options)
    kept = [(s["name"], s["stages"], s["memory_bytes"], s["kv_bytes"]) for s in facts["stations"]]
    kv = 2 * 32 * 64 * 4
    assert kept == [("s2", "layers 0-3", 1_200_000, 4 * kv)]
    assert (facts["spares"], facts["context"], facts["dtype"]) == (["s1", "s3"], 64, "int8")
    inspected = facts_of("inspect", tiny("llama"))["bytes"]["int8"]
    layers = sum(inspected[kind] for kind in ("attention", "gate_up", "down"))
    assert sum(station["weight_bytes"] for station in facts["stations"]) == layers
    assert facts["ends_bytes"] == inspected["embed"] + inspected["head"]


def test_a_longer_context_takes_more_stations(tiny: Build) -> None:
    """0.66 MB of weights; keys and values take 0.02 MB for 16 tokens, 0.52 MB for 512."""
    short, long = (
        facts_of("plan", tiny("llama"), "--memory", "520kB,520kB,520kB,520kB", "--context", tokens)
        for tokens in ("16", "512")
    )
    assert [len(facts["stations"]) for facts in (short, long)] == [2, 3]


def test_plan_of_a_cut_says_the_visits(tiny: Build) -> None:
    facts = facts_of("plan", tiny("llama"), "--stations", "3", "--cut", "thirds", "--topology", "chain")
    assert facts["legs_per_token"] == 3 * 4 + 1
    assert [station["groups"] for station in facts["stations"]] == [
        [f"{kind} {layer}" for layer in range(4)] for kind in ("attention", "gate_up", "down")
    ]
    assert len(facts_of("plan", tiny("llama"))["stations"]) == 4


def test_plan_loads_nothing(tiny: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRISPLIT_CACHE", str(tmp_path / "cache"))
    model = tiny("llama")
    facts_of("plan", model, "--explain", "--one-way-ms", "5")
    facts_of("inspect", model)
    assert not (tmp_path / "cache").exists()


def test_pins_are_kept_and_the_rest_is_explained(tiny: Build) -> None:
    pinned = ("--cut", "recut", "--topology", "chain", "--one-way-ms", "5")
    facts = facts_of("plan", tiny("llama"), *pinned, "--explain")
    assert (facts["cut"], facts["topology"], facts["legs_per_token"]) == ("recut", "chain", 10)
    assert facts["predicted"]["wire_ms"] == 50
    assert len(facts["options"]) == 9
    assert facts["options"][0]["predicted"]["ms_per_token"] == 4 * 5  # layers in a ring


def test_links_from_a_file_decide_the_order(tiny: Build, tmp_path: Path) -> None:
    """s2 and s3 are far from each other; the coordinator is near to s2 and s3."""
    rows = "0 9 1 1  # the coordinator\n9, 0, 1, 1\n1 1 0 30\n1 1 30 0\n"
    links = write(tmp_path / "links.txt", rows)
    facts = facts_of("plan", tiny("llama"), "--stations", "3", "--topology", "chain", "--one-way-ms", links)
    assert [station["name"] for station in facts["stations"]] == ["s2", "s1", "s3"]
    assert facts["predicted"]["wire_ms"] == 4


def test_a_profile_of_a_model_says_how_stations_differ(tiny: Build, tmp_path: Path) -> None:
    text = """
        stages = { p50_ms = [1, 2, 1] }
        ends = { ms = 3 }
        links = { one_way_ms = 10 }
        station = [{ name = "s1", slower = 3 }, { name = "s2", farther = 3 }]
    """
    profile = write(tmp_path / "profile.toml", text)
    pinned = ("--cut", "layers", "--topology", "chain", "--stations", "2", "--profile", profile)
    facts = facts_of("plan", tiny("llama"), *pinned)
    assert [(s["name"], s["stages"]) for s in facts["stations"]] == [("s1", "layer 0"), ("s2", "layers 1-3")]
    predicted = facts["predicted"]
    assert (predicted["wire_ms"], predicted["compute_ms"]) == (10 + 30 + 30, 3 * 4 + 3 * 4 + 3)


@pytest.mark.parametrize(
    ("options", "kind", "what"),
    [
        ("--stations 2 --memory 1GB", RequestProblem, "--stations and --memory both say how many"),
        ("--measure-stages", RequestProblem, "stages are measured with a model that"),
        ("--measure-stages --stage-ms 1,2,1", RequestProblem, "stages are measured, and typed as well"),
        ("--stations many", RequestProblem, "--stations many makes no sense"),
        ("--stations 127.0.0.1:99999", RequestProblem, "port 99999 does not exist"),
        ("--stations 127.0.0.1:1,127.0.0.1:1", RequestProblem, "station 127.0.0.1:1 is named twice"),
        (
            "--stations 127.0.0.1:1 --one-way-ms 3",
            RequestProblem,
            "the links of stations that run are measured",
        ),
        (
            "--stations 127.0.0.1:1 --memory 1GB,1GB",
            RequestProblem,
            "--memory states 2 limits for 1 stations",
        ),
        ("--stations 127.0.0.1:1 --cut third", UnknownName, "no cut is named 'third'"),
        ("--stations 127.0.0.1:1", PeerProblem, "the coordinator has no link to station s1 at 127.0.0.1:1"),
        ("--save /nowhere/at/all.toml", RequestProblem, "profile /nowhere/at/all.toml cannot be written"),
        ("--stations 0", RequestProblem, "--stations 0 makes no sense"),
        ("--stations 1001", RequestProblem, "--stations 1001 makes no sense"),
        ("--memory 1GB,,", RequestProblem, "'' is not a size"),
        ("--cut third", UnknownName, "no cut is named 'third'"),
        ("--topology rign", UnknownName, "no topology is named 'rign'"),
        ("--dtype int5", UnknownName, "no dtype is named 'int5'"),
        ("--context 513", RequestProblem, "a context of 513 tokens was asked"),
        ("--cut thirds --stations 2", PlanProblem, "cut thirds needs 3 stations"),
        ("--cut thirds --stations 2 --explain", PlanProblem, "cut thirds needs 3 stations"),
        ("--memory 100kB,100kB", PlanProblem, "layer 0 needs 254.5 kB"),
        ("--one-way-ms -1", RequestProblem, "--one-way-ms -1: Expected `float` >= 0"),
        ("--one-way-ms nan", RequestProblem, "--one-way-ms nan: Expected `float` >= 0"),
        ("--one-way-ms nowhere.txt", RequestProblem, "links nowhere.txt cannot be read: No such file"),
        ("--stage-ms 1,2", RequestProblem, "--stage-ms 1,2: Expected `array` of length 3, got 2"),
        ("--stage-ms 1,2,x", RequestProblem, "--stage-ms 1,2,x: could not convert"),
        ("--ends-ms -3", RequestProblem, "--ends-ms -3 makes no sense"),
        ("--profile nowhere.toml", RequestProblem, "profile nowhere.toml cannot be read: No such file"),
        (f"--profile {ORIGIN}", RequestProblem, "the profile is of 60 layers"),
    ],
)
def test_plans_that_cannot_be_made(tiny: Build, options: str, kind: type[Problem], what: str) -> None:
    problem = problem_of("plan", tiny("llama"), *options.split(), "--json")
    assert type(problem) is kind
    assert problem.what.startswith(what)


def test_without_a_model_a_profile_must_stand_for_one() -> None:
    assert problem_of("plan").what == "there is neither a model nor a profile with layers to plan for"
    problem = problem_of("plan", "--profile", ORIGIN, "--memory", "1GB,1GB")
    assert problem.what == "a profile does not say how many bytes its stages have"


def test_plan_for_people(tiny: Build, snapshot: SnapshotAssertion) -> None:
    model = tiny("llama")
    assert run("plan", model, "--memory", "2MB,1MB,1MB", "--cut", "recut").stdout == snapshot
    measured = ("--one-way-ms", "20", "--stage-ms", "0.25,0.4,0.22", "--ends-ms", "3")
    assert run("plan", model, "--stations", "3", *measured, "--explain").stdout == snapshot


# --- layers that start ahead ----------------------------------------------------------------------

MEASURED = ("--stations", "3", "--one-way-ms", "20", "--stage-ms", "2,3,4", "--ends-ms", "11")


def test_what_starts_ahead_is_taken_off(tiny: Build) -> None:
    words = ("plan", tiny("llama"), *MEASURED, "--cut", "thirds", "--topology", "ring")
    plain, ahead = facts_of(*words), facts_of(*words, "--overlap", "2-3")
    assert ahead["ahead"] == {"layers": [2, 3], "early": {"seed": "x+attn", "kv": "canonical"}}
    assert (plain["ahead"], ahead["predicted"]["ahead_ms"]) == (None, pytest.approx(2 * 2))
    assert ahead["predicted"]["ms_per_token"] == pytest.approx(plain["predicted"]["ms_per_token"] - 4)
    said = run(*words, "--overlap", "all").stdout
    assert "attention 1-3 ahead" in said
    assert "less 6.0 ms of attention that starts ahead" in said
    assert "overlap: layers 1-3 start ahead on x+attn" in said


def test_what_starts_ahead_may_cost_more_than_it_saves(tiny: Build) -> None:
    words = ("plan", tiny("llama"), "--stations", "3", "--one-way-ms", "0", "--stage-ms", "9,1,1")
    facts = facts_of(*words, "--cut", "thirds", "--overlap", "all")
    assert facts["predicted"]["ahead_ms"] == pytest.approx(4 * (9 + 1 + 1) - (4 + 3) * 9)
    assert facts["notes"][0].endswith("and 19.0 ms that starting ahead costs")


def test_explained_every_plan_of_thirds_has_it_and_the_lever_is_of_the_same_layers(tiny: Build) -> None:
    facts = facts_of("plan", tiny("llama"), *MEASURED, "--explain", "--overlap", "1,3")
    taken_off = {(o["cut"], o["topology"]): o["predicted"]["ahead_ms"] for o in facts["options"]}
    assert taken_off == {place: pytest.approx(4 * (place[0] == "thirds")) for place in taken_off}
    assert facts["predicted"]["ahead_ms"] == 0
    assert "overlap: layers can start ahead in thirds alone; see --cut thirds" in facts["notes"]
    (ladder,) = facts["ladders"]
    assert ladder["from"]["ahead_ms"] == 0  # or its lever would save it twice
    (lever,) = (lever for lever in ladder["levers"] if lever["name"] == "overlap")
    assert lever["ms"] == pytest.approx(ladder["from"]["ms_per_token"] - 4)


def test_parallel_blocks_have_it_already(tiny: Build) -> None:
    words = ("plan", tiny("neox"), *MEASURED, "--cut", "thirds")
    assert facts_of(*words, "--overlap", "all")["predicted"] == facts_of(*words)["predicted"]
    assert "overlap: in layers 1-3 attention and FFN run at once, exactly" in run(*words).stdout


def test_layers_of_a_profile_start_ahead_by_their_numbers(tmp_path: Path) -> None:
    words = ("plan", "--profile", ORIGIN, "--cut", "thirds")
    facts = facts_of(*words, "--overlap", "59")
    assert facts["ahead"]["layers"] == [59]
    assert facts["predicted"]["ahead_ms"] == pytest.approx(187)
    assert "--overlap '60'" in problem_of(*words, "--overlap", "60").what
    assert "is no record of a gate" in problem_of(*words, "--overlap", ORIGIN).what
    write_record(tmp_path / "record.json", ANY)
    assert "and no model was named" in problem_of(*words, "--overlap", tmp_path / "record.json").what


# --- the origin's mesh ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def explained() -> Any:
    """What is said of the origin's mesh when nothing is added to its profile."""
    return facts_of("plan", "--profile", ORIGIN, "--explain")


def estimates_of(facts: Any) -> dict[str, float]:
    return {estimate["name"]: estimate["ms"] for estimate in facts["estimates"]}


def test_the_origins_figures_come_out_of_its_profile(explained: Any) -> None:
    """What it states, and beside it what its arithmetic gives where done right."""
    (ran,) = (o for o in explained["options"] if (o["cut"], o["topology"]) == ("thirds", "star"))
    assert ran["predicted"]["ms_per_token"] == pytest.approx(35_110)
    assert round(ran["predicted"]["tok_per_s"], 4) == 0.0285
    assert (ran["legs_per_token"], len(ran["stations"])) == (360, 180)
    assert estimates_of(explained) == pytest.approx(
        {
            "stages of a layer": 542,
            "layer as measured": 549,
            "token": 35_110,
            "floor, the origin's": 27_010,
            "floor of the stages": 32_950,
            "pair of layers, the origin's": 897,
            "token of pairs": 29_500,
        }
    )
    rounds = {(r["acceptance"], r["drafted"]): (r["origin"], r["right"]) for r in explained["rounds"]}
    assert rounds[0.08, 5] == pytest.approx((1.4, (1 - 0.08**6) / (1 - 0.08)))
    assert rounds[0.8, 8] == pytest.approx((7.4, 4.329), abs=5e-4)


def test_where_hops_are_inside_the_stages_levers_are_told_for_both_bounds(explained: Any) -> None:
    none, most = explained["ladders"]
    assert [ladder["from"]["ms_per_token"] for ladder in (none, most)] == pytest.approx([35_110] * 2)
    gains = [{lever["name"]: lever["gain"] for lever in ladder["levers"]} for ladder in (none, most)]
    assert gains[0]["topology"] == pytest.approx(1)
    assert gains[1]["topology"] == pytest.approx(35_110 / (35_110 - 180 * 69))


def test_a_known_link_tells_legs_from_stages() -> None:
    facts = facts_of("plan", "--profile", ORIGIN, "--one-way-ms", "20", "--explain")
    assert (facts["cut"], facts["topology"], facts["legs_per_token"]) == ("layers", "ring", 60)
    assert facts["predicted"]["ms_per_token"] == pytest.approx(35_110 - 300 * 20)
    (ladder,) = facts["ladders"]
    assert ladder["from"] | {"ms_per_token": 35_110} == {
        "cut": "thirds",
        "topology": "star",
        "ms_per_token": 35_110,
        "tok_per_s": pytest.approx(0.02848, abs=1e-5),
        "wire_ms": 7_200,
        "late_ms": 0,
        "compute_ms": pytest.approx(60 * (542 - 120) + 2_170),
        "other_ms": 420,
        "ahead_ms": 0,
    }


def test_the_origin_for_people(snapshot: SnapshotAssertion) -> None:
    assert run("plan", "--profile", ORIGIN, "--explain").stdout == snapshot
