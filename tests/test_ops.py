# SPDX-License-Identifier: Apache-2.0
"""Every op that tests/ops.txt lists passes PyTorch's own samples on tpu (forward, in-place, backward; float32), with
TPUTORCH_FALLBACK=error.  `python tests/tools/opcov.py` measures; `python tests/test_ops.py FILE.jsonl` rewrites the list."""

import collections
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LIST = Path(__file__).resolve().parent / "ops.txt"
PROGRAMS = Path(__file__).resolve().parent / "tools" / "op_programs.py"
OPCOV = Path(__file__).resolve().parent / "tools" / "opcov.py"
SHARDS = 8


def names() -> list[str]:
    return LIST.read_text().split()


def test_there_are_enough_rows():
    """[P1]"""
    from tputorch import _C

    rows = _C.row_names()
    assert len(rows) == len(set(rows)) >= 250
    assert len(names()) >= 250


def test_no_row_is_out_of_reach():
    """A row that no overload leads to is dead: PyTorch's composite kernel hides it (OP_COMPOSITE) or its name is wrong."""
    import torch
    from tputorch import _C

    def reached(name: str) -> bool:
        base, _, overload = name.partition(".")
        forms = [name, f"{base}_" + (f".{overload}" if overload else ""), f"{base}.out", f"{base}.{overload}_out"]
        return any(torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{n}", "PrivateUse1") for n in forms if exists(n))

    def exists(name: str) -> bool:
        base, _, overload = name.partition(".")
        return any(s.overload_name == overload for s in torch._C._jit_get_schemas_for_operator("aten::" + base))

    assert [n for n in _C.row_names() if not n.startswith("tpu::") and not reached(n)] == []


def run(ops: list[str], out: Path, dtypes: str, modes: str, samples: int) -> list[dict]:
    cmd = [
        sys.executable,
        str(OPCOV),
        "--init",
        "tputorch",
        "--ops",
        ",".join(ops),
        "--dtypes",
        dtypes,
        "--modes",
        modes,
        "--samples",
        str(samples),
        "--out",
        str(out),
        "--fresh",
    ]
    p = subprocess.run(cmd, env={**os.environ, "TPUTORCH_FALLBACK": "error"}, capture_output=True, text=True)
    assert out.exists(), p.stdout[-2000:] + p.stderr[-2000:]
    return [json.loads(line) for line in out.read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARDS))
def test_ops_float32(shard, tmp_path):
    ops = names()[shard::SHARDS]
    got = run(ops, tmp_path / "got.jsonl", "float32", "forward,inplace,backward", 3)
    bad = [r for r in got if r["status"] not in ("ok", "skip")]
    assert not bad, "\n".join(
        f"{r['op']} {r['variant']} {r['mode']}: {r['status']} {r.get('msg', '')[:200]}" for r in bad
    )
    assert any(r["status"] == "ok" for r in got)


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARDS // 2))
def test_ops_compile_for_v6e(shard, tmp_path, tpu_compile):
    """[T1]: the programs of the same ops, forward and backward, through the TPU's own compiler."""
    ops = names()[shard :: SHARDS // 2]
    env = {**os.environ, "TPUTORCH_FALLBACK": "error"}
    p = subprocess.run([sys.executable, str(PROGRAMS), str(tmp_path), *ops], env=env, capture_output=True, text=True)
    assert p.returncode == 0, p.stdout[-2000:] + p.stderr[-2000:]
    files = sorted(tmp_path.glob("*.mlir"))
    assert len(files) > len(ops) // 2
    tpu_compile(files)


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["bfloat16", "int64", "bool"])
def test_ops_other_types(dtype, tmp_path):
    got = run(names(), tmp_path / "got.jsonl", dtype, "forward", 3)
    counts = collections.Counter(r["status"] for r in got)
    assert counts["ok"] >= 0.9 * (sum(counts.values()) - counts["skip"]), counts


if __name__ == "__main__":
    seen = collections.defaultdict(set)
    for name in sys.argv[1:]:
        for row in map(json.loads, Path(name).read_text().splitlines()):
            if row["dtype"] == "float32":
                seen[row["op"]].add(row["status"])
    LIST.write_text("\n".join(sorted(op for op, s in seen.items() if "ok" in s and s <= {"ok", "skip"})) + "\n")
    print(len(names()), "ops")
