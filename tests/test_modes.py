# SPDX-License-Identifier: Apache-2.0
"""fused, strict and debug give the same values: integers exactly, floats within rounding, random numbers bit for bit [R1]."""

import pytest
import torch.nn.functional as F

import torch
import tputorch  # noqa: F401
from torch import nn


@pytest.fixture
def in_mode():
    def run(mode, f):
        torch.tpu.eager_mode = mode
        try:
            torch.manual_seed(11)
            return f()
        finally:
            torch.tpu.eager_mode = "fused"

    return run


def numbers():
    i = torch.arange(24, device="tpu").view(4, 6)
    x = torch.linspace(-3, 3, 24, device="tpu").view(4, 6)
    v = x.clone()
    v[1:3, ::2] += 1
    v.t()[0].mul_(2)
    return {
        "int": ((i * 7 - 3) // 2 % 5, i.cumsum(1), i.flip(0).sort(1).values, (i > 5).sum()),
        "float": (x.softmax(1), F.gelu(x) @ x.t(), v, F.layer_norm(x, (6,)), x.std(0)),
        "random": (torch.rand(5, device="tpu"), torch.randn(5, device="tpu"), torch.randint(0, 9, (5,), device="tpu"),
                   F.dropout(torch.ones(50, device="tpu"))),
    }


@pytest.mark.parametrize("mode", ["strict", "debug"])
def test_modes_agree(in_mode, mode):
    want, got = in_mode("fused", numbers), in_mode(mode, numbers)
    for a, b in zip(want["int"] + want["random"], got["int"] + got["random"], strict=True):
        assert torch.equal(a, b)
    for a, b in zip(want["float"], got["float"], strict=True):
        torch.testing.assert_close(a.cpu(), b.cpu(), rtol=2e-6, atol=2e-6)


def test_each_mode_repeats_itself(in_mode):
    for mode in ("fused", "strict"):
        a, b = in_mode(mode, numbers), in_mode(mode, numbers)
        assert all(torch.equal(x, y) for k in a for x, y in zip(a[k], b[k], strict=True))


def test_training_agrees(in_mode):
    def train():
        net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2)).to("tpu")
        opt = torch.optim.AdamW(net.parameters(), lr=0.05)
        for _ in range(8):
            loss = net(torch.randn(10, 6, device="tpu")).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        return [p.detach().cpu() for p in net.parameters()]

    for a, b in zip(in_mode("fused", train), in_mode("strict", train), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_debug_mode_names_the_line(in_mode):
    def f():
        x = torch.arange(4.0, device="tpu")
        with pytest.raises((IndexError, RuntimeError)) as e:
            x[torch.tensor([9], device="tpu")].cpu()
        return str(e.value)

    assert "index" in in_mode("debug", f).lower()
