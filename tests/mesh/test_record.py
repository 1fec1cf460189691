"""Records of gates: there and back through a file, and only for the model that was judged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trisplit.errors import RequestProblem
from trisplit.mesh.overlap import Ahead, Damage, Early, LayerTimes, Limit, exact, judge
from trisplit.mesh.record import Record, fingerprint, read_record, record_of, refuse_record, write_record
from trisplit.models.model import open_model

Tiny = Callable[[str], Path]
GOOD, BAD = (Damage(residual=x, logit=x, kl=x, ppl_ratio=1 + x) for x in (0.125, 2.0))
TIMES = [LayerTimes(1.0, 1.0, 1.0)] * 4
HOW = {"name": "a model", "text": "wiki", "windows": 4, "rounds": 20, "command": "trisplit gate overlap"}


def judged(model: Path, on: tuple[int, ...] = (1, 3)) -> Record:
    early, limit = Early("x", "stale"), Limit("kl", 1.0)
    singles = {layer: GOOD if layer in on else BAD for layer in (1, 2, 3)}
    verdict = judge(singles, TIMES, early=early, limit=limit, measure=lambda _: GOOD)
    return record_of(verdict, open_model(model), dtype="f32", limit=limit, early=early, **HOW)  # type: ignore[arg-type]


def test_what_is_written_is_read(tiny: Tiny, tmp_path: Path) -> None:
    record = judged(tiny("llama"))
    write_record(tmp_path / "record.json", record)
    assert read_record(tmp_path / "record.json") == record
    facts = json.loads((tmp_path / "record.json").read_text())
    assert (facts["on"], facts["measure"], facts["at_most"]) == ([1, 3], "kl", 1.0)
    assert facts["off"] == {"2": "KL is 2, over 1"}
    assert record.ahead_in(open_model(tiny("llama")), "f32") == Ahead((1, 3), Early("x", "stale"))


def test_parallel_blocks_are_recorded_as_exact(tiny: Tiny) -> None:
    how = {"dtype": "f32", "limit": Limit(), "early": Early(), **HOW}
    record = record_of(exact(TIMES), open_model(tiny("neox")), **how)  # type: ignore[arg-type]
    assert (record.exact, record.on, record.off) == (True, (0, 1, 2, 3), {})


def test_it_is_for_one_model_and_one_dtype(tiny: Tiny) -> None:
    record = judged(tiny("llama"))
    with pytest.raises(RequestProblem, match="of a model, which is another model or has changed"):
        record.ahead_in(open_model(tiny("mistral")), "f32")
    with pytest.raises(RequestProblem, match="in f32, it is to run in int8"):
        record.ahead_in(open_model(tiny("llama")), "int8")


def test_a_copy_is_the_same_model_and_one_of_other_weights_is_not(tiny: Tiny, tmp_path: Path) -> None:
    model = tiny("llama")
    copy = Path(shutil.copytree(model, tmp_path / "copy", copy_function=shutil.copyfile))
    assert fingerprint(open_model(copy)) == fingerprint(open_model(model))
    weights = copy / "model.safetensors"
    n_bytes = 8 + int.from_bytes(weights.read_bytes()[:8], "little")
    changed = bytearray(weights.read_bytes())
    changed[n_bytes + 1] ^= 1  # in the first row of what comes first
    weights.write_bytes(changed)
    assert fingerprint(open_model(copy)) != fingerprint(open_model(model))


def test_what_cannot_be_read_says_what_to_name(tmp_path: Path) -> None:
    with pytest.raises(RequestProblem, match="cannot be read: No such file"):
        read_record(tmp_path / "nowhere")
    with pytest.raises(RequestProblem, match="cannot be read: Is a directory"):
        read_record(tmp_path)
    for text in (b"", b"layers 3-5", b"{}", b'{"gate": "batch"}', b"\xff"):
        (tmp_path / "record.json").write_bytes(text)
        with pytest.raises(RequestProblem, match="is no record of a gate"):
            read_record(tmp_path / "record.json")


@given(st.sampled_from(sorted(Record.__struct_fields__)), st.sampled_from([None, 1.5, ["x"], {"x": 1}]))
def test_a_field_of_another_type_is_refused(field: str, value: object) -> None:
    if (field, value) != ("at_most", 1.5):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(msgspec.to_builtins(ANY) | {field: value}, Record, str_keys=True)


ANY = Record(
    model="m",
    fingerprint="f",
    dtype="f32",
    measure="kl",
    at_most=1.0,
    seed="x",
    kv="stale",
    exact=False,
    on=(1,),
    off={2: "no"},
    together=GOOD,
    text="wiki",
    windows=1,
    rounds=1,
    command="c",
)


def test_where_nothing_can_be_written_is_refused_beforehand(tmp_path: Path) -> None:
    refuse_record(tmp_path / "record.json")
    for path in (tmp_path, tmp_path / "no" / "record.json"):
        with pytest.raises(RequestProblem, match="no record can be written to"):
            refuse_record(path)
    with pytest.raises(RequestProblem, match="cannot be written"):
        write_record(tmp_path / "no" / "record.json", ANY)
