# Everything happens in .venv; each target makes what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CC ?= gcc

.PHONY: help demo test test-compile test-gpu check bench clean
help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[server,replay,report,loadgen,dev]'
	touch $@

build/floor: bench/floor.c
	mkdir -p build
	$(CC) -O2 -Wall -Wextra -Wpedantic -Werror -std=gnu11 -o $@ $<

demo: $(VENV)/ready build/floor  ## serve a model, stream a synthetic book to it, show the latency
	$(BIN)/tickpath demo --floor build/floor

test: $(VENV)/ready build/floor  ## run every test
	$(BIN)/pytest -n auto tests/conformance tests/fuzz tests/sim tests/unit tests/wire
	$(BIN)/pytest -n auto --dist loadfile tests/integration --ignore tests/integration/loadtest
	$(BIN)/pytest tests/integration/loadtest

$(VENV)/ready-compile: $(VENV)/ready
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[torch,tensorrt-rtx,openvino]'
	touch $@

test-compile: $(VENV)/ready-compile  ## compile for every engine; installs TensorRT-RTX, torch and OpenVINO, needs no GPU
	$(BIN)/pytest -n auto tests/compile

test-gpu: $(VENV)/ready  ## run what needs an NVIDIA GPU, then measure it
	$(BIN)/pytest tests/gpu
	$(BIN)/python -m bench.gpu

check: $(VENV)/ready  ## format, lint, types, import directions
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: $(VENV)/ready build/floor  ## measure against the C floor, in one run
	$(BIN)/python -m bench

clean:  ## remove what the other targets made
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
