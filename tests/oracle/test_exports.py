"""What we export is still what transformers and llama.cpp loaded, and they said what our decoder says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.oracle.answers import TOLERANCE
from tests.oracle.exports import PASSED_OVER, STORED, TYPES, Job, digest_of, jobs, make

GELU = ("gemma3", "neox", "neox-sequential", "neox-defaults")  # llama.cpp looks it up in halves
LOOKED_UP = 2e-2


def seen(by: str) -> dict[Job, dict[str, Any]]:
    rows = json.loads((STORED / f"exports-{by}.json").read_text())
    return {Job(*(row[key] for key in ("variant", "source", "format", "type"))): row for row in rows}


BY_TRANSFORMERS, BY_LLAMA = seen("transformers"), seen("llama.cpp")


def test_every_export_was_loaded_by_one_of_them() -> None:
    passed_over = {job for job in jobs() if job.format == "gguf" and job.variant in PASSED_OVER}
    assert {*BY_TRANSFORMERS, *BY_LLAMA} == {*jobs()} - passed_over


def test_they_said_what_our_decoder_says() -> None:
    for job, row in (BY_TRANSFORMERS | BY_LLAMA).items():
        assert row["same_token"], job
        # llama.cpp multiplies blocks by inputs of 8 bits; how far that is from floats is its own affair.
        if job.type not in TYPES:
            assert row["delta"] <= (LOOKED_UP if job in BY_LLAMA and job.variant in GELU else TOLERANCE), job


@pytest.mark.parametrize("job", [*(BY_TRANSFORMERS | BY_LLAMA)], ids=lambda job: job.name)
def test_we_write_what_they_loaded(job: Job, tmp_path: Path) -> None:
    row = (BY_TRANSFORMERS | BY_LLAMA)[job]
    assert digest_of(make(job, tmp_path)) == row["sha256"], "run `make oracle-exports`"
