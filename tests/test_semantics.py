# SPDX-License-Identifier: Apache-2.0
"""The rules of docs/design.md section 4 that belong to no other file, one test a rule."""

import copy
import io
import pickle
import warnings

import pytest

import torch
import tputorch  # noqa: F401
from torch import nn


def both(f, **tol):
    want, got = f("cpu"), f("tpu")
    torch.testing.assert_close(got.cpu(), want, equal_nan=True, **tol)


def test_aliases_see_every_write():
    """[A1]"""

    def f(d):
        base = torch.arange(24.0, device=d).view(4, 6)
        t, d2, s = base.t(), base.diagonal(), base.as_strided((3, 2), (6, 2), 1)
        base[1:3, ::2] += 10
        t[0].mul_(-1)
        d2.fill_(0.5)
        s.add_(100)
        base.view(torch.int32)[0, 0] = 7
        return torch.cat([base.flatten(), t.flatten(), d2, s.flatten()])

    both(f)
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.ones(1, device="tpu").expand(3).add_(1)


def test_tied_parameters_and_optimizers_survive_the_move():
    """[A2]"""
    a, b = nn.Linear(3, 3), nn.Linear(3, 3)
    b.weight = a.weight
    net = nn.Sequential(a, b)
    opt = torch.optim.SGD(net.parameters(), lr=1.0)
    weight = a.weight
    net.to("tpu")
    assert a.weight is b.weight is weight and weight.device.type == "tpu"
    before = weight.detach().cpu()
    net(torch.ones(1, 3, device="tpu")).sum().backward()
    opt.step()
    assert not torch.equal(before, weight.detach().cpu())
    net.cpu()
    assert a.weight is b.weight is weight and weight.device.type == "cpu"


def test_a_model_can_move_while_a_graph_of_the_old_device_lives():
    """[A2]"""
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2))
    x = torch.rand(1, 1, 4, 4)
    before = net(x)
    before.sum().backward(retain_graph=True)
    weight, grad = net[0].weight, net[0].weight.grad.clone()
    net.to("tpu")
    assert net[0].weight is weight and weight.grad.device.type == "tpu" and torch.equal(weight.grad.cpu(), grad)
    torch.testing.assert_close(net(x.to("tpu")).cpu(), before, rtol=1e-5, atol=1e-6)
    net.half().float().cpu()
    assert net[0].weight is weight and weight.device.type == "cpu"
    assert not torch.__future__.get_swap_module_params_on_conversion()


def test_what_is_no_dense_tensor_stays_incompatible():
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        torch.ones(2, device="tpu").data = torch.ones(2).to_sparse()
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        torch.ones(2, device="tpu").data = torch.ones(2, device="meta")


def test_saving_copying_pickling():
    """[A3]"""
    x = torch.arange(6.0, device="tpu").view(2, 3)
    for y in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert y.device.type == "tpu" and torch.equal(x, y) and y.data_ptr() != x.data_ptr()
    p = nn.Parameter(x.clone())
    twin = copy.deepcopy({"a": p, "b": p})
    assert twin["a"] is twin["b"] and isinstance(twin["a"], nn.Parameter)
    buf = io.BytesIO()
    torch.save({"x": x, "row": x[1]}, buf)
    buf.seek(0)
    d = torch.load(buf, map_location="cpu", weights_only=True)
    assert d["x"].device.type == "cpu" and d["row"].tolist() == [3, 4, 5]


def test_a_copy_is_a_copy():
    """[A4]"""
    h = torch.ones(1000)
    x = h.to("tpu", non_blocking=True)
    h.zero_()
    assert x.sum().item() == 1000
    back = x.cpu()
    x.zero_()
    assert back.sum().item() == 1000
    assert torch.from_numpy(back.numpy()).to("tpu").add_(1).sum().item() == 2000 and back.sum().item() == 1000


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.complex64, torch.bool, torch.uint8, torch.int8, torch.int16,
                                   torch.int32, torch.float16, torch.bfloat16])
def test_types_are_kept(dtype):
    """[P2]"""

    def f(d):
        x = (torch.arange(8) % 3).to(dtype).to(d)
        return x | x if dtype == torch.bool else x * x + 1

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        both(f)


def test_wide_numbers_keep_their_digits():
    """[P2]"""
    both(lambda d: torch.tensor([2**53 + 1, -(2**62), 3], device=d) * 3 // 2)
    both(lambda d: torch.tensor([1.0, 1e-17], dtype=torch.float64, device=d).cumsum(0) + 1e-15, rtol=0, atol=0)


def test_nan_follows_pytorch():
    """[N3]"""
    nan = float("nan")

    def f(d):
        a, b = torch.tensor([nan, 1.0, -0.0, nan], device=d), torch.tensor([0.0, nan, 0.0, nan], device=d)
        parts = [torch.maximum(a, b), torch.fmin(a, b), a.clamp(0, 1), torch.relu(a), a.max().view(1), a.cummax(0)[0], torch.sign(a),
                 (a == a).float(), a.nan_to_num(2.0), torch.where(a > b, a, b), a.sort()[0], a.argmax().view(1).float(), a.isnan().float()]
        return torch.cat(parts)

    both(f, rtol=0, atol=0)


COUNTED = """
import torch, tputorch
count = torch.tpu.compile_count
"""


def test_a_new_fixed_size_costs_at_most_one_compile(python):
    """[S1]"""
    out = python(COUNTED + """
def work(n): return (torch.ones(n, 3, device="tpu") * 2 + 1).sum().item()
work(5), work(5)
at = count()
for _ in range(4): assert work(6) == 54
new, at = count() - at, count()
work(6), work(5)
print(new, count() - at)
""", TPUTORCH_CACHE="off").ok()
    assert out.split() == ["1", "0"]


def test_scalars_are_data(python):
    out = python(COUNTED + """
x = torch.ones(4, device="tpu")
x.cpu()
(x * 1.5 + 3).cpu()
at = count()
for i in range(10): assert (x * (i + 0.25) + i).tolist() == [2 * i + 0.25] * 4
print(count() - at)
""", TPUTORCH_CACHE="off").ok()
    assert out.split() == ["0"]


def test_float32_products_are_float32():
    """[N1]"""
    g = torch.Generator().manual_seed(0)
    a, b = torch.randn(50, 400, generator=g), torch.randn(400, 30, generator=g)
    exact = a.double() @ b.double()
    assert ((a.to("tpu") @ b.to("tpu")).cpu().double() - exact).abs().max() < 1e-4
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        assert ((a.to("tpu") @ b.to("tpu")).cpu().double() - exact).abs().max() < 1e-2
    finally:
        torch.set_float32_matmul_precision(before)


def test_bfloat16_products_in_every_layout():
    """A batch dim of 1 with a transposed side: XLA:CPU fails there when the program runs."""
    for batch in ((), (1,), (2,)):
        for left in (False, True):
            for right in (False, True):
                a = torch.ones(*batch, 8, 3).mT if left else torch.ones(*batch, 3, 8)
                b = torch.ones(*batch, 4, 8).mT if right else torch.ones(*batch, 8, 4)
                got = a.bfloat16().to("tpu") @ b.bfloat16().to("tpu")
                assert torch.equal(got.cpu(), torch.full((*batch, 3, 4), 8.0).bfloat16())
