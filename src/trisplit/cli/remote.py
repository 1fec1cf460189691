"""A mesh that is up, asked from another process: a question, its status, its end."""

from __future__ import annotations

import sys
from dataclasses import asdict

from msgspec import structs

from trisplit.cli import reported
from trisplit.cli.answered import Answered, show
from trisplit.cli.progress import bars
from trisplit.errors import RequestProblem
from trisplit.mesh.batching import BatchVerdict
from trisplit.mesh.client import Client, client
from trisplit.mesh.drafting import Gain
from trisplit.mesh.facts import StationFacts
from trisplit.mesh.trust import Trust
from trisplit.models.generation import Request
from trisplit.models.wish import Wish
from trisplit.wire import questions
from trisplit.wire.questions import MOST_CHARACTERS, MOST_STOPS, How, Judge, Judging, Question, Token, Waiting


async def ask(address: str, wish: Wish, trust: Trust, *, as_json: bool) -> None:
    """The whole way of `trisplit generate --mesh`."""
    question = _question(wish)
    async with client(address, trust) as mesh:
        answered = await _answered(mesh, question, aloud=not as_json)
    show(answered, as_json=as_json)


async def judge_batches(
    address: str, trust: Trust, *, sessions: int | None, tokens: int, rounds: int
) -> BatchVerdict:
    """The way of `trisplit gate batch --mesh`: the mesh measures, and sends by the verdict from then on."""
    async with client(address, trust) as mesh:
        order = Judge(sessions or (await mesh.report()).sessions, tokens, rounds)
        with bars() as show:
            async for said in mesh.judge(order):
                if isinstance(said, Judging):
                    show.advance("measuring", said.done, said.total, f"{said.done} of {said.total}")
                else:
                    verdict = BatchVerdict(**structs.asdict(said.batch))
    return verdict


async def show_status(address: str, trust: Trust, *, as_json: bool) -> None:
    """The whole way of `trisplit status`."""
    async with client(address, trust) as mesh:
        reported.show(await mesh.report(), as_json=as_json)


async def take_down(address: str, trust: Trust) -> None:
    """The whole way of `trisplit down`."""
    async with client(address, trust) as mesh:
        await mesh.end()


async def _answered(mesh: Client, question: Question, *, aloud: bool) -> Answered:
    """Asks, printing the text as it comes if `aloud`; what it took is told by the mesh."""
    tokens: list[Token] = []
    async for said in mesh.answer(question):
        match said:
            case Waiting(ahead=ahead) if aloud:
                print(f"waiting for a session, {ahead} before this one", file=sys.stderr)
            case Token():
                tokens.append(said)
                if aloud:
                    print(said.text, end="", flush=True)
            case questions.Answered():
                end = said
    if aloud:
        print(flush=True)
    now = await mesh.report()
    return Answered(
        text="".join(token.text for token in tokens),
        token_ids=[token.token_id for token in tokens],
        finish_reason=end.finish_reason,
        prompt_tokens=end.prompt_tokens,
        stations=[StationFacts(**structs.asdict(station)) for station in now.stations],
        spares=list(now.spares),
        legs_per_token=now.legs_per_token,
        threads=now.threads,
        context=now.context,
        max_tokens=question.max_tokens,
        first_token_ms=end.first_token_ms,
        ms_per_token=end.ms_per_token,
        tok_per_s=1e3 / end.ms_per_token if end.ms_per_token else None,
        identity_withheld=now.mixed or None,
        drafts=Gain(**structs.asdict(end.drafts)) if end.drafts else None,
    )


def _question(wish: Wish) -> Question:
    """The wish for the wire. RequestProblem for what no mesh would take."""
    Request(prompt_ids=(0,), sampling=wish.sampling, max_tokens=wish.max_tokens, stop=wish.stop)
    if len(wish.prompt) > MOST_CHARACTERS:
        what = f"the prompt has {len(wish.prompt):,} characters, a mesh takes {MOST_CHARACTERS:,}"
        raise RequestProblem(what, fix="shorten it")
    if len(wish.stop) > MOST_STOPS:
        what = f"{len(wish.stop)} texts to stop at, a mesh takes {MOST_STOPS}"
        raise RequestProblem(what, fix="give fewer")
    try:
        wish.prompt.encode()
    except UnicodeEncodeError:
        what = "the prompt is not valid Unicode"
        raise RequestProblem(what, fix="give text that is valid Unicode (UTF-8)") from None
    return Question(
        text=wish.prompt,
        as_chat=wish.as_chat,
        how=How(**asdict(wish.sampling)),
        max_tokens=min(wish.max_tokens, 2**63),
        stop=wish.stop,
        ignore_eos=wish.ignore_eos,
    )
