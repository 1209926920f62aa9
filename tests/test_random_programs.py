# SPDX-License-Identifier: Apache-2.0
"""Random programs on tpu and cpu: integers and exact floats agree bit for bit, the rest within BOUND.

A program is a seed: statements pick their op and operands by it, from shapes and dtypes only, so that the same program
runs on every device.  What the CPU refuses is left out.  30 % of the statements make views or write in place, through
views too; now and then a value is read in between, which cuts the trace."""

import random
import sys
from pathlib import Path

import pytest

import torch
import tputorch  # noqa: F401

sys.path.insert(0, str(Path(__file__).resolve().parent))
from programs.ops import OPS, VIEWS, WRITES

BOUND = 2e-3  # of 1 + |value|: three smooth functions on [-2, 2], each with a slope of at most 8, from float32 rounding
STATEMENTS = 18
SHAPES = [(4, 6), (3, 4), (6,), (2, 3, 4), (4, 1), (4, 4)]
DTYPES = [torch.float32, torch.float32, torch.int64, torch.bfloat16, torch.int32, torch.bool]


class Value:
    def __init__(self, t, depth=0):
        self.t, self.depth = t, depth  # depth 0: exact; else how many smooth functions it went through


def start(r, device):
    pool = []
    for _ in range(4):
        shape, dtype = r.choice(SHAPES), r.choice(DTYPES)
        n = torch.Size(shape).numel()
        numbers = [r.randrange(0, 2) if dtype == torch.bool else r.randrange(-9, 10) for _ in range(n)]
        pool.append(Value(torch.tensor(numbers, dtype=dtype).view(shape).to(device)))
    pool.append(Value(torch.tensor([[r.randrange(-9, 10) for _ in range(4)] for _ in range(4)], dtype=torch.float32).to(device)))
    return pool


def fits(v, kind):
    t = v.t
    if t.numel() == 0 or t.numel() > 400:
        return False
    if kind == "s":
        return t.dtype == torch.float32 and v.depth < 3
    if v.depth:
        return False
    return {"e": t.dtype != torch.bool, "f": t.dtype == torch.float32, "i": t.dtype in (torch.int64, torch.int32), "b": t.dtype == torch.bool}[kind]


def statement(seed, pool):
    """Runs one statement; raises what the device raises.  Gives a word for the report and what was read."""
    r = random.Random(seed)
    what = r.random()
    if what < 0.15:
        name, v = r.choice(sorted(VIEWS)), r.choice([v for v in pool if v.t.numel()])
        pool.append(Value(VIEWS[name](v.t, r), v.depth))
        return name, None
    if what < 0.30:
        name, able = r.choice(sorted(WRITES)), [v for v in pool if fits(v, "e")]
        if able:
            WRITES[name](r.choice(able).t, r)
        return name, None
    if what < 0.34:
        v = r.choice([v for v in pool if v.t.numel()])
        return "item", None if v.depth else v.t.reshape(-1)[r.randrange(v.t.numel())].item()
    name = r.choice(sorted(OPS))
    takes, f = OPS[name]
    picked = []
    for kind in takes:
        able = [v for v in pool if fits(v, kind)]
        if not able:
            return name, None
        picked.append(r.choice(able))
    depth = 1 + max(v.depth for v in picked) if "s" in takes else 0
    pool.append(Value(f(*[v.t for v in picked], r), depth))
    return name, None


def plan(seed):
    """The statements that the CPU takes, what it read, and its values at the end."""
    r = random.Random(seed)
    pool, seeds, reads, names = start(random.Random(seed), "cpu"), [], [], []
    while len(seeds) < STATEMENTS:
        s = r.getrandbits(40)
        held = len(pool)
        saved = [v.t.clone() for v in pool]
        try:
            name, read = statement(s, pool)
        except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError):
            del pool[held:]
            if any(not torch.equal(a, v.t) for a, v in zip(saved, pool, strict=True)):  # it wrote before it refused
                return plan(seed + 1)
            continue
        seeds.append(s)
        names.append(name)
        if read is not None:
            reads.append(read)
    return seeds, reads, pool, names


def replay(seed, seeds, device):
    pool, reads = start(random.Random(seed), device), []
    for s in seeds:
        _, read = statement(s, pool)
        if read is not None:
            reads.append(read)
    return reads, pool


def differs(want, got):
    a, b = want.t, got.t.cpu()
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{b.dtype} {tuple(b.shape)} for {a.dtype} {tuple(a.shape)}"
    if want.depth:
        off = (a - b).abs() - BOUND * (1 + a.abs())
        return f"off by {off.max().item():.3g} over the bound" if bool((off > 0).any()) or not torch.equal(a.isnan(), b.isnan()) else ""
    same = torch.equal(a, b) or (a.is_floating_point() and torch.equal(a.nan_to_num(7e7), b.nan_to_num(7e7)))
    return "" if same else f"{a.tolist()} is {b.tolist()}"


def check(seed, modes=("fused", "strict")):
    """What is wrong with the program of this seed, or an empty string."""
    while True:
        try:
            seeds, reads, pool, names = plan(seed)
            break
        except RecursionError:
            seed += 1
    for mode in modes:
        torch.tpu.eager_mode = mode
        try:
            got_reads, got = replay(seed, seeds, "tpu")
            words = [w for a, b in zip(pool, got, strict=True) if (w := differs(a, b))]
            words += [f"read {b} for {a}" for a, b in zip(reads, got_reads, strict=True) if a != b and a == a]
        except Exception as e:
            words = [f"{type(e).__name__}: {e}"]
        finally:
            torch.tpu.eager_mode = "fused"
        if words:
            return f"seed {seed}, {mode}: {' '.join(names)}: {words[0][:600]}"
    return ""


def hunt(first, count, modes=("fused", "strict")):
    return [w for s in range(first, first + count) if (w := check(s * 1000, modes))]


def test_the_vocabulary_is_large():
    assert len(OPS) + len(VIEWS) + len(WRITES) >= 200 and len(OPS) >= 150


@pytest.mark.slow
@pytest.mark.parametrize("part", range(5))
def test_500_programs(part):
    """All of them fused, a fifth of them strict as well."""
    bad = hunt(100 * part, 80, ("fused",)) + hunt(100 * part + 80, 20)
    assert not bad, "\n".join(bad)


@pytest.mark.long
@pytest.mark.parametrize("part", range(20))
def test_10000_programs(part):
    bad = hunt(10_000 + 500 * part, 500, ("fused",) if part % 2 else ("strict",))
    assert not bad, "\n".join(bad)


def some_dim(x, r):
    return r.randrange(-x.dim(), x.dim()) if x.dim() else 0


def last_of_equals_first(x, r):
    d = some_dim(x, r)
    return x.shape[d] - 1 - x.flip(d).argsort(dim=d, stable=True) if x.dim() else x.long()


# op -> what it would be with a lowering that is wrong in one respect
WRONG = {
    "floor_divide": lambda x, r: torch.div(x, r.choice([-3, 2, 5]), rounding_mode="trunc"),
    "argsort": last_of_equals_first,
    "cumsum": lambda x, r: (lambda d: (x.cumsum(d) - x).clamp(-200, 200))(some_dim(x, r)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_lowering_is_found(name, monkeypatch):
    """One op is wrong on tpu alone: 500 programs find it."""
    takes, right = OPS[name]
    monkeypatch.setitem(OPS, name, (takes, lambda x, r: (WRONG[name] if x.device.type == "tpu" else right)(x, r)))
    assert any(check(s * 1000, ("fused",)) for s in range(500))
