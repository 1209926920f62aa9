# SPDX-License-Identifier: Apache-2.0
"""Models of the usual kinds train on tpu as on cpu, with every op on the device (TPUTORCH_FALLBACK=error)."""

import pytest

MODELS = r'''
import math, torch, tputorch
from torch import nn
import torch.nn.functional as F

class Res(nn.Module):
    def __init__(s, i, o, st):
        super().__init__(); s.c1, s.c2 = nn.Conv2d(i, o, 3, st, 1, bias=False), nn.Conv2d(o, o, 3, 1, 1, bias=False)
        s.n1, s.n2 = nn.BatchNorm2d(o), nn.BatchNorm2d(o); s.d = nn.Conv2d(i, o, 1, st, bias=False)
    def forward(s, x): return F.relu(s.n2(s.c2(F.relu(s.n1(s.c1(x))))) + s.d(x))
class ResNet(nn.Module):
    def __init__(s):
        super().__init__(); s.n = nn.Sequential(nn.Conv2d(3, 8, 7, 2, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1), Res(8, 8, 1), Res(8, 16, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5))
    def forward(s, x): return s.n(x)
class ViT(nn.Module):
    def __init__(s):
        super().__init__(); s.p = nn.Conv2d(3, 16, 4, 4); s.c = nn.Parameter(torch.zeros(1, 1, 16)); s.e = nn.Parameter(torch.randn(1, 17, 16) * .02)
        s.b = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, DROP, F.gelu, batch_first=True, norm_first=True), 2, enable_nested_tensor=False); s.h = nn.Linear(16, 5)
    def forward(s, x):
        t = s.p(x).flatten(2).transpose(1, 2); t = torch.cat([s.c.expand(len(x), -1, -1), t], 1) + s.e
        return s.h(s.b(t)[:, 0])
class Attn(nn.Module):
    def __init__(s, d, h, causal, rope=False):
        super().__init__(); s.h, s.causal, s.rope = h, causal, rope; s.q, s.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
    def forward(s, x):
        B, T, D = x.shape; q, k, v = s.q(x).view(B, T, 3, s.h, D // s.h).permute(2, 0, 3, 1, 4)
        if s.rope:
            f = 1 / 100 ** (torch.arange(0, D // s.h, 2, device=x.device) / (D // s.h)); a = torch.outer(torch.arange(T, device=x.device).float(), f); cos, sin = torch.cat([a, a], -1).cos(), torch.cat([a, a], -1).sin()
            rot = lambda z: torch.cat([-z[..., z.shape[-1] // 2:], z[..., :z.shape[-1] // 2]], -1)
            q, k = q * cos + rot(q) * sin, k * cos + rot(k) * sin
        return s.o(F.scaled_dot_product_attention(q, k, v, is_causal=s.causal).transpose(1, 2).reshape(B, T, D))
class RMS(nn.Module):
    def __init__(s, d): super().__init__(); s.w = nn.Parameter(torch.ones(d))
    def forward(s, x): return s.w * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
class Swi(nn.Module):
    def __init__(s, d): super().__init__(); s.a, s.b, s.c = nn.Linear(d, 2 * d, bias=False), nn.Linear(d, 2 * d, bias=False), nn.Linear(2 * d, d, bias=False)
    def forward(s, x): return s.c(F.silu(s.a(x)) * s.b(x))
class LM(nn.Module):
    def __init__(s, kind):
        super().__init__(); d = 16; s.kind = kind; s.e = nn.Embedding(31, d); s.p = nn.Embedding(16, d); norm = RMS if kind == 'llama' else nn.LayerNorm
        s.b = nn.ModuleList(nn.ModuleDict(dict(n1=norm(d), n2=norm(d), a=Attn(d, 2, kind != 'bert', kind == 'llama'), m=Swi(d) if kind == 'llama' else nn.Sequential(nn.Linear(d, 4 * d), nn.GELU('tanh' if kind == 'gpt2' else 'none'), nn.Dropout(DROP), nn.Linear(4 * d, d)))) for _ in range(2))
        s.n = norm(d); s.h = nn.Linear(d, 31, bias=False)
        if kind != 'llama': s.h.weight = s.e.weight
    def forward(s, ids):
        x = s.e(ids)
        if s.kind != 'llama': x = x + s.p(torch.arange(ids.shape[1], device=ids.device))
        for b in s.b: x = x + b['a'](b['n1'](x)); x = x + b['m'](b['n2'](x))
        return s.h(s.n(x)).flatten(0, 1)
class UNet(nn.Module):
    def __init__(s):
        super().__init__(); c = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(2, o), nn.SiLU())
        s.a, s.b, s.c = c(3, 8), c(8, 16), c(16, 8); s.down = nn.MaxPool2d(2); s.up = nn.ConvTranspose2d(16, 8, 2, 2); s.up2 = nn.Upsample(scale_factor=2); s.o = nn.Conv2d(8, 3, 1)
    def forward(s, x):
        a = s.a(x); b = s.b(s.down(a)); u = s.c(torch.cat([a, s.up(b)], 1)); return s.o(u + s.up2(b)[:, :8] * .1)
class Rnn(nn.Module):
    def __init__(s): super().__init__(); s.e = nn.Embedding(31, 8); s.r = nn.LSTM(8, 8, 2, batch_first=True); s.g = nn.GRU(8, 8, batch_first=True); s.h = nn.Linear(8, 31)
    def forward(s, ids): return s.h(s.g(s.r(s.e(ids))[0])[0]).flatten(0, 1)

DROP = 0.0
IMG = lambda g: (torch.randn(4, 3, 16, 16, generator=g), torch.randint(0, 5, (4,), generator=g))
TOK = lambda g: (lambda t: (t[:, :-1].contiguous(), t[:, 1:].flatten()))(torch.randint(0, 31, (3, 11), generator=g))
KINDS = dict(resnet=(ResNet, IMG), vit=(ViT, IMG), gpt2=(lambda: LM('gpt2'), TOK), bert=(lambda: LM('bert'), TOK), llama=(lambda: LM('llama'), TOK),
             unet=(UNet, lambda g: (lambda x: (x, x.flip(3)))(torch.randn(2, 3, 8, 8, generator=g))), lstm=(Rnn, TOK))
OPTS = dict(sgd=lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, weight_decay=1e-3), adam=lambda p: torch.optim.Adam(p, 1e-3), adamw=lambda p: torch.optim.AdamW(p, 1e-3), fused=lambda p: torch.optim.AdamW(p, 1e-3, fused=True))

def train(kind, opt, device, steps=4, amp=False):
    torch.manual_seed(0); g = torch.Generator().manual_seed(1)
    make, data = KINDS[kind]; m = make().to(device); o = OPTS[opt](m.parameters()); losses = []
    for _ in range(steps):
        x, y = (t.to(device) for t in data(g)); o.zero_grad()
        with torch.autocast(device, dtype=torch.bfloat16, enabled=amp):
            out = m(x); loss = F.mse_loss(out.float(), y) if kind == 'unet' else F.cross_entropy(out.float(), y)
        loss.backward(); n = nn.utils.clip_grad_norm_(m.parameters(), 1.0); o.step(); losses.append(loss.item())
    return losses, [p.detach().cpu().float() for p in m.parameters()], n.item()
'''
CHECK = MODELS + r'''
a, b = train(KIND, OPT, 'cpu'), train(KIND, OPT, 'tpu', amp=AMP)
tol = 5e-2 if AMP else 1e-4
for x, y in zip(a[0], b[0]): assert abs(x - y) <= tol * abs(x) + tol, (a[0], b[0])
if not AMP:
    assert abs(a[2] - b[2]) < 1e-3 * abs(a[2]) + 1e-4, (a[2], b[2])
    if OPT == 'sgd':
        for p, q in zip(a[1], b[1]): torch.testing.assert_close(q, p, rtol=1e-3, atol=1e-4)
print('ok', a[0], b[0])
'''
KINDS = ["resnet", "vit", "gpt2", "bert", "llama", "unet", "lstm"]


def check(python, kind, opt, amp=False):
    code = f"KIND, OPT, AMP = {kind!r}, {opt!r}, {amp}\n" + CHECK
    assert python(code, TPUTORCH_FALLBACK="error").ok().startswith("ok")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_sgd(python, kind):
    check(python, kind, "sgd")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("opt", ["adam", "adamw", "fused"])
def test_adam(python, kind, opt):
    check(python, kind, opt)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_autocast_bfloat16(python, kind):
    check(python, kind, "adamw", amp=True)
