# SPDX-License-Identifier: Apache-2.0
"""Side by side: each round runs every backend once on a workload, in turn, so that all meet the same machine.  A figure is
the median over rounds of the ratio ours / theirs within a round, with its 95 % interval; a limit holds when the
interval's lower end is within it.

  python bench/compare.py [--rounds N] [--works dispatch,mlp,gpt2,resnet] [--rivals cpu,torchtpu,jax] [--write]

Rivals other than cpu: `bench/rivals/setup DIR; source DIR/env` first.  --write puts the table into docs/performance.md."""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
DOC = HERE.parent / "docs" / "performance.md"
METRICS = {"dispatch": ("add_us", "mm_us", "view_us", "chain40_us", "item_us", "tocpu_us")}
TRAINING = ("first_s", "step_ms", "rss_mb")
# (workload, metric, rival) -> the most that ours / theirs may be
LIMITS = {
    ("dispatch", "add_us", "cpu"): 2.0,
    ("dispatch", "chain40_us", "cpu"): 1.0,
    ("dispatch", "item_us", "cpu"): 4.0,
    ("mlp", "step_ms", "cpu"): 0.7,
    ("gpt2", "step_ms", "torchtpu"): 0.95,
    ("gpt2", "step_ms", "cpu"): 1.15,
    ("resnet", "step_ms", "torchtpu"): 0.5,
    ("gpt2", "first_s", "torchtpu"): 0.7,
}
# workload -> the most MB that the process may hold beyond the cpu run's, and seconds of a first step on a warm disk cache
MEMORY = {"gpt2": 400}
WARM = {"gpt2": 1.5}


def command(backend: str, work: str) -> list[str] | None:
    """How to run a backend, or None where it is not installed."""
    if backend == "tputorch":
        return [sys.executable, str(HERE / "workloads.py"), "tputorch", work]
    if backend == "cpu":
        return [os.environ.get("RIVAL_CPU", sys.executable), str(HERE / "workloads.py"), "cpu", work]
    rival = os.environ.get("RIVAL_TT")
    if not rival:
        return None
    if backend == "jax":
        return None if work == "dispatch" else [rival, str(HERE / "jax_workloads.py"), work]
    return [rival, str(HERE / "workloads.py"), backend, work]


def once(backend: str, work: str, cache: str) -> dict | None:
    cmd = command(backend, work)
    if cmd is None:
        return None
    env = dict(os.environ, OMP_WAIT_POLICY="PASSIVE", TF_CPP_MIN_LOG_LEVEL="3", TPUTORCH_CACHE=cache)
    if backend != "tputorch":
        env.pop("PYTHONPATH", None)
    p = subprocess.run(cmd, capture_output=True, text=True, env=env, timeout=900)
    if p.returncode:
        print(f"{backend} {work}: exit {p.returncode}: {p.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    return json.loads(p.stdout.strip().splitlines()[-1])


def interval(values: list[float]) -> tuple[float, float, float]:
    """Median and its 95 % interval by resampling."""
    rng = random.Random(1)
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(2000))
    return statistics.median(values), medians[50], medians[1949]


def judged(low: float, limit: float | None) -> str:
    return "" if limit is None else f" (limit {limit}: {'holds' if low <= limit else 'MISSED'})"


def measure(work: str, rivals: list[str], rounds: int) -> list[list[str]]:
    got: dict[str, list[dict | None]] = {b: [] for b in ["tputorch", *rivals]}
    for i in range(rounds):
        names = list(got)
        for b in names[i % len(names) :] + names[: i % len(names)]:
            with tempfile.TemporaryDirectory() as cold:
                got[b].append(once(b, work, cold))
        print(f"{work}: round {i + 1} of {rounds}", file=sys.stderr)
    if any(got["tputorch"]):
        with tempfile.TemporaryDirectory() as warm:
            once("tputorch", work, warm)
            again = once("tputorch", work, warm)
    else:
        again = None
    rows = []
    for metric in METRICS.get(work, TRAINING):
        ours = [r[metric] for r in got["tputorch"] if r and metric in r]
        row = [work, metric, f"{statistics.median(ours):.4g}" if ours else "-"]
        for b in rivals:
            pairs = [(a[metric], c[metric]) for a, c in zip(got["tputorch"], got[b], strict=True) if a and c and metric in c]
            if not pairs:
                row.append("-")
                continue
            mid, low, high = interval([a / c for a, c in pairs])
            verdict = judged(low, LIMITS.get((work, metric, b)))
            row.append(f"{mid:.2f}x [{low:.2f}, {high:.2f}] of {statistics.median(c for _, c in pairs):.4g}{verdict}")
        rows.append(row)
    pairs = [a["rss_mb"] - c["rss_mb"] for a, c in zip(got["tputorch"], got.get("cpu", []), strict=False) if a and c]
    if pairs and work not in METRICS:
        mid, low, high = interval(pairs)
        said = f"{mid:.0f} [{low:.0f}, {high:.0f}]" + judged(low, MEMORY.get(work))
        rows.append([work, "rss_mb beyond the cpu run's", said] + [""] * len(rivals))
    if again and "first_s" in again:
        said = f"{again['first_s']:.4g}" + judged(again["first_s"], WARM.get(work))
        rows.append([work, "first_s, warm disk cache", said] + [""] * len(rivals))
    return rows


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--works", default="dispatch,mlp,gpt2,resnet")
    ap.add_argument("--rivals", default="cpu,torchtpu,jax")
    ap.add_argument("--write", action="store_true")
    args = ap.parse_args()
    rivals = [b for b in args.rivals.split(",") if command(b, "mlp")]
    rows = [r for w in args.works.split(",") for r in measure(w, rivals, args.rounds)]
    head = ["workload", "figure", "tputorch", *(f"tputorch / {b}" for b in rivals)]
    lines = ["| " + " | ".join(r) + " |" for r in [head, ["---"] * len(head), *rows]]
    print("\n".join(lines))
    if args.write:
        before, rest = DOC.read_text().split("<!-- bench:begin -->")
        after = rest.split("<!-- bench:end -->")[1]
        DOC.write_text(before + "<!-- bench:begin -->\n" + "\n".join(lines) + "\n<!-- bench:end -->" + after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
