"""The examples of docs/how-to/sql.md, in a real session: tests/docs runs those of all other pages."""

from __future__ import annotations

import contextlib
import io
import re
import shutil
from pathlib import Path

from pyspark.sql import SparkSession

from tests.docs.pages import blocks, text_of
from tests.docs.worlds import whole


def test_sql(spark: SparkSession, tmp_path: Path) -> None:
    """The messages of the lost IndexFile, and of the lost queue, are those that the page shows."""
    whole(tmp_path)
    max((tmp_path / "store" / "index").iterdir()).unlink()
    shutil.rmtree(tmp_path / "store" / "consumequeue" / "TopicA" / "1")
    code = "".join(block.text for block in blocks("how-to/sql")).replace("/data/store", str(tmp_path / "store"))
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, "how-to/sql.md", "exec"), {"spark": spark})
    shown = "\n".join(re.findall(r"```text\n(.*?)```", text_of("how-to/sql"), re.DOTALL))
    assert shown.split() == out.getvalue().split()
