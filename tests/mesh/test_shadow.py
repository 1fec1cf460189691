"""The shadow of early residuals: what a mesh would say token by token, and no trace of it afterwards."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import numpy as np
import pytest

from trisplit.assets import fetch, held_out, read_articles
from trisplit.bench.dtypes import windows_of
from trisplit.mesh.overlap import KVS, SEEDS, Damage, Early
from trisplit.mesh.shadow import PROMPT_TOKENS, Shadow
from trisplit.models.config import LAYER_KINDS, Stage
from trisplit.models.decoder import Decoder
from trisplit.models.model import Model, open_model
from trisplit.models.predictions import scores
from trisplit.models.session import StageSession, Tracks

Tiny = Callable[[str], Path]
ROUNDS, PASSAGES = 7, 3
CONTEXT = PROMPT_TOKENS + ROUNDS


def passages() -> list[list[int]]:
    ids = np.random.default_rng(0).integers(3, 320, (PASSAGES, CONTEXT + 1))
    return [list(map(int, row)) for row in ids]


def shadow(model: Model) -> Shadow:
    return Shadow(model, passages(), rounds=ROUNDS, dtype="f32", threads=1)


class LiveMesh:
    """One sequence through the thirds, a token at a time through all layers, as stations would do it."""

    def __init__(self, model: Model, ahead: Collection[int], early: Early) -> None:
        def tracks(stage: Stage) -> Tracks:
            files = list(model.files([stage], "f32"))
            return Tracks(StageSession(model.config, files, context=CONTEXT, threads=1))

        self.embed, self.head = (tracks(stage) for stage in model.ends)
        self.layers = [[tracks(Stage(i, kind)) for kind in LAYER_KINDS] for i in range(model.config.layers)]
        self.ahead, self.early = ahead, early

    def prompt(self, ids: Sequence[int], position: int = 0) -> np.ndarray:
        """One chunk; the logits after it."""
        x = self.embed.run({"ids": np.array(ids)}, 0).copy()
        for attention, gate_up, down in self.layers:
            r = attention.run({"x": x}, position).copy()
            x = down.run({"h": gate_up.run({"r": r}, 0), "r": r}, 0).copy()
        logits: np.ndarray = self.head.run({"x": x[-1:]}, 0)[0].copy()
        return logits

    def token(self, id_: int, position: int) -> tuple[list[np.ndarray], np.ndarray]:
        """The residual after each layer, and the logits."""
        x = self.embed.run({"ids": np.array([id_])}, 0).copy()
        x_before = r_before = x
        residuals = []
        for number, (attention, gate_up, down) in enumerate(self.layers):
            seed = x
            if number in self.ahead:
                seed = x_before if self.early.seed == "x" else r_before
            r = attention.run({"x": seed}, position) + (x - seed)
            if number in self.ahead and self.early.kv == "canonical":
                attention.run({"x": x}, position)
            after = down.run({"h": gate_up.run({"r": r}, 0), "r": r}, 0).copy()
            x_before, r_before, x = x, r, after
            residuals.append(x)
        return residuals, self.head.run({"x": x}, 0)[0].copy()


def live(model: Model, ahead: Collection[int], early: Early) -> Damage:
    """The same damage by the other way round: token after token, and in each layer after layer."""
    residual, logit, measured = 0.0, 0.0, []
    for ids in passages():
        true, mesh = LiveMesh(model, (), early), LiveMesh(model, ahead, early)
        for each in (true, mesh):
            each.prompt(ids[:PROMPT_TOKENS])
        for position in range(PROMPT_TOKENS, CONTEXT):
            (xs, logits), (ys, others) = (each.token(ids[position], position) for each in (true, mesh))
            residual = max(residual, *(float(np.abs(xs[n] - ys[n]).max()) for n in ahead))
            logit = max(logit, float(np.abs(logits - others).max()))
            measured.append(scores(logits[None], others[None], np.array([ids[position + 1]])))
    kl, _, surprise, before = np.concatenate(measured).mean(axis=0).tolist()
    return Damage(residual=residual, logit=logit, kl=kl, ppl_ratio=float(np.exp(surprise - before)))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kv", KVS)
@pytest.mark.parametrize("ahead", [(1,), (3,), (1, 2, 3)], ids=str)
def test_layer_after_layer_is_token_after_token(
    ahead: tuple[int, ...], kv: str, seed: str, tiny: Tiny
) -> None:
    model = open_model(tiny("llama"))
    early = Early(next(s for s in SEEDS if s == seed), next(k for k in KVS if k == kv))
    ours, theirs = shadow(model).damage(ahead, early), live(model, ahead, early)
    assert (ours.residual, ours.logit) == (theirs.residual, theirs.logit)
    assert ours.kl == pytest.approx(theirs.kl, rel=1e-9)
    assert ours.ppl_ratio == pytest.approx(theirs.ppl_ratio, rel=1e-9)
    assert ours.residual > 0.1


def test_the_true_path_of_that_mesh_is_the_decoder_s(tiny: Tiny) -> None:
    model, ids = open_model(tiny("llama")), passages()[0]
    decoder, mesh = Decoder.load(tiny("llama"), context=CONTEXT), LiveMesh(model, (), Early())
    mesh.prompt(ids[:PROMPT_TOKENS])
    decoder.forward(ids[:PROMPT_TOKENS], 0)
    for position in range(PROMPT_TOKENS, CONTEXT):
        _, logits = mesh.token(ids[position], position)
        np.testing.assert_array_equal(logits, decoder.forward([ids[position]], position))


def test_an_attention_that_says_nothing_may_start_whenever_it_likes(tiny: Tiny, tmp_path: Path) -> None:
    """With the layer's out matrix at zero the seed is all that differs, and that is added when it comes."""
    from safetensors.numpy import load_file, save_file

    path = tmp_path / "model"
    path.mkdir()
    for file in tiny("llama").iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    tensors = load_file(path / "model.safetensors")
    tensors["model.layers.2.self_attn.o_proj.weight"][:] = 0
    save_file(tensors, path / "model.safetensors")
    read = shadow(open_model(path))
    for seed in SEEDS:
        assert read.damage([2], Early(seed)).residual < 1e-5
        assert read.damage([3], Early(seed)).residual > 0.1


def test_one_trial_leaves_no_trace_in_the_next(tiny: Tiny) -> None:
    read = shadow(open_model(tiny("qwen3")))
    first = read.damage([2], Early())
    read.damage([1, 2, 3], Early("x", "stale"))
    assert read.damage([2], Early()) == first


def test_times_are_of_every_third_of_every_layer(tiny: Tiny) -> None:
    times = shadow(open_model(tiny("neox"))).times
    assert len(times) == 4
    assert all(min(third.attention_ms, third.gate_up_ms, third.down_ms) > 0 for third in times)


@pytest.mark.real
@pytest.mark.slow
def test_smollm2_is_harmed_as_research_has_seen() -> None:
    """Stale keys are worse than canonical ones, x than x + attn, layer 1 than 12; none is near 1e-4."""
    model = open_model(fetch("smollm2"))
    texts = [article.text for article in held_out(read_articles(fetch("wiki")))]
    ids = windows_of(model.tokenizer(), texts, 4, PROMPT_TOKENS + 20)
    read = Shadow(model, ids, rounds=20, dtype="f32", threads=1)
    stale, x, x_attn = Early("x", "stale"), Early("x", "canonical"), Early("x+attn", "canonical")
    every_second = range(2, 30, 2)
    for layers in ([2], [12], every_second):
        kls = [read.damage(layers, early).kl for early in (stale, x, x_attn)]
        assert kls == sorted(kls, reverse=True)
    one, twelve = read.damage([1], x), read.damage([12], x_attn)
    assert one.ppl_ratio > 1.2
    assert twelve.ppl_ratio < 1.02
    assert min(one.residual, twelve.residual) > 2
    assert read.damage(every_second, x_attn).kl > 5 * twelve.kl
