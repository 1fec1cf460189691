"""A model as lm-evaluation-harness calls it: `--model trisplit --model_args pretrained=NAME,dtype=int8`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from lm_eval.api.model import LM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import normalize_gen_kwargs

from trisplit.bench.progress import shown
from trisplit.cli.names import find_model
from trisplit.cli.typed import one_dtype
from trisplit.errors import RequestProblem
from trisplit.harness.scoring import Scorer
from trisplit.models.model import open_model
from trisplit.models.sampling import Sampling

_SAMPLING: Final = {field.name for field in fields(Sampling)}
_TOLD_BY_THE_HARNESS: Final = {"batch_size", "max_batch_size", "device"}
_TOLD_OTHERWISE: Final = {"do_sample", "until", "max_gen_toks"}


@register_model("trisplit")
class Trisplit(LM):  # type: ignore[misc] # lm_eval is not there where types are checked
    """One model of ours, a sequence at a time, on the decoder of every other command."""

    def __init__(
        self,
        pretrained: str,
        dtype: str = "f32",
        threads: int = 1,
        max_length: int | None = None,
        seed: int = 0,
        **others: object,
    ) -> None:
        """`pretrained`: a folder, a .gguf file, a name to fetch or a hub id. `max_length`: the context.

        Batch size and device, which the harness also tells, have no meaning here. Problems as of loading;
        RequestProblem for an argument that we do not know.
        """
        super().__init__()
        if odd := others.keys() - _TOLD_BY_THE_HARNESS:
            what = f"--model_args has {', '.join(sorted(odd))}, which we do not know"
            raise RequestProblem(what, fix="we know pretrained, dtype, threads, max_length and seed")
        path = find_model(str(pretrained))
        self._name = str(pretrained)
        self._seed = int(seed)
        self._scorer = Scorer(
            open_model(path), one_dtype(str(dtype)), threads=int(threads), context=max_length
        )

    def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
        """For each (context, continuation) its nats and whether greedy decoding would say it."""
        found = []
        for request in shown(requests, "likelihoods"):
            likelihood = self._scorer.likelihood(*request.args)
            found.append((likelihood.nats, likelihood.greedy))
            self.cache_hook.add_partial("loglikelihood", request.args, found[-1])
        return found

    def loglikelihood_rolling(self, requests: Sequence[Any]) -> list[float]:
        """For each (text,) the nats of all its tokens."""
        found = []
        for request in shown(requests, "texts"):
            found.append(self._scorer.rolling(request.args[0]))
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, found[-1])
        return found

    def generate_until(self, requests: Sequence[Any]) -> list[str]:
        """For each (context, how) what comes after it; the same context again gets the next seed."""
        found, asked = list[str](), Counter[str]()
        for request in shown(requests, "answers"):
            text, how = request.args
            found.append(self._go_on(text, how, self._seed + asked[text]))
            asked[text] += 1
            self.cache_hook.add_partial("generate_until", request.args, found[-1])
        return found

    def _go_on(self, text: str, how: Mapping[str, Any], seed: int) -> str:
        wanted = dict(normalize_gen_kwargs(dict(how)))
        if odd := wanted.keys() - _SAMPLING - _TOLD_OTHERWISE:
            what = f"{', '.join(sorted(odd))} was asked for, which we do not do when we generate"
            known = ", ".join(sorted(_SAMPLING | _TOLD_OTHERWISE))
            raise RequestProblem(what, fix=f"leave it out of generation_kwargs; we know {known}")
        if not wanted["do_sample"]:
            wanted["temperature"] = 0.0
        chosen = {name: value for name, value in wanted.items() if name in _SAMPLING}
        return self._scorer.go_on(
            text,
            stop=wanted["until"],
            max_tokens=wanted["max_gen_toks"],
            sampling=Sampling(**{"seed": seed, **chosen}),
        )

    # --- chats ---

    @property
    def tokenizer_name(self) -> str:
        """What requests that the harness keeps are kept under."""
        return self._name.replace("/", "__")

    def chat_template(self, chat_template: bool | str = False) -> str:
        """The model's own template, which has one name; empty if it has none."""
        return self._scorer.tokenizer.chat_template or "" if chat_template else ""

    def apply_chat_template(
        self, chat_history: Sequence[Mapping[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """The messages as the model was trained to read them, up to its answer."""
        if not add_generation_prompt:
            what = "an answer that is begun already cannot be written by this model's template"
            raise RequestProblem(what, fix="use the task without gen_prefix")
        return self._scorer.tokenizer.chat_prompt(chat_history)
