"""A conversation in the terminal: history, /reset, and only what is new passes the model again."""

from __future__ import annotations

import asyncio
import io
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager

from trisplit.cli.engines import Engine, engine
from trisplit.cli.names import find_model
from trisplit.cli.settings import Settings
from trisplit.errors import RequestProblem, UnknownName
from trisplit.models.generation import Generation, Request
from trisplit.models.model import open_model
from trisplit.models.sampling import Sampling
from trisplit.models.tokenizer import Tokenizer

HELP = "/reset forgets what was said, Ctrl-C stops an answer, /exit or Ctrl-D ends"


class Conversation:
    """What was said, and which tokens the engine holds keys and values of."""

    def __init__(
        self, loaded: Engine, tokenizer: Tokenizer, how: Sampling, *, system: str, max_tokens: int
    ) -> None:
        self._engine, self._tokenizer, self._how, self._max_tokens = loaded, tokenizer, how, max_tokens
        self._opening = [{"role": "system", "content": system}] if system else []
        self.reset()

    def reset(self) -> None:
        """Forgets everything but the opening."""
        self._said = list(self._opening)
        self._held: list[int] = []

    async def turn(self, text: str) -> None:
        """Answers one message on standard output.

        The prompt of a turn begins with the turns before; its longest prefix that the engine holds
        already is kept, and the rest runs from there.
        """
        said = [*self._said, {"role": "user", "content": text}]
        ids = self._tokenizer.encode_chat(said)
        request = Request(
            prompt_ids=tuple(ids),
            sampling=self._how,
            max_tokens=self._max_tokens,
            eos_ids=self._tokenizer.eos_ids,
        )
        kept = common_prefix(self._held, ids[:-1])
        answer = Generation(request, self._tokenizer.detokenizer(), self._engine.context, kept=kept)
        if not self._held:
            await self._engine.start()
        self._held = self._held[:kept]
        with _ctrl_c() as pressed:
            async with aclosing(self._engine.generate(answer)) as pieces:
                async for piece in pieces:
                    print(piece.text, end="", flush=True)
                    if pressed():
                        break
        print(flush=True)
        # The last token was sampled but never fed: nothing is held of it.
        self._held = [*ids, *answer.token_ids[:-1]]
        self._said = [*said, {"role": "assistant", "content": answer.text}]


def common_prefix(held: list[int], wanted: list[int]) -> int:
    """How many leading ids agree.

    >>> common_prefix([1, 2, 3], [1, 2, 4, 5]), common_prefix([], [1])
    (2, 0)
    """
    return next((i for i, (a, b) in enumerate(zip(held, wanted)) if a != b), min(len(held), len(wanted)))


async def talk(name: str, where: Settings, how: Sampling, *, system: str, max_tokens: int) -> None:
    """The whole way of `trisplit chat`."""
    model = open_model(find_model(name))
    tokenizer = model.tokenizer()
    # What no turn could do is refused before anything is loaded: no template, no room for an answer.
    greeting = tokenizer.encode_chat([{"role": "user", "content": "-"}])
    Request(prompt_ids=tuple(greeting), sampling=how, max_tokens=max_tokens)
    async with engine(model, where) as loaded:
        conversation = Conversation(loaded, tokenizer, how, system=system, max_tokens=max_tokens)
        for line in (*(loaded.overlap.lines() if loaded.overlap else ()), HELP):
            print(line, file=sys.stderr)
        lines = _Lines()
        while (line := await lines.next()) not in (None, "/exit"):
            if line == "/reset":
                conversation.reset()
                print("forgotten", file=sys.stderr)
            elif line and line.startswith("/"):
                problem = UnknownName("command", line.split()[0], ("/reset", "/exit"))
                print(f"{problem.what}: {problem.fix}", file=sys.stderr)
            elif line:
                await _answered(conversation, line)


async def _answered(conversation: Conversation, line: str) -> None:
    """One turn; a conversation that has outgrown the context is no reason to end it."""
    try:
        await conversation.turn(line)
    except RequestProblem as problem:
        print(f"error: {problem.what}\n  fix: {problem.fix}, or /reset", file=sys.stderr)


@contextmanager
def _ctrl_c() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed, for as long as an answer lasts; pressed twice it ends the program."""
    pressed: list[int] = []

    def press(number: int, _: object) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)

    before = signal.signal(signal.SIGINT, press)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


class _Lines:
    """Lines a person types. A thread reads them, one that does not keep the process from ending."""

    def __init__(self) -> None:
        self._lines: asyncio.Queue[str] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def read() -> None:
            try:
                for line in sys.stdin:
                    loop.call_soon_threadsafe(self._lines.put_nowait, line)
            finally:
                loop.call_soon_threadsafe(self._lines.put_nowait, "")

        if isinstance(sys.stdin, io.TextIOWrapper):  # what is no text is refused by the turn it comes in
            sys.stdin.reconfigure(errors="surrogateescape")
        threading.Thread(target=read, daemon=True).start()

    async def next(self) -> str | None:
        """The next line, stripped; None at the end of input."""
        if sys.stdin.isatty():
            print("> ", end="", file=sys.stderr, flush=True)
        line = await self._lines.get()
        return line.strip() if line else None
