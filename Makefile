# Needs git, make and Python 3.11 or newer; everything else comes into .venv.
PYTHON ?= $(shell for v in 3.11 3.12 3.13 3.14 3; do p=$$(command -v python$$v) && \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
UV := $(VENV)/bin/uv
RUN := $(UV) run --frozen --no-sync
STAMP := $(VENV)/.installed
# Processes that run tests side by side; each starts servers of its own. More than there are cores, because the tests of
# tests/integration wait half of the time for servers, pauses and time-outs of what they test.
# They take files in the order of the folders: at the end come those of tests/unit, which keep all busy equally long.
WORKERS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 2)))
# Of the long tests as many files side by side as there are cores, but for those that fill the machine by themselves.
LONG_WORKERS ?= $(shell getconf _NPROCESSORS_ONLN)
ALONE := $(addprefix tests/integration/,test_cluster.py test_image.py test_image_runtime.py test_postgres_members.py)
PARTITIONS ?= 4
# Not with several partitions: the tests of a cluster, of which most never have a ledger, and those of the image and the pages, which run
# commands of their own. Closing, restoring and backing up have tests of theirs that take several partitions.
NOT_PARTITIONED := kube closing test_log_backup.py test_restore_drills.py test_log_import.py test_docs_run.py test_image.py \
	test_image_runtime.py
# The part that CI runs with several partitions, because it is cheap and goes through publishing, reading, restored stores, deciders and
# an agent: some 40 s of processor time.
CI_PARTITIONED := $(addprefix tests/integration/,test_followed_log.py test_runner.py test_runner_decisions.py test_fenced_decisions.py \
	test_hostile_tail.py test_agent_away.py)
# mmdebstrap, buildah and umoci build the image; the others run it in tests.
IMAGE_TOOLS := mmdebstrap buildah umoci iproute2 util-linux mount containerd runc
# PyTorch's CPU build, which only tests of preflight checks need. It stands beside .venv, because uv removes from there
# what it has not installed, and is on the path of its Python.
TORCH ?= torch==2.13.0+cpu
TORCH_INDEX := https://download.pytorch.org/whl/cpu
TORCH_DIR := .torch
PROTOS := schemas/gpuledger/schemas/proto
KUBELET := services/gpuledger/agent/kubelet
REPORTS := services/gpuledger/healthreports
RUNTIME_PROXY := services/gpuledger/runtimeproxy

# Each of the many processes of a run would compile every module anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install torch demo image image-tools test test-long test-partitions check fmt lint bench vectors test-faults schemas protos recordings clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## Install the locked dependencies and gpuledger into .venv

$(UV):
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer was not found; install it or say make PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip --disable-pip-version-check install --quiet 'uv>=0.9'

$(STAMP): pyproject.toml uv.lock | $(UV)
	$(UV) sync --quiet --frozen --all-groups
	@touch $@

torch: $(STAMP) ## Install PyTorch's CPU build beside .venv, for the tests of preflight checks that measure with it
	@test -d $(TORCH_DIR)/torch || $(VENV)/bin/python -m pip install --quiet --target $(TORCH_DIR) '$(TORCH)' || \
		$(VENV)/bin/python -m pip install --quiet --target $(TORCH_DIR) --index-url $(TORCH_INDEX) '$(TORCH)'
	@$(VENV)/bin/python -c 'import pathlib, sysconfig; pathlib.Path(sysconfig.get_path("purelib"), "gpuledger-torch.pth")\
		.write_text(str(pathlib.Path("$(TORCH_DIR)").absolute()))'

demo: $(STAMP) ## Import a fleet's history, query it, verify the tables (under two minutes)
	$(RUN) gpuledger demo

image: $(STAMP) ## Build the image without docker, on Debian's packages, into dist/image (root, Debian)
	image/build dist/image $(UV)

image-tools: ## Install what builds and runs the image, from Debian (root)
	apt-get update --quiet --quiet
	DEBIAN_FRONTEND=noninteractive apt-get install --quiet --quiet --yes --no-install-recommends $(IMAGE_TOOLS)

test: $(STAMP) ## Run the whole suite, on real NATS and PostgreSQL servers that it starts
	$(RUN) pytest -q --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

check: lint test test-long ## Run what CI runs: format, lint, names, types, layers, layout, then make test, then the long tests

lint: $(STAMP)
	$(RUN) ruff format --check .
	$(RUN) ruff check .
	$(RUN) python tests/support/naming.py
	$(RUN) mypy
	$(RUN) lint-imports
	$(RUN) pytest -q --no-header tests/unit/repository/test_layout.py

fmt: $(STAMP) ## Format the code and fix lint findings
	$(RUN) ruff format .
	$(RUN) ruff check --fix .

schemas: $(STAMP) ## Regenerate the JSON Schemas of events and the structure of built-in Kubernetes types
	$(RUN) python -m gpuledger.events.catalogue schemas/gpuledger/schemas/events
	$(RUN) python -m gpuledger.local.kubeapi.builtin

protos: $(STAMP) ## Regenerate the messages of the kubelet's APIs, of container runtimes and of health monitors from their .proto files
	$(RUN) python -m grpc_tools.protoc --proto_path=$(PROTOS) --python_out=$(KUBELET) --pyi_out=$(KUBELET) \
		deviceplugin.proto podresources.proto
	$(RUN) python -m grpc_tools.protoc --proto_path=$(PROTOS) --python_out=$(REPORTS) --pyi_out=$(REPORTS) \
		healthevents.proto nodeinformation.proto
	$(RUN) python -m grpc_tools.protoc --proto_path=$(PROTOS) --python_out=$(RUNTIME_PROXY) --pyi_out=$(RUNTIME_PROXY) \
		cri.proto

bench: $(STAMP) ## Measure; prints one table and writes bench-results.json
	$(RUN) python tests/bench/main.py

test-long: $(STAMP) ## Run the long tests: releases by Helm, restore drills, 34 stories of faults, whole histories, more examples of properties, some on 4 partitions
	$(RUN) pytest -q -rs -m long --numprocesses $(LONG_WORKERS) --dist loadfile $(ALONE:%=--ignore=%)
	$(RUN) pytest -q -rs -m long $(ALONE)
	$(RUN) pytest -q --numprocesses $(WORKERS) --hypothesis-profile long tests/properties
	$(RUN) pytest -q -rs --numprocesses $(WORKERS) --dist loadfile --partitions $(PARTITIONS) $(CI_PARTITIONED)

test-partitions: $(STAMP) ## Run the integration tests on ledgers of 4 partitions; PARTITIONS=3 is another number
	$(RUN) pytest -q -rs --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder --partitions $(PARTITIONS) \
		$(NOT_PARTITIONED:%=--ignore=tests/integration/%) tests/integration

vectors: $(STAMP) ## Compare with recorded verdicts of real allocators in DIR, a folder of .jsonl files: of DRA, of shared GPUs
	@test -d "$(DIR)" || { echo "Say which folder: make vectors DIR=path/to/folder"; exit 2; }
	PYTHONPATH=tests $(RUN) python -m support.vectors "$(DIR)"

recordings: $(STAMP) ## Read the outputs of others' tools in DIR, a folder with one folder per tool
	@test -d "$(DIR)" || { echo "Say which folder: make recordings DIR=path/to/folder"; exit 2; }
	PYTHONPATH=tests $(RUN) python -m support.tool_outputs "$(DIR)"

test-faults: $(STAMP) ## Tell 1,000 stories of faults, and kill everything at random moments (hours)
	$(RUN) pytest -q -m faults -s --timeout=3600

clean: ## Remove build results
	rm -rf $(VENV) $(TORCH_DIR) dist build .demo
