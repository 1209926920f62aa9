# SPDX-License-Identifier: Apache-2.0
"""The main job: two models trained on real data, on `tpu` and on `cpu` side by side.

  python examples/demo.py [--quick] [--only digits|gpt] [--out FOLDER]

Same initial weights, same batches, no dropout; a chunk of steps runs on one device, then on the other, so that both meet
the same machine.  Ends with a table, out/demo.png, a text sample, and the agreement of the losses step by step."""

import argparse
import json
import os
import random
import sys
import time

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # two runtimes share the cores: idle threads must not spin
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))

import torch.nn.functional as F  # noqa: E402

import torch  # noqa: E402
import tputorch  # noqa: E402, F401
from torch import nn  # noqa: E402

DEVICES = ("cpu", "tpu")
AGREE_STEPS, AGREE = 100, 1e-3


class Bar:
    """One line that fills up on a terminal; a line a chunk elsewhere."""

    def __init__(self, name: str, total: int):
        self.name, self.total, self.done, self.tty = name, total, 0, sys.stdout.isatty()

    def add(self, steps: int, note: str) -> None:
        self.done += steps
        full = 30 * self.done // self.total
        text = f"{self.name:<7}[{'#' * full}{'.' * (30 - full)}] {self.done:>4}/{self.total}  {note}"
        print(("\r" + text.ljust(118)[:118]) if self.tty else text, end="" if self.tty else "\n", flush=True)
        if self.tty and self.done >= self.total:
            print()


# ---- the models ----


class Digits(nn.Module):
    """A small CNN for 8 x 8 pictures.  Smooth, and without a bias that batch norm takes off again: such a bias' gradient is
    rounding noise that Adam makes full steps of, and a kink lets two devices part for good over one bit."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.GELU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.GELU(), nn.Flatten(),
        )
        self.head = nn.Sequential(nn.Linear(64 * 16, 64), nn.GELU(), nn.Linear(64, 10))

    def forward(self, x):
        return self.head(self.features(x))


class Block(nn.Module):
    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in self.qkv(self.norm1(x)).split(d, -1))
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class CharGPT(nn.Module):
    """Four layers; the head's weight is the embedding's."""

    def __init__(self, vocab: int, length: int, dim: int = 128, heads: int = 4, layers: int = 4):
        super().__init__()
        self.token, self.place = nn.Embedding(vocab, dim), nn.Embedding(length, dim)
        self.blocks = nn.Sequential(*[Block(dim, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocab, bias=False)
        self.head.weight = self.token.weight
        for table in (self.token, self.place):
            nn.init.normal_(table.weight, std=0.03)

    def forward(self, ids):
        x = self.token(ids) + self.place(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.norm(self.blocks(x)))


# ---- the jobs: data, a loss, what to measure after an epoch ----


class DigitsJob:
    name, lr = "digits", 1e-3

    def __init__(self, quick: bool):
        from sklearn.datasets import load_digits

        data = load_digits()
        order = torch.randperm(len(data.target), generator=torch.Generator().manual_seed(1))
        x = (torch.tensor(data.images, dtype=torch.float32)[:, None] / 16)[order]
        y = torch.tensor(data.target)[order]
        self.train, self.test = (x[:1440], y[:1440]), (x[1440:], y[1440:])
        self.size, self.epochs = 48, 2 if quick else 10
        self.steps = 1440 // self.size  # steps an epoch

    def model(self) -> nn.Module:
        return Digits()

    def batches(self, epoch: int):
        order = torch.randperm(1440, generator=torch.Generator().manual_seed(100 + epoch))
        for i in range(self.steps):
            pick = order[i * self.size : (i + 1) * self.size]
            yield self.train[0][pick], self.train[1][pick]

    def loss(self, model, x, y):
        return F.cross_entropy(model(x), y)

    def score(self, model, device: str) -> float:
        """Accuracy on the pictures that were not trained on."""
        model.eval()
        with torch.no_grad():
            guess = model(self.test[0].to(device)).argmax(1).cpu()
        model.train()
        return (guess == self.test[1]).float().mean().item()

    def sample(self, model, device: str) -> str:
        return ""


class TextJob:
    name, lr, length = "gpt", 2e-3, 48

    def __init__(self, quick: bool):
        from pydoc_data.topics import topics  # the language reference, 700 KB of English that is in every Python

        lines = "\n\n".join(topics.values()).splitlines()
        text = "\n".join(line for line in lines if "--" not in line and "==" not in line and "  |" not in line)  # no tables
        self.chars = sorted(set(text))
        index = {c: i for i, c in enumerate(self.chars)}
        ids = torch.tensor([index[c] for c in text])
        cut = len(ids) * 95 // 100
        self.train, self.test = ids[:cut], ids[cut:]
        prompt = text.index("\n\nThe ", cut + self.length) + 6  # where a sentence begins
        self.prompt = ids[prompt - self.length : prompt]
        self.size, self.epochs, self.steps = 16, 2 if quick else 10, 10 if quick else 60

    def model(self) -> nn.Module:
        return CharGPT(len(self.chars), self.length)

    def cut(self, ids: torch.Tensor, rng: random.Random, n: int):
        at = [rng.randrange(len(ids) - self.length - 1) for _ in range(n)]
        rows = torch.stack([ids[i : i + self.length + 1] for i in at])
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()

    def batches(self, epoch: int):
        rng = random.Random(200 + epoch)
        for _ in range(self.steps):
            yield self.cut(self.train, rng, self.size)

    def loss(self, model, x, y):
        return F.cross_entropy(model(x).flatten(0, 1), y.flatten())

    def score(self, model, device: str) -> float:
        """Share of next characters guessed right, in text that was not trained on."""
        x, y = self.cut(self.test, random.Random(7), 16)
        with torch.no_grad():
            return (model(x.to(device)).argmax(-1).cpu() == y).float().mean().item()

    def sample(self, model, device: str, count: int = 240) -> str:
        """Continues a passage that was not trained on, a character at a time, in a window of fixed length."""
        torch.manual_seed(3)
        window = self.prompt.to(device)[None]
        out = []
        with torch.no_grad():
            for _ in range(count):
                probs = (model(window)[0, -1] / 0.7).softmax(-1)
                nxt = torch.multinomial(probs, 1)
                out.append(nxt)
                window = torch.cat([window[:, 1:], nxt[None]], 1)
        return "The " + "".join(self.chars[i] for i in torch.cat(out).tolist())


# ---- training ----


class Run:
    """One job on one device."""

    def __init__(self, job, device: str, start: dict):
        self.job, self.device = job, device
        self.model = job.model()
        self.model.load_state_dict(start)
        self.model.to(device)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=job.lr)
        total = job.epochs * job.steps
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.opt, lambda i: min((i + 1) / 10, 1) * (1 - 0.9 * i / total))
        self.losses: list[float] = []
        self.epochs: list[tuple[float, float]] = []  # mean loss, score
        self.first = 0.0
        self.step_times: list[float] = []  # seconds a step, an entry an epoch
        self.before = torch.tpu.compile_stats() if device == "tpu" else {}
        if device == "tpu":
            torch.tpu.reset_peak_memory_stats()

    def step(self, x, y) -> torch.Tensor:
        self.opt.zero_grad(set_to_none=True)
        loss = self.job.loss(self.model, x.to(self.device), y.to(self.device))
        loss.backward()
        self.opt.step()
        self.schedule.step()
        return loss.detach()

    def epoch(self, number: int) -> None:
        kept, t, n = [], time.time(), 0
        for x, y in self.job.batches(number):
            kept.append(self.step(x, y))
            if number == 0 and len(kept) == 1:
                kept[0].item()
                self.first = time.time() - t
                t = time.time()
            else:
                n += 1
        values = torch.stack(kept).tolist()  # reading waits for every step
        self.step_times.append((time.time() - t) / n)
        self.losses += values
        self.epochs.append((sum(values) / len(values), self.job.score(self.model, self.device)))

    @property
    def steady(self) -> float:
        rest = sorted(self.step_times[1:] or self.step_times)
        return rest[len(rest) // 2]

    def counts(self) -> dict[str, float]:
        now = torch.tpu.compile_stats()
        return {k: now[k] - self.before[k] for k in now}


def train(job) -> dict[str, Run]:
    torch.manual_seed(5)
    start = {k: v.clone() for k, v in job.model().state_dict().items()}
    runs = {d: Run(job, d, start) for d in DEVICES}
    tied = getattr(runs["tpu"].model, "token", None)
    if tied is not None:
        assert runs["tpu"].model.head.weight is tied.weight, "the tied weights came apart"
    bar = Bar(job.name, job.epochs * job.steps)
    for e in range(job.epochs):
        for d in DEVICES:
            runs[d].epoch(e)
        note = "   ".join(f"{d}: loss {runs[d].epochs[-1][0]:.4f}, right {runs[d].epochs[-1][1]:.1%}" for d in DEVICES)
        bar.add(job.steps, note)
    return runs


def worst_disagreement(runs: dict[str, Run]) -> float:
    pairs = list(zip(runs["cpu"].losses, runs["tpu"].losses, strict=True))[:AGREE_STEPS]
    return max(abs(a - b) / abs(a) for a, b in pairs)


# ---- what is shown ----


def table(results: dict[str, dict[str, Run]]) -> None:
    print(f"\n{'job':<8}{'epoch':>6}{'cpu loss':>11}{'tpu loss':>11}{'cpu right':>11}{'tpu right':>11}")
    for name, runs in results.items():
        for e, (c, t) in enumerate(zip(runs["cpu"].epochs, runs["tpu"].epochs, strict=True)):
            print(f"{name:<8}{e + 1:>6}{c[0]:>11.4f}{t[0]:>11.4f}{c[1]:>11.1%}{t[1]:>11.1%}")
    print(f"\n{'job':<8}{'device':<8}{'first step':>11}{'steady step':>13}{'compiled':>10}{'cache hits':>12}{'peak memory':>13}")
    for name, runs in results.items():
        for d in DEVICES:
            r = runs[d]
            line = f"{name:<8}{d:<8}{r.first * 1e3:>8.0f} ms{r.steady * 1e3:>10.1f} ms"
            if d == "tpu":
                k = r.final
                line += f"{int(k['compiles']):>10}{int(k['disk_hits']):>12}{r.peak / 2**20:>10.1f} MB"
            print(line)


def picture(results: dict[str, dict[str, Run]], path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, len(results), figsize=(6 * len(results), 4), squeeze=False)
    for ax, (name, runs) in zip(axes[0], results.items(), strict=True):
        ax.plot(runs["cpu"].losses, label="cpu", linewidth=3, alpha=0.4)
        ax.plot(runs["tpu"].losses, label="tpu", linewidth=1)
        ax.set_title(name)
        ax.set_xlabel("step")
        ax.set_ylabel("loss")
        ax.legend()
    fig.tight_layout()
    fig.savefig(path, dpi=110)


def checks(results: dict[str, dict[str, Run]], quick: bool) -> bool:
    good = True

    def check(ok: bool, text: str) -> None:
        nonlocal good
        good = good and ok
        print(f"  {'ok  ' if ok else 'FAIL'}  {text}")

    print()
    for name, runs in results.items():
        worst = worst_disagreement(runs)
        n = min(AGREE_STEPS, len(runs["cpu"].losses))
        check(worst <= AGREE, f"{name}: losses of tpu and cpu agree within {worst:.1e} relative over the first {n} steps (at most {AGREE:.0e})")
    if "digits" in results and not quick:
        right = results["digits"]["tpu"].epochs[-1][1]
        check(right > 0.97, f"digits: {right:.1%} of the test pictures are right on tpu (more than 97 %)")
    return good


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--quick", action="store_true", help="a few steps only")
    ap.add_argument("--only", choices=["digits", "gpt"])
    ap.add_argument("--out", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "out"))
    args = ap.parse_args()
    os.makedirs(args.out, exist_ok=True)
    t = time.time()
    jobs = [j for j in (DigitsJob, TextJob) if args.only in (None, j.name)]
    print(f"tpu is {torch.tpu.get_device_name()}; cpu is PyTorch {torch.__version__} on {torch.get_num_threads()} threads")
    results, text = {}, ""
    for kind in jobs:
        job = kind(args.quick)
        runs = train(job)
        results[kind.name] = runs
        text = text or job.sample(runs["tpu"].model, "tpu")
        runs["tpu"].final, runs["tpu"].peak = runs["tpu"].counts(), torch.tpu.max_memory_allocated()
    table(results)
    if text:
        print("\nA passage continued by the GPT on tpu:\n" + "\n".join("  | " + line for line in text.splitlines()))
    path = os.path.abspath(os.path.join(args.out, "demo.png"))
    picture(results, path)
    good = checks(results, args.quick)
    stats = torch.tpu.compile_stats()
    compiled, hits = int(stats["compiles"]), int(stats["disk_hits"])
    if compiled == 0:
        print(f"\nThis run compiled nothing: all {hits} programs came from the cache on disk.")
    else:
        print(f"\nThis run compiled {compiled} programs and found {hits} in the cache on disk; the next run finds them all.")
    with open(os.path.join(args.out, "demo.json"), "w") as f:
        json.dump({"compiles": compiled, "disk_hits": hits, "good": good,
                   "losses": {n: {d: r.losses for d, r in runs.items()} for n, runs in results.items()}}, f)
    print(f"Loss curves: {os.path.relpath(path)}.  {time.time() - t:.0f} s in all.")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
