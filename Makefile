# `make` alone lists the targets.
# ARGS is passed on:  make run ARGS='-p num_iterations 2000 -p seed 3'
# PYTHON names the Python 3.11 to build .venv with, where it is not on PATH.

.PHONY: help setup run doctor test check torture soak bench bench-scaling bench-collection ray-results lab lock clean
.DEFAULT_GOAL := help

PY := .venv/bin/python

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 22

setup: ## make .venv from requirements.lock (nothing, if that is done)
	@scripts/setup.sh

run: setup ## train the Minitaur: notebooks/03_sac_minitaur.ipynb into a new folder under runs/
	@$(PY) -m labkit.launch notebooks/03_sac_minitaur.ipynb $(ARGS)

doctor: setup ## does everything that labkit needs work on this machine?
	@$(PY) -m labkit.doctor

test: setup ## run all tests, every notebook included
	@$(PY) -m pytest $(ARGS)

check: setup ## format, lint, types, tests
	@$(PY) -m ruff format --check --quiet .
	@$(PY) -m ruff check --quiet .
	@$(PY) -m mypy --no-error-summary
	@$(PY) -m pytest $(ARGS)

torture: setup ## kill a training 20 times and check that nothing is lost (three minutes)
	@$(PY) tests/torture.py $(ARGS)

soak: setup ## memory and open files over 300 000 steps (about ten minutes)
	@$(PY) -m benchmarks.soak $(ARGS)

bench: setup ## measure throughput beside peers, about eight minutes (ARGS=--quick: one)
	@$(PY) -m benchmarks.throughput $(ARGS)

lab: setup ## open JupyterLab in notebooks/
	@cd notebooks && PATH="$(CURDIR)/.venv/bin:$$PATH" ../$(PY) -m jupyterlab $(ARGS)

bench-scaling: setup ## gradient steps/s with 1, 2 and 4 replicas: benchmarks/results/scaling.png
	@$(PY) -m benchmarks.scaling $(ARGS)

bench-collection: setup ## env steps/s of 1, 2 and 4 rollout workers: benchmarks/results/collection.png
	@$(PY) -m benchmarks.collection $(ARGS)

ray-results: setup ## the tracked runs of notebook 04, an afternoon; goes on where it was stopped
	@$(PY) -m benchmarks.lunarlander
	@$(PY) -m benchmarks.ray_vs_local

lock: ## write requirements.lock anew from pyproject.toml (ARGS=--upgrade for newer versions)
	@scripts/lock.sh $(ARGS)

clean: ## remove virtual environments and caches; runs are kept
	@rm -rf .venv .venv-sb3 build *.egg-info .mypy_cache .pytest_cache .ruff_cache .coverage
	@find . -name __pycache__ -prune -exec rm -rf {} +
	@find . -name .ipynb_checkpoints -prune -exec rm -rf {} +
