"""lm-evaluation-harness on a task of a file: the numbers of `trisplit evaluate`. Run by `make eval-check`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.compress.test_questions import QUESTIONS
from tests.harness.test_scoring import TEXT
from trisplit.errors import Problem
from trisplit.harness.scoring import Scorer
from trisplit.models.model import open_model
from trisplit.models.sampling import Sampling

pytestmark = [
    pytest.mark.skipif(not find_spec("lm_eval"), reason="make eval-check"),
    pytest.mark.filterwarnings("ignore"),  # those of the harness are its own
]

Tiny = Callable[[str], Path]
SHOWN = "{{question}}\nA. {{options[0]}}\nB. {{options[1]}}\nC. {{options[2]}}\nD. {{options[3]}}\nAnswer:"
TASK = {
    "dataset_path": "json",
    "dataset_kwargs": {"data_files": {"test": ""}},
    "test_split": "test",
    "doc_to_target": "answer",
    "target_delimiter": "",
}
TASKS: dict[str, dict[str, Any]] = {
    "by_letter": {
        "output_type": "multiple_choice",
        "description": "The following are multiple choice questions (with answers).\n\n",
        "doc_to_text": SHOWN,
        "doc_to_choice": [" A", " B", " C", " D"],
        "metric_list": [{"metric": "acc"}],
    },
    "by_answer": {
        "output_type": "multiple_choice",
        "doc_to_text": "Question: {{question}}\nAnswer:",
        "doc_to_choice": "{{[' ' + options[0], ' ' + options[1], ' ' + options[2], ' ' + options[3]]}}",
        "metric_list": [{"metric": "acc_bytes"}],
    },
    "whole_texts": {
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{text}}",
        "metric_list": [{"metric": "byte_perplexity"}],
    },
    "going_on": {
        "output_type": "generate_until",
        "doc_to_text": "{{text}}",
        "doc_to_target": "{{said}}",
        "generation_kwargs": {"max_gen_toks": 6, "do_sample": False, "until": ["\n\n"]},
        "metric_list": [{"metric": "exact_match"}],
    },
}


@pytest.fixture
def tasks(tmp_path: Path, tiny: Tiny) -> Iterator[Path]:
    """A folder of tasks, and the questions and texts they are about."""
    questions = tmp_path / "asked.jsonl"
    rows = [{"question": q.question, "options": q.options, "answer": i % 4} for i, q in enumerate(QUESTIONS)]
    questions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = Scorer(open_model(tiny("llama")), "f32", threads=1, context=64).go_on(
        TEXT, stop=["\n\n"], max_tokens=6, sampling=Sampling()
    )
    (tmp_path / "texts.jsonl").write_text(json.dumps({"text": TEXT, "said": said}) + "\n")
    for name, task in TASKS.items():
        data = questions if name.startswith("by") else tmp_path / "texts.jsonl"
        where = {"task": name, "dataset_kwargs": {"data_files": {"test": str(data)}}}
        (tmp_path / f"{name}.yaml").write_text(json.dumps({**TASK, **task, **where}))  # JSON is YAML
    return tmp_path


def harness(*arguments: str | Path, home: Path) -> subprocess.CompletedProcess[str]:
    own = {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "trisplit.harness", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **own})


def results(tiny: Tiny, tasks: Path, *names: str) -> dict[str, Any]:
    ran = harness(
        *("run", "--model", "trisplit", "--model_args", f"pretrained={tiny('llama')},dtype=f32"),
        *("--include_path", tasks, "--tasks", ",".join(names), "--output_path", tasks / "out.json"),
        home=tasks / "home",
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    (out,) = tasks.glob("out*.json")
    return dict(json.loads(out.read_text())["results"])


def evaluated(tiny: Tiny, tasks: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "trisplit", "evaluate", str(tiny("llama")), "--json"]
    ran = subprocess.run([*command, "--questions", tasks / "asked.jsonl"], capture_output=True, text=True)
    return {score["scoring"]: score["accuracy"] for score in json.loads(ran.stdout)["scores"]}


def test_the_numbers_of_evaluate(tiny: Tiny, tasks: Path) -> None:
    found = results(tiny, tasks, *TASKS)
    ours = evaluated(tiny, tasks)
    assert found["by_letter"]["acc,none"] == ours["letter"]
    assert found["by_answer"]["acc_bytes,none"] == ours["answer"]
    assert found["going_on"]["exact_match,none"] == 1.0
    nats = Scorer(open_model(tiny("llama")), "f32", threads=1).rolling(TEXT)
    assert found["whole_texts"]["byte_perplexity,none"] == pytest.approx(
        2.718281828459045 ** (-nats / len(TEXT))
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"dtpe": "int8"}, "--model_args has dtpe, which we do not know"),
        ({"dtype": "int3"}, "int3"),
        ({"max_length": 100_000}, "a context of 100,000 tokens was asked"),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict[str, Any], said: str, tiny: Tiny) -> None:
    from trisplit.harness.model import Trisplit

    with pytest.raises(Problem, match=said):
        Trisplit(pretrained=str(tiny("llama")), **arguments)


def test_how_it_is_to_go_on_is_understood_or_refused(tiny: Tiny) -> None:
    from lm_eval.api.instance import Instance

    from trisplit.harness.model import Trisplit

    model = Trisplit(pretrained=str(tiny("llama")), max_length=64)

    def said(times: int, **how: Any) -> list[str]:
        asked = [Instance("generate_until", {}, (TEXT, {"max_gen_toks": 5, **how}), 0)] * times
        return model.generate_until(asked)

    assert len(set(said(4, do_sample=True, temperature=1.5))) > 1
    assert said(2, do_sample=True, temperature=1.5) == said(2, temperature=1.5)
    assert len(set(said(2, do_sample=False))) == 1
    with pytest.raises(Problem, match="num_beams was asked for"):
        said(1, num_beams=4)


def test_chats_are_written_by_the_template_of_the_model(tiny: Tiny) -> None:
    from trisplit.harness.model import Trisplit

    model = Trisplit(pretrained=str(tiny("llama")), max_length=64)
    messages = [{"role": "user", "content": "Hello"}]
    tokenizer = open_model(tiny("llama")).tokenizer()
    assert model.apply_chat_template(messages) == tokenizer.chat_prompt(messages)
    assert model._scorer.ids_of(model.apply_chat_template(messages)) == tokenizer.encode_chat(messages)
    assert model.chat_template(True) == tokenizer.chat_template
    assert model.chat_template() == ""


def test_a_refusal_is_two_lines(tasks: Path) -> None:
    args = f"pretrained={tasks / 'nowhere.gguf'}"
    task = ("--tasks", "by_letter", "--include_path", tasks)
    ran = harness("run", "--model", "trisplit", "--model_args", args, *task, home=tasks / "home")
    *_, what, fix = ran.stderr.splitlines()
    assert ran.returncode != 0
    assert what.startswith("error: ")
    assert "nowhere.gguf does not exist" in what
    assert fix.startswith("  fix: ")


def test_releases_that_look_for_models_of_others_find_it() -> None:
    (ours,) = entry_points(group="lm_eval.models", name="trisplit")
    from lm_eval.api.registry import get_model

    assert ours.load() is get_model("trisplit")
