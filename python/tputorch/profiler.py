# SPDX-License-Identifier: Apache-2.0
"""Ranges and counters around a piece of work.  torch.profiler sees every op as on any device; this adds what the engine
did meanwhile."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from . import _C


@contextmanager
def range(name: str) -> Iterator[None]:
    """A named range in torch.profiler's trace."""
    with torch.profiler.record_function(name):
        yield


class Counts(dict):
    """The counters of torch.tpu.compile_stats() over a `with` block; waits for the device at its end."""

    def __enter__(self) -> "Counts":
        self._before = _C.stats()
        return self

    def __exit__(self, *exc: object) -> None:
        _C.synchronize(_C.current_device())
        after = _C.stats()
        self.update({k: after[k] - self._before.get(k, 0) for k in after})


def counts() -> Counts:
    return Counts()
