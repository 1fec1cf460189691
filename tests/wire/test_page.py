"""docs/wire.md says what the code does: its bytes, its fields, its turns."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from tests.wire.test_batch import sent
from tests.wire.test_frame import ONE, ROUTED
from tests.wire.words import EXAMPLES, framed
from trisplit.wire import frame, route
from trisplit.wire.frame import Activation
from trisplit.wire.losses import Again, Begun, Seen, Skip
from trisplit.wire.messages import FileSpec, GroupSpec, Ping, Source, StageSpec, Visit, Way
from trisplit.wire.questions import BatchReport, DraftReport, How, StationReport
from trisplit.wire.session import CLIENT_LINK, COORDINATOR_LINK, STATION_LINK, Turns

PAGE = (Path(__file__).parents[2] / "docs" / "wire.md").read_text(encoding="utf-8")
ASIDES = {"Ask", "Facts", "Recall", "Recalled", "Survey", "Surveyed", "Ping", "Pong", "Fault", "Bye"}


def rows(heading: str) -> list[list[str]]:
    """The cells of the table under this header row."""
    table = PAGE.split(heading + "\n", 1)[1].split("\n\n", 1)[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[1:]]


def test_its_bytes_are_ours() -> None:
    ping, residual, routed = (bytes.fromhex(line) for line in PAGE.split("```")[1].strip().splitlines())
    assert ping == framed(Ping(7), 10)
    assert residual == frame.encode_activation(ONE, 9)
    begins, *middle, ends = (bytes.fromhex(part) for part in PAGE.split("```")[3].split("…"))
    (batch,) = sent([ping, residual])
    assert batch.startswith(begins)
    assert batch.endswith(ends)
    assert all(part in batch for part in middle)
    assert routed == frame.encode_activation(ROUTED, 9)
    assert route.encode_response((3, 1, 4, 1, 5)) == bytes.fromhex("05 530b")


def test_its_fields_are_ours() -> None:
    page = {
        name: set(re.findall(r"`(\w+)`", fields))
        for names, fields in rows("| type | fields |")
        for name in names.split(", ")
    }
    ours = {
        name: set(msgspec.structs.asdict(said))
        for name, said in EXAMPLES.items()
        if not isinstance(said, Activation)
    }
    ours["Load"] |= {*Source.__struct_fields__, *GroupSpec.__struct_fields__, *StageSpec.__struct_fields__}
    ours["Need"] |= set(StageSpec.__struct_fields__)
    ours["Offer"] |= {*FileSpec.__struct_fields__, *StageSpec.__struct_fields__}
    ours["Join"] |= set(Way.__struct_fields__)
    ours["Recalled"] |= set(Visit.__struct_fields__)
    ours["Answered"] |= set(DraftReport.__struct_fields__)
    ours["Question"] |= set(How.__struct_fields__)
    ours["Reported"] |= set(StationReport.__struct_fields__)
    ours["Judged"] |= set(BatchReport.__struct_fields__)
    ours["Surveyed"] |= set(Seen.__struct_fields__)
    ours["Resume"] |= set(Skip.__struct_fields__)
    ours["Replay"] |= {*Again.__struct_fields__, *Begun.__struct_fields__}
    assert page == ours


@pytest.mark.parametrize(
    ("kind", "turns"), [("coordinator", COORDINATOR_LINK), ("station", STATION_LINK), ("client", CLIENT_LINK)]
)
def test_its_turns_are_ours(kind: str, turns: Turns) -> None:
    page = set()
    for place, *cells in rows(f"| a {kind}'s link is | the caller may say | the called may say |"):
        for speaker, cell in zip(("caller", "called"), cells):
            for word, then in re.findall(r"(\w+)(?: → (\w+))?(?: \([^)]*\))?(?:, |$)", cell):
                page.add((place, speaker, word.replace("activations", "Activation"), then or place))
    ours = {
        (place, speaker, word.__name__, then)
        for (place, speaker, word), then in turns.items()
        if word.__name__ not in ASIDES
    }
    assert page == ours
