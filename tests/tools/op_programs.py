# SPDX-License-Identifier: Apache-2.0
"""op_programs.py DIR OP...: runs the first sample of each op on tpu, forward and backward in float32 (bfloat16 or int64
where that is not a dtype of the op), and writes the programs as they would be for a TPU: DIR/<op>.<n>.mlir.  A program
that several ops share is written once."""

import sys
from pathlib import Path

from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import torch
import tputorch  # noqa: F401
from tputorch import _C


def moved(tree):
    return pytree.tree_map(
        lambda t: t.detach().to("tpu").requires_grad_(t.requires_grad) if isinstance(t, torch.Tensor) else t, tree
    )


def run(op, dtype: torch.dtype) -> None:
    grad = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    sample = next(iter(op.sample_inputs("cpu", dtype, requires_grad=grad)))
    x, args, kwargs = moved(sample.input), moved(sample.args), moved(sample.kwargs)
    kwargs = {k: torch.device("tpu") if k == "device" else v for k, v in kwargs.items()}
    out = op.get_op()(x, *args, **kwargs)
    ends = [o for o in pytree.tree_leaves(out) if isinstance(o, torch.Tensor) and o.requires_grad]
    leaves = [t for t in pytree.tree_leaves((x, args, kwargs)) if isinstance(t, torch.Tensor) and t.requires_grad]
    if ends and leaves:
        out = torch.autograd.grad(ends, leaves, [torch.ones_like(o) for o in ends], allow_unused=True)
    torch.tpu.synchronize()
    del out


def programs() -> dict[int, str]:
    out, i = {}, 0
    while (text := _C.program_text(i, "tpu")) is not None:
        out[hash(text)] = text
        i += 1
    return out


def main() -> int:
    folder, wanted = Path(sys.argv[1]), set(sys.argv[2:])
    seen: set[int] = set()
    torch.manual_seed(0)
    for op in op_db:
        if op.name not in wanted:
            continue
        dtype = next(
            (
                t
                for t in (torch.float32, torch.bfloat16, torch.int64, torch.complex64, torch.bool)
                if t in op.supported_dtypes("cpu")
            ),
            None,
        )
        if dtype is None:
            continue  # the variant is CUDA's: it has no sample on the CPU
        try:
            run(op, dtype)
        except Exception as e:
            print(f"{op.formatted_name}: {type(e).__name__}: {e}")
            return 1
        new = {h: t for h, t in programs().items() if h not in seen}
        seen |= new.keys()
        for n, text in enumerate(new.values()):
            (folder / f"{op.formatted_name.replace('.', '_')}.{n}.mlir").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
