# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: B008 - functions are looked up once, where a row is written
"""The vocabulary of random programs: name -> (what it takes, a function of the tensors and a random source).

A value is exact (integers of any dtype, floats that hold small integers: every device must give the same bits) or not
(then it only goes through smooth functions on a bounded range, at most three times, and is compared within a bound).

takes: e  exact float32, bfloat16 or integers        f  exact float32        i  integers        b  bool
       s  any float32 that is not too far from exact (the function is smooth)
The result of an op that takes `s` is not exact; all others are."""

import torch.nn.functional as F

import torch

OPS: dict[str, tuple[str, object]] = {}


def op(takes: str, **named):
    for name, f in named.items():
        assert name not in OPS, name
        OPS[name] = (takes, f)


def small(x):
    """Keeps exact numbers exact: within 8 bits, so that bfloat16 holds them and products stay integers of float32."""
    if x.dtype == torch.bool:
        return x
    return x.clamp(-200, 200) if x.is_floating_point() else x.clamp(0 if x.dtype == torch.uint8 else -200, 200)


def near(x):
    return x.clamp(-2, 2)


def dim(x, r):
    return r.randrange(-x.dim(), x.dim()) if x.dim() else 0


def sizes(x, r):
    """A slice: start, stop, step of some dim that leaves something."""
    d = dim(x, r)
    n = x.shape[d]
    a = r.randrange(n)
    return d, a, r.randrange(a + 1, n + 1), r.choice([1, 1, 2])


def indices(x, d, r, count=None):
    n = x.shape[d]
    return torch.tensor([r.randrange(n) for _ in range(count or r.randrange(1, 5))], device=x.device)


def index_like(x, d, r):
    """An index tensor for gather and scatter: x's shape, distinct places along d."""
    shape = list(x.shape)
    n = shape[d]
    base = torch.tensor(r.sample(range(n), n), device=x.device)
    view = [1] * len(shape)
    view[d] = n
    return base.view(view).expand(shape)


# ---- elementwise, exact ----
for n in "neg abs sign square relu positive".split():
    op("e", **{n: lambda x, r, f=getattr(torch, n): small(f(x))})
for n in "floor ceil round trunc frac sgn nan_to_num signbit isnan isinf isfinite isposinf isneginf logical_not".split():
    op("f", **{n: lambda x, r, f=getattr(torch, n): f(x)})
for n in "relu6 hardtanh threshold".split():
    op("f", **{n: lambda x, r, f=getattr(F, n): f(x, 1.0, 0.0) if f is F.threshold else f(x)})
for n in "maximum minimum fmax fmin".split():
    op("ee", **{n: lambda x, y, r, f=getattr(torch, n): f(x, y)})
for n in "add sub mul rsub".split():
    op("ee", **{n: lambda x, y, r, f=getattr(torch, n): small(f(x, y))})
for n in "eq ne lt le gt ge logical_and logical_or logical_xor".split():
    op("ee", **{n: lambda x, y, r, f=getattr(torch, n): f(x, y)})
for n in "eq ne lt le gt ge".split():
    op("e", **{n + "_number": lambda x, r, f=getattr(torch, n): f(x, r.randrange(-3, 4))})
for n in "bitwise_and bitwise_or bitwise_xor".split():
    op("ii", **{n: lambda x, y, r, f=getattr(torch, n): f(x, y)})
op("i", bitwise_not=lambda x, r: torch.bitwise_not(x))
op("i", left_shift=lambda x, r: small(x << r.randrange(3)), right_shift=lambda x, r: x >> r.randrange(4))
op("i", gcd=lambda x, r: torch.gcd(x, torch.full_like(x, r.randrange(1, 9))))
op("e", add_number=lambda x, r: small(x + r.randrange(-5, 6)), mul_number=lambda x, r: small(x * r.randrange(-3, 4)))
op("e", sub_number=lambda x, r: small(r.randrange(-5, 6) - x), clamp=lambda x, r: x.clamp(r.randrange(-9, 0), r.randrange(0, 9)))
op("e", clamp_min=lambda x, r: x.clamp(min=r.randrange(-4, 4)), clamp_max=lambda x, r: x.clamp(max=r.randrange(-4, 4)))
op("i", remainder=lambda x, r: x % r.choice([-3, 2, 5]), floor_divide=lambda x, r: x // r.choice([-3, 2, 5]))
op("i", fmod=lambda x, r: torch.fmod(x, r.choice([-3, 2, 5])), div_trunc=lambda x, r: torch.div(x, r.choice([-3, 2]), rounding_mode="trunc"))
op("f", remainder_float=lambda x, r: x % r.choice([-4.0, 2.0, 8.0]), div_floor=lambda x, r: torch.div(x, 4, rounding_mode="floor"))
op("fe", copysign=lambda x, y, r: torch.copysign(x, y), heaviside=lambda x, y, r: torch.heaviside(x, y.float()))
op("bee", where=lambda c, x, y, r: torch.where(c, x, y))
op("be", where_number=lambda c, x, r: torch.where(c, x, 3), masked_fill=lambda c, x, r: x.masked_fill(c, 1))
op("eee", addcmul=lambda x, y, z, r: small(torch.addcmul(x.float(), y.float(), z.float(), value=2)))
op("b", logical_not_bool=lambda x, r: ~x)
op("bb", bool_and=lambda x, y, r: x & y, bool_or=lambda x, y, r: x | y, bool_xor=lambda x, y, r: x ^ y)
# ---- dtypes ----
for n, t in {"float": torch.float32, "bfloat16": torch.bfloat16, "long": torch.int64, "int": torch.int32, "bool": torch.bool}.items():
    op("e", **{"to_" + n: lambda x, r, t=t: x.to(t)})
op("b", bool_to_long=lambda x, r: x.long(), bool_to_float=lambda x, r: x.float())
# ---- reductions, exact ----
for n in "amax amin sum".split():
    op("e", **{n + "_dim": lambda x, r, f=getattr(torch, n): small(f(x, dim(x, r), keepdim=r.random() < 0.5))})
op("e", sum_all=lambda x, r: small(x.sum()), amax_all=lambda x, r: x.amax(), amin_all=lambda x, r: x.amin())
op("f", argmax=lambda x, r: x.argmax(dim(x, r)), argmin=lambda x, r: x.argmin(dim(x, r)), count_nonzero=lambda x, r: x.count_nonzero(dim(x, r)))
op("e", max_dim=lambda x, r: x.max(dim(x, r)).values, min_dim=lambda x, r: x.min(dim(x, r)).values, aminmax=lambda x, r: torch.stack(list(x.aminmax())))
op("i", prod=lambda x, r: small(x.clamp(-2, 2).prod(dim(x, r))), cumsum=lambda x, r: small(x.cumsum(dim(x, r))))
op("f", cumsum_float=lambda x, r: small(x.cumsum(dim(x, r))), cummax=lambda x, r: x.cummax(dim(x, r)).values, cummin=lambda x, r: x.cummin(dim(x, r)).indices)
op("i", cumprod=lambda x, r: small(x.clamp(-2, 2).cumprod(dim(x, r))), nansum=lambda x, r: small(x.float().nansum(dim(x, r))))
op("b", any_dim=lambda x, r: x.any(dim(x, r)), all_dim=lambda x, r: x.all(dim(x, r)), any_all=lambda x, r: x.any(), all_all=lambda x, r: x.all())
op("f", median=lambda x, r: x.median(dim(x, r)).values, median_all=lambda x, r: x.median(), diff=lambda x, r: small(x.diff(dim=dim(x, r))))
# ---- order ----
op("e", sort=lambda x, r: x.sort(dim=dim(x, r), stable=True, descending=r.random() < 0.5)[r.randrange(2)] if x.dim() else x)
op("f", argsort=lambda x, r: x.argsort(dim=dim(x, r), stable=True), topk=lambda x, r: x.topk(1 + r.randrange(x.shape[-1]))[0] if x.dim() else x)
op("f", msort=lambda x, r: torch.msort(x) if x.dim() else x, kthvalue=lambda x, r: x.kthvalue(1, dim(x, r)).values)
op("f", searchsorted=lambda x, r: torch.searchsorted(torch.tensor([-3.0, 0.0, 0.5, 4.0], device=x.device), x))
op("f", bucketize=lambda x, r: torch.bucketize(x, torch.tensor([-3.0, 0.0, 0.5, 4.0], device=x.device), right=True))
op("i", unique=lambda x, r: x.unique(), bincount=lambda x, r: small(torch.bincount(x.abs().flatten())), one_hot=lambda x, r: F.one_hot(x.long() % 5, 5))
# ---- shapes ----
op("e", flip=lambda x, r: x.flip(dim(x, r)), roll=lambda x, r: x.roll(r.randrange(-3, 4), dim(x, r)), clone=lambda x, r: x.clone())
op("e", reshape=lambda x, r: x.reshape(-1), contiguous=lambda x, r: x.contiguous(), repeat=lambda x, r: x.repeat(*([1] * (x.dim() - 1) + [2])) if x.dim() else x)
op("e", cat=lambda x, r: torch.cat([x, x], dim(x, r)) if x.dim() else x, stack=lambda x, r: torch.stack([x, x + 1]), tile=lambda x, r: x.tile(2))
op("ee", cat_two=lambda x, y, r: torch.cat([x.reshape(-1), y.reshape(-1)]), outer=lambda x, y, r: small(torch.outer(x.reshape(-1)[:6], y.reshape(-1)[:6])))
op("e", pad=lambda x, r: F.pad(x, (r.randrange(3), r.randrange(-1, 2)), value=2) if x.dim() else x, tril=lambda x, r: x.tril(r.randrange(-1, 2)), triu=lambda x, r: x.triu(r.randrange(-1, 2)))
op("e", rot90=lambda x, r: x.rot90(r.randrange(1, 4)), diag_embed=lambda x, r: x.diag_embed() if x.dim() == 1 else x, diag=lambda x, r: x.diag())
op("e", index_select=lambda x, r: (lambda d: x.index_select(d, indices(x, d, r)))(dim(x, r)), take=lambda x, r: x.take(torch.tensor([r.randrange(x.numel()) for _ in range(3)], device=x.device)))
op("e", gather=lambda x, r: (lambda d: x.gather(d, index_like(x, d, r)))(dim(x, r)), take_along=lambda x, r: (lambda d: torch.take_along_dim(x, index_like(x, d, r), d))(dim(x, r)))
op("e", index_get=lambda x, r: x[indices(x, 0, r)], index_pairs=lambda x, r: x[indices(x, 0, r, 3), indices(x, 1, r, 3)])
op("e", scatter=lambda x, r: (lambda d: x.scatter(d, index_like(x, d, r), x + 1))(dim(x, r)), scatter_number=lambda x, r: (lambda d: x.scatter(d, index_like(x, d, r), 2))(dim(x, r)))
op("f", scatter_add=lambda x, r: (lambda d: small(x.scatter_add(d, index_like(x, d, r), x)))(dim(x, r)), index_add=lambda x, r: small(x.index_add(0, indices(x, 0, r, x.shape[0]), x)))
op("f", scatter_reduce=lambda x, r: (lambda d: x.scatter_reduce(d, index_like(x, d, r), x + 1, r.choice(["amax", "amin", "sum"])))(dim(x, r)))
op("e", index_copy=lambda x, r: x.index_copy(0, torch.tensor([r.randrange(x.shape[0])], device=x.device), x[:1] + 1), index_fill=lambda x, r: x.index_fill(0, indices(x, 0, r), 3))
op("e", repeat_interleave=lambda x, r: x.repeat_interleave(2, dim(x, r)), masked_select=lambda x, r: x.masked_select(x > 0), nonzero=lambda x, r: x.nonzero())
op("e", index_mask=lambda x, r: x[x > 0], split=lambda x, r: x.split(2, dim(x, r))[0].clone(), unbind=lambda x, r: x.unbind(0)[-1].clone(), zeros_like=lambda x, r: torch.zeros_like(x))
op("e", full_like=lambda x, r: torch.full_like(x, 3), new_ones=lambda x, r: x.new_ones(2, 3), arange=lambda x, r: torch.arange(r.randrange(1, 7), device=x.device), meshgrid=lambda x, r: torch.meshgrid(x.reshape(-1)[:3], x.reshape(-1)[:2], indexing="ij")[1].clone())
# ---- contractions of small integers ----
op("ff", matmul=lambda x, y, r: small(x.reshape(-1)[:6].reshape(-1, 1) @ y.reshape(-1)[:6].reshape(1, -1)), dot=lambda x, y, r: small(torch.dot(x.reshape(-1)[:1], y.reshape(-1)[:1])))
op("e", gram=lambda x, r: small(x @ x.mT), mv=lambda x, r: small(torch.mv(x, x[0])), bmm=lambda x, r: small(torch.bmm(x[None], x.mT[None])))
op("f", addmm=lambda x, r: small(torch.addmm(x @ x.mT, x, x.mT, beta=2, alpha=-1)), einsum=lambda x, r: small(torch.einsum("ij,kj->ki", x, x)), linear=lambda x, r: small(F.linear(x, x)))
op("f", conv1d=lambda x, r: small(F.conv1d(x.reshape(1, 1, -1), torch.tensor([[[1.0, -2.0, 1.0]]], device=x.device), padding=1)), max_pool1d=lambda x, r: F.max_pool1d(x.reshape(1, 1, -1), 2, ceil_mode=True))
op("f", trace=lambda x, r: small(x.trace()), embedding=lambda x, r: F.embedding(torch.tensor([0, r.randrange(x.shape[0])], device=x.device), x))
# ---- smooth ----
for n in "exp sin cos tanh sigmoid erf erfc expm1 atan asinh sinh cosh exp2 sinc".split():
    op("s", **{n: lambda x, r, f=getattr(torch, n): f(near(x))})
for n in "gelu silu mish softplus elu selu celu logsigmoid softsign tanhshrink hardswish hardsigmoid leaky_relu".split():
    op("s", **{n: lambda x, r, f=getattr(F, n): f(near(x))})
for n in "log log2 log10 log1p sqrt rsqrt reciprocal lgamma digamma".split():
    op("s", **{n: lambda x, r, f=getattr(torch, n): f(near(x).square() + 1)})
for n in "asin acos atanh erfinv".split():
    op("s", **{n: lambda x, r, f=getattr(torch, n): f(near(x) * 0.4)})
op("s", acosh=lambda x, r: torch.acosh(near(x).square() + 2), pow_number=lambda x, r: near(x).pow(3), softmax=lambda x, r: near(x).softmax(-1), log_softmax=lambda x, r: near(x).log_softmax(-1))
op("s", mean=lambda x, r: near(x).mean(dim(x, r)), logsumexp=lambda x, r: near(x).logsumexp(dim(x, r)), norm=lambda x, r: (near(x).square().sum(-1) + 1).sqrt(), var=lambda x, r: near(x).var(-1, correction=0))
op("s", layer_norm=lambda x, r: F.layer_norm(near(x), x.shape[-1:], eps=1.0), normalize=lambda x, r: F.normalize(near(x), dim=-1, eps=1.0), avg_pool1d=lambda x, r: F.avg_pool1d(near(x).reshape(1, 1, -1), 2, ceil_mode=True))
op("s", logcumsumexp=lambda x, r: near(x).logcumsumexp(dim(x, r)), div_number=lambda x, r: near(x) / 3, smooth_transpose=lambda x, r: x.mT.contiguous(), smooth_slice=lambda x, r: x[..., ::2])
op("ss", hypot=lambda x, y, r: torch.hypot(near(x), near(y) + 3), atan2=lambda x, y, r: torch.atan2(near(x), near(y) + 3), logaddexp=lambda x, y, r: torch.logaddexp(near(x), near(y)))
op("ss", true_divide=lambda x, y, r: near(x) / (near(y).square() + 1), smooth_mul=lambda x, y, r: near(x) * near(y), smooth_add=lambda x, y, r: near(x) + near(y), lerp=lambda x, y, r: torch.lerp(*torch.broadcast_tensors(near(x), near(y)), 0.3))
op("ss", smooth_l1=lambda x, y, r: F.smooth_l1_loss(*torch.broadcast_tensors(near(x), near(y))), mse=lambda x, y, r: F.mse_loss(*torch.broadcast_tensors(near(x), near(y))), xlogy=lambda x, y, r: torch.xlogy(near(x), near(y).square() + 1))

# ---- views: they alias, so a write to one is seen by all ----
VIEWS = {
    "slice": lambda x, r: (lambda d, a, b, s: x[(slice(None),) * (d % x.dim()) + (slice(a, b, s),)])(*sizes(x, r)),
    "select": lambda x, r: x.select(d := dim(x, r), r.randrange(x.shape[d])),
    "transpose": lambda x, r: x.transpose(dim(x, r), dim(x, r)),
    "mT": lambda x, r: x.mT,
    "view": lambda x, r: x.view(-1),
    "unsqueeze": lambda x, r: x.unsqueeze(dim(x, r)),
    "squeeze": lambda x, r: x.squeeze(),
    "narrow": lambda x, r: x.narrow(0, x.shape[0] // 2, x.shape[0] - x.shape[0] // 2),
    "diagonal": lambda x, r: x.diagonal(),
    "movedim": lambda x, r: x.movedim(0, -1),
    "unfold": lambda x, r: x.unfold(-1, 1, 2),
    "as_strided": lambda x, r: x.as_strided((x.numel() // 2,), (1,), x.storage_offset()) if x.is_contiguous() else x.detach(),
    "chunk": lambda x, r: x.chunk(2, dim(x, r))[0],
    "view_dtype": lambda x, r: x.view(torch.int32).view(x.dtype) if x.dtype == torch.float32 else x.detach(),
    "permute": lambda x, r: x.permute(*r.sample(range(x.dim()), x.dim())),
    "flatten": lambda x, r: x.flatten(),
    "detach": lambda x, r: x.detach(),
    "split": lambda x, r: x.split(1, 0)[-1],
}
# ---- writes in place; x may be a view of others ----
WRITES = {
    "add_": lambda x, r: x.add_(r.randrange(-3, 4)),
    "mul_": lambda x, r: x.mul_(r.choice([-1, 0, 1])),
    "sub_": lambda x, r: x.sub_(1),
    "neg_": lambda x, r: x.neg_(),
    "fill_": lambda x, r: x.fill_(r.randrange(-5, 6)),
    "zero_": lambda x, r: x.zero_(),
    "clamp_": lambda x, r: x.clamp_(-3, 7),
    "abs_": lambda x, r: x.abs_(),
    "copy_": lambda x, r: x.copy_(torch.arange(x.numel(), device=x.device).view(x.shape) % 7),
    "copy_flipped": lambda x, r: x.copy_(x.flip(0).clone()),
    "set_item": lambda x, r: x.__setitem__(r.randrange(x.shape[0]), r.randrange(-4, 5)),
    "set_slice": lambda x, r: x.__setitem__((Ellipsis, slice(None, None, 2)), 1),
    "set_mask": lambda x, r: x.__setitem__(x > 1, -1),
    "set_index": lambda x, r: x.__setitem__(indices(x, 0, r), 2),
    "add_self": lambda x, r: x.add_(x.clone().clamp(-9, 9)),
    "masked_fill_": lambda x, r: x.masked_fill_(x < 0, 4),
    "index_add_": lambda x, r: x.index_add_(0, torch.tensor([0], device=x.device), torch.ones_like(x[:1])),
    "index_fill_": lambda x, r: x.index_fill_(0, torch.tensor([r.randrange(x.shape[0])], device=x.device), 6),
    "scatter_": lambda x, r: x.scatter_(0, index_like(x, 0, r), 3),
    "triu_": lambda x, r: x.triu_(),
    "relu_": lambda x, r: x.relu_(),
    "add_broadcast": lambda x, r: x.add_(torch.arange(x.shape[-1], device=x.device).to(x.dtype)),
    "remainder_": lambda x, r: x.remainder_(5),
    "swap": lambda x, r: x.__setitem__(0, x[-1].clone()),
}
