"""`trisplit chat` over a pipe: turns, /reset, what is heard of earlier ones, what passes the model again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from typer.testing import CliRunner, Result

from trisplit.cli.app import app
from trisplit.errors import RequestProblem
from trisplit.mesh.trips import Trips
from trisplit.models.decoder import Decoder

Tiny = Callable[[str], Path]
Fed = list[tuple[int, list[int]]]

PATIENCE_S = 120.0
TOKENS = 9
TURNS = ("the weights of a model", "and of a token?", "why")


def run(*arguments: str | Path, said: Sequence[str]) -> Result:
    words = ["chat", *map(str, arguments)]
    return CliRunner().invoke(app, words, input="".join(f"{line}\n" for line in said))


def answers(*arguments: str | Path, said: Sequence[str]) -> str:
    """All that stands on standard output."""
    result = run(*arguments, "--max-tokens", str(TOKENS), said=said)
    assert result.exit_code == 0, result.exception
    return result.stdout


class Story:
    """The same conversation from scratch: the tiny template by hand, every turn from position 0."""

    def __init__(self, model: Path, *opening: tuple[str, str]) -> None:
        self._tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        self._decoder = Decoder.load(model)
        self._said = list(opening)
        self.prompt: list[int] = []
        self.answer: list[int] = []

    def turn(self, text: str) -> str:
        self._said.append(("user", text))
        written = "<s>" + "".join(f"{role}: {content}</s>" for role, content in self._said) + "assistant: "
        self.prompt = self._tokenizer.encode(written, add_special_tokens=False).ids
        self.answer = []
        while len(self.answer) < TOKENS and 2 not in self.answer:  # 2 is </s>
            self.answer.append(int(self._decoder.forward([*self.prompt, *self.answer], 0).argmax()))
        answer: str = self._tokenizer.decode([id_ for id_ in self.answer if id_ != 2])
        self._said.append(("assistant", answer))
        return answer


def told(model: Path, *turns: str, opening: Sequence[tuple[str, str]] = ()) -> str:
    """What a conversation of these turns should print."""
    story = Story(model, *opening)
    return "".join(f"{story.turn(text)}\n" for text in turns)


@pytest.fixture
def fed(monkeypatch: pytest.MonkeyPatch) -> dict[type, Fed]:
    """Every call of the two spines: where it began, and the ids it was given."""
    calls: dict[type, Fed] = {Decoder: [], Trips: []}
    for spine, name in ((Decoder, "forward"), (Trips, "feed")):
        was = getattr(spine, name)

        def noted(self: Any, *arguments: Any, spine: Any = spine, way: Any = was) -> Any:
            ids, position = arguments[:2] if spine is Decoder else arguments[1:3]
            calls[spine].append((position, list(ids)))
            return way(self, *arguments)

        monkeypatch.setattr(spine, name, noted)
    return calls


def at(stations: dict[str, str], n: int) -> str:
    return ",".join(list(stations.values())[:n])


# --- history --------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["llama", "gemma3"])
def test_every_turn_answers_the_whole_conversation(
    variant: str, tiny: Tiny, stations: dict[str, str]
) -> None:
    model = tiny(variant)
    expected = told(model, *TURNS)
    assert expected != "".join(told(model, turn) for turn in TURNS)  # a model that forgets would be seen
    assert answers(model, said=TURNS) == expected
    assert answers(model, "--stations", at(stations, 3), "--cut", "thirds", said=TURNS) == expected


def test_what_the_model_is_told_first_stays(tiny: Tiny) -> None:
    model, opening = tiny("llama"), [("system", "speak of tensors")]
    said = (TURNS[0], TURNS[1], "/reset", TURNS[2])
    expected = told(model, *TURNS[:2], opening=opening) + told(model, TURNS[2], opening=opening)
    assert answers(model, "--system", "speak of tensors", said=said) == expected


def test_reset_forgets(tiny: Tiny, stations: dict[str, str]) -> None:
    model = tiny("llama")
    expected = told(model, *TURNS[:2]) + told(model, TURNS[2])
    said = (*TURNS[:2], "/reset", TURNS[2])
    assert answers(model, said=said) == expected
    assert answers(model, "--stations", at(stations, 2), said=said) == expected
    assert "forgotten" in run(model, said=("/reset",)).stderr


def test_exit_or_the_end_of_input_ends_it(tiny: Tiny) -> None:
    model = tiny("llama")
    assert answers(model, said=()) == ""
    assert answers(model, said=("", "  ", "/exit", TURNS[0])) == ""
    assert answers(model, said=(TURNS[0], "/exit", TURNS[1])) == told(model, TURNS[0])


# --- what passes the model ------------------------------------------------------------------------


@pytest.mark.parametrize("topology", ["", "chain", "ring"])
def test_only_what_is_new_passes_the_model(
    topology: str, fed: dict[type, Fed], tiny: Tiny, stations: dict[str, str]
) -> None:
    model, spine = tiny("llama"), Trips if topology else Decoder
    where = ("--stations", at(stations, 2), "--topology", topology) if topology else ()
    answers(model, *where, said=(*TURNS, "/reset", TURNS[0]))
    calls = list(fed[spine])
    held: list[int] = []
    for story, texts in ((Story(model), TURNS), (Story(model), TURNS[:1])):
        held.clear()
        for text in texts:
            story.turn(text)
            agree = [a == b for a, b in zip(held, story.prompt[:-1])]
            kept = (*agree, False).index(False)
            assert calls[0] == (kept, story.prompt[kept:])
            assert kept >= len(held) - TOKENS - 1  # all that was asked before, but for a token at the seam
            del calls[0]
            if topology != "ring":  # there the tail feeds what it chose
                n = len(story.answer) - 1
                steps = [(position, id_) for position, (id_,) in calls[:n]]
                assert steps == list(enumerate(story.answer[:-1], len(story.prompt)))
                del calls[:n]
            held = [*story.prompt, *story.answer[:-1]]
    assert calls == []


# --- refusals -------------------------------------------------------------------------------------


def test_a_conversation_too_long_is_told_and_can_be_forgotten(tiny: Tiny) -> None:
    model = tiny("llama")
    first, second = Story(model), " ".join(TURNS * 12)
    answer = first.turn(TURNS[0])
    first.turn(second)
    result = run(
        model,
        *("--context", "100", "--max-tokens", str(TOKENS)),
        said=(TURNS[0], second, "/reset", TURNS[0]),
    )
    assert (result.exit_code, result.stdout) == (0, f"{answer}\n" * 2)
    assert f"the prompt has {len(first.prompt)} tokens and the context is 100" in result.stderr
    assert "or /reset" in result.stderr


def test_a_turn_that_was_refused_leaves_no_trace(tiny: Tiny) -> None:
    model = tiny("llama")
    said = (TURNS[0], "far too long " * 100, TURNS[1])
    result = run(model, "--context", "200", "--max-tokens", str(TOKENS), said=said)
    assert (result.exit_code, result.stdout) == (0, told(model, *TURNS[:2]))


def test_a_model_without_a_template_is_refused_before_it_is_loaded(
    fed: dict[type, Fed], tiny: Tiny, tmp_path: Path
) -> None:
    model = Path(shutil.copytree(tiny("llama"), tmp_path / "model"))
    settings = json.loads((model / "tokenizer_config.json").read_text())
    del settings["chat_template"]
    (model / "tokenizer_config.json").write_text(json.dumps(settings))
    result = run(model, said=TURNS)
    problem = result.exception
    assert (result.stdout, result.stderr, fed[Decoder]) == ("", "", [])
    assert isinstance(problem, RequestProblem)
    assert problem.exit_code == 1
    assert problem.what == "this model has no chat template: it was not made to chat"
    assert problem.fix.startswith("use plain completion instead: `trisplit generate`")


def test_a_template_that_refuses_is_quoted(tiny: Tiny, tmp_path: Path) -> None:
    model = Path(shutil.copytree(tiny("llama"), tmp_path / "model"))
    (model / "chat_template.jinja").write_text("{{ raise_exception('one at a time') }}")
    problem = run(model, said=TURNS).exception
    assert isinstance(problem, RequestProblem)
    assert problem.what == "the chat template of this model refuses: one at a time"


def test_an_answer_of_no_tokens_makes_no_sense(tiny: Tiny) -> None:
    result = run(tiny("llama"), "--max-tokens", "0", said=TURNS[:1])
    assert result.stdout == ""
    assert "max_tokens is 0" in result.stderr + str(result.exception)


# --- the process ----------------------------------------------------------------------------------


def piped(
    *arguments: str | Path, said: bytes, patience_s: float = PATIENCE_S, **more: Any
) -> tuple[int, str, str]:
    """`trisplit chat …` as a process, in which a warning is an error: exit code, answers, the rest."""
    command = [sys.executable, "-W", "error", "-m", "trisplit", "chat", *map(str, arguments)]
    ran = subprocess.run(command, input=said, capture_output=True, timeout=patience_s, **more)
    return ran.returncode, ran.stdout.decode(), ran.stderr.decode()


def test_a_conversation_with_processes_of_its_own(tiny: Tiny) -> None:
    said = "\n".join(TURNS).encode()  # the last line has no end
    code, out, error = piped(tiny("llama"), "--stations", "2", "--max-tokens", str(TOKENS), said=said)
    assert (code, out) == (0, told(tiny("llama"), *TURNS))
    assert error == "/reset forgets what was said, Ctrl-C stops an answer, /exit or Ctrl-D ends\n"


def test_half_a_character_is_refused_and_the_next_line_answered(tiny: Tiny) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}  # as in most places but C
    said = b"\xff\xfe\n" + TURNS[0].encode()
    code, out, error = piped(
        tiny("llama"), "--max-tokens", str(TOKENS), said=said, patience_s=5, env=environment
    )
    assert (code, out) == (0, told(tiny("llama"), TURNS[0]))
    assert "valid Unicode" in error


def test_no_standard_input_is_the_end_of_input(tiny: Tiny) -> None:
    shell = f"exec {sys.executable} -m trisplit chat {tiny('llama')} <&-"
    ran = subprocess.run(shell, shell=True, capture_output=True, text=True, timeout=PATIENCE_S)
    assert "Traceback" not in ran.stderr
    assert (ran.returncode, ran.stdout) == (0, "")
