# SPDX-License-Identifier: Apache-2.0
"""What the compilers do not check: the layer law, sizes, machine paths, SPDX lines, owner words, labels.

  python tools/check.py      prints each breach as file:line: words; exit code 1 if there is one (warnings do not count)."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# A file of a layer may include its own layer's headers and those of the layers it needs, and what those need.
# docs/design.md section 1; `hlo` and `pjrt` do not know each other, `ops/` sees neither PJRT nor PyTorch.
NEEDS = {
    "base": [],
    "type": ["base"],
    "pjrt_abi": [],
    "pjrt": ["type", "pjrt_abi"],
    "plugin": ["pjrt", "hlo"],
    "buffer": ["plugin"],
    "view": ["type"],
    "hlo": ["type"],
    "ops": ["hlo", "view"],
    "call": ["ops"],
    "cache": ["plugin"],
    "engine": ["call", "buffer", "cache"],
    "dist": ["engine"],
    "kernel": ["engine"],
    "plan": ["engine"],
    "torch": ["engine", "dist", "kernel"],
    "python": ["torch", "plan"],
}
# Parts of a layer that carry names of their own: the path's steps are one layer, seen by others through engine.h.
LAYER_OF = {
    "op_ctx": "ops",
    "trace": "engine",
    "storage": "engine",
    "launch": "engine",
    "program": "engine",
    "device": "engine",
    "fault": "engine",
    "rng": "engine",
}
FILE_LINES, FUNCTION_LINES = 800, 60
MACHINE = re.compile(r"/(?:tmp/lab|home/\w+|root|work/(?:main|shared))\b|\bpypi\.(?:org|io)|files\.pythonhosted")
LABEL = re.compile(r"\[([APNREFCSDTG]\d)\]")
# Rules whose capability comes with a later release.
LATER = {"D1", "S2", "T1", "N2"}
OWNER = re.compile(r"\b(owned|borrowed|shared|static|never fails|take)\b")


def tracked() -> list[Path]:
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    names = out.stdout.splitlines() if out.returncode == 0 else []
    files = [ROOT / n for n in names] or [p for p in ROOT.rglob("*") if ".venv" not in p.parts and ".git" not in p.parts]
    return [f for f in files if f.is_file() and f.suffix != ".so"]


class Report:
    def __init__(self):
        self.errors = self.warnings = 0

    def error(self, path: Path, line: int, text: str) -> None:
        self.errors += 1
        print(f"{path.relative_to(ROOT)}:{line}: {text}")

    def warn(self, path: Path, line: int, text: str) -> None:
        self.warnings += 1
        print(f"{path.relative_to(ROOT)}:{line}: warning: {text}")


def layer(path: Path) -> str:
    if path.parent.name in ("ops", "torch", "python"):
        return path.parent.name
    stem = path.stem
    if stem in NEEDS:
        return stem
    if stem in LAYER_OF:
        return LAYER_OF[stem]
    head = stem.split("_")[0]
    return head if head in NEEDS else LAYER_OF.get(head, "")


def allowed(name: str) -> set[str]:
    out = {name}
    for need in NEEDS[name]:
        out |= allowed(need)
    return out


def check_layers(files: list[Path], r: Report) -> None:
    where = {f.name: f for f in files if f.suffix == ".h" and "src" in f.parts}
    for f in files:
        if "src" not in f.relative_to(ROOT).parts[:1] or f.suffix not in (".c", ".h", ".cc"):
            continue
        mine = layer(f)
        if not mine:
            r.error(f, 1, "belongs to no layer: name it after one, or add it to LAYER_OF in tools/check.py")
            continue
        may = allowed(mine)
        for n, line in enumerate(f.read_text(errors="replace").splitlines(), 1):
            m = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if not m or Path(m.group(1)).name not in where:
                continue
            theirs = layer(where[Path(m.group(1)).name])
            if theirs and theirs not in may:
                r.error(f, n, f'layer {mine} may not include "{m.group(1)}" of layer {theirs}')


def function_sizes(f: Path, r: Report) -> None:
    """In this style a function's body begins with `{` in column 0 and ends with `}` in column 0."""
    start = 0
    for n, line in enumerate(f.read_text(errors="replace").splitlines(), 1):
        if line.startswith("{"):
            start = n
        elif line.startswith("}") and start:
            if n - start - 1 > FUNCTION_LINES:
                r.warn(f, start, f"function of {n - start - 1} lines, at most {FUNCTION_LINES}")
            start = 0


def check_files(files: list[Path], r: Report) -> None:
    for f in files:
        rel = f.relative_to(ROOT)
        if f.suffix not in (".c", ".h", ".cc", ".py", ".pyi", ".md", ".txt", ".toml") and f.name not in ("Makefile", "run"):
            continue
        lines = f.read_text(errors="replace").splitlines()
        ours = rel.parts[0] in ("src", "python", "tools", "include", "examples") or rel.parts[:2] == ("tests", "c")
        if ours and len(lines) >= FILE_LINES:
            r.error(f, len(lines), f"{len(lines)} lines, fewer than {FILE_LINES} allowed")
        if ours and f.suffix in (".c", ".h", ".cc", ".py", ".pyi") and not any("SPDX-License-Identifier: Apache-2.0" in x for x in lines[:12]):
            r.error(f, 1, "no SPDX line in the head")
        if rel.parts[0] == "src" and f.suffix in (".c", ".cc"):
            function_sizes(f, r)
        for n, line in enumerate(lines, 1):
            if rel != Path("tools/check.py") and MACHINE.search(line):
                r.error(f, n, "a path or host of some machine")


def check_owner_words(files: list[Path], r: Report) -> None:
    """A function of a header that returns or fills in a pointer says whose it is."""
    proto = re.compile(r"^(?:TPU_API\s+)?(?:const\s+)?\w+\s*\*+\s*\w+\(|out_\w+")
    for f in files:
        if f.suffix != ".h" or f.relative_to(ROOT).parts[0] not in ("src", "include") or f.name == "pjrt_abi.h":
            continue
        lines = f.read_text(errors="replace").splitlines()
        for n, line in enumerate(lines, 1):
            if not re.match(r"^[A-Za-z].*\(.*\)", line) or "typedef" in line or "inline" in line or line.startswith("#"):
                continue
            gives = re.match(r"^(?:TPU_API )?(?:const )?(\w+) \*+\w+\(", line)
            pointer = bool(gives and gives.group(1) != "tpu_error") or bool(re.search(r"\w+ \*\*+out_\w+", line))
            near = " ".join(lines[max(0, n - 4) : n + 2])
            if pointer and proto.search(line) and not OWNER.search(near):
                r.warn(f, n, "whose pointer is it? (owned, borrowed, shared)")


def check_labels(files: list[Path], r: Report) -> None:
    """Each rule of docs/design.md stands in the code that obeys it and in a test that proves it."""
    design = ROOT / "docs" / "design.md"
    if not design.exists():
        return
    rules = set(LABEL.findall(design.read_text())) - LATER
    code, tests = set(), set()
    for f in files:
        part = f.relative_to(ROOT).parts[0]
        if part in ("src", "python") and f.suffix in (".c", ".h", ".cc", ".py"):
            code |= set(LABEL.findall(f.read_text(errors="replace")))
        elif part == "tests" and f.suffix in (".c", ".py"):
            tests |= set(LABEL.findall(f.read_text(errors="replace")))
    for rule in sorted(rules - code):
        r.warn(design, 1, f"[{rule}] stands in no code")
    for rule in sorted(rules - tests):
        r.warn(design, 1, f"[{rule}] stands in no test")


def main() -> int:
    files, r = tracked(), Report()
    check_layers(files, r)
    check_files(files, r)
    check_owner_words(files, r)
    check_labels(files, r)
    print(f"check: {r.errors} errors, {r.warnings} warnings")
    return 1 if r.errors else 0


if __name__ == "__main__":
    sys.exit(main())
