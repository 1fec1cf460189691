"""Arrays that a stage cannot be computed from are told before the engine sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tiny import GGUF_VARIANTS, UNEVEN, VARIANTS
from tests.tiny_gguf import write_gguf
from trisplit.models.config import EMBED, HEAD, Stage
from trisplit.models.convert import DTYPES, Dtype
from trisplit.models.model import Model, open_model
from trisplit.models.stage_file import StageFile, Stored, misfit

Tiny = Callable[[str], Path]


def models(variant: str, tiny: Tiny, folder: Path) -> Iterator[Model]:
    yield open_model(tiny(variant))
    if variant in (*GGUF_VARIANTS, *UNEVEN):
        mixed = {"*attn_v*": "Q8_0", "*ffn_down*": "Q5_0", "*attn_output*": "Q4_0", "*": "Q4_1"}
        yield open_model(write_gguf(tiny(variant), folder / "mixed.gguf", types=mixed))


@pytest.mark.parametrize("variant", [*VARIANTS, *UNEVEN])
def test_what_we_convert_fits(variant: str, tiny: Tiny, tmp_path: Path) -> None:
    for model in models(variant, tiny, tmp_path):
        for dtype in DTYPES:
            for file in model.files(model.stages, dtype):
                assert misfit(model.config, file) == "", f"{file.stage} {dtype}"


def file_of(model: Model, stage: Stage, dtype: Dtype) -> StageFile:
    (file,) = model.files([stage], dtype)
    return file


def stored(file: StageFile, name: str, **facts: object) -> StageFile:
    """The file with one array changed."""
    return replace(file, tensors={**file.tensors, name: replace(file.tensors[name], **facts)})


@pytest.mark.parametrize(
    ("stage", "dtype", "name", "facts", "why"),
    [
        (Stage(0, "down"), "f32", "down.w", {"shape": (64, 96)}, "down.w is F32 [64, 96] where F32 [96, 64]"),
        (Stage(0, "down"), "f32", "down.w", {"kind": "U8"}, "down.w is U8 [96, 64] where F32"),
        (
            Stage(0, "down"),
            "f32",
            "down.w",
            {"n_bytes": 4 * 96 * 63},
            "down has 63 rows of 96 where 64",
        ),
        (Stage(0, "down"), "f32", "down.w", {"n_bytes": 4 * 96 * 64 + 4}, "down.w is F32 [96, 64] where"),
        (Stage(0, "gate_up"), "int8", "gate_up.q8", {"n_bytes": 4}, "gate_up.q8 is U8 [192, 2, 32] where U8"),
        (Stage(0, "gate_up"), "int8", "ffn_norm", {"shape": (63,)}, "ffn_norm is F32 [63] where F32 [64]"),
        (Stage(0, "gate_up"), "int8", "gate_up.scales", {"n_bytes": 8}, "gate_up has 1 rows of 64 where 192"),
        (
            Stage(0, "attention"),
            "int4",
            "qkv.offsets",
            {"shape": (128, 2)},
            "qkv.offsets is F32 [128, 2]",
        ),
        (EMBED, "f32", "embed.w", {"shape": (64, 320)}, "embed.w is F32 [64, 320] where F32 [320, 64]"),
        (HEAD, "int8", "head.q8", {"shape": (320, 64)}, "head.q8 is U8 [320, 64] where U8 [320, 2, 32]"),
    ],
)
def test_another_type_shape_or_length_is_told(
    stage: Stage, dtype: Dtype, name: str, facts: dict[str, object], why: str, tiny: Tiny
) -> None:
    model = open_model(tiny("llama"))
    assert misfit(model.config, stored(file_of(model, stage, dtype), name, **facts)).startswith(why)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_missing_or_too_much_is_told(dtype: Dtype, tiny: Tiny) -> None:
    model = open_model(tiny("llama-biases"))
    for stage in model.stages:
        file = file_of(model, stage, dtype)
        for name in file.tensors:
            kept = {other: array for other, array in file.tensors.items() if other != name}
            assert misfit(model.config, replace(file, tensors=kept)) or name.endswith(".offsets"), name
        more = {**file.tensors, "zeal": Stored("", "F32", (1,), 0, 4)}
        assert misfit(model.config, replace(file, tensors=more)) == "zeal is no part of it"


def test_another_stage_s_arrays_do_not_fit(tiny: Tiny) -> None:
    model = open_model(tiny("llama"))
    files = [file_of(model, stage, "f32") for stage in (EMBED, *model.stages[1:4], HEAD)]
    for one in files:
        for two in files:
            found = misfit(model.config, replace(one, tensors=two.tensors))
            assert (found == "") == (one is two), f"{two.stage} as {one.stage}"
