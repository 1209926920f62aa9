# SPDX-License-Identifier: Apache-2.0
"""Plugin files in site-packages, found by their place: no package is imported, no file is opened."""

import os
import sys

# (kind, path below a folder of sys.path); the first of a kind that works is used.
PLACES = (
    ("libtpu", "libtpu/libtpu.so"),
    ("cpu", "lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so"),
    ("cpu", "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so"),
)


def candidates() -> list[tuple[str, str]]:
    """(kind, file) in the order to try."""
    found = []
    for kind, place in PLACES:
        for folder in sys.path:
            path = os.path.join(folder or ".", place)
            if os.path.isfile(path):
                found.append((kind, os.path.abspath(path)))
                break
    return found


def lines() -> str:
    """The same in the form that engine_configure takes."""
    return "\n".join(f"{kind}={path}" for kind, path in candidates())


def cache_folder() -> str:
    """The folder of the compile cache; "" means that there is none [C3]."""
    named = os.environ.get("TPUTORCH_CACHE")
    if named is not None:
        return "" if named in ("", "0", "off") else named
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "tputorch")
