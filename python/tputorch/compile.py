# SPDX-License-Identifier: Apache-2.0
"""torch.compile for tpu tensors.

Today the backend runs the captured graph op by op through the device, where fused eager mode turns it into the same few
programs as plain eager code: `torch.compile` gives the right values and no speed of its own.  Nothing here is loaded
before Dynamo is: `on_dynamo_import` waits for it [G3].
"""

import importlib.util
import sys
from typing import Any

REGISTRY = "torch._dynamo.backends.registry"
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def backend(graph: Any, inputs: list[Any], *, mode: str | None = None, options: dict | None = None) -> Any:
    """backend="tpu": takes torch.compile's mode and options."""
    if mode is not None and mode not in MODES:
        raise RuntimeError(f"unknown mode {mode!r}; known: {', '.join(MODES)}")
    return graph.forward


def _on_device(graph: Any, inputs: list[Any]) -> bool:
    """Whether the graph works on tpu tensors: among its inputs, its attributes, or made inside."""
    import torch

    def is_tpu(x: Any) -> bool:
        return isinstance(x, torch.Tensor) and x.device.type == "tpu"

    if any(is_tpu(x) for x in inputs):
        return True
    for node in graph.graph.nodes:
        made = node.kwargs.get("device") if node.kwargs else None
        if made is not None and torch.device(made).type == "tpu":
            return True
        if is_tpu(node.meta.get("example_value")):
            return True
    return any(is_tpu(x) for x in (*graph.parameters(), *graph.buffers()))


def default_backend(graph: Any, inputs: list[Any], *, mode: str | None = None, options: dict | None = None) -> Any:
    """torch.compile without a backend: ours for graphs on tpu, Inductor for all others, as before."""
    if _on_device(graph, inputs):
        return backend(graph, inputs, mode=mode, options=options)
    import torch

    inductor = torch._TorchCompileInductorWrapper(mode if options is None else None, options, None)
    if mode is None and options is None:
        inductor = torch._TorchCompileInductorWrapper("default", None, None)
    return inductor(graph, inputs)


def _install() -> None:
    registry = sys.modules[REGISTRY]
    registry.register_backend(backend, name="tpu")
    if hasattr(registry, "set_default_backend") and registry.get_default_backend() == "inductor":
        registry.set_default_backend(default_backend)
    _install_interface()


def _install_interface() -> None:
    """PyTorch has an interface for the name tpu, made for another package; ours answers from torch.tpu."""
    from torch._dynamo import device_interface as di

    from . import device as tpu

    class Interface(di.DeviceInterface):
        device = tpu.device
        Event = tpu.Event
        Stream = tpu.Stream
        current_device = staticmethod(tpu.current_device)
        set_device = staticmethod(tpu.set_device)
        exchange_device = staticmethod(tpu._exchange_device)
        maybe_exchange_device = staticmethod(tpu._exchange_device)
        device_count = staticmethod(tpu.device_count)
        is_available = staticmethod(tpu.is_available)
        stream = staticmethod(tpu.stream)
        current_stream = staticmethod(tpu.current_stream)
        set_stream = staticmethod(tpu.set_stream)
        synchronize = staticmethod(tpu.synchronize)
        memory_allocated = staticmethod(tpu.memory_allocated)
        get_raw_stream = staticmethod(lambda index: 0)
        get_compute_capability = staticmethod(lambda device=None: "")
        is_bf16_supported = staticmethod(tpu.is_bf16_supported)

        @staticmethod
        def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
            import torch

            tpu.set_stream(torch.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type))

        class Worker:
            set_device = staticmethod(tpu.set_device)
            current_device = staticmethod(tpu.current_device)
            get_device_properties = staticmethod(tpu.get_device_properties)

    if not di._device_initialized:
        di.init_device_reg()
    di.register_interface_for_device("tpu", Interface)


class _Watch:
    """A finder of sys.meta_path that calls _install once, right after the registry of backends has been imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != REGISTRY:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            sys.modules.setdefault(name, module)
            _install()

        spec.loader.exec_module = exec_module
        return spec


def on_dynamo_import() -> None:
    """Installs the backend now if Dynamo is there, else when somebody imports it."""
    if REGISTRY in sys.modules:
        _install()
    else:
        sys.meta_path.insert(0, _Watch())
