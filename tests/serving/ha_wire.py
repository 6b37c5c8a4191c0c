"""A wire between a slave and its master that spoils what the slave gets."""

from __future__ import annotations

import socket
import struct
import threading
from types import TracebackType

_HEAD = struct.Struct(">qi")
"""What comes before each piece of the log: its physical offset and its bytes (DefaultHAConnection.TRANSFER_HEADER_SIZE)."""


class HaWire:
    """Takes slaves on ``port`` and connects each to the master; lays ``spoilt`` over the log at its offsets on the way.

    While ``spoils`` is not set, the log goes through as it is. It ends with the ``with`` block.
    """

    def __init__(self, master_port: int, spoilt: dict[int, bytes]) -> None:
        self.spoils = True
        self._spoilt, self._master_port = spoilt, master_port
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._door.getsockname()[1]
        self._open: list[socket.socket] = [self._door]

    def __enter__(self) -> HaWire:
        threading.Thread(target=self._take, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for one in self._open:
            one.close()

    def _take(self) -> None:
        while True:
            try:
                slave, _ = self._door.accept()
                master = socket.create_connection(("127.0.0.1", self._master_port))
            except OSError:
                return
            self._open += [slave, master]
            threading.Thread(target=self._to_master, args=(slave, master), daemon=True).start()
            threading.Thread(target=self._to_slave, args=(slave, master), daemon=True).start()

    @staticmethod
    def _to_master(slave: socket.socket, master: socket.socket) -> None:
        try:
            while data := slave.recv(1 << 16):
                master.sendall(data)
        except OSError:
            pass
        finally:
            master.close()

    def _to_slave(self, slave: socket.socket, master: socket.socket) -> None:
        try:
            with master.makefile("rb") as pieces:
                while len(head := pieces.read(_HEAD.size)) == _HEAD.size:
                    offset, size = _HEAD.unpack(head)
                    slave.sendall(head + self._changed(offset, pieces.read(size)))
        except OSError:
            pass
        finally:
            slave.close()

    def _changed(self, offset: int, data: bytes) -> bytes:
        changed = bytearray(data)
        for at, spoilt in self._spoilt.items() if self.spoils else ():
            low, high = max(at, offset), min(at + len(spoilt), offset + len(data))
            if low < high:
                changed[low - offset : high - offset] = spoilt[low - at : high - at]
        return bytes(changed)
