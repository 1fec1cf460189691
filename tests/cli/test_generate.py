"""`trisplit generate`, from the words typed to what is printed: facts, ends, refusals, one object of JSON."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer
from typer.testing import CliRunner, Result

from trisplit.cli import engines
from trisplit.cli.app import app
from trisplit.errors import PeerProblem, PlanProblem, Problem, RequestProblem, UnknownName
from trisplit.machine import usable_cores
from trisplit.models.decoder import Decoder
from trisplit.models.model import Model, open_model

Tiny = Callable[[str], Path]

PATIENCE_S = 120.0
PROMPT = "the weights of a model"
MANY = "9" * 30
FACTS = {
    *("text", "token_ids", "finish_reason", "stations", "legs_per_token", "ms_per_token", "tok_per_s"),
    "identical_to_one_machine",
}
STATION_FACTS = {"name", "stages", "weight_bytes", "rss_bytes"}


def run(*arguments: str | Path) -> Result:
    """Answers are computed here, every time: how they are replayed is in test_replaying."""
    return CliRunner().invoke(app, ["generate", "--no-cache", *map(str, arguments)])


def facts_of(*arguments: str | Path) -> dict[str, Any]:
    """What `generate --json` prints; nothing may stand beside it."""
    result = run("--json", *arguments)
    assert (result.exit_code, result.stderr) == (0, ""), result.exception
    assert result.stdout.count("\n") == 1
    facts: dict[str, Any] = json.loads(result.stdout)
    return facts


def problem_of(*arguments: str | Path) -> Problem:
    result = run(*arguments)
    assert result.stdout == ""
    assert isinstance(result.exception, Problem), result.exception
    return result.exception


def process(*arguments: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
    """`trisplit …` as a process of its own, in which a warning is an error."""
    command = [sys.executable, "-W", "error", "-m", "trisplit", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=PATIENCE_S, **more
    )


def encoded(model: Path, text: str) -> list[int]:
    ids: list[int] = Tokenizer.from_file(str(model / "tokenizer.json")).encode(text).ids
    return ids


def decoded(model: Path, ids: Sequence[int]) -> str:
    text: str = Tokenizer.from_file(str(model / "tokenizer.json")).decode(list(ids))
    return text


def greedy(model: Path, ids: Sequence[int], n: int) -> list[int]:
    """The likeliest token, n times, with neither of the things under test: no stop, no session kept."""
    decoder, answer = Decoder.load(model), list[int]()
    for _ in range(n):
        answer.append(int(decoder.forward([*ids, *answer], 0).argmax()))
    return answer


def weight_bytes(model: Path) -> int:
    return sum(tensor.nbytes for tensor in load_file(model / "model.safetensors").values())


def at(stations: dict[str, str], n: int) -> str:
    return ",".join(list(stations.values())[:n])


# --- what is told ---------------------------------------------------------------------------------


def test_the_facts_of_one_process(tiny: Tiny) -> None:
    model = tiny("llama")
    facts = facts_of(model, PROMPT, "--max-tokens", "12")
    assert set(facts) >= FACTS
    assert facts["token_ids"] == greedy(model, encoded(model, PROMPT), 12)
    assert facts["text"] == decoded(model, facts["token_ids"])
    assert facts["finish_reason"] == "length"
    assert facts["legs_per_token"] == 0
    assert facts["identical_to_one_machine"] is None
    assert facts["ms_per_token"] > 0
    assert facts["tok_per_s"] == pytest.approx(1000 / facts["ms_per_token"])
    (here,) = facts["stations"]
    assert set(here) >= STATION_FACTS
    assert here["weight_bytes"] == weight_bytes(model)
    assert here["rss_bytes"] > here["weight_bytes"]


@pytest.mark.parametrize(
    ("cut", "n", "legs", "stages"),
    [
        ("layers", 2, 2, ["embed, layers 0-1", "layers 2-3, head"]),
        ("thirds", 3, 12, ["embed, attention 0-3", "gate_up 0-3", "down 0-3, head"]),
        ("recut", 2, 8, None),
    ],
)
def test_the_facts_of_a_mesh(
    cut: str, n: int, legs: int, stages: list[str] | None, tiny: Tiny, stations: dict[str, str]
) -> None:
    model = tiny("llama")
    alone = facts_of(model, PROMPT, "--max-tokens", "12")
    facts = facts_of(
        model, PROMPT, "--max-tokens", "12", "--stations", at(stations, n), "--cut", cut, "--check"
    )
    assert set(facts) >= FACTS
    assert [facts[same] for same in ("text", "token_ids", "finish_reason")] == [
        alone[same] for same in ("text", "token_ids", "finish_reason")
    ]
    assert facts["identical_to_one_machine"] is True
    assert facts["legs_per_token"] == legs
    rows = facts["stations"]
    assert [row["name"] for row in rows] == [*(f"s{i + 1}" for i in range(n)), "coordinator"]
    assert all(set(row) >= STATION_FACTS for row in rows)
    assert (rows[-1]["stages"], rows[-1]["weight_bytes"]) == ("", 0)
    assert stages is None or [row["stages"] for row in rows[:-1]] == stages
    assert sum(row["weight_bytes"] for row in rows) == weight_bytes(model)
    assert all(row["rss_bytes"] > row["weight_bytes"] for row in rows)


@pytest.mark.parametrize(
    ("topology", "legs", "kept"), [("star", 4, "embed, head"), ("chain", 3, "embed, head")]
)
def test_other_topologies_say_the_same(
    topology: str, legs: int, kept: str, tiny: Tiny, stations: dict[str, str]
) -> None:
    words = (tiny("llama"), PROMPT, "--max-tokens", "12")
    facts = facts_of(*words, "--stations", at(stations, 2), "--topology", topology, "--check")
    assert facts["token_ids"] == facts_of(*words)["token_ids"]
    assert (facts["legs_per_token"], facts["identical_to_one_machine"]) == (legs, True)
    assert [row["stages"] for row in facts["stations"]] == ["layers 0-1", "layers 2-3", kept]
    assert sum(row["weight_bytes"] for row in facts["stations"]) == weight_bytes(tiny("llama"))


def test_text_goes_to_stdout_and_what_it_took_to_stderr(tiny: Tiny, stations: dict[str, str]) -> None:
    model = tiny("llama")
    text = facts_of(model, PROMPT, "--max-tokens", "12")["text"]
    result = run(model, PROMPT, "--max-tokens", "12", "--stations", at(stations, 2), "--check")
    assert (result.exit_code, result.stdout) == (0, f"{text}\n")
    for told in ("s1", "layers 0-1", "s2", "layers 2-3, head", "coordinator", "legs per token: 2"):
        assert told in result.stderr
    assert "identical to one machine: yes (12 tokens)" in result.stderr


@pytest.mark.parametrize("weights", ["push", "path"])
def test_weights_are_sent_or_read_as_asked(weights: str, tiny: Tiny, stations: dict[str, str]) -> None:
    words = ("--max-tokens", "5", "--check", "--stations", at(stations, 2), "--weights", weights)
    assert facts_of(tiny("llama"), PROMPT, *words)["identical_to_one_machine"] is True


def test_station_processes_of_its_own_end_with_it(tiny: Tiny) -> None:
    model = tiny("gemma3")
    ran = process("generate", model, PROMPT, "--stations", "3", "--max-tokens", "5", "--check", "--json")
    assert (ran.returncode, ran.stderr) == (0, "")
    facts = json.loads(ran.stdout)
    assert facts["identical_to_one_machine"] is True
    assert [row["name"] for row in facts["stations"]] == ["s1", "s2", "s3", "coordinator"]
    assert len({row["rss_bytes"] for row in facts["stations"]}) > 1  # each told its own


def test_one_token_has_no_speed(tiny: Tiny) -> None:
    facts = facts_of(tiny("llama"), PROMPT, "--max-tokens", "1")
    assert (len(facts["token_ids"]), facts["ms_per_token"], facts["tok_per_s"]) == (1, None, None)
    assert "no speed to tell" in run(tiny("llama"), PROMPT, "--max-tokens", "1").stderr


# --- check ----------------------------------------------------------------------------------------


def test_check_alone(tiny: Tiny) -> None:
    assert facts_of(tiny("llama"), PROMPT, "--max-tokens", "5", "--check")["identical_to_one_machine"] is True


def test_check_sees_a_difference(
    tiny: Tiny, stations: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    truth, other = engines.alone, tiny("mistral")

    def another(_: Model, *where: Any) -> Any:
        return truth(open_model(other), *where)

    monkeypatch.setattr("trisplit.cli.asking.alone", another)
    words = (tiny("llama"), PROMPT, "--max-tokens", "9", "--check", "--stations", at(stations, 2))
    result = run(*words, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["identical_to_one_machine"] is False
    assert "identical to one machine: NO (9 tokens)" in run(*words).stderr


def test_nothing_is_claimed_of_machines_of_different_kinds(
    tiny: Tiny, stations: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (tiny("llama"), PROMPT, "--max-tokens", "5", "--stations", at(stations, 2))
    assert facts_of(*words)["identity_withheld"] is None
    monkeypatch.setattr("trisplit.mesh.facts.cpu_kind", lambda: "a kind of its own")
    # In a ring the coordinator computes nothing; in a chain it has the head, and --check a decoder.
    assert facts_of(*words)["identity_withheld"] is None
    for more in (("--topology", "chain"), ("--check",), ("--topology", "chain", "--check")):
        facts = facts_of(*words, *more)
        assert facts["identical_to_one_machine"] is None
        assert facts["identity_withheld"].startswith("processes are of 2 kinds (s1, s2: ")
        assert "a kind of its own" in facts["identity_withheld"]
    told = run(*words, "--check").stderr
    assert "identical to one machine: not claimed, processes are of 2 kinds" in " ".join(told.split())


# --- ends -----------------------------------------------------------------------------------------


def spanning(model: Path, ids: Sequence[int], n: int) -> tuple[str, int]:
    """A stop string that begins in one token and ends `n - 1` tokens later; how many tokens complete it."""
    text = decoded(model, ids)
    for i in range(len(ids) - n + 1):
        parts = [decoded(model, [id_]) for id_ in ids[i : i + n]]
        stop = parts[0][-1:] + "".join(parts[1:-1]) + parts[-1][:1]
        before = decoded(model, ids[:i]) + parts[0][:-1]
        if all(part.isascii() and part for part in parts) and text.find(stop) == len(before):
            return stop, i + n
    raise AssertionError(f"no {n} tokens of plain text in {text!r}")


@pytest.mark.parametrize("n", [2, 3])
def test_a_stop_string_over_tokens(n: int, tiny: Tiny, stations: dict[str, str]) -> None:
    model = tiny("llama")
    ids = greedy(model, encoded(model, PROMPT), 60)
    stop, taken = spanning(model, ids, n)
    text = decoded(model, ids)
    words = (model, PROMPT, "--max-tokens", "60", "--stop", "never said", "--stop", stop)
    for facts in (facts_of(*words), facts_of(*words, "--stations", at(stations, 2))):
        assert (facts["finish_reason"], facts["token_ids"]) == ("stop", ids[:taken])
        assert facts["text"] == text[: text.index(stop)]
    assert run(*words).stdout == text[: text.index(stop)] + "\n"


def test_any_id_of_a_list_ends_the_answer_unless_ignored(tiny: Tiny, tmp_path: Path) -> None:
    model = Path(shutil.copytree(tiny("llama"), tmp_path / "model"))
    ids = greedy(model, encoded(model, PROMPT), 8)
    end = ids.index(ids[4])
    config = model / "generation_config.json"
    config.write_text(json.dumps({"eos_token_id": [319, ids[4]]}))
    facts = facts_of(model, PROMPT, "--max-tokens", "8")
    assert (facts["finish_reason"], facts["token_ids"]) == ("stop", ids[: end + 1])
    assert facts["text"] == decoded(model, ids[:end])
    facts = facts_of(model, PROMPT, "--max-tokens", "8", "--ignore-eos")
    assert (facts["finish_reason"], facts["token_ids"]) == ("length", ids)
    assert facts["text"] == decoded(model, ids)


@pytest.mark.parametrize("on", [(), ("--stations",)])
def test_an_answer_that_fills_the_context(on: tuple[str, ...], tiny: Tiny, stations: dict[str, str]) -> None:
    model = tiny("llama")
    where = (*on, at(stations, 2)) if on else ()
    prompt = encoded(model, PROMPT)
    facts = facts_of(model, PROMPT, "--context", str(len(prompt) + 7), *where)
    assert (facts["finish_reason"], facts["prompt_tokens"]) == ("context", len(prompt))
    assert facts["token_ids"] == greedy(model, prompt, 7)  # the last one is chosen, and need not be fed


def test_an_answer_that_fills_the_context_says_both_numbers(tiny: Tiny) -> None:
    n = len(encoded(tiny("llama"), PROMPT))
    told = run(tiny("llama"), PROMPT, "--context", str(n + 7)).stderr
    assert f"{n + 7}" in told
    assert "context" in told


@pytest.mark.parametrize("on", [(), ("--stations",)])
def test_a_prompt_that_does_not_fit(on: tuple[str, ...], tiny: Tiny, stations: dict[str, str]) -> None:
    model = tiny("llama")
    where = (*on, at(stations, 2)) if on else ()
    n = len(encoded(model, PROMPT))
    for context in (n - 3, n):
        problem = problem_of(model, PROMPT, "--context", str(context), *where)
        assert isinstance(problem, RequestProblem)
        assert problem.what == f"the prompt has {n} tokens and the context is {context}"
        assert problem.fix.startswith(f"shorten it by {n - context + 1} tokens or more")
    one = facts_of(model, PROMPT, "--context", str(n + 1), *where)
    assert (one["finish_reason"], len(one["token_ids"])) == ("context", 1)


def test_an_empty_prompt_is_bos_or_nothing(tiny: Tiny) -> None:
    facts = facts_of(tiny("llama"), "", "--max-tokens", "3")
    assert facts["token_ids"] == greedy(tiny("llama"), [1], 3)
    assert problem_of(tiny("qwen2"), "").what == "the prompt has no tokens"


def test_a_prompt_may_hold_anything_but_half_characters(tiny: Tiny) -> None:
    model = tiny("llama")
    for prompt in ("🙂 ürüm \x00\x1b[2J", "--help", "\n" * 40, "</s>"):
        facts = facts_of(model, "--max-tokens", "3", "--", prompt)
        assert facts["prompt_tokens"] == len(encoded(model, prompt))
        assert facts["token_ids"] == greedy(model, encoded(model, prompt), 3)
    problem = problem_of(model, "a\udcffb")
    assert isinstance(problem, RequestProblem)
    assert problem.fix == "give text that is valid Unicode (UTF-8)"


# --- sampling -------------------------------------------------------------------------------------


def test_a_seed_gives_one_answer_wherever_it_runs(tiny: Tiny, stations: dict[str, str]) -> None:
    warm = (tiny("llama"), PROMPT, "--max-tokens", "16", "--temperature", "0.9", "--top-k", "50", "--seed")
    first = facts_of(*warm, "3")["token_ids"]
    assert facts_of(*warm, "3")["token_ids"] == first
    mesh = facts_of(*warm, "3", "--stations", at(stations, 3), "--cut", "thirds", "--check")
    assert (mesh["token_ids"], mesh["identical_to_one_machine"]) == (first, True)
    assert facts_of(*warm, "4")["token_ids"] != first


def test_temperature_0_takes_no_notice_of_the_seed(tiny: Tiny) -> None:
    cold = (tiny("llama"), PROMPT, "--max-tokens", "16", "--seed")
    assert facts_of(*cold, "3")["token_ids"] == facts_of(*cold, "4")["token_ids"]


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "what", "fix"),
    [
        (("--dtype", "int88"), "no dtype is named 'int88'", "did you mean 'int8'?"),
        (("--dtype", "f16"), "no dtype is named 'f16'", "known: f32, int4, int8"),
        (("--weights", "pull"), "no way to get weights is named 'pull'", "known: auto, path, push"),
        (("--cut", "third"), "no cut is named 'third'", "did you mean 'thirds'?"),
        (("--topology", "circle"), "no topology is named 'circle'", "known: chain, ring, star"),
        (("--max-tokens", "0"), "max_tokens is 0", "ask for at least one token"),
        (("--max-tokens", "-1"), "max_tokens is -1", "ask for at least one token"),
        (("--threads", "0"), f"--threads 0 on {usable_cores()} cores", "use 1 to"),
        (("--threads", "1000000"), f"--threads 1000000 on {usable_cores()} cores", "use 1 to"),
        (
            ("--context", "1000000000"),
            "a context of 1,000,000,000 tokens was asked, the model was made for 1 to 512",
            "use --context 512 or less",
        ),
        (("--context", "0"), "a context of 0 tokens was asked, the model was made for 1 to 512", ""),
        (("--temperature", "-1"), "temperature -1.0 is out of range", "it must be between 0 and 100"),
        (("--temperature", "nan"), "temperature nan is out of range", "it must be between 0 and 100"),
        (("--temperature", "inf"), "temperature inf is out of range", "it must be between 0 and 100"),
        (("--top-p", "0"), "top_p 0.0 is out of range", "it must be more than 0 and at most 1"),
        (("--top-p", "2"), "top_p 2.0 is out of range", "it must be more than 0 and at most 1"),
        (("--top-k", "-1"), "top_k -1 is out of range", "it must be between 0 (all) and 2^32 - 1"),
        (("--min-p", "nan"), "min_p nan is out of range", "it must be between 0 and 1"),
        (
            ("--repetition-penalty", "0"),
            "repetition_penalty 0.0 is out of range",
            "it must be more than 0 and at most 100",
        ),
        (("--seed", "-1"), "seed -1 is out of range", "it must be between 0 and 2^64 - 1"),
        (("--stop", ""), "a stop string is empty", "leave it out"),
        (("--stations", "-1"), "--stations '-1' is neither a number nor addresses", "write --stations 4"),
        (("--stations", ""), "--stations '' is neither a number nor addresses", "write --stations 4"),
        (("--stations", "four"), "--stations 'four' is neither a number nor addresses", "write --stations 4"),
        (("--stations", "1001"), "--stations 1001 are too many processes for one machine", "use 1000"),
        (
            ("--stations", "9" * 30),
            f"--stations {'9' * 30} are too many processes for one machine",
            "use 1000",
        ),
        (
            ("--stations", "127.0.0.1:4001,127.0.0.1:4001"),
            "station 127.0.0.1:4001 is named twice",
            "name each",
        ),
        (("--stations", "host:x"), "'host:x' is not an address", "write HOST:PORT"),
        (("--stations", "127.0.0.1:70000"), "port 70000 does not exist", "choose one below 65536"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_runs(
    words: tuple[str, ...], what: str, fix: str, tiny: Tiny
) -> None:
    problem = problem_of(tiny("llama"), PROMPT, *words)
    assert isinstance(problem, RequestProblem | UnknownName)
    assert problem.what == what
    assert problem.fix.startswith(fix)


def test_an_answer_may_be_allowed_more_tokens_than_there_is_room_for(tiny: Tiny) -> None:
    facts = facts_of(tiny("llama"), PROMPT, "--max-tokens", str(10**12), "--ignore-eos", "--context", "64")
    assert (facts["finish_reason"], facts["prompt_tokens"] + len(facts["token_ids"])) == ("context", 64)


def test_an_unknown_model_says_what_was_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    problem = problem_of("smolm2", PROMPT)
    assert isinstance(problem, UnknownName)
    assert problem.fix == "did you mean 'smollm2'?"


def test_too_few_stations_are_refused_with_numbers(tiny: Tiny, stations: dict[str, str]) -> None:
    for where in ("2", at(stations, 2)):
        problem = problem_of(tiny("llama"), PROMPT, "--cut", "thirds", "--stations", where)
        assert isinstance(problem, PlanProblem)
        assert problem.what.startswith("cut thirds needs 3 stations")
        assert "2 of the 2 given" in problem.what
        # Four layers of down, 96 × 64 numbers each, and with them the head, 320 × 64, and its norm.
        assert problem.fix == "add a station of 180.5 kB, or take cut layers or recut (fits)"


def test_more_stations_than_layers_leave_some_alone(tiny: Tiny, stations: dict[str, str]) -> None:
    facts = facts_of(tiny("llama"), PROMPT, "--max-tokens", "3", "--stations", at(stations, 7), "--check")
    rows = [(row["name"], row["stages"]) for row in facts["stations"]]
    assert rows[:4] == [
        ("s1", "embed, layer 0"),
        ("s2", "layer 1"),
        ("s3", "layer 2"),
        ("s4", "layer 3, head"),
    ]
    assert rows[-1] == ("coordinator", "")
    assert (facts["legs_per_token"], facts["identical_to_one_machine"]) == (4, True)


def test_stations_left_alone_are_named_as_spares(tiny: Tiny, stations: dict[str, str]) -> None:
    words = (tiny("llama"), PROMPT, "--max-tokens", "3", "--stations", at(stations, 7))
    told = run(*words).stderr
    assert all(f"s{i}" in told for i in (5, 6, 7))
    assert facts_of(*words)["spares"] == ["s5", "s6", "s7"]


# --- addresses ------------------------------------------------------------------------------------


@contextmanager
def web_server() -> Iterator[int]:
    """Something else than a station, on a port."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def test_an_address_where_nobody_listens(tiny: Tiny, stations: dict[str, str]) -> None:
    nobody = f"127.0.0.1:{closed_port()}"
    for where in (nobody, f"{at(stations, 1)},{nobody}"):
        problem = problem_of(tiny("llama"), PROMPT, "--stations", where)
        assert isinstance(problem, PeerProblem)
        assert problem.what.startswith(f"the station at {nobody} cannot be reached: ")
        assert problem.fix == "start it, or mend the address"
    facts_of(tiny("llama"), PROMPT, "--stations", at(stations, 1))  # that one is free again


def test_an_address_where_something_else_listens(tiny: Tiny) -> None:
    with web_server() as port:
        problem = problem_of(tiny("llama"), PROMPT, "--stations", f"127.0.0.1:{port}")
    assert isinstance(problem, PeerProblem)
    assert problem.what.startswith(f"the station at 127.0.0.1:{port} does not speak WebSocket")
    assert problem.fix == "see that it listens there, with TLS (wss://) on both sides or on none"


# --- the process ----------------------------------------------------------------------------------


def test_a_problem_is_two_lines_and_a_code(tiny: Tiny) -> None:
    ran = process("generate", tiny("llama"), PROMPT, "--cut", "third", "--json")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == "error: no cut is named 'third'\n  fix: did you mean 'thirds'?\n"


def test_a_reader_who_has_seen_enough_ends_it_without_a_word(tiny: Tiny) -> None:
    command = [sys.executable, "-m", "trisplit", "generate", str(tiny("llama")), PROMPT, "--ignore-eos"]
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        ran = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S)
    assert (ran.returncode, ran.stderr) == (1, "")


def test_a_terminal_of_few_letters_shows_the_rest_as_it_can(tiny: Tiny) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    ran = process("generate", tiny("llama"), PROMPT, "--max-tokens", "12", env=environment)
    assert "Traceback" not in ran.stderr
    assert ran.returncode == 0


@pytest.mark.parametrize("stations", ["0", "2"])
def test_a_cache_that_cannot_be_written_is_named(stations: str, tiny: Tiny, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    environment = {**os.environ, "TRISPLIT_CACHE": str(tmp_path / "file")}
    ran = process("generate", tiny("llama"), PROMPT, "--stations", stations, env=environment)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith("error: ")
    assert str(tmp_path / "file") in ran.stderr
    assert "TRISPLIT_CACHE" in ran.stderr


@pytest.mark.parametrize("n_bytes", [0, 4, 1000])
def test_a_cached_stage_cut_short_is_made_again(n_bytes: int, tiny: Tiny, tmp_path: Path) -> None:
    """As a power cut leaves it: a file renamed into place before its bytes were on the disk."""
    environment = {**os.environ, "TRISPLIT_CACHE": str(tmp_path)}
    words = ("generate", tiny("llama"), PROMPT, "--max-tokens", "5", "--no-cache")
    whole = process(*words, env=environment)
    (record,) = tmp_path.rglob("down-001.sha256")
    os.truncate(record.parent / record.read_text().split()[1], n_bytes)
    again = process(*words, env=environment)
    assert (again.returncode, again.stdout) == (0, whole.stdout), again.stderr
