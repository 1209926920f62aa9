# SPDX-License-Identifier: Apache-2.0
"""Another PyTorch: the glue is compiled once at its first import, and works.  Needs some gigabytes and minutes."""

import os
import subprocess
import sys

import pytest

from conftest import PACKAGE, ROOT

OTHER = "2.14.1"
WORK = """
import torch, tputorch
from torch import nn
print(torch.__version__)
a = nn.Linear(4, 4); b = nn.Linear(4, 4); b.weight = a.weight; net = nn.Sequential(a, nn.GELU(), b).to('tpu')
assert a.weight is b.weight
opt = torch.optim.AdamW(net.parameters(), lr=0.1)
x = torch.ones(3, 4, device='tpu'); first = None
for _ in range(5):
    loss = net(x).square().mean(); first = first or loss.item(); opt.zero_grad(); loss.backward(); opt.step()
assert loss.item() < first
print(torch.tensor([1, 2], device='tpu').tolist(), torch.compile(lambda t: t * 2)(x).sum().item())
"""


@pytest.mark.long
def test_the_glue_is_built_at_first_import(tmp_path):
    venv = ROOT / "build" / f"torch-{OTHER}"
    py = venv / "bin" / "python"
    if not py.exists():
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    done = subprocess.run([py, "-m", "pip", "install", "-q", f"torch=={OTHER}", "numpy"], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"PyTorch {OTHER} cannot be installed here: {done.stderr[-300:]}")
    subprocess.run([py, "-m", "pip", "install", "-q", "--no-deps", "--require-hashes", "-r", ROOT / "requirements" / "plugin.txt"], check=True)
    env = {**os.environ, "PYTHONPATH": str(PACKAGE), "XDG_CACHE_HOME": str(tmp_path)}
    said = []
    for _ in range(2):
        p = subprocess.run([py, "-c", WORK], env=env, capture_output=True, text=True)
        assert p.returncode == 0, p.stdout[-1000:] + p.stderr[-3000:]
        assert p.stdout.startswith(OTHER) and "[1, 2] 24.0" in p.stdout
        said.append(p.stderr)
    assert "compiling the glue" in said[0] and "compiling the glue" not in said[1]


def test_without_a_compiler_the_import_says_what_to_install(python, tmp_path):
    r = python(
        "import torch\ntorch.__version__ = '2.99.0'\nimport tputorch", PATH=str(tmp_path), XDG_CACHE_HOME=str(tmp_path / "cache")
    )
    assert r.code == 1 and "g++" in r.err.strip().splitlines()[-1] and "2.99.0" in r.err
