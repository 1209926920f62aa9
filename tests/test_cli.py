# SPDX-License-Identifier: Apache-2.0
"""The tputorch command: doctor, and the cache's verbs [C3]."""

import os
import subprocess
import sys

import pytest


@pytest.fixture
def tputorch(fresh_cache):
    def run(*args, **env):
        return subprocess.run(
            [sys.executable, "-m", "tputorch", *args],
            capture_output=True,
            text=True,
            env={**os.environ, "TPUTORCH_CACHE": str(fresh_cache), **env},
        )

    return run


FILL = "import torch, tputorch; print((torch.arange(5., device='tpu') * 3 + 1).tolist())"


def test_doctor(tputorch):
    p = tputorch("doctor")
    assert p.returncode == 0 and "self-test" in p.stdout and "WRONG" not in p.stdout


def test_the_cache_is_verified_exported_and_imported(tputorch, python, fresh_cache, tmp_path, counting):
    python(FILL, TPUTORCH_CACHE=fresh_cache, **counting.env).ok()
    compiles, loads = counting.read()["compiles"], counting.read()["loads"]
    assert tputorch("cache", "verify").returncode == 0
    assert "1 good, 0 bad" in tputorch("cache", "verify").stdout
    tar = tmp_path / "cache.tar"
    assert tputorch("cache", "export", str(tar)).returncode == 0
    other = tmp_path / "other"
    p = tputorch("cache", "import", str(tar), TPUTORCH_CACHE=str(other))
    assert p.returncode == 0 and "1 entries imported" in p.stdout, p.stdout + p.stderr
    assert python(FILL, TPUTORCH_CACHE=other, **counting.env).ok().strip() == "[1.0, 4.0, 7.0, 10.0, 13.0]"
    assert counting.read()["compiles"] == compiles == 1 and counting.read()["loads"] == loads + 1


def test_a_damaged_entry_is_named_and_not_imported(tputorch, python, fresh_cache, tmp_path):
    python(FILL, TPUTORCH_CACHE=fresh_cache).ok()
    (entry,) = [f for f in os.listdir(fresh_cache) if len(f) == 32]
    with open(os.path.join(fresh_cache, entry), "r+b") as f:
        f.seek(200)
        f.write(b"x" * 8)
    p = tputorch("cache", "verify")
    assert p.returncode == 1 and f"{entry} damaged" in p.stdout
    tar = tmp_path / "cache.tar"
    tputorch("cache", "export", str(tar))
    p = tputorch("cache", "import", str(tar), TPUTORCH_CACHE=str(tmp_path / "other"))
    assert p.returncode == 1 and "0 entries imported, 1 refused" in p.stdout


def test_prune(tputorch, python, fresh_cache):
    python(FILL, TPUTORCH_CACHE=fresh_cache).ok()
    assert "1 entries removed" in tputorch("cache", "prune").stdout
    assert "0 good" in tputorch("cache", "verify").stdout


@pytest.mark.parametrize(
    "args", [("cache", "import", "no-such-file"), ("cache", "import", __file__), ("cache", "export")]
)
def test_bad_arguments_end_in_a_sentence(tputorch, args):
    p = tputorch(*args)
    assert p.returncode and "Traceback" not in p.stderr and p.stderr.strip()
