# SPDX-License-Identifier: Apache-2.0
"""The programs of the usual models also compile for a v6e chip: libtpu is a compiler, no TPU is needed."""

import pytest

from test_models import KINDS, MODELS

DUMP = (
    MODELS
    + r"""
from tputorch import _C
from itertools import count
train(KIND, 'fused', 'tpu', steps=3)
for i in count():
    text = _C.program_text(i, 'tpu')
    if text is None: break
    open(f'{OUT}/{KIND}_{i}.mlir', 'w').write(text)
"""
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_programs_of_a_model_compile_for_v6e(python, tpu_compile, tmp_path, kind):
    """[T1]"""
    python(f"KIND, OUT = {kind!r}, {str(tmp_path)!r}\n" + DUMP).ok()
    files = sorted(tmp_path.glob("*.mlir"))
    assert files
    tpu_compile(files)


@pytest.mark.slow
def test_a_program_that_is_none_is_refused(tpu_compile, tmp_path):
    bad = tmp_path / "bad.mlir"
    bad.write_text("func.func @main() { nothing }")
    with pytest.raises(AssertionError, match="error"):
        tpu_compile([bad])
