"""The original clients, each in an environment of its own; `make interop` makes these."""

import contextlib
import json
import os
import pathlib
import subprocess
import tempfile

import pytest

REPOSITORY = pathlib.Path(__file__).parent.parent.parent


@pytest.fixture(scope="session")
def zarr2():
    """Runs a script under zarr 2 as the original L5Kit uses it, with arguments; gives its standard output."""
    with forks(".venv-zarr2", "zarr 2", "import zarr") as run:
        yield run


@pytest.fixture(scope="session", params=["17", "24"])
def granular(request):
    """Runs a script under granular 0.17 or 0.24, with arguments; has `.version`, "17" or "24"."""
    version = request.param
    with forks(f".venv-granular{version}", f"granular 0.{version}", "import granular") as run:
        run.version = version
        yield run


def python_of(environment, what):
    """The interpreter in one of the environments of the original clients."""
    python = REPOSITORY / environment / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no {what} here ({python}); `make interop` installs it")
    return python


def runner(environment, what):
    """A function that runs a script in one of the environments of the original clients."""
    python = python_of(environment, what)

    def run(script: str, *arguments: object) -> str:
        command = [str(python), "-c", script, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


SERVER = """
import json, os, signal, sys
exec(sys.argv[1])
for line in sys.stdin:
    script, arguments, *files = json.loads(line)
    child = os.fork()
    if not child:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()
signal.alarm(120)
for number, file in enumerate(files, 1):
    os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
sys.argv[1:] = arguments
exec(script)
"""


@contextlib.contextmanager
def forks(environment, what, imports):
    """The same as `runner`, in forks of a process that has run some imports."""
    command, pipe = [str(python_of(environment, what)), "-c", SERVER, imports], subprocess.PIPE
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as server,
    ):
        out, error = (pathlib.Path(folder, name) for name in ("out", "error"))

        def run(script: str, *arguments: object) -> str:
            words = [script, list(map(str, arguments)), str(out), str(error)]
            print(json.dumps(words), file=server.stdin, flush=True)
            assert server.stdout.readline() == "0\n", error.read_text()
            return out.read_text()

        yield run


@contextlib.contextmanager
def debian_ros(script: str, package: str):
    """Runs a script of this folder where ROS's own packages are; gives a function that asks it, in JSON.

    Args:
        package: of Python, that the script imports.
    """
    unpacked = REPOSITORY / ".cache" / "tf2"
    packages = unpacked / "usr/lib/python3/dist-packages"
    if not (packages / package).exists():
        pytest.skip(f"no {package} here ({packages}); `make interop` fetches it where apt-get has it")
    libraries = ":".join(str(folder) for folder in (unpacked / "usr/lib").glob("*-linux-gnu"))
    env = os.environ | {"PYTHONPATH": str(packages), "LD_LIBRARY_PATH": libraries}
    command = ["/usr/bin/python3", str(pathlib.Path(__file__).parent / script)]
    pipe = subprocess.PIPE
    with (
        tempfile.TemporaryFile() as said,  # no pipe, which tf2's warnings would fill
        subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=said, text=True) as process,
    ):

        def ask(question: object) -> object:
            print(json.dumps(question), file=process.stdin, flush=True)
            answer = process.stdout.readline()
            if not answer:
                said.seek(0)
                pytest.fail(f"{script} died: {said.read()[-4000:].decode()}")
            return json.loads(answer)

        yield ask
        process.stdin.close()
