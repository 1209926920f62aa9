# SPDX-License-Identifier: Apache-2.0
"""torch.tpu: the names of torch.cuda, wherever the notion exists, and a few of our own (the modes, fallbacks, compile
statistics).  Asking never starts the device; using it does."""

import sys
import types
from collections import OrderedDict
from enum import StrEnum
from typing import Any, NamedTuple

import torch

from . import _C
from ._random import (  # noqa: F401
    default_generators,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)

Device = torch.device | int | str | None

OutOfMemoryError = torch.OutOfMemoryError


def _index(device: Device, optional: bool = True) -> int:
    """The number of a device given in any of the usual ways; the current one if none is named."""
    if device is None:
        return _C.current_device()
    if isinstance(device, int):
        return device
    device = torch.device(device)
    if device.type != "tpu":
        raise ValueError(f"expected a tpu device, got {device}")
    return _C.current_device() if device.index is None else device.index


class _utils:
    """What torch.load asks for."""

    @staticmethod
    def _get_device_index(device: Device, optional: bool = False, allow_cpu: bool = False) -> int:
        if allow_cpu and torch.device(device).type == "cpu":
            return -1
        return _index(device, optional)


# ---- devices ----


def is_available() -> bool:
    return device_count() > 0


def device_count() -> int:
    return _C.device_count()


def current_device() -> int:
    return _C.current_device()


def set_device(device: Device) -> None:
    index = _index(device)
    if index >= 0:
        _C.set_device(index)


def _exchange_device(index: int) -> int:
    return _C.set_device(index)


_maybe_exchange_device = _exchange_device


class device:
    """Context: the device with this number is current inside."""

    def __init__(self, device: Device):
        self.idx = _index(device)
        self.prev_idx = -1

    def __enter__(self):
        self.prev_idx = _C.set_device(self.idx)
        return self

    def __exit__(self, *exc: Any) -> None:
        _C.set_device(self.prev_idx)


class device_of(device):
    """Context: the device of this tensor is current inside; nothing changes for a tensor elsewhere."""

    def __init__(self, obj: torch.Tensor):
        super().__init__(obj.get_device() if obj.device.type == "tpu" else -1)


def get_device_name(device: Device = None) -> str:
    init()
    return _C.device_name(_index(device))


class _Properties(NamedTuple):
    name: str
    total_memory: int
    multi_processor_count: int
    major: int
    minor: int


def get_device_properties(device: Device = None) -> _Properties:
    index = _index(device)
    return _Properties(get_device_name(index), _memory(index)["limit"], 1, 1, 0)


def get_device_capability(device: Device = None) -> tuple[int, int]:
    return (1, 0)


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return True


def is_tf32_supported() -> bool:
    return False


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.bfloat16, torch.float16, torch.float32]


def can_device_access_peer(device: Device, peer_device: Device) -> bool:
    return _index(device) != _index(peer_device)


# ---- start, fork, waiting ----


def init() -> None:
    """Loads the plugin, if it is not loaded: the first use of the device does so by itself."""
    _C.start()


_lazy_init = init


def is_initialized() -> bool:
    return _C.started()


def _is_in_bad_fork() -> bool:
    return _C.forked()


def synchronize(device: Device = None) -> None:
    """Waits for all work on the device; raises the first error that it met."""
    _C.synchronize(_index(device))


def is_current_stream_capturing() -> bool:
    return False


def ipc_collect() -> None:
    """Nothing to do: device memory is not shared between processes."""


# ---- streams: the device runs in program order, so a stream is a name and an event a point in that order ----


class Stream(torch.Stream):
    def __new__(cls, device: Device = None, priority: int = 0, **ids: Any):
        if ids:
            return super().__new__(cls, priority=priority, **ids)
        return super().__new__(cls, device=torch.device("tpu", _index(device)), priority=priority)


class _EventType(type(torch.Event)):
    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, torch.Event) and x.device.type == "tpu"


class Event(torch.Event, metaclass=_EventType):
    """Makes plain torch.Events: PyTorch refuses to measure the time to an event of a subclass."""

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False):
        return torch.Event(device="tpu", enable_timing=enable_timing, blocking=blocking, interprocess=interprocess)


class StreamContext:
    """Context: this stream is current inside; None changes nothing."""

    def __init__(self, stream: torch.Stream | None):
        self.stream = stream
        self.prev: torch.Stream | None = None

    def __enter__(self):
        if self.stream is not None:
            self.prev = current_stream(self.stream.device)
            set_stream(self.stream)
        return self

    def __exit__(self, *exc: Any) -> None:
        if self.prev is not None:
            set_stream(self.prev)


def stream(stream: torch.Stream | None) -> StreamContext:
    return StreamContext(stream)


def current_stream(device: Device = None) -> torch.Stream:
    return torch.accelerator.current_stream(_index(device))


def default_stream(device: Device = None) -> torch.Stream:
    kind = torch._C._autograd.DeviceType.PrivateUse1
    return torch.Stream(stream_id=0, device_index=_index(device), device_type=int(kind))


def set_stream(stream: torch.Stream) -> None:
    if stream is not None:
        torch.accelerator.set_stream(stream)


# ---- memory: our own counters ----


def _memory(device: Device = None) -> dict[str, int]:
    return _C.memory_stats(_index(device))


def memory_allocated(device: Device = None) -> int:
    return _memory(device)["allocated"]


def max_memory_allocated(device: Device = None) -> int:
    return _memory(device)["peak"]


memory_reserved = memory_allocated
max_memory_reserved = max_memory_allocated


def memory_stats(device: Device = None) -> "OrderedDict[str, int]":
    """torch.cuda.memory_stats' names; those without a meaning here are 0."""
    m = _memory(device)
    out: OrderedDict[str, int] = OrderedDict()
    for kind, now, peak, came, went in (
        ("allocation", m["live"], m["live"], m["allocs"], m["frees"]),
        ("allocated_bytes", m["allocated"], m["peak"], 0, 0),
        ("active_bytes", m["allocated"], m["peak"], 0, 0),
        ("reserved_bytes", m["allocated"], m["peak"], 0, 0),
    ):
        out[f"{kind}.all.current"] = now
        out[f"{kind}.all.peak"] = peak
        out[f"{kind}.all.allocated"] = came
        out[f"{kind}.all.freed"] = went
    out["num_alloc_retries"] = 0
    out["num_ooms"] = m.get("ooms", 0)
    out["limit_bytes"] = m["limit"]
    return out


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """Totals, and the largest tensors that are alive."""
    return _C.memory_words(_index(device))


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """(free, total) bytes."""
    init()
    m = _memory(device)
    return (max(m["limit"] - m["allocated"], 0), m["limit"])


def reset_peak_memory_stats(device: Device = None) -> None:
    _C.memory_reset_peak(_index(device))


reset_max_memory_allocated = reset_peak_memory_stats
reset_max_memory_cached = reset_peak_memory_stats


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Nothing to do: the counts of allocations and frees are not resettable."""


_fraction: dict[int, float] = {}


def set_per_process_memory_fraction(fraction: float, device: Device = None) -> None:
    """At most this part of the device's memory: beyond it torch.OutOfMemoryError is raised."""
    if not isinstance(fraction, (int, float)):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    init()
    index = _index(device)
    _C.memory_set_limit(index, 0)
    _C.memory_set_limit(index, max(1, int(_memory(index)["limit"] * fraction)))
    _fraction[index] = float(fraction)


def get_per_process_memory_fraction(device: Device = None) -> float:
    return _fraction.get(_index(device), 1.0)


def set_memory_limit(bytes: int, device: Device = None) -> None:
    """At most this many bytes (0: what the device has), to imitate a device with less memory: 16 << 30 is a v5e chip."""
    init()
    _C.memory_set_limit(_index(device), int(bytes))


def empty_cache() -> None:
    """Frees what waits to be freed; there is no other cache of memory."""
    if _C.started():
        _C.flush(_C.current_device())


# ---- modes, and what the engine did ----


class EagerMode(StrEnum):
    """The modes by TorchTPU's names; torch.tpu.eager_mode takes these or "fused", "strict", "debug"."""

    DEFER_AND_FUSE = "fused"
    STRICT = "strict"
    DEBUG = "debug"
    DEFER = "fused"
    DEFAULT = "fused"
    STRICT_EAGER = "strict"


def set_eager_mode(mode: "EagerMode | str") -> None:
    """fused: ops gather into programs; strict: an op a launch; debug: strict, waiting, with the Python line in errors."""
    name = mode.value if isinstance(mode, EagerMode) else str(mode)
    if name not in ("fused", "strict", "debug"):
        raise ValueError(f'eager_mode is "fused", "strict" or "debug", not {mode!r}')
    _C.set_mode(name)


def compile_stats() -> dict[str, float]:
    """Counts since the process started: calls, programs, launches, compiles, disk_hits, ..."""
    return _C.stats()


def compile_count() -> int:
    """Programs compiled by the device's compiler so far."""
    return int(_C.stats()["compiles"])


def fallbacks(reset: bool = False) -> dict[str, dict[str, int]]:
    """Ops that ran on the CPU because they have no row: op -> line of the program ("train.py:12") -> calls [F1]."""
    counts: dict[str, dict[str, int]] = {}
    for entry in torch.ops.tpu.fallbacks():
        name, n, line = entry.split("=", 2)
        counts.setdefault(name, {})[line] = int(n)
    if reset:
        torch.ops.tpu.reset_fallbacks()
    return counts


def set_fallback_mode(mode: str) -> None:
    """What an op without a row does: "warn" runs it on the CPU and says so once, "quiet" runs it, "error" raises."""
    torch.ops.tpu.set_fallback_mode(mode)


def flush(device: Device = None) -> None:
    """Hands the pending work to the device without waiting for it."""
    _C.flush(_index(device))


class _Module(types.ModuleType):
    """Gives the module its properties."""

    @property
    def eager_mode(self) -> str:
        return _C.get_mode()

    @eager_mode.setter
    def eager_mode(self, mode: "EagerMode | str") -> None:
        set_eager_mode(mode)

    @property
    def _initialized(self) -> bool:
        return _C.started()

    @property
    def has_half(self) -> bool:
        return True


sys.modules[__name__].__class__ = _Module
__all__ = [n for n in globals() if not n.startswith("_") and n not in ("sys", "types", "torch", "OrderedDict", "Iterable", "StrEnum", "Any", "NamedTuple")]
