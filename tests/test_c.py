# SPDX-License-Identifier: Apache-2.0
"""The C tests: the binary lists them, pytest runs and names each."""

import os
import subprocess

import pytest

from conftest import ROOT, plugin_files

BINARY = ROOT / "build" / "c_tests"
ASAN = ROOT / "build-asan" / "c_tests"


def names() -> list[str]:
    if not BINARY.exists():
        return []
    return subprocess.run([BINARY], capture_output=True, text=True, check=True).stdout.split()


def environment() -> dict[str, str]:
    files = plugin_files()
    env = dict(os.environ)
    cpu = [f for n, f in files.items() if n != "libtpu"]
    if cpu:
        env["TPUTORCH_TEST_PLUGINS"] = ":".join(cpu)
        env.setdefault("TPUTORCH_PLUGIN", cpu[0])
    if "libtpu" in files:
        env["TPUTORCH_TEST_LIBTPU"] = files["libtpu"]
    env.update(TPU_SKIP_MDS_QUERY="1", ALLOW_MULTIPLE_LIBTPU_LOAD="1")
    return env


def run(*args: object, timeout: float = 600, **env: str) -> None:
    p = subprocess.run([str(a) for a in args], capture_output=True, text=True, timeout=timeout, env={**environment(), **env})
    assert p.returncode == 0, p.stdout[-4000:] + p.stderr[-4000:]


@pytest.mark.parametrize("name", names())
def test_c(name):
    run(BINARY, name)


@pytest.mark.slow
def test_each_allocation_failing_in_turn():
    """Without plugins: their threads allocate in an order of their own, so that the n-th failure is not the same twice."""
    env = {k: v for k, v in environment().items() if not k.startswith("TPUTORCH_TEST_")}
    p = subprocess.run([BINARY, "--all", "--faults"], capture_output=True, text=True, timeout=600, env=env)
    assert p.returncode == 0, p.stdout[-4000:] + p.stderr[-4000:]


@pytest.mark.slow
def test_address_and_undefined_behaviour_checks():
    subprocess.run(["make", "-s", "-C", ROOT, "asan-build"], check=True)
    run(ASAN, "--all", ASAN_OPTIONS="detect_leaks=1", UBSAN_OPTIONS="print_stacktrace=1")
