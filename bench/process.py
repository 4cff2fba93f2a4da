"""Worker processes under measurement: held while their input is written, let go, weighed."""

import os
import signal
from pathlib import Path

from workers.embedded.processes import WorkerProcess

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_MIB = 1024.0


class Measured:
    """A worker process and its figures (Linux: from /proc)."""

    def __init__(self, process: WorkerProcess) -> None:
        self.process = process

    def hold(self) -> None:
        """Stop its clock, not its connections."""
        self.process.send(signal.SIGSTOP)

    def release(self) -> None:
        """Let it go on."""
        self.process.send(signal.SIGCONT)

    def cpu_s(self) -> float:
        """Return the CPU seconds it has used, its own and the kernel's for it."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S

    def memory_mib(self) -> float:
        """Return its resident memory."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / _MIB
        raise RuntimeError(f"process {self.process.pid} shows no VmRSS")


def worker(name: str, number: int, environment: dict[str, str], logs: Path) -> Measured:
    """Describe a worker process; nothing is started."""
    return Measured(WorkerProcess(name, ("worker", name), environment, logs / f"{name}-{number}.log"))
