"""Answers drafted ahead on slow links: their rates beside plain ones, the serial floor and the bottleneck."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import median
from typing import Final, Literal, get_args

from trisplit.bench.meshes import Ground, MeshFacts, Subject
from trisplit.bench.peers import Answer, Order
from trisplit.bench.progress import shown
from trisplit.bench.prompts import LEAST_DISTINCT, Prompt, distinct_4gram_share
from trisplit.bench.rounds import started
from trisplit.bench.wires import names_of, wires_between
from trisplit.machine import free_cores
from trisplit.mesh.speculating import Mode
from trisplit.mesh.speculation import expected_round
from trisplit.models.convert import Dtype
from trisplit.models.model import context_for


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationRow:
    """One answer by one way on one mesh; `prompt` "median": over those of a kind that count.

    Rates count after the first token, over the `tokens` that came. `acceptance`: share of judged guesses that
    were right, None where none was judged. `tokens_per_traversal`: tokens for each time the links had to be
    waited for, see `traversals`. `in_flight`: frames under way when a token comes, on average.
    `serial_floor_tok_per_s`: 1 / (legs × one way + a token of one process). `bottleneck_ms`: what a token
    asks of all cores together, see `bottleneck_ms`. `tokens_equal`: to those of one process, as many as came.
    `distinct_4gram_share`: of the whole answer of one process, so the same for every way; `counts`: false for
    a novel one that is a loop.
    """

    draft: str
    mode: str
    k: int | None
    prompts: str
    prompt: str
    temperature: float
    one_way_ms: float
    legs_per_token: int
    tokens: int
    acceptance: float | None
    tokens_per_traversal: float
    predicted_tokens_per_traversal: float
    in_flight: float
    tok_per_s: float
    plain_tok_per_s: float
    serial_floor_tok_per_s: float
    ratio_to_serial_floor: float
    bottleneck_ms: float
    share_of_bottleneck_rate: float
    distinct_4gram_share: float
    counts: bool
    tokens_equal: bool


AnyMode = Mode | Literal["plain"]
MODES: Final[tuple[AnyMode, ...]] = ("plain", *get_args(Mode))


@dataclass(frozen=True, slots=True)
class Way:
    """How an answer is given: by a draft in a mode, with `k` guesses where there are rounds."""

    draft: str
    mode: AnyMode
    k: int | None = None


PLAIN = Way("none", "plain")


def ways(drafts: Sequence[str], modes: Sequence[AnyMode], ks: Sequence[int]) -> list[Way]:
    """Plain, which everything is held against; then every draft in every mode, rounds with every `k`."""
    guessed = [mode for mode in modes if mode != "plain"]
    return [PLAIN] + [
        Way(draft, mode, k)
        for draft in drafts
        for mode in guessed
        for k in (ks if mode == "rounds" else (None,))
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A prompt, in tokens too, at a temperature."""

    prompt: Prompt
    prompt_ids: tuple[int, ...]
    temperature: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is to be measured. `places`: where the models are that drafts call by a name."""

    subject: Subject
    stations: int
    cut: str
    topology: str
    dtype: Dtype
    threads: int
    one_way_ms: Sequence[float]
    ways: Sequence[Way]
    places: Mapping[str, str]
    questions: Sequence[Question]
    tokens: int
    most_s: float
    seed: int = 0

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt and its answer."""
        return max(len(question.prompt_ids) for question in self.questions) + self.tokens

    def mesh(self, one_way_ms: float, context: int) -> MeshFacts:
        """The mesh on links of that length."""
        ground = Ground(
            subject=self.subject,
            wires=wires_between(names_of(self.stations), one_way_ms),
            dtype=self.dtype,
            threads=self.threads,
        )
        return MeshFacts(ground=ground, cut=self.cut, topology=self.topology, context=context)

    def order(self, question: Question, way: Way) -> Order:
        """What a process is asked."""
        return {
            "what": "answer",
            "prompt_ids": question.prompt_ids,
            "tokens": self.tokens,
            "sampling": asdict(question.prompt.sampling(question.temperature, self.seed)),
            "most_ms": 1e3 * self.most_s,
            "places": dict(self.places),
            **asdict(way),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where answers are given: what their rates are held against."""

    one_way_ms: float
    legs_per_token: int
    threads: int
    cores: int


async def speculation(asked: Asked) -> list[SpeculationRow]:
    """One process answers everything first; then, for each length of links, one mesh in every way.

    A row for each answer, then the medians. Problems of a plan come before anything starts; RequestProblem
    when the weights do not fit twice.
    """
    model = asked.subject.opened()
    context = context_for(model.config, asked.longest)
    meshes = [asked.mesh(one_way_ms, context) for one_way_ms in asked.one_way_ms]
    legs = [mesh.plan(model).legs_per_token for mesh in meshes]
    asked.subject.refuse_copies(model, asked.dtype, 2)
    cores = free_cores()
    async with started([meshes[0].ground.references(context)[0]]) as (one,):
        alone = [
            await one.ask(asked.order(question, PLAIN)) for question in shown(asked.questions, "one process")
        ]
    rows = []
    for one_way_ms, mesh, n_legs in zip(asked.one_way_ms, meshes, legs):
        setting = Setting(one_way_ms=one_way_ms, legs_per_token=n_legs, threads=asked.threads, cores=cores)
        rows += await _on(mesh, setting, asked, alone)
    return [*rows, *medians(rows)]


async def _on(
    mesh: MeshFacts, setting: Setting, asked: Asked, alone: Sequence[Answer]
) -> list[SpeculationRow]:
    """Every question in every way on one mesh; the ways of a question follow each other."""
    turns = [(question, one, way) for question, one in zip(asked.questions, alone) for way in asked.ways]
    rows, plain = [], Answer()
    async with started([mesh.post()]) as (worker,):
        for question, one, way in shown(turns, f"{setting.one_way_ms:g} ms one way"):
            answer = await worker.ask(asked.order(question, way))
            plain = answer if way == PLAIN else plain
            rows.append(row(setting, question, way, answer, plain, one))
    return rows


# --- the arithmetic -------------------------------------------------------------------------------


def row(
    setting: Setting, question: Question, way: Way, answer: Answer, plain: Answer, alone: Answer
) -> SpeculationRow:
    """An answer beside the plain one of the same mesh, and that of one process."""
    one_ms = median(later - sooner for sooner, later in pairwise(alone["came_ms"]))
    tok_per_s, distinct = rate(answer), distinct_4gram_share(alone["token_ids"])
    floor_ms = setting.legs_per_token * setting.one_way_ms + one_ms
    full_ms = bottleneck_ms(setting.threads * one_ms, answer["draft_ms"], setting.cores)
    hits, misses = answer["judged"]
    share = hits / (hits + misses) if hits + misses else None
    n = len(answer["token_ids"])
    return SpeculationRow(
        draft=way.draft,
        mode=way.mode,
        k=way.k,
        prompts=question.prompt.kind,
        prompt=question.prompt.name,
        temperature=question.temperature,
        one_way_ms=setting.one_way_ms,
        legs_per_token=setting.legs_per_token,
        tokens=n,
        acceptance=share,
        tokens_per_traversal=(n - 1) / traversals(answer["hits"], answer["ahead"]),
        predicted_tokens_per_traversal=predicted(way, share or 0.0, answer["window"]),
        in_flight=1 + sum(answer["ahead"]) / n,
        tok_per_s=tok_per_s,
        plain_tok_per_s=rate(plain),
        serial_floor_tok_per_s=1e3 / floor_ms,
        ratio_to_serial_floor=tok_per_s * floor_ms / 1e3,
        bottleneck_ms=full_ms,
        share_of_bottleneck_rate=tok_per_s * full_ms / 1e3,
        distinct_4gram_share=distinct,
        counts=question.prompt.kind == "draftable" or distinct >= LEAST_DISTINCT,
        tokens_equal=answer["token_ids"] == alone["token_ids"][:n],
    )


def rate(answer: Answer) -> float:
    """Tokens a second after the first one.

    >>> rate({"came_ms": [100.0, 150.0, 200.0]})
    20.0
    """
    came_ms = answer["came_ms"]
    return float(1e3 * (len(came_ms) - 1) / (came_ms[-1] - came_ms[0]))


def bottleneck_ms(one_core_ms: float, draft_core_ms: float, cores: int) -> float:
    """What a token takes at least where stations and draft share `cores`: its work, spread over all of them.

    >>> bottleneck_ms(24.0, 10.0, 2)
    17.0
    """
    return (one_core_ms + draft_core_ms) / cores


def traversals(hits: Sequence[bool], ahead: Sequence[int]) -> int:
    """How often the links had to be waited for, one time after the other, since the first token.

    `hits`: whether each token was guessed; `ahead`: guesses under way behind it when it came. All that is
    under way when a traversal's first token comes is part of it; what a wrong guess voids is not.

    >>> traversals([False, False, False], [0, 0, 0])  # plain
    2
    >>> traversals([False, True, True, False, False], [3, 2, 1, 0, 0])  # a round of three, the last one wrong
    2
    """
    count, past = 0, 1 + ahead[0] + hits[0]
    for i in range(1, len(hits)):
        if i >= past or not hits[i - 1]:
            count += 1
            past = i + 1 + ahead[i] + hits[i]
    return max(1, count)


def predicted(way: Way, share: float, window: int) -> float:
    """Tokens for a traversal where a share of the guesses is right, each independently of the others."""
    if way.mode == "plain":
        return 1.0
    if way.mode == "rounds":
        return expected_round(share, way.k or 1)
    return window + 1.0 if share >= 1 else min(1 / (1 - share), window + 1.0)


def medians(rows: Sequence[SpeculationRow]) -> Iterator[SpeculationRow]:
    """A row for each way, kind of prompts, temperature and length of links, of the rows that count."""
    groups: dict[tuple[object, ...], list[SpeculationRow]] = {}
    for each in rows:
        key = (each.draft, each.mode, each.k, each.prompts, each.temperature, each.one_way_ms)
        groups.setdefault(key, []).append(each)
    for some in groups.values():
        yield _median([each for each in some if each.counts] or some, some)


def _median(counted: Sequence[SpeculationRow], some: Sequence[SpeculationRow]) -> SpeculationRow:
    def mid(name: str) -> float:
        return float(median(getattr(each, name) for each in counted))

    shares = [each.acceptance for each in counted if each.acceptance is not None]
    first = counted[0]
    return SpeculationRow(
        draft=first.draft,
        mode=first.mode,
        k=first.k,
        prompts=first.prompts,
        prompt="median",
        temperature=first.temperature,
        one_way_ms=first.one_way_ms,
        legs_per_token=first.legs_per_token,
        tokens=sum(each.tokens for each in counted),
        acceptance=median(shares) if shares else None,
        tokens_per_traversal=mid("tokens_per_traversal"),
        predicted_tokens_per_traversal=mid("predicted_tokens_per_traversal"),
        in_flight=mid("in_flight"),
        tok_per_s=mid("tok_per_s"),
        plain_tok_per_s=mid("plain_tok_per_s"),
        serial_floor_tok_per_s=mid("serial_floor_tok_per_s"),
        ratio_to_serial_floor=mid("ratio_to_serial_floor"),
        bottleneck_ms=mid("bottleneck_ms"),
        share_of_bottleneck_rate=mid("share_of_bottleneck_rate"),
        distinct_4gram_share=mid("distinct_4gram_share"),
        counts=any(each.counts for each in some),
        tokens_equal=all(each.tokens_equal for each in some),
    )
