"""Jars of Flink and of Beam's job server for it, fetched once with Maven; Java.

python -m logloom.runners.flink.jars     fetches them before they are needed
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

from blake3 import blake3

from logloom.errors import LogloomError, UsageError
from logloom.runners.flink.cache import call, fetched, tool

_POM = pathlib.Path(__file__).with_name("pom.xml")
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_VERSION = re.compile(r"beam-runners-flink-(\d+\.\d+)")
_OLDEST_JAVA = 11
# Flink and Beam look into classes that Java 17 keeps to itself.
_OPENED = (
    "java.lang java.lang.invoke java.lang.reflect java.util java.util.concurrent java.util.concurrent.atomic "
    "java.util.concurrent.locks java.net java.nio java.io java.text java.time sun.nio.ch sun.net.util"
)


def class_path() -> str:
    """What `java -cp` wants for the job server and for Flink's own programs.

    Raises:
        UsageError: Maven is not there to fetch the jars.
        LogloomError: they can't be fetched.
    """

    def fetch(folder: pathlib.Path) -> None:
        maven = tool("mvn", "fetch Flink's jars, once; install Maven, or give --flink-job-server-jar")
        shutil.copy(_POM, folder / "pom.xml")
        options = ["-q", "-B", "-f", str(folder / "pom.xml"), f"-DoutputDirectory={folder}"]
        call([maven, *options, "-DincludeScope=runtime", _COPY], "fetching Flink's jars")

    name = f"flink-{blake3(_POM.read_bytes()).hexdigest()[:12]}"
    return f"{fetched(name, fetch, 'the jars of Flink and of Beam for it')}/*"


def jars_of_flink(jar: str = "") -> list[pathlib.Path]:
    """The jars that hold Flink's own classes: those that are fetched, or the shaded job server."""
    return [pathlib.Path(jar)] if jar else sorted(pathlib.Path(class_path()).parent.glob("flink-*.jar"))


def version_of_flink(jar: str = "") -> str:
    """Flink's version that the job server is for; "" where the name of a shaded one doesn't say."""
    found = _VERSION.search(pathlib.Path(jar).name if jar else _POM.read_text(encoding="utf-8"))
    return found[1] if found else ""


def checked_jar(jar: str) -> str:
    """The path of a job server in one jar.

    Raises:
        UsageError: there is no such file, or it is no jar.
    """
    if not pathlib.Path(jar).is_file():
        raise UsageError(f"{jar}: no such job server")
    if not zipfile.is_zipfile(jar):
        raise UsageError(
            f"{jar} is no jar, or not all of it; a job server is Maven's org.apache.beam, "
            "beam-runners-flink-1.19-job-server. Without the option Maven fetches one"
        )
    return jar


def java() -> list[str]:
    """The start of a command that runs Java.

    Raises:
        UsageError: there is no Java, or one that is too old.
    """
    home = os.environ.get("JAVA_HOME", "")
    path = f"{home}/bin/java" if home and os.access(f"{home}/bin/java", os.X_OK) else ""
    unfit = f" (there is none in JAVA_HOME, {home})" if home else ""
    path = path or tool("java", f"run Flink; install Java 17{unfit}")
    try:
        reply = subprocess.run([path, "-version"], capture_output=True, text=True, check=False).stderr
    except OSError as error:
        reply = str(error)
    found = re.search(r'version "(?:1\.)?(\d+)', reply)
    if found is None or int(found[1]) < _OLDEST_JAVA:
        raise UsageError(f"{path}: Flink needs Java {_OLDEST_JAVA} or later, best 17; this is {reply[:80]!r}")
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED.split()]
    return [path, *opened]


if __name__ == "__main__":
    try:
        java()
        print(class_path())
    except LogloomError as error:
        sys.exit(str(error))
