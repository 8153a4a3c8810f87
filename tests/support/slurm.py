"""A Slurm of this machine, which starts its daemons with a configuration of its own."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd")
_COMMANDS = ("sbatch", "srun", "squeue", "scancel", "scontrol", "sinfo")
_PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"  # of daemons, for users that have not their folder
_CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={root}/munge.socket
CredType=cred/munge
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool-%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SchedulerParameters=batch_sched_delay=1,sched_interval=1
SlurmdParameters=config_overrides
MailProg=/bin/true
NodeName={host} NodeHostname={host} Port={ports[1]} CPUs=2 RealMemory=64000
NodeName=localhost NodeHostname={host} Port={ports[2]} CPUs=2 RealMemory=64000
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
PartitionName=both Nodes={host},localhost MaxTime=INFINITE State=UP
"""


@dataclass(frozen=True)
class Slurm:
    """A running Slurm: partition `main` of one node, and `both` of two nodes on this machine."""

    bin: Path  # a folder with Slurm's commands for this Slurm

    def ask(self, name: str, *words: str) -> str:
        """What one of Slurm's commands prints."""
        command = [str(self.bin / name), *words]
        ended = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
        return ended.stdout

    def wait_until_idle(self, timeout_s: float) -> None:
        """Wait for all jobs."""
        deadline = time.monotonic() + timeout_s
        while jobs := self.ask("squeue", "--noheader"):
            assert time.monotonic() < deadline, jobs
            time.sleep(0.5)


@contextmanager
def slurm(root: Path) -> Iterator[Slurm]:
    """A Slurm within the block; its files are in `root`, a short path: a socket is among them."""
    for name in ("bin", "state"):
        (root / name).mkdir(parents=True)
    host = socket.gethostname()
    sockets = [socket.create_server(("", 0)) for _ in range(3)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    words = {"host": host, "user": getpass.getuser(), "root": root, "ports": ports}
    configuration = root / "slurm.conf"
    configuration.write_text(_CONFIGURATION.format(**words))
    for name in _COMMANDS:
        path = root / "bin" / name
        path.write_text(f'#!/bin/sh\nSLURM_CONF={configuration} exec {shutil.which(name)} "$@"\n')
        path.chmod(0o755)
    nodes = (host, "localhost")  # names that processes of a job find each other by
    (root / "munge.key").write_bytes(os.urandom(128))
    (root / "munge.key").chmod(0o600)
    munge = ["--force", f"--key-file={root}/munge.key", f"--socket={root}/munge.socket"]
    munge += [f"--{one}-file={root}/munge.{one}" for one in ("pid", "seed", "log")]
    started = [
        _start(root, "munged", "--foreground", *munge),
        _start(root, "slurmctld", "-D", "-f", str(configuration)),
        *(_start(root, "slurmd", "-D", "-N", node, "-f", str(configuration)) for node in nodes),
    ]
    try:
        found = Slurm(root / "bin")
        _wait_for_nodes(found, root)
        yield found
        found.ask("scancel", f"--user={getpass.getuser()}")  # of a test that failed
    finally:
        for daemon in reversed(started):
            daemon.terminate()
            try:
                daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def is_installed() -> bool:
    """Whether Slurm and munge are on this machine."""
    return all(shutil.which(name, path=_PATH) for name in (*DAEMONS, *_COMMANDS))


def _start(root: Path, name: str, *words: str) -> subprocess.Popen[bytes]:
    path = str(shutil.which(name, path=_PATH))
    with (root / f"{name}.log").open("ab") as log:
        return subprocess.Popen([path, *words], stdout=log, stderr=log, start_new_session=True)


def _wait_for_nodes(found: Slurm, root: Path) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            states = found.ask("sinfo", "--noheader", "--Node", "--partition=both", "--format=%T")
            if states.split() == ["idle", "idle"]:
                return
        except subprocess.CalledProcessError:
            pass  # not up
        time.sleep(0.2)
    logs = [path.read_text()[-2000:] for path in root.glob("*.log")]
    raise AssertionError("Slurm's nodes do not come up\n" + "\n".join(logs))
