# SPDX-License-Identifier: Apache-2.0
"""What all tests share: the develop build on the path, a compile cache of their own, subprocesses, a counting plugin.

Marks: none - run by `make`; slow - by `make test` as well; long - only by `make test-all`."""

import importlib.util
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "python"
sys.path.insert(0, str(PACKAGE))
os.environ["PYTHONPATH"] = os.pathsep.join([str(PACKAGE)] + [p for p in [os.environ.get("PYTHONPATH")] if p])
CACHE = ROOT / "build" / "test-cache"
if "TPUTORCH_CACHE" not in os.environ:
    CACHE.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.environ["TPUTORCH_CACHE"] = str(CACHE)
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


class Result:
    def __init__(self, code: int, out: str, err: str):
        self.code, self.out, self.err = code, out, err

    def ok(self) -> str:
        assert self.code == 0, f"exit {self.code}\n{self.out[-1500:]}\n{self.err[-1500:]}"
        return self.out

    @property
    def text(self) -> str:
        return self.out + self.err


def run_python(code: str, timeout: float = 300, **env: str) -> Result:
    """Runs the code in a process of its own; a variable set to "" is removed."""
    e = {k: v for k, v in {**os.environ, **env}.items() if v != ""}
    p = subprocess.run(
        [sys.executable, "-c", code], env=e, capture_output=True, text=True, timeout=timeout, errors="replace"
    )
    return Result(p.returncode, p.stdout, p.stderr)


def plugin_files() -> dict[str, str]:
    """Name -> file of every plugin that is installed here."""
    spec = importlib.util.spec_from_file_location("_plugin", PACKAGE / "tputorch" / "_plugin.py")
    plugin = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plugin)
    out = {}
    for place in plugin.PLACES:
        for folder in sys.path:
            path = os.path.join(folder, place[1])
            if os.path.isfile(path):
                out[place[1].split("/")[-2]] = path
                break
    return out


@pytest.fixture
def python():
    return run_python


def pytest_collection_modifyitems(items):
    """A test that starts processes is slow, unless it is marked fast."""
    for item in items:
        if "python" in item.fixturenames and not item.get_closest_marker("fast"):
            item.add_marker(pytest.mark.slow)


class Counting:
    """A plugin that counts and passes everything on; what a process says of its compiles is checked against it."""

    def __init__(self, so: Path, file: Path, plugin: str):
        self.file = file
        self.env = {"TPUTORCH_PLUGIN": str(so), "COUNT_PLUGIN": plugin, "COUNT_FILE": str(file)}

    def read(self) -> dict[str, int]:
        data = self.file.read_bytes() if self.file.exists() else bytes(32)
        return dict(zip(("compiles", "loads", "launches", "elements"), struct.unpack("4Q", data[:32]), strict=True))


@pytest.fixture(scope="session")
def counting_so(tmp_path_factory):
    so = tmp_path_factory.mktemp("count") / "count_plugin.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O1", f"-I{ROOT / 'src'}", "-o", str(so), str(ROOT / "tests/tools/count_plugin.c")],
        check=True,
    )
    return so


@pytest.fixture
def counting(counting_so, tmp_path):
    files = [path for name, path in plugin_files().items() if name != "libtpu"]
    if not files:
        pytest.skip("no CPU plugin is installed")
    return Counting(counting_so, tmp_path / "counts", files[0])


@pytest.fixture
def fresh_cache(tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    return str(folder)


@pytest.fixture(scope="session")
def tpu_compile():
    if "libtpu" not in plugin_files():
        pytest.skip("libtpu is not installed")
    subprocess.run(
        ["cmake", "--build", str(ROOT / "build"), "--target", "tpu_compile"], check=True, capture_output=True
    )
    env = dict(os.environ, TPU_SKIP_MDS_QUERY="1", ALLOW_MULTIPLE_LIBTPU_LOAD="1", TPU_LOG_DIR="disabled")

    def run(files):
        cmd = [str(ROOT / "build" / "tpu_compile"), plugin_files()["libtpu"], "v6e:1x1", *map(str, files)]
        p = subprocess.run(cmd, env=env, capture_output=True, text=True, timeout=900, errors="replace")
        assert p.returncode == 0, p.stdout[-3000:] + p.stderr[-1000:]
        assert p.stdout.count("ok ") == len(files)

    return run
