# SPDX-License-Identifier: Apache-2.0
"""tputorch: device "tpu" for PyTorch.

Importing registers the device and prints nothing; the plugin (libtpu, or XLA:CPU where there is no TPU) is loaded when
the device is first used.  What changes outside the device is in docs/environment.md [G3].
"""

import sys

import torch

__version__ = "0.1.0"
__all__ = ["compile_count", "eager_mode"]


def _refuse_other_tpu() -> None:
    """The name can be held once a process; Google's torch_tpu takes it too."""
    name = torch._C._get_privateuse1_backend_name()
    if "torch_tpu" in sys.modules or (name == "tpu" and not hasattr(torch, "tpu")):
        raise ImportError(
            'tputorch: the device name "tpu" is already held by torch_tpu in this process; use one of the two, '
            "in processes of their own (TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps torch_tpu from loading itself)"
        )
    if name not in ("privateuseone", "tpu"):
        raise ImportError(f"tputorch: another backend, {name!r}, is registered in this process; PyTorch has room for one")


def _late_import() -> None:
    """A backward that ran before us sized autograd's queues without our device; running backward in the calling thread
    needs no queue.  Seen by the autograd nodes this thread has made: none made, none run [G3]."""
    if torch._C._autograd._get_sequence_nr() > 0:
        torch.autograd.set_multithreading_enabled(False)


def _name_for_dlpack() -> None:
    """Tensor.__dlpack_device__ asks for "privateuse1", a name that is gone once it is ours [G3]."""
    before = torch.Tensor.__dlpack_device__

    def __dlpack_device__(self):
        if type(self) is torch.Tensor and self.device.type == "tpu":
            from torch.utils.dlpack import DLDeviceType

            return (DLDeviceType.kDLExtDev, self.device.index or 0)
        return before(self)

    __dlpack_device__.__doc__ = before.__doc__
    torch.Tensor.__dlpack_device__ = __dlpack_device__


def _register() -> None:
    import atexit

    from . import _build, _plugin

    glue = _build.glue_path()
    from . import _C

    _C.configure(_plugin.lines(), _plugin.cache_folder())
    torch.utils.rename_privateuse1_backend("tpu")
    torch.ops.load_library(glue)
    from . import compile, device

    torch._register_device_module("tpu", device)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)  # [A3]
    torch.set_autocast_dtype("tpu", torch.bfloat16)
    _name_for_dlpack()
    _late_import()
    compile.on_dynamo_import()
    atexit.register(_C.stop)


def compile_count() -> int:
    """Programs compiled by the device's compiler so far, in this process."""
    from . import _C

    return int(_C.stats()["compiles"])


_refuse_other_tpu()
_register()
