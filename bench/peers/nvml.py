"""The GPU's energy counter and what to say of it: NVML and nvidia-smi, without which everything else still works."""

import ctypes
import os
import shutil
import subprocess
import time


def visible(device: str) -> str:
    """"cuda:1" -> what nvidia-smi and NVML call it: an index or a UUID."""
    index = int(device.partition(":")[2] or 0)
    names = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return names[index] if index < len(names) else str(index)


class Card:
    """The GPU as NVML sees it; None where it does not say."""

    def __init__(self, device: str):
        self.handle = None
        try:
            self.library = ctypes.CDLL("libnvidia-ml.so.1")
            handle, name = ctypes.c_void_p(), visible(device)
            if self.library.nvmlInit_v2() != 0:
                return
            if name.isdigit():
                found = self.library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(int(name)), ctypes.byref(handle))
            else:
                found = self.library.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(handle))
            self.handle = handle if found == 0 else None
        except (OSError, AttributeError):
            pass

    def used_mb(self) -> float | None:
        """What all processes take of its memory."""
        sizes = (ctypes.c_ulonglong * 3)()  # total, free, used
        if not self.handle or self.library.nvmlDeviceGetMemoryInfo(self.handle, sizes) != 0:
            return None
        return sizes[2] / 1e6

    def joules(self) -> float | None:
        """Since some time in the past."""
        if not self.handle:
            return None
        millijoules = ctypes.c_ulonglong()
        found = self.library.nvmlDeviceGetTotalEnergyConsumption(self.handle, ctypes.byref(millijoules))
        return millijoules.value / 1e3 if found == 0 else None


def idle_watts(device: str, seconds: float = 2.0) -> float | None:
    """What the GPU takes while this process leaves it alone."""
    energy = Card(device)
    begin, start = energy.joules(), time.monotonic()
    if begin is None:
        return None
    time.sleep(seconds)
    end = energy.joules()
    return None if end is None else round((end - begin) / (time.monotonic() - start), 1)


def describe(device: str) -> dict:
    """Name, driver, clocks and power limit as nvidia-smi says them; empty without it."""
    fields = ("name", "driver_version", "clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem", "power.limit",
              "temperature.gpu", "mig.mode.current")
    if not shutil.which("nvidia-smi"):
        return {}
    try:
        done = subprocess.run(["nvidia-smi", f"--id={visible(device)}", f"--query-gpu={','.join(fields)}",
                               "--format=csv,noheader"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    values = [value.strip() for value in done.stdout.strip().split(",")]
    return dict(zip(fields, values)) if done.returncode == 0 and len(values) == len(fields) else {}
