"""Two network namespaces that stand for two machines, joined by one link. MPI between them goes over TCP.

    with TwoMachines(folder) as machines:
        subprocess.run([*machines.inside(), "linnet", "train", ..., "--ranks", "2"])
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

# What has mpirun and its daemons notice that the other machine is gone.
KEEP_ALIVE = {"oob_tcp_keepalive_time": 3, "oob_tcp_keepalive_intvl": 1, "oob_tcp_keepalive_probes": 4}


def missing(slowed: bool = False) -> str | None:
    """What two machines need and this one lacks, in one line; None where all is there. `slowed`: for slow()."""
    for program, package in (("mpirun", "openmpi-bin"), ("ip", "iproute2"), *([("tc", "iproute2")] if slowed else [])):
        if not shutil.which(program):
            return f"two network namespaces as machines need {program}, which is not installed (Debian: {package})"
    return None if os.geteuid() == 0 else "two network namespaces as machines need root: start this as root"


def mpirun(*options: str) -> list[str]:
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return ["mpirun", *root, "--oversubscribe", "--bind-to", "none", *options]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


class TwoMachines:
    NET = "10.213.7.0/24"
    ADDRESSES = ("10.213.7.1", "10.213.7.2")
    DEVICE = "veth0"  # in each of them

    def __init__(self, folder: Path):
        """`folder`: for what mpirun reads: the list of machines, and how it starts its daemon on the second one."""
        self.names = [f"linnet{os.getpid()}{side}" for side in "ab"]
        self.agent, self.hosts = folder / "agent", folder / "hosts"

    def __enter__(self):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that __exit__() is called then, too
        # mpirun calls the agent with a host's name and a command. A daemon of the same host name would be taken for
        # one of the first machine.
        self.agent.write_text(f"#!/bin/sh\nshift\nexec nsenter --net=/var/run/netns/{self.names[1]} unshare --uts "
                              f"sh -c 'hostname {self.names[1]}; exec sh -c \"$0\"' \"$*\"\n")
        self.agent.chmod(0o755)
        self.hosts.write_text("".join(f"{address} slots=1\n" for address in self.ADDRESSES))
        try:
            for name in self.names:
                ip("netns", "add", name)
            ip("-n", self.names[0], "link", "add", self.DEVICE, "type", "veth", "peer", "name", self.DEVICE, "netns",
               self.names[1])
            for name, address in zip(self.names, self.ADDRESSES):
                ip("-n", name, "addr", "add", f"{address}/24", "dev", self.DEVICE)
                ip("-n", name, "link", "set", self.DEVICE, "up")
                ip("-n", name, "link", "set", "lo", "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *ignored) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)

    def inside(self) -> list[str]:
        """The beginning of a command on the first machine whose mpirun, also that of `--ranks 2`, starts a rank on
        each of them."""
        settings = {"plm_rsh_agent": self.agent, "btl": "tcp,self", "btl_tcp_if_include": self.NET,
                    "oob_tcp_if_include": self.NET, "orte_default_hostfile": self.hosts, **KEEP_ALIVE}
        return ["ip", "netns", "exec", self.names[0], "env",
                *(f"OMPI_MCA_{name}={value}" for name, value in settings.items())]

    def cut(self) -> None:
        ip("-n", self.names[0], "link", "set", self.DEVICE, "down")

    def join(self) -> None:
        """Comes back when the link is up on both sides: mpirun gives up at once where there is no route."""
        ip("-n", self.names[0], "link", "set", self.DEVICE, "up")
        shown = [["ip", "-n", name, "-o", "link", "show", self.DEVICE] for name in self.names]
        for _ in range(100):
            if all(b"state UP" in subprocess.run(each, stdout=subprocess.PIPE, check=True).stdout for each in shown):
                break
            time.sleep(0.05)
        time.sleep(0.5)  # routes follow

    def slow(self, rate: str) -> None:
        """Each direction of the link gets a token bucket of `rate`, as tc writes it: "300mbit"."""
        for name in self.names:
            subprocess.run(["ip", "netns", "exec", name, "tc", "qdisc", "replace", "dev", self.DEVICE, "root", "tbf",
                            "rate", rate, "burst", "128kb", "limit", "8mb"], check=True)
