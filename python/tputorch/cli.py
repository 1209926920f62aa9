# SPDX-License-Identifier: Apache-2.0
"""tputorch doctor | cache ls|stats|verify|prune|export|import."""

import argparse
import os
import platform
import re
import shutil
import sys
import tarfile
import time


def _say(label: str, value: object) -> None:
    print(f"{label:<14}{value}")


def _doctor_plugin() -> bool:
    from . import _plugin

    found = _plugin.candidates()
    named = os.environ.get("TPUTORCH_PLUGIN")
    if named:
        _say("plugin", f"{named} (TPUTORCH_PLUGIN)")
    for kind, path in found:
        _say("plugin file", f"{kind}  {path}")
    if not found and not named:
        _say("plugin", "none found; `pip install --no-deps lammps-jax-pjrt-cpu==0.11.2` gives one for the CPU, "
             "`pip install libtpu` the one for a TPU")
    return bool(found or named)


def _doctor_cache() -> None:
    from . import _plugin

    folder = _plugin.cache_folder()
    if not folder:
        _say("cache", "off (TPUTORCH_CACHE)")
        return
    if not os.path.isdir(folder):
        _say("cache", f"{folder} (made at first use)")
        return
    st = os.stat(folder)
    trouble = []
    if st.st_uid != os.getuid():
        trouble.append("not yours, so not used")
    if st.st_mode & 0o077:
        trouble.append(f"mode {st.st_mode & 0o777:o}, must be 700, so not used")
    files, size = _cache_size(folder)
    _say("cache", f"{folder}: {files} entries, {size / 2**20:.1f} MB" + "".join("; " + t for t in trouble))


def doctor(args: argparse.Namespace) -> int:
    """Versions, plugin, device, cache, and one addition on the device; ends with what to do, if anything."""
    t0 = time.time()
    import torch

    t1 = time.time()
    try:
        import tputorch
    except Exception as e:
        _say("tputorch", f"cannot be imported: {e}")
        return 1
    _say("tputorch", f"{tputorch.__version__} (import {time.time() - t1:.2f} s after torch's {t1 - t0:.2f} s)")
    _say("torch", torch.__version__)
    _say("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    ok = _doctor_plugin()
    _doctor_cache()
    if not ok:
        return 1
    try:
        from . import _C

        t2 = time.time()
        torch.tpu.init()
        _say("device", f"{torch.tpu.device_count()} x {torch.tpu.get_device_name(0)}, "
             f"{torch.tpu.get_device_properties(0).total_memory / 2**30:.0f} GB (start {time.time() - t2:.2f} s)")
        plugin = _C.plugin()
        _say("loaded", f"{plugin['path']} (PJRT API 0.{plugin['api']}, {str(plugin['version']).splitlines()[0]})")
        x = torch.arange(4.0, device="tpu")
        got = (x + 1).tolist()
        if got != [1, 2, 3, 4]:
            _say("self-test", f"WRONG: arange(4) + 1 gave {got}")
            return 1
        _say("self-test", f"arange(4) + 1 = {got}")
    except Exception as e:
        _say("device", f"does not start: {e}")
        return 1
    if not plugin["tpu"]:
        _say("advice", "this is XLA on the CPU: right answers, the CPU's speed; on a TPU machine `pip install libtpu`")
    else:
        _say("advice", "all is well")
    return 0


def _cache_files(folder: str) -> list[tuple[str, os.stat_result]]:
    out = []
    for base, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(base, name)
            try:
                out.append((path, os.stat(path)))
            except OSError:
                continue
    return sorted(out, key=lambda e: e[1].st_mtime)


def _cache_size(folder: str) -> tuple[int, int]:
    files = _cache_files(folder)
    return len(files), sum(st.st_size for _, st in files)


def _cache_ls(folder: str, args: argparse.Namespace) -> int:
    for path, st in _cache_files(folder):
        print(f"{time.strftime('%Y-%m-%d %H:%M', time.localtime(st.st_mtime))}  {st.st_size:>10}  {os.path.relpath(path, folder)}")
    return 0


def _cache_stats(folder: str, args: argparse.Namespace) -> int:
    n, size = _cache_size(folder)
    print(f"{folder}: {n} entries, {size / 2**20:.1f} MB")
    return 0


def _cache_verify(folder: str, args: argparse.Namespace) -> int:
    from . import _C

    good, bad = _C.cache_verify(folder)
    print(bad, end="")
    print(f"{folder}: {good} good, {len(bad.splitlines())} bad")
    return 1 if bad else 0


def _cache_prune(folder: str, args: argparse.Namespace) -> int:
    from . import _C

    gone = _C.cache_prune(folder, args.keep_mb * 2**20)
    print(f"{gone} entries removed, {_cache_size(folder)[1] / 2**20:.1f} MB kept")
    return 0


def _cache_export(folder: str, args: argparse.Namespace) -> int:
    """A plain tar of the entries, for another machine of the same kind."""
    files = _cache_files(folder)
    with tarfile.open(args.file, "w") as tar:
        for path, _ in files:
            tar.add(path, os.path.basename(path))
    print(f"{args.file}: {len(files)} entries, {os.path.getsize(args.file) / 2**20:.1f} MB")
    return 0


def _cache_import(folder: str, args: argparse.Namespace) -> int:
    """Entries of an exported file join the cache when their checksums hold.  They are native code: import what you trust."""
    import tempfile

    from . import _C

    os.makedirs(folder, mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as new:
        with tarfile.open(args.file) as tar:
            for member in tar:                          # entries by name and nothing else: no paths, no links
                if member.isfile() and re.fullmatch("[0-9a-f]{32}", member.name):
                    with open(os.path.join(new, member.name), "wb") as f:
                        shutil.copyfileobj(tar.extractfile(member), f)
        good, bad = _C.cache_verify(new)
        damaged = {line.split()[0] for line in bad.splitlines()}
        for name in os.listdir(new):
            if name not in damaged:
                os.replace(os.path.join(new, name), os.path.join(folder, name))
    print(f"{folder}: {good} entries imported, {len(damaged)} refused")
    return 1 if damaged else 0


_CACHE = {"ls": _cache_ls, "stats": _cache_stats, "verify": _cache_verify, "prune": _cache_prune, "export": _cache_export,
          "import": _cache_import}


def cache(args: argparse.Namespace) -> int:
    from . import _plugin

    folder = _plugin.cache_folder()
    if args.verb in ("export", "import") and not args.file:
        print(f"tputorch cache {args.verb} FILE: which file?", file=sys.stderr)
        return 2
    if not folder or (args.verb != "import" and not os.path.isdir(folder)):
        print(f"no cache at {folder or '(off)'}")
        return 0 if args.verb in ("ls", "stats") else 1
    try:
        return _CACHE[args.verb](folder, args)
    except (OSError, RuntimeError, tarfile.TarError) as e:
        print(f"tputorch cache {args.verb}: {e}", file=sys.stderr)
        return 1


def main(argv: list[str] | None = None) -> int:
    ap = argparse.ArgumentParser(prog="tputorch", description="the tpu device for PyTorch")
    sub = ap.add_subparsers(dest="command", required=True)
    sub.add_parser("doctor", help="is everything here, and does it work?").set_defaults(run=doctor)
    c = sub.add_parser("cache", help="the compile cache")
    c.add_argument("verb", choices=list(_CACHE))
    c.add_argument("file", nargs="?", help="export, import: the tar file")
    c.add_argument("--keep-mb", type=int, default=0, help="prune: the newest entries up to this size stay")
    c.set_defaults(run=cache)
    args = ap.parse_args(argv)
    try:
        return args.run(args)
    except BrokenPipeError:
        sys.stderr.close()
        return 0
