# SPDX-License-Identifier: Apache-2.0
# The only commands.  Without PY they make .venv and install what the project needs; PY=path/to/python uses that one as it is.
PY ?= .venv/bin/python
BUILD ?= build
JOBS ?= 2
PYTEST = $(PY) -m pytest -q
export PATH := $(abspath $(dir $(PY))):$(PATH)
export PYTHONPATH := $(CURDIR)/python$(if $(PYTHONPATH),:$(PYTHONPATH))

.PHONY: all build demo test test-all ci lint fmt asan asan-build bench clean
all: build $(TESTS)
	$(PYTEST) -m "not slow and not long" tests

# ---- what is needed: only for our own .venv ----
PIP = .venv/bin/python -m pip install -q --disable-pip-version-check
ifeq ($(PY),.venv/bin/python)
RUN = .venv/run.done
TESTS = .venv/test.done
endif
.venv/run.done: requirements/build.txt requirements/run.txt requirements/plugin.txt
	test -x .venv/bin/python || python3 -m venv .venv
	$(PIP) -r requirements/build.txt -r requirements/run.txt
	$(PIP) --no-deps --require-hashes -r requirements/plugin.txt
	@touch $@
.venv/test.done: requirements/test.txt | .venv/run.done
	$(PIP) -r requirements/test.txt
	@touch $@

# ---- build: libraries land in python/tputorch ----
# cmake and ninja come from the venv when they are there, else from PATH; flock keeps two builds of one folder apart.
CONFIGURE = cmake -S . -G Ninja -DTPUTORCH_WERROR=ON -DCMAKE_MAKE_PROGRAM="$$(command -v ninja)"
build: $(RUN)
	@mkdir -p $(BUILD)
	@flock $(BUILD) sh -c '\
	  test -f $(BUILD)/build.ninja || $(CONFIGURE) -B $(BUILD) -DTPUTORCH_DEVELOP=ON -DPython3_EXECUTABLE="$(abspath $(PY))" \
	    >$(BUILD)/configure.log 2>&1 || { cat $(BUILD)/configure.log; rm -f $(BUILD)/build.ninja; exit 1; }; \
	  cmake --build $(BUILD) -j $(JOBS) -- $(if $(KEEP_GOING),-k 0)'

demo: build
	$(PY) examples/demo.py
test: build $(TESTS)
	$(PYTEST) -m "not long" tests
test-all: build $(TESTS)
	$(PYTEST) tests
ci: build lint $(TESTS)
	$(PYTEST) -m "not long" tests
lint: $(TESTS)
	$(PY) -m ruff check python tests tools bench examples
	$(PY) tools/check.py
fmt: $(TESTS)
	$(PY) -m ruff format python tests tools bench examples
	clang-format -i src/*.[ch] src/ops/*.[ch] src/python/*.c src/torch/*.cc tests/c/*.[ch]
asan: asan-build
	ASAN_OPTIONS=detect_leaks=1 build-asan/c_tests --all
asan-build: $(RUN)
	@mkdir -p build-asan
	@$(CONFIGURE) -B build-asan -DTPUTORCH_ASAN=ON >/dev/null
	@cmake --build build-asan -j $(JOBS)
bench: build
	$(PY) bench/compare.py
clean:
	rm -rf build build-asan python/tputorch/*.so
