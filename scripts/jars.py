"""Fetch the jars of ``conf/jars.txt`` from Maven Central into ``jars/``, once, and check every byte of them.

Maven fetches them where it is installed, so that its settings (mirror, proxy) hold; elsewhere Ivy, that
comes with pyspark. ``DEFAULT_ARTIFACT_REPOSITORY`` names another repository for Ivy, as it does for Spark.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import quoteattr

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "conf" / "jars.txt"
FOLDER = ROOT / "jars"
CENTRAL = "https://repo1.maven.org/maven2/"
MAVEN_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"

# Ivy is told to take each jar alone: conf/jars.txt is the whole list.
SETTINGS = """<ivysettings>
<settings defaultResolver="repository"/>
<caches defaultCacheDir="{cache}"/>
<resolvers><ibiblio name="repository" m2compatible="true" root={root}/></resolvers>
</ivysettings>
"""
MODULE = """<ivy-module version="2.0">
<info organisation="local" module="jars"/>
<dependencies>
{wanted}</dependencies>
</ivy-module>
"""
DEPENDENCY = """<dependency org="{jar.group}" name="{jar.artifact}" rev="{jar.version}"
    transitive="false" conf="default"/>
"""


class Jar(NamedTuple):
    """One jar: the SHA-256 of its bytes in hex, and its Maven coordinates."""

    sha256: str
    group: str
    artifact: str
    version: str

    @property
    def name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


def read_list() -> list[Jar]:
    """The lines ``SHA256 group:artifact:version`` of ``conf/jars.txt``."""
    lines = (line.split() for line in LIST.read_text(encoding="utf-8").splitlines())
    return [Jar(line[0], *line[1].split(":")) for line in lines if line and not line[0].startswith("#")]


def is_whole(jar: Jar, folder: Path) -> bool:
    path = folder / jar.name
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == jar.sha256


def java() -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else "java"


def proxy_options() -> list[str]:
    """The proxy of the environment as Java's system properties: Java does not read it."""
    options = []
    for scheme in ("http", "https"):
        proxy = urllib.parse.urlsplit(urllib.request.getproxies().get(scheme, ""))
        if proxy.hostname:
            options += [f"-D{scheme}.proxyHost={proxy.hostname}", f"-D{scheme}.proxyPort={proxy.port or 80}"]
    return options


def fetch_with_maven(jars: list[Jar], folder: Path) -> None:
    for jar in jars:
        artifact = f"{jar.group}:{jar.artifact}:{jar.version}"
        run(["mvn", "-B", "-q", MAVEN_COPY, f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"])


def fetch_with_ivy(jars: list[Jar], folder: Path) -> None:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise OSError("pyspark is not installed")
    ivy = next(Path(spec.origin).parent.glob("jars/ivy-*.jar"))
    repository = os.environ.get("DEFAULT_ARTIFACT_REPOSITORY", CENTRAL)
    settings, module = folder / "settings.xml", folder / "ivy.xml"
    settings.write_text(SETTINGS.format(cache=folder / "cache", root=quoteattr(repository)), encoding="utf-8")
    wanted = "".join(DEPENDENCY.format(jar=jar) for jar in jars)
    module.write_text(MODULE.format(wanted=wanted), encoding="utf-8")
    run(
        [
            *(java(), *proxy_options(), "-jar", str(ivy), "-settings", str(settings), "-ivy", str(module)),
            *("-confs", "default", "-types", "jar", "-retrieve", f"{folder}/[artifact]-[revision].[ext]"),
        ]
    )


def run(command: list[str]) -> None:
    """Run a client; its output goes to stderr, and only if it fails."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        raise OSError(f"{command[0]} exited with {done.returncode}")


def fetch(jars: list[Jar]) -> list[Jar]:
    """Fetch ``jars`` aside and move those whose digest is right into ``jars/``; return the rest."""
    FOLDER.mkdir(exist_ok=True)
    clients = [fetch_with_maven] if shutil.which("mvn") else []
    for client in [*clients, fetch_with_ivy]:
        with tempfile.TemporaryDirectory(dir=FOLDER, prefix=".fetch-") as aside:
            try:
                client(jars, Path(aside))
            except OSError as error:
                print(f"setup: {client.__name__}: {error}", file=sys.stderr)
            for jar in jars:
                if is_whole(jar, Path(aside)):
                    (Path(aside) / jar.name).replace(FOLDER / jar.name)
        jars = [jar for jar in jars if not is_whole(jar, FOLDER)]
        if not jars:
            break
    return jars


def main() -> int:
    """Leave in ``jars/`` exactly the jars of the list; 0 if all are there and whole."""
    listed = read_list()
    missing = [jar for jar in listed if not is_whole(jar, FOLDER)]
    if missing:
        print(f"setup: fetching {', '.join(jar.name for jar in missing)} into jars/", file=sys.stderr)
        missing = fetch(missing)
    # A jar of an older lock beside a newer one would put two Deltas on one class path.
    for path in FOLDER.glob("*.jar"):
        if path.name not in {jar.name for jar in listed}:
            path.unlink()
    if missing:
        names = ", ".join(f"{jar.group}:{jar.artifact}:{jar.version}" for jar in missing)
        print(f"setup: not fetched, or not the bytes that conf/jars.txt names: {names}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
