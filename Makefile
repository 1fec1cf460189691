# setup · check · test · demo · bench: the verbs people and CI use. They need Python 3.11+ and a package registry.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
ORACLE := .venv-oracle
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: setup check format assets test test-all oracle oracle-check demo clean
setup: $(VENV)/ready

$(VENV)/ready: pyproject.toml constraints.txt $(wildcard launcher/*)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

check: setup
	$(BIN)/ruff check src tests examples launcher
	$(BIN)/ruff format --check src tests examples launcher
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff check --fix src tests examples launcher
	$(BIN)/ruff format src tests examples launcher

# The model and the tokenizer vectors that tests compare with; kept in the user's cache directory.
assets: setup
	for name in smollm2 tokenizer-vectors; do $(BIN)/trisplit fetch $$name || exit 1; done

test: setup assets
	$(BIN)/pytest -m "not slow"

test-all: setup assets oracle-check
	$(BIN)/pytest

demo: setup
	$(BIN)/trisplit fetch smollm2
	$(BIN)/trisplit generate smollm2 "Why is the sky blue?" --chat --stations 4 --topology chain --max-tokens 96 --check

# What transformers says about every model, stored in tests/oracle/stored; the check recomputes and compares.
oracle oracle-check: setup $(ORACLE)/ready
	for name in smollm2 gemma3-270m qwen2.5-coder-0.5b; do $(BIN)/trisplit fetch $$name || exit 1; done
	PYTHONPATH=src TQDM_DISABLE=1 nice $(ORACLE)/bin/python -m tests.oracle.compute $(if $(filter %-check,$@),--check)

$(ORACLE)/ready: tests/oracle/requirements.txt
	test -x $(ORACLE)/bin/python || $(PYTHON) -m venv $(ORACLE)
	$(ORACLE)/bin/pip install --quiet --requirement $<
	touch $@

# Our models behind lm-evaluation-harness, on a task of a file; its libraries are another 700 MB.
EVAL := .venv-eval
.PHONY: eval-check
eval-check: $(EVAL)/ready
	$(EVAL)/bin/python -m pytest tests/harness

$(EVAL)/ready: pyproject.toml constraints.txt
	test -x $(EVAL)/bin/python || $(PYTHON) -m venv $(EVAL)
	$(EVAL)/bin/pip install --quiet --constraint constraints.txt --editable '.[dev,eval]'
	touch $@

# What transformers and llama.cpp make of every export of the tiny models, stored beside the answers.
.PHONY: oracle-exports
oracle-exports: setup $(ORACLE)/ready peers
	rm -rf build/exports && mkdir -p build/exports
	PYTHONPATH=src $(BIN)/python -m tests.oracle.exports make build/exports
	PYTHONPATH=src TQDM_DISABLE=1 $(ORACLE)/bin/python -m tests.oracle.exports transformers build/exports
	PYTHONPATH=src $(PEERS)/bin/python -m tests.oracle.exports llama.cpp build/exports

# The engines that `trisplit bench decode --peers` measures beside ours; llama.cpp takes some minutes to build.
PEERS := .venv-peers
LLAMA := llama-cpp-python==0.3.36
.PHONY: peers bench
peers: $(PEERS)/ready

$(PEERS)/ready: tests/oracle/requirements.txt
	test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/pip install --quiet --requirement $<
	CMAKE_ARGS=-DGGML_RPC=ON $(PEERS)/bin/pip install --quiet --no-binary llama-cpp-python $(LLAMA)
	touch $@

# The engines that `trisplit bench cache` and `bench energy` time scripts beside; as npm has them.
.PHONY: peers-scripts
peers-scripts: .peers/ready

.peers/ready:
	npm install --prefix .peers --no-fund --no-audit bun@1.4.5 deno@2.9.6 node@24.21.0 && touch $@ || \
		echo "npm did not install them: their rows are left out" >&2

# What a hit costs is measured as users have it: installed from a wheel.
INSTALLED := .venv-installed
bench-cache bench-energy: MEASURED = $(INSTALLED)/bin
bench-cache bench-energy: peers-scripts $(INSTALLED)/ready

$(INSTALLED)/ready: pyproject.toml constraints.txt $(shell find src launcher -name '*.py' -o -name '*.[chj]*')
	test -x $(INSTALLED)/bin/python || $(PYTHON) -m venv $(INSTALLED)
	$(INSTALLED)/bin/pip install --quiet --constraint constraints.txt --upgrade .
	touch $@

# Every ruler, on a machine that does nothing else; what they print is kept in benchmarks/ (docs/benchmarks.md).
decode_run := bench decode smollm2 --peers transformers,llama.cpp
mesh_run := bench mesh smollm2
dtypes_run := bench dtypes smollm2
int4_run := bench int4 smollm2 --rotate 1 --methods nearest,searched,blocks,propagated,fitted --threads 2
draft_run := bench draft smollm2 --draft ngram,twin:int8,twin:int4
# Each answer is ended after a while: a plain one of 192 tokens at 50 ms would take over a minute.
speculated := bench speculation smollm2 --stations 6 --tokens 192 --most-s 8
speculation_run := $(speculated) --drafts twin:int8 --one-way-ms 5,20,50 --temperature 0 --plot docs/speculation.svg
speculation-ngram_run := $(speculated) --drafts ngram,auto --modes stream --one-way-ms 50 --temperature 0 --prompts draftable
speculation-warm_run := $(speculated) --drafts twin:int8 --one-way-ms 50 --temperature 0.8 --prompts novel --k 8
speculation-int8_run := $(speculated) --drafts ngram,twin:int4 --one-way-ms 50 --temperature 0 --prompts draftable \
	--dtype int8 --modes stream
speculation-hopeless_run := $(speculated) --drafts ngram --modes auto --one-way-ms 20 --temperature 0.8 --prompts novel
# FFNs of three sizes, all variants in turns; then the steps of a recipe in a whole model.
ffn_run := bench ffn smollm2 qwen-0.5b phi-3-mini
stack_run := bench stack smollm2
# What was judged is kept in the cache: run again, only the times are taken anew.
compress_run := bench compress smollm2 --methods dense,ours,flap --threads 2
compress-qwen_run := bench compress qwen2.5-coder-0.5b --methods dense,ours,flap --tokens 16384 --held-out-tokens 4096 --threads 2
compress-others_run := bench compress smollm2 --methods ours-uniform,flap-global,wanda,magnitude --threads 2
compress-ablation_run := bench compress smollm2 --methods dense --keep 0.5 --held-out-tokens 8192 --ablation --untimed --threads 2
frontier_run := compress smollm2 --fit --gate ppl=1.05 --tokens 131072 --out $$(mktemp -d)/twin --plot docs/frontier.svg --threads 2
diagnosis_run := diagnose smollm2 --recipe allocated --keep 0.75 --tokens 131072 --plot docs/diagnosis.svg --threads 2
memory_run := bench memory smollm2 --dtype f32,int8,int4
wire_run := bench wire
failover_run := bench failover smollm2
ladder_run := bench mesh smollm2 --stations 6 --one-way-ms 20 --tokens 8 --warm 2-8 --rounds 2 --plot docs/ladder.svg
thirds-ring_run := bench mesh smollm2 --stations 3 --one-way-ms 5 --cuts thirds --topologies ring --tokens 32 --rounds 3
layers-6_run := bench mesh smollm2 --stations 6 --one-way-ms 20 --cuts layers --topologies chain,ring --tokens 32 --rounds 3
levers_run := bench mesh smollm2 --stations 3 --cuts thirds,recut --topologies star,ring --levers none,batched,routed,batched+routed
ahead_run := bench mesh smollm2 --stations 6 --one-way-ms 20 --cuts thirds --topologies ring --levers none,overlap --tokens 8 --rounds 2
overlap_run := gate overlap smollm2 --rounds 20 --limit 1e-4
uneven_run := bench mesh smollm2 --stations 3 --one-way-ms 5 --far s3=3 --slow s2=2 --tokens 12 --rounds 2
origin_run := bench mesh --stage-ms 187,148,207 --ends-ms 2170 --layers 60 --time-scale 0.1 --stations 3 --one-way-ms 20 \
	--cuts thirds,recut --topologies star,ring --tokens 3 --rounds 1
sessions_run := bench sessions smollm2 --sessions 8 --stations 6 --one-way-ms 20 --levers none,batched --rounds 2
prefill_run := bench prefill smollm2 --prompt 2000 --stations 6 --one-way-ms 20 --rounds 2
prefill-waiting_run := bench prefill --stage-ms 5,5,5 --layers 30 --width 576 --prompt 2000 --stations 6 --one-way-ms 20 --rounds 1
cache_run := bench cache --peers bun,deno,node
energy_run := bench energy --operations 93000 --peers bun,deno,node --pue 1.2 --ops-per-day 1e9 --nodes 1000
batch_run := gate batch smollm2 --stations 6 --sessions 8 --topology ring
RULERS := decode mesh dtypes int4 draft ffn stack compress compress-qwen compress-others compress-ablation frontier diagnosis memory wire failover ladder thirds-ring layers-6 levers ahead overlap uneven origin sessions \
	prefill prefill-waiting batch cache energy speculation speculation-ngram speculation-warm speculation-int8 speculation-hopeless

bench: peers
	for ruler in $(RULERS); do $(MAKE) --no-print-directory bench-$$ruler || exit 1; done

MEASURED = $(BIN)
bench-%: setup
	mkdir -p benchmarks
	$(MEASURED)/trisplit $($*_run) --json > benchmarks/$*.part
	mv benchmarks/$*.part benchmarks/$*.json

clean:
	rm -rf $(VENV) .venv-* .peers build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
