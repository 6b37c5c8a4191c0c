"""Find a JDK 17 or 21 for Spark and write its home, one line, to ``.java-home`` at the root of the clone.

Exit status 1, and nothing printed, when there is none. Looked at in this order: ``JAVA_HOME``, what
``.java-home`` already says, ``java`` on ``PATH``, then the places where systems put JDKs.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

RECORD = Path(__file__).resolve().parent.parent / ".java-home"
VERSIONS = (17, 21)  # what Spark 4.x runs on
# Spark 4 starts its JVM with --add-modules=jdk.incubator.vector: an error on a JDK that jlink cut down.
MODULE = "jdk.incubator.vector"
PLACES = (
    "/usr/lib/jvm/*",
    "/opt/java/*",
    "/opt/jdk*",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
)


def is_suitable(home: Path) -> bool:
    """True if ``home`` has ``bin/java`` and its ``release`` file names what Spark can use.

    The file is read instead of running ``java -version``, which takes a good part of a second a JDK.
    """
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    version = re.search(r'^JAVA_VERSION="(\d+)', text, re.MULTILINE)
    modules = re.search(r'^MODULES="([^"]*)"', text, re.MULTILINE)
    return (
        os.access(home / "bin" / "java", os.X_OK)
        and version is not None
        and int(version[1]) in VERSIONS
        and (modules is None or MODULE in modules[1].split())
    )


def recorded() -> str:
    """What ``.java-home`` says, or ``""``."""
    return RECORD.read_text(encoding="utf-8").strip() if RECORD.is_file() else ""


def candidates() -> Iterator[Path]:
    """Homes worth a look, best first; they need not exist."""
    for home in (os.environ.get("JAVA_HOME", ""), recorded()):
        if home:
            yield Path(home)
    java = shutil.which("java")
    if java:
        yield Path(java).resolve().parent.parent  # /usr/bin/java is a chain of links into the JDK
    for place in PLACES:
        root, _, pattern = str(Path(place).expanduser()).partition("*")
        base = Path(root) if root.endswith("/") else Path(root).parent
        glob = ("" if root.endswith("/") else Path(root).name) + "*" + pattern
        if base.is_dir():
            yield from sorted(base.glob(glob))


def main() -> int:
    """Write ``.java-home``; 0 if a JDK was found."""
    home = next((home for home in candidates() if is_suitable(home)), None)
    if home is None:
        return 1
    if str(home) != recorded():
        RECORD.write_text(f"{home}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
