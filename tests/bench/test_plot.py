"""Pictures: where they may go, what they need, and that the same figures give the same file."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import pytest

from trisplit.bench import plot
from trisplit.bench.plot import picture, refuse_picture
from trisplit.errors import RequestProblem


def texts(path: Path) -> list[str]:
    """What can be read in an SVG, in the order it was drawn."""
    return [
        "".join(e.itertext()).strip()
        for e in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")
    ]


def draw(path: Path) -> None:
    with picture(path, "A title", "and what it means", height_in=2.0) as axes:
        axes.plot((0, 1), (0, 1), label="a line")


@pytest.mark.parametrize(("suffix", "begins"), [(".svg", b"<?xml"), (".png", b"\x89PNG")])
def test_the_same_figures_give_the_same_file_whatever_the_users_style(
    suffix: str, begins: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / f"first{suffix}", tmp_path / f"second{suffix}"
    draw(first)
    monkeypatch.setitem(matplotlib.rcParams, "lines.linewidth", 9.0)
    monkeypatch.setitem(matplotlib.rcParams, "axes.facecolor", "black")
    draw(second)
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes().startswith(begins)
    assert matplotlib.rcParams["lines.linewidth"] == 9.0


def test_titles_and_legend_are_text_and_nothing_tells_the_date(tmp_path: Path) -> None:
    draw(tmp_path / "a.svg")
    assert {"A title", "and what it means", "a line"} <= set(texts(tmp_path / "a.svg"))
    assert "dc:date" not in (tmp_path / "a.svg").read_text()


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("a.pdf", "names no kind of picture"),
        ("a", "names no kind of picture"),
        ("missing/a.svg", "nothing can be written into"),
    ],
)
def test_what_cannot_become_a_picture_is_refused(name: str, what: str, tmp_path: Path) -> None:
    with pytest.raises(RequestProblem, match=what):
        refuse_picture(tmp_path / name)
    with pytest.raises(RequestProblem, match=what):
        draw(tmp_path / name)


def test_without_matplotlib_the_command_that_brings_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_picture(tmp_path / "a.svg")
    monkeypatch.setattr(plot, "find_spec", lambda _: None)
    with pytest.raises(RequestProblem) as caught:
        refuse_picture(tmp_path / "a.svg")
    assert caught.value.fix == "pip install 'trisplit[plot]'"
