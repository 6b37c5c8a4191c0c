"""The staging area of one run: all is built here, beside the output, and published by one rename or one small file."""

from __future__ import annotations

from dataclasses import dataclass

from rocketmq_reindex.udfs import files


@dataclass(frozen=True)
class Stage:
    """Folders below ``root``; executors get nothing but these paths.

    ``build``: the files' own folder, written in place, where no folder can be renamed. ``trim``: files end with their last byte
    used.
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
        """the tree when it is whole: attempts of tasks that come late no longer find it"""
        return files.join(self.root, "sealed")

    @property
    def replaced(self) -> str:
        """an earlier build, between the two renames that replace it where names cannot be swapped"""
        return files.join(self.root, "replaced")

    @property
    def blocks(self) -> str:
        """index items of each range, before their files are known"""
        return files.join(self.root, "blocks")

    @property
    def made(self) -> str:
        """IndexFiles of all attempts: the driver moves the ones it was told of into the tree, or names them in the manifest"""
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
    def plans(self) -> str:
        """what the driver decided, for executors to read"""
        return files.join(self.root, "plans")

    @property
    def temporary(self) -> str:
        return files.join(self.root, "temporary")

    def stored(self, size: int) -> int | None:
        """The size to write a file in that is ``size`` bytes in a store; None: as far as it is used."""
        return None if self.trim else size

    def make(self) -> None:
        below = files.parent(self.build or self.root)
        for folder in (self.tree, self.blocks, self.made, self.ranges, self.parts, self.plans, self.temporary):
            files.make_folder(folder, below=below)
