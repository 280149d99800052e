# Everything runs in .venv, which any target sets up by itself: only python3 and make are needed.
PYTHON ?= python3
BIN := .venv/bin
unexport PYTHONDONTWRITEBYTECODE  # a start that compiles all of jax anew takes 6 s instead of 2

.PHONY: demo test test-slow test-web test-export lint bench designs adapting graph paper clean

.venv/ready: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "nestbed needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile --editable '.[test]'
	touch $@

demo: .venv/ready  ## find the best inputs for the nonlinear pendulum and compare them with the inputs of today
	rm -rf results/demo
	$(BIN)/nestbed design nonlinear_pendulum --seconds 15 --out results/demo

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Most of the tests' time is compiling, so here it is done with less effort; test-slow compiles as users do.
FAST := --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true \
	--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1

test: lint  ## lint, types, floors and tests, in a few minutes
	XLA_FLAGS="$(FAST)" JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0.3 $(BIN)/pytest -n 2 --dist loadfile --durations=25

test-web: .venv/ready  ## the page in Chromium, made-up requests; apart, since it needs a browser (apt-get install chromium)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile --editable '.[web]'
	XLA_FLAGS="$(FAST)" $(BIN)/pytest -m web --durations=10 tests/web

test-slow: .venv/ready  ## statistical and paper-scale checks
	$(BIN)/pytest -m slow --durations=0

# onnxruntime stands apart, as it does with those who receive an export.
.venv-export/ready:
	$(PYTHON) -m venv .venv-export
	.venv-export/bin/pip install --quiet --disable-pip-version-check onnxruntime
	touch $@

test-export: .venv/ready .venv-export/ready  ## exports by gcc, plain jax and onnxruntime, all of them
	$(BIN)/pytest -m 'slow or not slow' tests/exports

bench: .venv/ready  ## every ratio of benchmarks/, one run each
	$(BIN)/python benchmarks/roofline.py
	$(BIN)/python benchmarks/filters.py
	$(BIN)/python benchmarks/bounds.py
	$(BIN)/python benchmarks/against_particles.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/scaling.py
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/start.py

designs: .venv/ready  ## README's first table and figure: the best inputs for the paper's systems, 8 minutes
	$(BIN)/python benchmarks/designs.py paper
	$(BIN)/python docs/designs.py docs/designs.png

adapting: .venv/ready  ## docs/results/adapting.md: what adapting is worth on twelve systems, a night; goes on where it stopped
	$(BIN)/python benchmarks/adapting.py

graph: .venv/ready  ## docs/dependencies.png: which floor imports from which
	$(BIN)/python docs/dependencies.py docs/dependencies.png

paper: .venv/ready  ## every table and figure of the paper again, 40 minutes; goes on where it stopped
	$(BIN)/python -m paper all
	mkdir -p docs/results
	cp -r results/reproduction/report.md results/reproduction/*.csv results/reproduction/figures docs/results

clean:
	rm -rf .venv .venv-export build dist .pytest_cache .mypy_cache .ruff_cache
