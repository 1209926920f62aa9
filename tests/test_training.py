# SPDX-License-Identifier: Apache-2.0
"""Training settles on a fixed set of programs, and the next process compiles nothing: counted by a plugin that stands
between the product and the compiler, not by our own counter."""

import json
import os
import subprocess
import sys

import pytest

from conftest import ROOT, plugin_files

LOOP = """
import torch, tputorch, struct, os
from torch import nn
import torch.nn.functional as F
def compiles(): return struct.unpack('4Q', open(os.environ['COUNT_FILE'], 'rb').read())[0]
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(12, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4)).to('tpu')
opt = torch.optim.AdamW(net.parameters(), lr=1e-2)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 60)
g = torch.Generator().manual_seed(1)
marks, seen, total = [], [], 0.0
for i in range(60):
    x = torch.randn(16, 12, generator=g); y = torch.randint(0, 4, (16,), generator=g)
    loss = F.cross_entropy(net(x.to('tpu')), y.to('tpu'))
    opt.zero_grad(); loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step(); sched.step()
    BRANCH
    torch.tpu.synchronize() if i == 59 else None
    marks.append(compiles())
print(marks[0], marks[24], marks[-1], torch.tpu.compile_count())
print([round(v, 5) for v in seen])
"""
READ = "if i % 10 == 0: seen.append(loss.item())"
LOG = """total += 0.0
    if i % 7 == 3:
        seen.append(loss.item())
        norm = sum(p.grad.norm() ** 2 for p in net.parameters() if p.grad is not None).sqrt().item()
        seen.append(norm)"""


@pytest.mark.parametrize("branch", [READ, LOG], ids=["reads its loss every 10th step", "has a logging branch"])
def test_a_loop_settles_by_step_25(python, counting, fresh_cache, branch):
    out = python(LOOP.replace("BRANCH", branch), TPUTORCH_CACHE=fresh_cache, **counting.env).ok()
    first, at25, end, own = map(int, out.splitlines()[0].split())
    assert end == at25, f"{end - at25} programs were compiled after step 25"
    assert first <= at25 and 0 < at25 and own == end == counting.read()["compiles"]


@pytest.mark.fast
def test_a_second_process_compiles_nothing(python, counting, fresh_cache):
    """[C1] [C2]"""
    code = LOOP.replace("BRANCH", READ)
    a = python(code, TPUTORCH_CACHE=fresh_cache, **counting.env).ok()
    compiled = counting.read()["compiles"]
    b = python(code, TPUTORCH_CACHE=fresh_cache, **counting.env).ok()
    assert counting.read()["compiles"] == compiled > 0
    assert b.splitlines()[1] == a.splitlines()[1]
    assert counting.read()["loads"] > 0


def test_a_run_repeats_bit_for_bit(python, fresh_cache):
    code = """
import torch, tputorch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Dropout(0.2), nn.Linear(7, 1)).to('tpu')
opt = torch.optim.Adam(net.parameters(), lr=0.01)
for i in range(30):
    loss = net(torch.randn(8, 5, device='tpu')).square().mean(); opt.zero_grad(); loss.backward(); opt.step()
print(*[v.hex() for p in net.parameters() for v in p.flatten().tolist()])
"""
    assert len({python(code, TPUTORCH_CACHE=c).ok() for c in (fresh_cache, fresh_cache, "off")}) == 1


@pytest.mark.parametrize("plugin", [n for n in plugin_files() if n != "libtpu"])
def test_a_chain_of_5000_ops_compiles_in_seconds(python, plugin):
    """Linear in its length; the order of the ops is random, so that no part repeats."""
    out = python("""
import torch, tputorch, time, random
x = torch.ones(8, 8, device='tpu'); b = torch.full((8, 8), 0.5, device='tpu'); (x + 1).cpu()
F = [torch.sin, torch.tanh, torch.relu, lambda y: y + b, lambda y: y * b, lambda y: y - x]
def chain(n, seed):
    r = random.Random(seed); t = time.time(); y = x
    for i in range(n): y = r.choice(F)(y)
    y.cpu(); return time.time() - t
chain(10, 0)
print(min(chain(2500, s) for s in (1, 2)), min(chain(5000, s) for s in (3, 4)))
""", TPUTORCH_CACHE="off", TPUTORCH_PLUGIN=plugin_files()[plugin]).ok()
    half, whole = map(float, out.split())
    assert whole < 4 and whole < 4 * half, (half, whole)


@pytest.mark.slow
def test_gpt2_launches_few_programs_and_no_step_lags(counting, fresh_cache):
    """At most 3 launches a step, no compile after step 25, no step after the first over three times the median."""
    env = {**os.environ, **counting.env, "TPUTORCH_CACHE": fresh_cache, "OMP_WAIT_POLICY": "PASSIVE"}
    cmd = [sys.executable, str(ROOT / "bench" / "workloads.py"), "tputorch", "gpt2-steps"]

    def run():
        p = subprocess.run(cmd, env=env, capture_output=True, text=True, timeout=600)
        assert p.returncode == 0, p.stderr[-2000:]
        return json.loads(p.stdout.splitlines()[-1])

    got = run()
    compiles, launches = got["compiles"], got["launches"]
    assert compiles[-1] == compiles[24] == counting.read()["compiles"] > 0
    assert launches[-1] - launches[24] <= 3 * (len(launches) - 25)
    times = sorted(got["steps_ms"][1:])
    assert times[-1] <= 3 * times[len(times) // 2], got["steps_ms"]
    again = run()                                       # a new process on the same cache
    assert counting.read()["compiles"] == compiles[-1]
    assert again["steps_ms"][0] < 1500, again["steps_ms"]
