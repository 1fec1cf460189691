"""Generate from a model in this process: python examples/one_process.py MODEL [PROMPT]."""

import sys
from pathlib import Path

from trisplit.models.decoder import Decoder
from trisplit.models.generation import Generation, Request
from trisplit.models.model import open_model
from trisplit.models.sampling import Sampling

path = Path(sys.argv[1])
prompt = sys.argv[2] if len(sys.argv) > 2 else "The capital of France is"

tokenizer = open_model(path).tokenizer()
decoder = Decoder.load(path, "int8", threads=1, context=256)
request = Request(
    prompt_ids=tuple(tokenizer.encode(prompt)),
    sampling=Sampling(temperature=0.7, top_p=0.9, seed=1),
    max_tokens=24,
    eos_ids=tokenizer.eos_ids,
)
answer = Generation(request, tokenizer.detokenizer(), decoder.context)
for piece in decoder.generate(answer):
    print(piece.text, end="", flush=True)
print(f"\n[{len(answer.token_ids)} tokens, ended by {answer.finished}]")
