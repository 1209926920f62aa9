# SPDX-License-Identifier: Apache-2.0
"""Ops of neural networks where more is promised than a sample's result."""

import pytest
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import torch
import tputorch  # noqa: F401


@pytest.mark.parametrize(("heads", "drop", "causal"), [(2, 0.0, True), (4, 0.3, True), (2, 0.3, False)])
def test_fused_attention_is_the_unfused_one(heads, drop, causal):
    """[R1] Several blocks of queries and keys, the last ones not full; dropout keeps the same elements."""

    def run(kind):
        torch.manual_seed(3)
        q, k, v, g = (torch.randn(1, n, 530, 8, device="tpu") for n in (heads, 2, 2, heads))
        for x in (q, k, v):
            x.requires_grad_()
        with sdpa_kernel(kind):
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=drop, is_causal=causal, enable_gqa=heads != 2)
        return [t.cpu() for t in (y.detach(), *torch.autograd.grad(y, (q, k, v), g), torch.tpu.get_rng_state())]

    torch.testing.assert_close(run(SDPBackend.OVERRIDEABLE), run(SDPBackend.MATH), rtol=1e-4, atol=1e-5)


def test_long_attention_keeps_no_scores():
    q = torch.randn(1, 4, 2048, 8, device="tpu", requires_grad=True)
    torch.tpu.reset_peak_memory_stats()
    before = torch.tpu.memory_allocated()
    F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
    torch.tpu.synchronize()
    assert q.grad.isfinite().all().item()
    assert torch.tpu.max_memory_allocated() - before < 4 * 2048 * 2048


def test_ctc_of_other_lengths_compiles_nothing():
    """[S1]"""
    x = torch.randn(12, 2, 5).log_softmax(2)
    y = torch.tensor([[1, 2, 2, 4], [3, 3, 1, 1]])

    def run(d, frames, labels):
        z = x.clone().to(d).requires_grad_()
        loss = F.ctc_loss(z, y.to(d), frames, labels, reduction="sum")
        loss.backward()
        return torch.cat([loss.detach().view(1).cpu(), z.grad.flatten().cpu()])

    for i in range(3):
        run("tpu", (12, 9 - i), (4, 2))
    compiled = torch.tpu.compile_count()
    for frames, labels in (((11, 12), (3, 4)), ((6, 2), (1, 0)), ((12, 1), (4, 1))):
        torch.testing.assert_close(run("tpu", frames, labels), run("cpu", frames, labels), rtol=1e-4, atol=1e-5)
    assert torch.tpu.compile_count() == compiled


def test_grid_sample_in_bfloat16_rounds_once():
    x = torch.randn(1, 2, 9, 7).bfloat16()
    grid = (torch.rand(1, 5, 6, 2) * 2 - 1).bfloat16()
    want = F.grid_sample(x.float(), grid.float(), align_corners=False)
    got = F.grid_sample(x.to("tpu"), grid.to("tpu"), align_corners=False).cpu()
    torch.testing.assert_close(got.float(), want, rtol=2**-8, atol=1e-3)
