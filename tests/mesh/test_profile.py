"""Profiles and matrices as people write them, and what is made of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trisplit.errors import RequestProblem
from trisplit.mesh.predict import COORDINATOR
from trisplit.mesh.profile import (
    Ends,
    Links,
    Profile,
    Run,
    Speculation,
    Stages,
    Station,
    dumped,
    read_matrix,
    read_profile,
    stages_alike,
)

TWO = ["s1", "s2"]


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_what_is_not_there_takes_no_time() -> None:
    measured = Profile().measured(TWO, layers=4)
    assert measured.names == (COORDINATOR, "s1", "s2")
    assert measured.one_way_ms == ((0.0,) * 3,) * 3
    assert (measured.stage_ms, measured.other_ms) == (((0.0,) * 5,) * 3, 0.0)
    assert not Profile().knows_times


def test_a_far_and_a_slow_station() -> None:
    profile = Profile(
        stages=Stages(p50_ms=(1, 2, 3), layer_ms=8),
        links=Links(10.0),
        station=(Station("s1", slower=2), Station("s2", farther=3)),
    )
    measured = profile.measured(["s1", "s2", "s3"], layers=4)
    assert measured.one_way_ms == ((0, 10, 30, 10), (10, 0, 30, 10), (30, 30, 0, 30), (10, 10, 30, 0))
    assert measured.stage_ms == ((0, 0, 0, 0, 0), (0, 2, 4, 6, 0), (0, 1, 2, 3, 0), (0, 1, 2, 3, 0))
    assert measured.other_ms == 4 * 2
    rooms = profile.rooms(["s1", "s2", "s3"], [None, 5, None])
    assert [(room.memory_bytes, room.slowness_percent) for room in rooms] == [
        (None, 200),
        (5, 100),
        (None, 100),
    ]


def test_hops_inside_stages_are_taken_out() -> None:
    stages = Stages(p50_ms=(20, 30, 40), hops_inside=True)
    profile = Profile(stages=stages, links=Links(5.0), station=(Station("s2", farther=2, slower=2),))
    measured = profile.measured(TWO, layers=1)
    assert measured.stage_ms[1] == (0, 10, 20, 30, 0)
    assert measured.stage_ms[2] == (0, 0, 20, 40, 0)
    with pytest.raises(RequestProblem, match=r"hops of 22 ms are said to be inside stages of 20 ms"):
        Profile(stages=stages, links=Links(11.0)).measured(TWO, layers=1)
    assert Profile(stages=stages).most_one_way_ms == 10
    assert profile.most_one_way_ms is None


def test_a_matrix_must_be_of_these_stations() -> None:
    profile = Profile(links=Links(((0, 1, 2), (3, 7, 4), (5, 6, 0))))
    assert profile.measured(TWO, layers=1).one_way_ms == ((0, 1, 2), (3, 0, 4), (5, 6, 0))
    with pytest.raises(RequestProblem, match=r"the links are 3 rows of 3 numbers .give 2 rows of 2 numbers"):
        profile.measured(["s1"], layers=1)


def test_a_station_that_is_not_there() -> None:
    profile = Profile(station=(Station("s99"),))
    with pytest.raises(RequestProblem, match=r"a station 's99' .the stations are s1, s2 … s12"):
        profile.measured([f"s{i}" for i in range(1, 13)], layers=1)


def test_a_profile_is_read(tmp_path: Path) -> None:
    text = """
        layers = 30
        [stages]
        p50_ms = [1, 2.5, 3]
        [links]
        one_way_ms = [[0, 1], [1, 0]]
        [[station]]
        name = "s1"
        slower = 2
    """
    assert read_profile(write(tmp_path / "p.toml", text)) == Profile(
        layers=30,
        stages=Stages(p50_ms=(1, 2.5, 3)),
        links=Links(((0, 1), (1, 0))),
        station=(Station("s1", slower=2),),
    )


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("layers = 0", r"Expected `int` >= 1 - at `\$.layers`"),
        ("layer = 3", "Object contains unknown field `layer`"),
        ("[stages]\np50_ms = [1, 2]", "length 3"),
        ("[stages]\np50_ms = [1, 2, -1]", r">= 0.0 - at `\$.stages.p50_ms"),
        ("[links]\none_way_ms = 'far'", "got `str`"),
        ("[[station]]\nname = 's1'\nslower = 0", ">= 0.01"),
        ("layers = ", "p.toml: Invalid value"),
        ("what = '\xff'", "p.toml: "),
    ],
)
def test_a_profile_that_makes_no_sense(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "p.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(RequestProblem, match=what):
        read_profile(path)


def test_rows_of_numbers_are_read(tmp_path: Path) -> None:
    assert read_matrix(write(tmp_path / "m", "0, 1.5 # coordinator\n\n2\t0,\n")) == ((0, 1.5), (2, 0))


@pytest.mark.parametrize("text", ["0 1\n1 x\n", "0 -1\n1 0\n", "0 nan\n1 0\n"])
def test_rows_that_are_none(tmp_path: Path, text: str) -> None:
    with pytest.raises(RequestProblem, match="links "):
        read_matrix(write(tmp_path / "m", text))


def test_stages_of_no_known_size_are_shared_out_by_number() -> None:
    assert [(s.layer, s.kind, s.n_bytes) for s in stages_alike(2)][2:4] == [
        (0, "down", 1),
        (1, "attention", 1),
    ]


ms = st.floats(0, 1e9)
factors = st.floats(0.01, 100)
texts = st.text(st.characters(exclude_categories=["C"]), max_size=20)
matrices = st.integers(1, 4).flatmap(lambda n: st.tuples(*[st.tuples(*[ms] * n)] * n))
counts = st.integers(1, 1000)
thirds = st.tuples(ms, ms, ms)
rooms = st.none() | st.integers(0, 2**63 - 1)
profiles = st.builds(
    Profile,
    what=texts,
    layers=st.none() | counts,
    stages=st.none() | st.builds(Stages, thirds, st.none() | thirds, st.none() | ms, st.booleans()),
    ends=st.none() | st.builds(Ends, ms),
    links=st.none() | st.builds(Links, ms | matrices),
    station=st.lists(st.builds(Station, texts, factors, factors, rooms, texts), max_size=3).map(tuple),
    run=st.builds(Run, texts, texts, st.none() | counts),
    speculation=st.none() | st.builds(Speculation, counts, st.floats(0, 1), ms),
)


@given(profiles)
def test_what_is_kept_is_read_again_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, profile: Profile
) -> None:
    path = tmp_path_factory.getbasetemp() / "kept.toml"
    path.write_text(dumped(profile), encoding="utf-8")
    assert read_profile(path) == profile


def test_a_profile_knows_rooms_and_how_many_stations() -> None:
    matrix = Links(((0.0, 1.0, 2.0), (1.0, 0.0, 3.0), (2.0, 3.0, 0.0)))
    profile = Profile(links=matrix, station=(Station("s2", memory_bytes=7),), run=Run(stations=9))
    assert profile.stations == 2
    assert Profile(run=Run(stations=9)).stations == 9
    assert Profile(links=Links(3.0)).stations is None
    limits = [[room.memory_bytes for room in profile.rooms(TWO, typed)] for typed in ([None, None], [5, 6])]
    assert limits == [[None, 7], [5, 6]]
