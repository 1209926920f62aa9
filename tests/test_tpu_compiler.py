# SPDX-License-Identifier: Apache-2.0
"""The programs of the usual models also compile for a v6e chip: libtpu is a compiler, no TPU is needed."""

import os
import subprocess

import pytest

from conftest import ROOT, plugin_files
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


@pytest.fixture(scope="session")
def tpu_compile():
    if "libtpu" not in plugin_files():
        pytest.skip("libtpu is not installed")
    subprocess.run(["cmake", "--build", str(ROOT / "build"), "--target", "tpu_compile"], check=True, capture_output=True)
    env = dict(os.environ, TPU_SKIP_MDS_QUERY="1", ALLOW_MULTIPLE_LIBTPU_LOAD="1", TPU_LOG_DIR="disabled")

    def run(files):
        cmd = [str(ROOT / "build" / "tpu_compile"), plugin_files()["libtpu"], "v6e:1x1", *map(str, files)]
        p = subprocess.run(cmd, env=env, capture_output=True, text=True, timeout=900, errors="replace")
        assert p.returncode == 0, p.stdout[-3000:] + p.stderr[-1000:]
        assert p.stdout.count("ok ") == len(files)

    return run


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


