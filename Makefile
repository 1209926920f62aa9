# SPDX-License-Identifier: Apache-2.0
# The only commands.  Without PY they make .venv and install what the project needs; PY=path/to/python uses that one as it is.
PY ?= .venv/bin/python
BUILD ?= build
JOBS ?= 2
PYTEST = $(PY) -m pytest -q
export PYTHONPATH := $(CURDIR)/python$(if $(PYTHONPATH),:$(PYTHONPATH))

.PHONY: all build demo test test-all ci lint fmt asan bench clean venv
all: build
	$(PYTEST) -m "not slow" tests

# ---- what is needed: only for our own .venv ----
ifeq ($(PY),.venv/bin/python)
VENV = .venv/ready
endif
.venv/ready: requirements/build.txt requirements/run.txt requirements/plugin.txt
	python3 -m venv .venv
	.venv/bin/pip install -q --disable-pip-version-check -r requirements/build.txt -r requirements/run.txt
	.venv/bin/pip install -q --disable-pip-version-check --no-deps --require-hashes -r requirements/plugin.txt
	touch $@
venv: $(VENV)

# ---- build: libraries land in python/tputorch ----
# cmake and ninja come from the venv when they are there, else from PATH; flock keeps two builds of one folder apart.
tool = $(if $(wildcard $(dir $(PY))$(1)),$(abspath $(dir $(PY))$(1)),$(1))
build: $(VENV)
	@mkdir -p $(BUILD)
	@flock $(BUILD) sh -c '\
	  test -f $(BUILD)/build.ninja || "$(call tool,cmake)" -S . -B $(BUILD) -G Ninja -DTPUTORCH_DEVELOP=ON -DTPUTORCH_WERROR=ON \
	    -DPython3_EXECUTABLE="$(abspath $(PY))" -DCMAKE_MAKE_PROGRAM="$$(command -v "$(call tool,ninja)")" >$(BUILD)/configure.log 2>&1 \
	    || { cat $(BUILD)/configure.log; rm -f $(BUILD)/build.ninja; exit 1; }; \
	  "$(call tool,cmake)" --build $(BUILD) -j $(JOBS) -- $(if $(KEEP_GOING),-k 0)'

demo: build
	$(PY) examples/demo.py
test: build
	$(PYTEST) -m "not slow" tests
test-all: build
	$(PYTEST) tests
ci: build lint
	$(PY) tools/ci.py
lint: $(VENV)
	$(PY) -m ruff check python tests tools bench examples
	$(PY) tools/check.py
fmt: $(VENV)
	$(PY) -m ruff format python tests tools bench examples
	"$(call tool,clang-format)" -i src/*.[ch] src/ops/*.[ch] src/python/*.c src/torch/*.cc tests/c/*.[ch]
asan: $(VENV)
	@mkdir -p build-asan
	@"$(call tool,cmake)" -S . -B build-asan -G Ninja -DTPUTORCH_ASAN=ON -DTPUTORCH_WERROR=ON \
	  -DCMAKE_MAKE_PROGRAM="$$(command -v "$(call tool,ninja)")" >/dev/null
	@"$(call tool,cmake)" --build build-asan -j $(JOBS)
	ASAN_OPTIONS=detect_leaks=1:abort_on_error=0 build-asan/c_tests --all
bench: build
	$(PY) bench/compare.py
clean:
	rm -rf build build-asan python/tputorch/*.so
