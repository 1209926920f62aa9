# SPDX-License-Identifier: Apache-2.0
"""Decompositions whose vectors have no one right sign: what they must satisfy, and values against CPU."""

import pytest

import torch
import tputorch  # noqa: F401

pytestmark = pytest.mark.slow
SHAPES = [(1, 1), (2, 2), (5, 5), (6, 6), (7, 3), (3, 7), (2, 3, 4, 4), (3, 17, 12)]
BOUND = {torch.float32: 2e-5, torch.float64: 1e-12, torch.complex64: 2e-5, torch.complex128: 1e-12}


def matrix(shape, dtype):
    g = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, dtype=dtype, generator=g)


@pytest.fixture(autouse=True)
def no_fallback():
    torch.tpu.fallbacks(reset=True)
    yield
    assert not torch.tpu.fallbacks()


def close(a, b, dtype, scale=1.0):
    torch.testing.assert_close(a.cpu(), b.cpu(), rtol=0, atol=BOUND[dtype] * scale)


@pytest.mark.parametrize("dtype", BOUND, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_svd(shape, dtype):
    a = matrix(shape, dtype)
    for full in (False, True):
        u, s, vh = torch.linalg.svd(a.to("tpu"), full_matrices=full)
        want = torch.linalg.svd(a, full_matrices=full)
        assert u.shape == want.U.shape and vh.shape == want.Vh.shape and s.dtype == want.S.dtype
        close(s, want.S, dtype, 5)
        k = s.shape[-1]
        close((u[..., :k] * s.unsqueeze(-2)) @ vh[..., :k, :], a, dtype, 5)
        close(u.mH @ u, torch.eye(u.shape[-1], dtype=dtype).expand_as(u.mH @ u), dtype)
        close(vh @ vh.mH, torch.eye(vh.shape[-2], dtype=dtype).expand_as(vh @ vh.mH), dtype)


@pytest.mark.parametrize("dtype", BOUND, ids=str)
@pytest.mark.parametrize("n", [1, 2, 5, 16])
def test_eigh(n, dtype):
    a = matrix((2, n, n), dtype)
    h = a + a.mH
    for lower in ("L", "U"):
        w, v = torch.linalg.eigh(h.to("tpu"), UPLO=lower)
        close(w, torch.linalg.eigvalsh(h), dtype, 10)
        close(h.to("tpu") @ v, v * w.unsqueeze(-2).to(dtype), dtype, 20)
        close(v.mH @ v, torch.eye(n, dtype=dtype).expand(2, n, n), dtype, 2)


def test_a_matrix_without_full_rank():
    a = torch.ones(4, 3) * torch.tensor([1.0, 2.0, 0.0])
    u, s, vh = torch.linalg.svd(a.to("tpu"))
    close(s, torch.linalg.svdvals(a), torch.float32)
    close(u.mH @ u, torch.eye(4), torch.float32)
    assert torch.linalg.matrix_rank(a.to("tpu")).item() == 1
    close(torch.linalg.pinv(a.to("tpu")), torch.linalg.pinv(a), torch.float32)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_far_from_one(scale):
    a = matrix((4, 4), torch.float32) * scale
    torch.testing.assert_close(torch.linalg.svdvals(a.to("tpu")).cpu(), torch.linalg.svdvals(a), rtol=1e-4, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_matrix_exp(dtype):
    a = matrix((3, 5, 5), dtype) * torch.tensor([0.01, 1.0, 6.0]).view(3, 1, 1)
    want = torch.linalg.matrix_exp(a)
    torch.testing.assert_close(torch.linalg.matrix_exp(a.to("tpu")).cpu(), want, rtol=2e-4 if dtype != torch.float64 else 1e-10, atol=1e-4)


def test_gradients_of_functions_of_singular_values():
    for f in (torch.linalg.svdvals, lambda x: torch.linalg.norm(x, "nuc"), lambda x: torch.linalg.eigvalsh(x @ x.mT)):
        a = matrix((4, 3), torch.float32)
        x, y = a.clone().requires_grad_(), a.to("tpu").requires_grad_()
        f(x).sum().backward()
        f(y).sum().backward()
        close(y.grad, x.grad, torch.float32, 20)
