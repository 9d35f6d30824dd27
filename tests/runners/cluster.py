"""A standalone Flink cluster from the jars that logloom fetches: a job manager, and task managers to kill."""

from __future__ import annotations

import pathlib
import socket
import time

from logloom.errors import UsageError
from logloom.runners.flink.jars import class_path, java
from logloom.runners.flink.rest import FlinkCluster
from logloom.runners.processes import Child

JOB_MANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
# With Beam on its own class path and asked first, Beam's classes are loaded and compiled once for all jobs.
CONF = """\
jobmanager.rpc.address: 127.0.0.1
jobmanager.rpc.port: {rpc}
jobmanager.bind-host: 127.0.0.1
rest.address: 127.0.0.1
rest.port: {rest}
rest.bind-port: {rest}
rest.bind-address: 127.0.0.1
taskmanager.host: 127.0.0.1
taskmanager.bind-host: 127.0.0.1
taskmanager.numberOfTaskSlots: 1
restart-strategy.type: fixed-delay
restart-strategy.fixed-delay.attempts: 6
restart-strategy.fixed-delay.delay: 6 s
jobmanager.execution.failover-strategy: full
heartbeat.interval: 1000
heartbeat.timeout: 5000
classloader.resolve-order: parent-first
io.tmp.dirs: {folder}
"""
# A task manager that no script starts wants all of its memory spelled out.
MEMORY = {
    "taskmanager.cpu.cores": "1",
    "taskmanager.memory.framework.heap.size": "96m",
    "taskmanager.memory.framework.off-heap.size": "96m",
    "taskmanager.memory.task.heap.size": "96m",
    "taskmanager.memory.task.off-heap.size": "16m",
    "taskmanager.memory.network.min": "256m",
    "taskmanager.memory.network.max": "256m",
    "taskmanager.memory.managed.size": "64m",
    "taskmanager.memory.jvm-metaspace.size": "768m",
    "taskmanager.memory.jvm-overhead.min": "64m",
    "taskmanager.memory.jvm-overhead.max": "64m",
}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Cluster:
    """Runs while the block does; `address` is that of its REST interface."""

    def __init__(self, folder: pathlib.Path, task_managers: int = 2):
        self._folder = folder
        self._wanted = task_managers
        self._started = 0
        self.task_managers: list[Child] = []

    def __enter__(self) -> Cluster:
        self._folder.mkdir(parents=True, exist_ok=True)
        rest = free_port()
        conf = CONF.format(rpc=free_port(), rest=rest, folder=self._folder)
        (self._folder / "flink-conf.yaml").write_text(conf)
        self.address = f"127.0.0.1:{rest}"
        self._job_manager = self._java("job-manager", "-Xmx256m", JOB_MANAGER)
        try:
            for _ in range(self._wanted):
                self.start_task_manager()
            self.wait_for_task_managers(self._wanted)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for process in [*self.task_managers, self._job_manager]:
            process.stop()

    def _java(self, name: str, heap: str, program: str, *options: str) -> Child:
        command = [
            *java(),
            heap,
            "-XX:MaxMetaspaceSize=768m",
            "-XX:MaxDirectMemorySize=400m",
            f"-Djava.io.tmpdir={self._folder}",
            "-cp",
            class_path(),
            program,
        ]
        command += ["--configDir", str(self._folder), *options]
        return Child(command, self._folder / f"{name}.log", what=f"Flink's {name}")

    def start_task_manager(self) -> Child:
        self._started += 1
        options = [f"-D{name}={value}" for name, value in MEMORY.items()]
        process = self._java(f"task-manager-{self._started}", "-Xmx192m", TASK_MANAGER, *options)
        self.task_managers.append(process)
        return process

    def wait_for_task_managers(self, number: int, seconds: float = 300) -> None:
        until = time.monotonic() + seconds
        while True:
            try:
                if FlinkCluster(self.address).slots()[0] == number:
                    return
            except UsageError:
                pass
            if time.monotonic() > until:
                raise AssertionError("\n".join(p.tail() for p in [self._job_manager, *self.task_managers]))
            time.sleep(0.2)

    def logs(self) -> str:
        """All that its processes logged."""
        return "\n".join(path.read_text(errors="replace") for path in sorted(self._folder.glob("*.log")))
