# SPDX-License-Identifier: Apache-2.0
"""Importing: cheap, silent, touches no hardware, changes nothing for others."""

import os

import pytest

MEASURE = """
import time, torch, sys, os
def rss():
    with open('/proc/self/statm') as f: return int(f.read().split()[1]) * os.sysconf('SC_PAGE_SIZE') / 2**20
a, t = rss(), time.perf_counter()
import tputorch
dt, mb = time.perf_counter() - t, rss() - a
maps = open('/proc/self/maps').read()
print('SECONDS', dt); print('MB', mb)
print('DYNAMO', any(m.startswith('torch._dynamo') for m in sys.modules))
print('PLUGIN', any(p in maps for p in ('pjrt_c_api_cpu_plugin', 'xla_cpu_pjrt', 'libtpu.so')))
"""


def fields(text: str) -> dict[str, str]:
    return dict(line.split(" ", 1) for line in text.splitlines())


@pytest.mark.fast
def test_import_is_cheap_and_loads_no_plugin_and_no_dynamo(python):
    runs = [fields(python(MEASURE).ok()) for _ in range(3)]
    assert min(float(r["SECONDS"]) for r in runs) < 0.3
    assert min(float(r["MB"]) for r in runs) < 60
    assert runs[0]["DYNAMO"] == "False" and runs[0]["PLUGIN"] == "False"


def test_import_prints_nothing(python):
    r = python("import torch, tputorch")
    assert r.code == 0 and r.text == ""


def test_questions_do_not_start_the_device(python):
    r = python("""
import torch, tputorch
torch.manual_seed(3); torch.tpu.is_available(); torch.tpu.is_bf16_supported(); torch.tpu.compile_stats()
(torch.ones(2, requires_grad=True) * 2).sum().backward()
print(torch.tpu.is_initialized())
torch.ones(1, device='tpu'); print(torch.tpu.is_initialized())
""")
    assert r.ok().split() == ["False", "True"]


def test_a_seed_set_before_the_start_counts(python):
    code = """
import torch, tputorch
if %d: torch.ones(1, device='tpu').cpu()
torch.manual_seed(5); print(torch.rand(3, device='tpu').tolist())
"""
    assert python(code % 0).ok() == python(code % 1).ok()


@pytest.mark.parametrize("wish, there", [("1", True), ("0", False), ("", False)])
def test_autoload_only_where_asked_for_or_a_tpu_is(python, wish, there):
    import tputorch_autoload

    if wish == "" and tputorch_autoload.found():
        pytest.skip("a TPU is in this machine")
    r = python("import torch, sys; print('tputorch' in sys.modules)", TPUTORCH_AUTOLOAD=wish)
    assert r.ok().strip() == str(there)


def test_google_torch_tpu_in_the_process_is_answered_in_a_sentence(python):
    r = python("""
import sys, types, torch
sys.modules['torch_tpu'] = types.ModuleType('torch_tpu')
import tputorch
""")
    assert r.code != 0 and "torch_tpu" in r.err.splitlines()[-1] and "already held" in r.err.splitlines()[-1]


def test_another_backend_in_the_process_is_answered_in_a_sentence(python):
    r = python("import torch; torch.utils.rename_privateuse1_backend('npu'); import tputorch")
    assert r.code != 0 and "'npu'" in r.err.splitlines()[-1]


@pytest.mark.fast
def test_import_after_a_cpu_backward(python):
    r = python("""
import torch
w = torch.ones(2, requires_grad=True); (w * 2).sum().backward()
import tputorch
v = torch.ones(2, device='tpu', requires_grad=True); (v * v).sum().backward(); print(v.grad.tolist())
""")
    assert "[2.0, 2.0]" in r.ok()


@pytest.mark.fast
def test_clean_exit_with_work_pending(python):
    r = python("""
import torch, tputorch
x = torch.ones(300, 300, device='tpu')
for _ in range(50): x = x @ x * 1e-3
print('leaving')
""")
    assert r.ok().strip() == "leaving" and r.err == ""


def test_doctor(python):
    r = python("import sys; sys.argv = ['tputorch', 'doctor']; from tputorch.cli import main; raise SystemExit(main())")
    out = r.ok()
    assert "self-test" in out and "[1.0, 2.0, 3.0, 4.0]" in out and "torch" in out


def test_doctor_says_what_to_install_where_there_is_no_plugin(python, tmp_path):
    r = python("""
import sys
from tputorch import _plugin
_plugin.candidates = lambda: []
sys.argv = ['tputorch', 'doctor']
from tputorch.cli import main
raise SystemExit(main())
""", TPUTORCH_PLUGIN="")
    assert r.code == 1 and "pip install" in r.out


def test_cache_commands(python, fresh_cache):
    work = "import torch, tputorch; print((torch.ones(3, device='tpu') * 2).tolist())"
    python(work, TPUTORCH_CACHE=fresh_cache).ok()
    code = "import sys; from tputorch.cli import main; sys.argv = ['tputorch'] + %r; raise SystemExit(main())"
    for verb in (["cache", "ls"], ["cache", "stats"], ["cache", "verify"]):
        assert python(code % verb, TPUTORCH_CACHE=fresh_cache).ok()
    assert os.listdir(fresh_cache)
    assert " 0.0 MB kept" in python(code % ["cache", "prune"], TPUTORCH_CACHE=fresh_cache).ok()
    assert "[2.0, 2.0, 2.0]" in python(work, TPUTORCH_CACHE=fresh_cache).ok()
