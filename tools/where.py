# SPDX-License-Identifier: Apache-2.0
"""Prints, for CMake: Python's include folder; PyTorch's folder and "major.minor" (or none), found without importing it."""
import importlib.util
import os
import re
import sysconfig

spec = importlib.util.find_spec("torch")
folder, abi = "none", "none"
if spec and spec.submodule_search_locations:
    folder = list(spec.submodule_search_locations)[0]
    with open(os.path.join(folder, "version.py")) as f:
        m = re.search(r"__version__\s*=\s*['\"](\d+\.\d+)", f.read())
    abi = m.group(1) if m else "none"
print(";".join([sysconfig.get_paths()["include"], folder, abi]))
