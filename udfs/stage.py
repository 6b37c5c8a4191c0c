"""The staging area of one run: everything is built here, beside the output, and published by one rename."""

from __future__ import annotations

from dataclasses import dataclass

from udfs import files


@dataclass(frozen=True)
class Stage:
    """Folders below ``root``; executors get nothing but this path."""

    root: str

    @property
    def tree(self) -> str:
        """what becomes the output folder"""
        return files.join(self.root, "tree")

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
        """IndexFiles of all attempts: the driver moves the ones it was told of into the tree"""
        return files.join(self.root, "made")

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

    def make(self) -> None:
        for folder in (self.tree, self.blocks, self.made, self.ranges, self.parts, self.plans, self.temporary):
            files.make_folder(folder, below=self.root.rpartition("/")[0])
