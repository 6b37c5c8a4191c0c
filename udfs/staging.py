"""The staging folder of one run: all files are made there, beside the output, and published by one rename or one small file."""

from __future__ import annotations

from dataclasses import dataclass

from rocketmq_reindex.udfs import files


@dataclass(frozen=True)
class StagingFolder:
    """The folders below ``root``; executors get only these paths.

    ``build`` is the folder of the build's own files where no folder can be renamed: they are written in place. ``trim``: files
    end with their last byte in use.
    """

    root: str
    build: str = ""
    trim: bool = False

    @property
    def tree(self) -> str:
        """what becomes the output folder"""
        return self.build or files.join(self.root, "tree")

    @property
    def sealed(self) -> str:
        """the tree once it is whole: late attempts of tasks no longer find it"""
        return files.join(self.root, "sealed")

    @property
    def replaced(self) -> str:
        """an earlier build, between the two renames that replace it where names cannot be swapped"""
        return files.join(self.root, "replaced")

    @property
    def blocks(self) -> str:
        """the index items of each range, before their files are planned"""
        return files.join(self.root, "blocks")

    @property
    def made(self) -> str:
        """the IndexFiles of all attempts; the driver moves those of successful tasks into the tree, or lists them in place"""
        return files.join(self.build, "index") if self.build else files.join(self.root, "made")

    @property
    def ranges(self) -> str:
        """the summary of each finished range"""
        return files.join(self.root, "ranges")

    @property
    def parts(self) -> str:
        """parts of the manifest's list of files"""
        return files.join(self.root, "parts")

    @property
    def progress(self) -> str:
        """how far tasks are"""
        return files.join(self.root, "progress")

    @property
    def plans(self) -> str:
        """what the driver planned, for executors to read"""
        return files.join(self.root, "plans")

    @property
    def rows(self) -> str:
        """rows that tasks leave for other tasks, where the engine keeps them in files"""
        return files.join(self.root, "rows")

    @property
    def temporary(self) -> str:
        """files that are being written"""
        return files.join(self.root, "temporary")

    def stored(self, size: int) -> int | None:
        """The size to store a file in that has ``size`` bytes in a store; None: up to its last byte in use."""
        return None if self.trim else size

    def make(self) -> None:
        """Make all folders."""
        below = files.parent(self.build or self.root)
        for folder in (self.tree, self.blocks, self.made, self.ranges, self.parts, self.progress, self.plans, self.temporary):
            files.make_folder(folder, below=below)
