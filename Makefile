# Everything happens in .venv; each target makes what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CC ?= gcc
CXX ?= g++

.PHONY: help demo test test-compile test-deploy test-image test-door test-ray test-gpu check bench proto clean
help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[server,door,score,replay,report,loadgen,dev]'
	touch $@

build/floor: bench/floor.c
	mkdir -p build
	$(CC) -O2 -Wall -Wextra -Wpedantic -Werror -std=gnu11 -o $@ $<

build/asker: bench/asker.c
	mkdir -p build
	$(CC) -O2 -Wall -Wextra -Wpedantic -Werror -std=gnu11 -o $@ $<

build/latency: clients/cpp/tools/latency.cpp $(wildcard clients/cpp/include/tickpath/*.hpp clients/cpp/include/tickpath/detail/*.hpp)
	mkdir -p build
	$(CXX) -O2 -Wall -Wextra -Wpedantic -Werror -std=c++17 -I clients/cpp/include -o $@ $<

demo: $(VENV)/ready build/floor  ## serve a model, stream a synthetic book to it, show the latency
	$(BIN)/tickpath demo --floor build/floor

test: $(VENV)/ready build/floor  ## run every test
	$(BIN)/pytest -n auto tests/conformance tests/fuzz tests/sim tests/unit tests/wire
	$(BIN)/pytest -n auto --dist loadfile tests/integration --ignore tests/integration/loadtest
	$(BIN)/pytest tests/cpp tests/integration/loadtest

$(VENV)/ready-compile: $(VENV)/ready
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[torch,tensorrt-rtx,openvino]'
	touch $@

test-compile: $(VENV)/ready-compile  ## compile for every engine; installs TensorRT-RTX, torch and OpenVINO, needs no GPU
	$(BIN)/pytest -n auto tests/compile

test-deploy: $(VENV)/ready  ## check deploy/ with Prometheus, promtool, systemd-analyze, hadolint; installs what is missing
	tests/install-tools
	$(BIN)/pytest tests/deploy

test-image: $(VENV)/ready  ## build the CPU image's two stages without an engine, and run it
	tests/install-tools
	$(BIN)/pytest tests/image

# Without a pip of its own, which takes as long as a fifth of the rest.
build/clients/ready: tests/door/requirements.txt $(VENV)/ready
	$(PYTHON) -m venv --clear --without-pip build/clients
	$(BIN)/pip --python build/clients/bin/python install --quiet --disable-pip-version-check --no-deps --no-compile -r $<
	touch $@

test-door: $(VENV)/ready build/clients/ready  ## ask the door with KServe's client, Triton's newest, perf_analyzer; installs them
	tests/install-tools
	$(BIN)/pytest tests/door

$(VENV)/ready-ray: $(VENV)/ready
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[ray]'
	touch $@

test-ray: $(VENV)/ready-ray  ## score on a local Ray; installs it
	$(BIN)/pytest tests/ray

# A torch that is there already stays: install the build for this driver's CUDA first, where the index has another.
$(VENV)/ready-gpu: $(VENV)/ready
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[torch,cuda]'
	touch $@

test-gpu: $(VENV)/ready-gpu  ## run what needs an NVIDIA GPU, then measure it; installs torch
	$(BIN)/pytest tests/gpu
	$(BIN)/python -m bench.gpu

check: $(VENV)/ready  ## format, lint, types, import directions
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/basedpyright --project tests/typing --pythonpath $(BIN)/python
	$(BIN)/lint-imports --no-cache

bench: $(VENV)/ready build/floor build/latency  ## measure against the C floor, in one run
	$(BIN)/python -m bench

# Generated code runs with its own release of protobuf and the next major one: an older generator takes in more of them.
PROTO := server/tickpath/door/proto/open_inference
proto:
	$(PYTHON) -m venv build/protoc
	build/protoc/bin/pip install --quiet --disable-pip-version-check grpcio-tools==1.81.1
	cd server && ../build/protoc/bin/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. $(PROTO:server/%=%).proto

clean:  ## remove what the other targets made
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
