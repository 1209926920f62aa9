# SPDX-License-Identifier: Apache-2.0
"""Ops whose result has a size that depends on the data run on the device and warn of nothing [S2]."""

import re
import warnings

import pytest

import torch
import tputorch  # noqa: F401

torch.manual_seed(0)
WHOLE = torch.randint(-2, 3, (4, 5))
REAL = torch.randn(4, 5)
KINDS = [{}, {"return_inverse": True}, {"return_counts": True}, {"return_inverse": True, "return_counts": True}]


def flat(out):
    return [t for t in (out if isinstance(out, (tuple, list)) else [out]) if isinstance(t, torch.Tensor)]


@pytest.fixture
def same():
    def run(f):
        torch.tpu.fallbacks(reset=True)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            want, got = flat(f(WHOLE, REAL)), flat(f(WHOLE.to("tpu"), REAL.to("tpu")))
        assert len(want) == len(got)
        for a, b in zip(want, got, strict=True):
            assert b.device.type == "tpu" and a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b.cpu())
        assert not torch.tpu.fallbacks()

    return run


@pytest.mark.parametrize(
    "f",
    [
        lambda i, x: i.nonzero(),
        lambda i, x: i.nonzero(as_tuple=True),
        lambda i, x: torch.argwhere(i > 1),
        lambda i, x: i[:0].nonzero(),
        lambda i, x: x.sum().nonzero(),
        lambda i, x: torch.nonzero_static(i, size=7),
        lambda i, x: torch.nonzero_static(i, size=40, fill_value=9),
        lambda i, x: torch.masked_select(x, i > 0),
        lambda i, x: x[i > 0],
        lambda i, x: x[i > 9],
        lambda i, x: x[i[:, 0] > 0, 1],
        lambda i, x: x[None][:, i > 0],
        lambda i, x: x.clone().index_put_((i > 0,), torch.arange(20.0, device=x.device)[: (i > 0).sum()]),
        lambda i, x: torch.bincount(i.flatten().abs(), minlength=7),
        lambda i, x: torch.bincount(i.flatten().abs(), weights=x.flatten()),
        lambda i, x: torch.repeat_interleave(x, torch.tensor([1, 0, 3, 2], device=x.device), dim=0),
    ],
)
def test_places_and_masks(same, f):
    same(f)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_sets(same, kind):
    same(lambda i, x: torch.unique(i, **kind))
    same(lambda i, x: torch.unique(x.round(), **kind))
    same(lambda i, x: torch.unique(i, dim=0, **kind))
    same(lambda i, x: torch.unique(i > 0, dim=1, **kind))
    same(lambda i, x: torch.unique_consecutive(i, **kind))
    same(lambda i, x: torch.unique_consecutive(i, dim=1, **kind))


def test_a_masked_read_has_a_gradient():
    x, y = REAL.clone().requires_grad_(), REAL.to("tpu").requires_grad_()
    (x[WHOLE > 0] ** 2).sum().backward()
    (y[WHOLE.to("tpu") > 0] ** 2).sum().backward()
    torch.testing.assert_close(x.grad, y.grad.cpu())


@pytest.mark.parametrize(
    "x",
    [REAL, WHOLE, torch.tensor([1e-9, 1e9, float("nan")]), torch.randn(100, 100), REAL > 0],
    ids=lambda x: str(x.shape),
)
def test_printing_runs_on_the_device(x):
    torch.tpu.fallbacks(reset=True)
    assert re.sub(r",\s*device='tpu:0'", "", repr(x.to("tpu"))).split() == repr(x).split()
    assert not torch.tpu.fallbacks()


def test_a_mask_of_another_shape_is_refused():
    for device in ("cpu", "tpu"):
        with pytest.raises(IndexError, match="The shape of the mask"):
            REAL.to(device)[torch.ones(3, 5, dtype=torch.bool, device=device)]
