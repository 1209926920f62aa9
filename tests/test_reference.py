# SPDX-License-Identifier: Apache-2.0
"""Where tpu and cpu differ beyond the tool's bound (tests/known_wrong.txt), float64 says how near each is: tpu's mean error
is not above the CPU's, or not above the stated multiple of it."""

import pytest
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import torch
import tputorch  # noqa: F401

pytestmark = pytest.mark.slow
OPS = [("addbmm", torch.bfloat16), ("nn.functional.conv_transpose2d", torch.bfloat16), ("nn.functional.conv_transpose3d", torch.bfloat16),
       ("nn.functional.normalize", torch.bfloat16), ("nn.functional.grid_sample", torch.bfloat16), ("grid_sampler_2d", torch.bfloat16),
       ("grid_sampler_3d", torch.bfloat16), ("matrix_exp", torch.float32)]
TIMES = {"nn.functional.normalize": 1.5, "matrix_exp": 2}


def run(op, sample, backward, device, dtype=None):
    def move(t):
        if not isinstance(t, torch.Tensor):
            return t
        y = t.detach().to(dtype) if dtype and t.is_floating_point() else t.detach()
        return y.to(device).requires_grad_(t.requires_grad)

    x, args, kwargs = pytree.tree_map(move, (sample.input, sample.args, sample.kwargs))
    out = [t for t in pytree.tree_leaves(op(x, *args, **kwargs)) if isinstance(t, torch.Tensor)]
    if backward:
        ends = [t for t in out if t.requires_grad]
        leaves = [t for t in pytree.tree_leaves((x, args, kwargs)) if isinstance(t, torch.Tensor) and t.requires_grad]
        out = [g for g in torch.autograd.grad(ends, leaves, [torch.ones_like(t) for t in ends], allow_unused=True) if g is not None]
    return torch.cat([t.detach().cpu().double().flatten() for t in out])


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("name, dtype", OPS, ids=[n for n, _ in OPS])
def test_the_mean_error_is_near_the_cpus(name, dtype, backward):
    errors = torch.zeros(2, dtype=torch.float64)
    torch.manual_seed(0)
    for op in (o for o in op_db if o.name == name):
        for _, sample in zip(range(3), op.sample_inputs("cpu", dtype, requires_grad=backward), strict=False):
            right = run(op, sample, backward, "cpu", torch.float64)
            for i, device in enumerate(("cpu", "tpu")):
                errors[i] += (run(op, sample, backward, device) - right).abs().mean()
    assert errors[1] <= 1.05 * TIMES.get(name, 1) * errors[0], errors.tolist()
