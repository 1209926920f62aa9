# SPDX-License-Identifier: Apache-2.0
"""Training settles on a fixed set of programs, and the next process compiles nothing: counted by a plugin that stands
between the product and the compiler, not by our own counter."""

import pytest

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


def test_a_long_chain_compiles_in_linear_time(python):
    out = python("""
import torch, tputorch, time
x = torch.ones(8, device='tpu'); (x + 1).cpu()
def chain(n):
    t = time.time(); y = x
    for i in range(n): y = torch.sin(y) + x
    y.cpu(); return time.time() - t
chain(10)
print(chain(1250), chain(2500))
""", TPUTORCH_CACHE="off").ok()
    half, whole = map(float, out.split())
    assert whole < 8 and whole < 6 * max(half, 0.5)
