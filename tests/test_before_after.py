# SPDX-License-Identifier: Apache-2.0
"""The CPU behaves after the import as before it, but for the effects that docs/environment.md lists [G3]."""

import ast

PROBE = r'''
import torch, io, copy, pickle, warnings
from torch import nn
warnings.simplefilter("ignore")
def probe():
    out = {}
    torch.manual_seed(1)
    out["rand"] = torch.rand(3).tolist()
    out["state"] = torch.get_rng_state().sum().item()
    out["defaults"] = (str(torch.ones(1).device), str(torch.get_default_device()), str(torch.get_default_dtype()),
                       torch.get_num_threads(), torch.get_float32_matmul_precision(), torch.is_grad_enabled())
    torch.manual_seed(2)
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))
    opt = torch.optim.AdamW(net.parameters(), lr=0.01)
    for _ in range(3):
        loss = net(torch.rand(5, 1, 4, 4)).logsumexp(1).sum(); opt.zero_grad(); loss.backward(); opt.step()
    out["train"] = [p.sum().item() for p in net.parameters()]
    net.double(); net.float()
    lin = nn.Linear(2, 2); w = lin.weight; lin.to(torch.bfloat16)
    out["to"] = str(lin.weight.dtype)
    buf = io.BytesIO(); torch.save(net.state_dict(), buf); buf.seek(0)
    out["load"] = sorted(torch.load(buf, weights_only=True))
    out["copy"] = copy.deepcopy(net)[0].weight.equal(net[0].weight)
    out["pickle"] = pickle.loads(pickle.dumps(torch.arange(3))).tolist()
    out["dlpack"] = torch.from_dlpack(torch.arange(3.0)).tolist(), [int(v) for v in torch.ones(1).__dlpack_device__()]
    with torch.autocast("cpu", dtype=torch.bfloat16): out["autocast"] = str((torch.ones(2, 2) @ torch.ones(2, 2)).dtype)
    try: torch.ones(2) @ torch.ones(3)
    except Exception as e: out["error"] = (type(e).__name__, str(e))
    try: torch.ones(2, device="cuda")
    except Exception as e: out["cuda"] = type(e).__name__
    out["cuda_available"] = torch.cuda.is_available()
    out["multithreaded"] = torch.autograd.is_multithreading_enabled() if hasattr(torch.autograd, "is_multithreading_enabled") else None
    out["swap"] = torch.__future__.get_swap_module_params_on_conversion()
    return out
'''


def test_cpu_before_and_after(python):
    r = python(PROBE + "print(repr(probe()))", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    before = ast.literal_eval(r.ok().splitlines()[-1])
    after = ast.literal_eval(python(PROBE + "import tputorch\nprint(repr(probe()))").ok().splitlines()[-1])
    used = ast.literal_eval(
        python(PROBE + "import tputorch\ntorch.ones(3, device='tpu').sum().item()\nprint(repr(probe()))").ok().splitlines()[-1]
    )
    assert after == before and used == before


def test_nothing_else_of_torch_is_replaced(python):
    """Every public function and class of torch, Tensor and nn.functional is the same object after the import."""
    r = python("""
import torch, torch.nn.functional as F
places = {'torch': torch, 'Tensor': torch.Tensor, 'F': F, 'Module': torch.nn.Module, 'optim': torch.optim, 'autograd': torch.autograd,
          'serialization': torch.serialization, 'accelerator': torch.accelerator}
snap = {p: dict(vars(o)) for p, o in places.items()}
import tputorch
torch.ones(2, device='tpu').sum().item()
for p, o in places.items():
    now = vars(o)
    for k, v in snap[p].items():
        if now.get(k) is not v and not k.startswith('__') or k == '__dlpack_device__' and now.get(k) is not v: print(p, k, 'changed')
    for k in now:
        if k not in snap[p]: print(p, k, 'new')
""")
    new = set(r.ok().splitlines())
    allowed = {"Tensor __dlpack_device__ changed", "torch tpu new"}
    generated = {f"{p} {n} new" for p in ("torch", "Tensor", "Module") for n in ("is_tpu", "tpu")}
    assert new <= allowed | generated, new - allowed - generated


def test_default_compile_backend_leaves_cpu_graphs_to_inductor(python):
    r = python("""
import torch, tputorch
from torch._dynamo.backends.registry import get_default_backend, list_backends
print(get_default_backend().__name__, 'tpu' in list_backends())
from torch._dynamo import device_interface as di
print(di.get_interface_for_device('tpu').current_device())
import sys
print(any(type(f).__name__ == '_Watch' for f in sys.meta_path))
""")
    assert r.ok().split() == ["default_backend", "True", "0", "False"]


def test_dlpack_names_the_device(python):
    r = python("""
import torch, tputorch
x = torch.arange(4.0, device='tpu')
print([int(v) for v in x.__dlpack_device__()], torch.from_dlpack(x).tolist())
""")
    assert r.ok().split(maxsplit=2)[0:2] == ["[12,", "0]"] and "[0.0, 1.0, 2.0, 3.0]" in r.out
