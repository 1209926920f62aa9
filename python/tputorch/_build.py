# SPDX-License-Identifier: Apache-2.0
"""The glue for the PyTorch that is installed: shipped beside the package, or compiled once at the first import."""

import hashlib
import os
import shutil
import subprocess
import sys

import torch

HERE = os.path.dirname(os.path.abspath(__file__))


def _abi() -> str:
    return ".".join(torch.__version__.split("+")[0].split(".")[:2])


def _sources() -> str:
    for folder in (os.path.join(HERE, "src"), os.path.join(HERE, "..", "..", "src")):
        if os.path.isdir(os.path.join(folder, "torch")):
            return os.path.abspath(folder)
    raise ImportError(f"tputorch: no glue for PyTorch {torch.__version__} and no sources to build it from; reinstall tputorch")


def _key(src: str) -> str:
    h = hashlib.sha256(torch.__version__.encode())
    for name in sorted(os.listdir(os.path.join(src, "torch"))):
        with open(os.path.join(src, "torch", name), "rb") as f:
            h.update(f.read())
    with open(os.path.join(src, "engine.h"), "rb") as f:
        h.update(f.read())
    return h.hexdigest()[:16]


def _folder() -> str:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    path = os.path.join(base, "tputorch-glue")
    os.makedirs(path, mode=0o700, exist_ok=True)
    return path


def _compile(src: str, out: str) -> None:
    gxx = shutil.which("g++")
    if not gxx:
        raise ImportError(
            f"tputorch: the glue for PyTorch {torch.__version__} must be compiled once and g++ is missing; "
            "install it (apt-get install g++)"
        )
    print(f"tputorch: compiling the glue for PyTorch {torch.__version__}, once, about a minute", file=sys.stderr)
    root = os.path.dirname(torch.__file__)
    lib = os.path.join(root, "lib")
    files = [os.path.join(src, "torch", n) for n in sorted(os.listdir(os.path.join(src, "torch"))) if n.endswith(".cc")]
    new = f"{out}.{os.getpid()}"
    command = [gxx, "-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-w", "-D_GNU_SOURCE", "-I", src]
    command += ["-isystem", os.path.join(root, "include"), *files, "-o", new, "-L", HERE, "-ltputorch", "-L", lib]
    command += ["-ltorch_cpu", "-lc10", f"-Wl,-rpath,{HERE}", f"-Wl,-rpath,{lib}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise ImportError(f"tputorch: the glue does not compile against PyTorch {torch.__version__}:\n{done.stderr[-2000:]}")
    os.replace(new, out)


def glue_path() -> str:
    """Path of the shared library that torch.ops.load_library shall load."""
    shipped = os.path.join(HERE, f"libtputorch_glue_{_abi()}.so")
    if os.path.exists(shipped):
        return shipped
    if sys.platform != "linux":
        raise ImportError("tputorch runs on Linux (x86_64 and aarch64)")
    src = _sources()
    out = os.path.join(_folder(), f"glue_{_abi()}_{_key(src)}.so")
    if not os.path.exists(out):
        _compile(src, out)
    return out
