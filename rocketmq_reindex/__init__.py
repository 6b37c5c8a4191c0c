"""Rebuild what a RocketMQ broker derives from its commitlog, offline: ConsumeQueue files, IndexFiles and the checkpoint."""

__version__ = "0.1.0"
