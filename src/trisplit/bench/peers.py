"""The child's half of a bench, and the peers that speak it: a script for any Python, with us or without.

Only the standard library is imported on top. Peers are named by strings where they are used: nothing of ours
depends on them.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NoReturn

Order = dict[str, Any]
Answer = dict[str, Any]
Step = Callable[[list[int], int], Awaitable[int]]
"""Feeds ids, the first of which stands at a position (0 begins anew), and returns the likeliest next id."""


class Line:
    """The way to the parent: orders come in and answers go out, one JSON object a line.

    This process ends when its standard input does, whatever it is doing: the parent is gone then.
    """

    def __init__(self) -> None:
        # Not sys.stdin, which the end of the process could not close while a thread reads from it.
        self._in = os.fdopen(os.dup(0), encoding="utf-8")
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)  # what an engine prints must not stand between our answers
        self._orders: SimpleQueue[Order] = SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> NoReturn:
        for line in self._in:
            self._orders.put(json.loads(line))
        os._exit(0)

    def say(self, answer: Mapping[str, Any]) -> None:
        """One answer, now."""
        print(json.dumps(answer), file=self._out, flush=True)

    def refuse(self, what: str, fix: str) -> NoReturn:
        """Why there will be no answers; the end of this process."""
        self.say({"problem": what, "fix": fix})
        sys.exit(1)

    async def serve(self, ready: Answer, answer: Callable[[Order], Awaitable[Answer]]) -> None:
        """Says `ready`, then answers orders as they come."""
        self.say(ready)
        while True:
            self.say(await answer(await asyncio.to_thread(self._orders.get)))


async def stretch(step: Step, order: Order) -> Answer:
    """A prompt, some tokens to warm up on, and the tokens that count, each decoded from the one before.

    `order`: prompt_ids, warm, tokens. Answers `token_ids`, all that were chosen, `first_ms`, how long the
    prompt took, and `ms`, the time of each token that counts, from its id to the next one's.
    """
    position, began = len(order["prompt_ids"]), time.perf_counter()
    token_ids, ms = [await step(order["prompt_ids"], 0)], []
    first_ms = 1e3 * (time.perf_counter() - began)
    for _ in range(order["warm"] + order["tokens"]):
        began = time.perf_counter()
        token = await step(token_ids[-1:], position)
        ms.append(1e3 * (time.perf_counter() - began))
        token_ids.append(token)
        position += 1
    return {"token_ids": token_ids, "first_ms": first_ms, "ms": ms[order["warm"] :]}


# --- peers ----------------------------------------------------------------------------------------


def transformers(model: Path, threads: int, _context: int) -> tuple[Answer, Step]:
    """transformers on the CPU in float32, with its cache of keys and values as it comes."""
    os.environ["TQDM_DISABLE"] = "1"
    torch, hf = import_module("torch"), import_module("transformers")
    torch.set_num_threads(threads)
    hf.utils.logging.set_verbosity_error()
    import_module("warnings").simplefilter("ignore", FutureWarning)
    folder, file = (model, {}) if model.is_dir() else (model.parent, {"gguf_file": model.name})
    net = hf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **file).eval()
    cache = hf.DynamicCache(config=net.config)

    async def step(ids: list[int], position: int) -> int:
        nonlocal cache
        if position == 0:
            cache = hf.DynamicCache(config=net.config)
        with torch.inference_mode():
            rows = net(torch.tensor([ids]), past_key_values=cache, use_cache=True, logits_to_keep=1).logits
            return int(rows[0, -1].argmax())

    kernels = net.config._attn_implementation
    return {
        "detail": f"transformers {hf.__version__}, torch {torch.__version__}, attention {kernels}",
        "dtype": "f32",
    }, step


def llama_cpp(model: Path, threads: int, context: int) -> tuple[Answer, Step]:
    """llama.cpp on the GGUF file as it is, through its C interface: no time goes to its Python wrapper."""
    import_module("logging").getLogger("llama-cpp-python").setLevel("ERROR")
    c, np, ctypes = import_module("llama_cpp.llama_cpp"), import_module("numpy"), import_module("ctypes")
    net = c.llama_model_load_from_file(str(model).encode(), c.llama_model_default_params())
    wanted = c.llama_context_default_params()
    wanted.n_ctx, wanted.n_threads, wanted.n_threads_batch = context, threads, threads
    state = c.llama_init_from_model(net, wanted)
    if not state:
        raise ValueError("llama.cpp cannot load it")
    vocab = c.llama_vocab_n_tokens(c.llama_model_get_vocab(net))

    async def step(ids: list[int], position: int) -> int:
        if position == 0:
            c.llama_memory_clear(c.llama_get_memory(state), False)
        tokens = (c.llama_token * len(ids))(*ids)
        if c.llama_decode(state, c.llama_batch_get_one(tokens, len(ids))):
            raise ValueError(f"llama.cpp could not decode position {position}")
        return int(np.ctypeslib.as_array(c.llama_get_logits_ith(state, -1), shape=(vocab,)).argmax())

    said = ctypes.create_string_buffer(128)
    c.llama_model_desc(net, said, len(said))  # such as "llama 135M Q4_1"
    dtype = said.value.decode().split(" ", 2)[-1]
    return {"detail": f"llama-cpp-python {version('llama_cpp_python')}", "dtype": dtype}, step


PEERS: dict[str, Callable[[Path, int, int], tuple[Answer, Step]]] = {
    "transformers": transformers,
    "llama.cpp": llama_cpp,
}


def main(peer: str, model: str, threads: str, context: str) -> None:
    """Loads a peer and serves it until standard input ends."""
    line = Line()
    try:
        ready, step = PEERS[peer](Path(model), int(threads), int(context))
    except ImportError as error:
        line.refuse(f"{sys.executable} has no {error.name} to run {peer} with", fix="make peers")
    except (OSError, ValueError, KeyError) as error:
        line.refuse(f"{peer} does not run {model}: {error}", fix="leave it out of --peers")
    asyncio.run(line.serve(ready, lambda order: stretch(step, order)))


if __name__ == "__main__":
    main(*sys.argv[1:])
