# SPDX-License-Identifier: Apache-2.0
"""The random part of torch.tpu.  A generator's seed and offset are counted on the host [R1], so none of this starts the
device; only devices that exist when asked have a generator."""

from collections.abc import Iterable

import torch

from . import _C

# Seeding must not take the device away from others, so before the start every device that a host can have is seeded.
MAX_LOCAL = 16


def _generator(index: int) -> torch.Generator:
    return torch.ops.tpu.default_generator(index)


def _seedable() -> range:
    return range(_C.device_count() if _C.started() else MAX_LOCAL)


class _Generators:
    """default_generators[i], made when asked for."""

    def __getitem__(self, index: int) -> torch.Generator:
        if not 0 <= index < len(self):
            raise IndexError(f"no tpu device {index}: there are {len(self)}")
        return _generator(index)

    def __len__(self) -> int:
        return _C.device_count()

    def __iter__(self):
        return (self[i] for i in range(len(self)))


default_generators = _Generators()


def _index(device: int | str | torch.device) -> int:
    index = device if isinstance(device, int) else torch.device(device).index
    return _C.current_device() if index is None else index


def get_rng_state(device: int | str | torch.device = "tpu") -> torch.Tensor:
    return default_generators[_index(device)].get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    return [get_rng_state(i) for i in range(_C.device_count())]


def set_rng_state(new_state: torch.Tensor, device: int | str | torch.device = "tpu") -> None:
    default_generators[_index(device)].set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


def manual_seed(seed: int) -> None:
    _generator(_C.current_device()).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    for i in _seedable():
        _generator(i).manual_seed(int(seed))


def seed() -> None:
    _generator(_C.current_device()).seed()


def seed_all() -> None:
    first = _generator(0)
    first.seed()
    manual_seed_all(first.initial_seed())


def initial_seed() -> int:
    return _generator(_C.current_device()).initial_seed()
