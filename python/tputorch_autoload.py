# SPDX-License-Identifier: Apache-2.0
"""What `import torch` calls where the package is installed (entry point group torch.backends).  Stands outside the package,
so that nothing else is loaded where there is no TPU: with a device registered, torch.accelerator would prefer it."""

import os


def found() -> bool:
    """A TPU in this machine, seen without touching it: Google's PCI vendor number."""
    root = "/sys/bus/pci/devices"
    try:
        for entry in os.listdir(root):
            with open(f"{root}/{entry}/vendor") as f:
                if f.read().strip() == "0x1ae0":
                    return True
    except OSError:
        pass
    return False


def autoload() -> None:
    wish = os.environ.get("TPUTORCH_AUTOLOAD", "")
    if wish == "1" or (wish == "" and found()):
        import tputorch  # noqa: F401
