# `make` alone lists the targets.
# ARGS is passed on:  make run ARGS='-p num_iterations 2000 -p seed 3'
# PYTHON names the Python 3.11 to build .venv with, where it is not on PATH.

.PHONY: help setup run sweep study pages watch doctor test check browser wheel nightly mutants torture soak bench bench-scaling lab tensorboard site badges lock clean
.DEFAULT_GOAL := help

PY := .venv/bin/python
SEEDS ?= 0 1 2
SCREENSHOTS ?= build/browser
# One process more than CPUs, because tests often wait; each takes one or two gigabytes.
# The tests of a file share a process, and so their fixtures; tests/conftest.py puts long ones first.
SIDE_BY_SIDE := -n $(shell n=$$(nproc 2>/dev/null) && echo $$((n + 1)) || echo auto) --maxprocesses 4 --dist loadfile --no-loadscope-reorder

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 22

setup: ## make .venv from requirements.lock (nothing, if that is done)
	@scripts/setup.sh

run: setup ## train the Minitaur: notebooks/03_sac_minitaur.ipynb into a new folder under runs/
	@$(PY) -m labkit.cli.main run notebooks/03_sac_minitaur.ipynb $(ARGS)

sweep: setup ## several seeds in parallel, then compared (SEEDS='0 1 2' ARGS='-p gamma 0.98')
	@$(PY) -m labkit.cli.main sweep notebooks/03_sac_minitaur.ipynb --seeds '$(SEEDS)' $(ARGS)

study: setup ## train what is missing of the Minitaur study (hours), then make pages
	@$(PY) scripts/study.py $(ARGS)

pages: setup ## write results/README.md, its figures and README's numbers from the tracked data (seconds)
	@$(PY) scripts/pages.py

watch: ## where the clip of the tracked policy is; REPLAY=1 runs that policy and records a new one
ifdef REPLAY
	@$(MAKE) --no-print-directory setup && $(PY) -m labkit.cli.main watch results/minitaur/best-300000 $(ARGS)
else
	@echo "an episode of the tracked policy: $(CURDIR)/results/minitaur/best-300000/after.mp4"
	@echo "run it here and record a new clip: make watch REPLAY=1"
endif

doctor: setup ## check that everything labkit needs works on this machine
	@$(PY) -m labkit.cli.main doctor

test: setup ## run the quick tests, each notebook once and small included (five minutes)
	@$(PY) -m pytest $(SIDE_BY_SIDE) $(ARGS)

check: setup ## format, lint, types, import order, then the quick and the thorough tests
	@$(PY) -m ruff format --check --quiet .
	@$(PY) -m ruff check --quiet .
	@$(PY) -m mypy --no-error-summary
	@.venv/bin/lint-imports --no-cache --no-logo
	@$(PY) -m pytest $(SIDE_BY_SIDE) -m 'not slow and not browser' $(ARGS)

browser: setup ## run every notebook in JupyterLab, driven in Chromium; screenshots in build/browser/
	@SCREENSHOTS="$(SCREENSHOTS)" $(PY) -m pytest -m browser -n 2 --dist load tests/browser $(ARGS)

wheel: setup ## build a wheel, install it into an empty environment, import every module
	@scripts/check_wheel.sh

nightly: setup ## what takes long: pages unchanged, slow tests, torture, mutants (an hour and a half)
	@$(PY) scripts/pages.py && git diff --exit-code -- results README.md
	@$(PY) -m pytest -m slow $(ARGS)
	@$(PY) tests/torture.py
	@$(PY) tests/mutants.py

mutants: setup ## change labkit in a hundred small, wrong ways; tests must notice each (half an hour)
	@$(PY) tests/mutants.py $(ARGS)

torture: setup ## kill a training 20 times, check that nothing is lost (ARGS='--rounds 100': damage its files)
	@$(PY) tests/torture.py $(ARGS)

soak: setup ## memory and open files over 300 000 steps (about ten minutes)
	@$(PY) -m benchmarks.soak $(ARGS)

bench: setup ## measure throughput beside peers, under an hour (ARGS=--quick: a minute)
	@$(PY) -m benchmarks.throughput $(ARGS)

lab: setup ## open JupyterLab in notebooks/
	@cd notebooks && PATH="$(CURDIR)/.venv/bin:$$PATH" ../$(PY) -m jupyterlab $(ARGS)

tensorboard: setup ## the curves of all runs under runs/ in a browser, on this machine only
	@$(PY) -m tensorboard.main --logdir runs --host 127.0.0.1 $(ARGS)

site: setup ## static pages in site/: notebooks, results, API reference; a broken link is an error
	@[ -d .venv-site ] || $(PY) -m venv .venv-site
	@.venv-site/bin/pip install --quiet -r docs/requirements.txt
	@.venv-site/bin/sphinx-build -W --keep-going -c docs . site $(ARGS)

badges: setup ## badges for Colab and Codespaces in README.md and the notebooks: make badges REPO=owner/name
	@$(PY) scripts/front.py --repo "$(REPO)"

bench-scaling: setup ## gradient steps/s with 1, 2 and 4 replicas: benchmarks/results/scaling.png
	@$(PY) -m benchmarks.scaling $(ARGS)

lock: ## write requirements.lock anew from pyproject.toml (ARGS=--upgrade for newer versions)
	@scripts/lock.sh $(ARGS)

clean: ## remove virtual environments and caches; runs are kept
	@rm -rf .venv .venv-peers .venv-site build site autoapi jupyter_execute *.egg-info .mypy_cache .pytest_cache .ruff_cache .coverage
	@find . -name __pycache__ -prune -exec rm -rf {} +
	@find . -name .ipynb_checkpoints -prune -exec rm -rf {} +
