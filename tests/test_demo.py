# SPDX-License-Identifier: Apache-2.0
"""The main job runs, and its second run compiles nothing."""

import json
import os
import subprocess
import sys

import pytest

from conftest import ROOT


@pytest.mark.slow
def test_a_second_demo_compiles_nothing(counting, fresh_cache, tmp_path):
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    env = {**os.environ, **counting.env, "TPUTORCH_CACHE": fresh_cache}
    said, compiled = [], []
    for _ in range(2):
        cmd = [sys.executable, str(ROOT / "examples" / "demo.py"), "--quick", "--out", str(tmp_path)]
        p = subprocess.run(cmd, env=env, capture_output=True, text=True, timeout=600)
        assert p.returncode == 0, p.stdout[-3000:] + p.stderr[-3000:]
        said.append(p.stdout)
        compiled.append(counting.read()["compiles"])
    assert compiled[0] == compiled[1] > 0
    assert "This run compiled nothing" in said[1] and "This run compiled nothing" not in said[0]
    assert (tmp_path / "demo.png").stat().st_size > 5000
    result = json.loads((tmp_path / "demo.json").read_text())
    assert result["compiles"] == 0 and result["good"]
