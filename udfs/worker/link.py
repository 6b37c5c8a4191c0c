"""The working folder of an engine's processes, and the messages between them and the driver.

By itself: both ends import it before anything slow.
"""

import pickle
import socket
import struct
from typing import Any, Final, NamedTuple

# ----------------------------------------------------------------------------------------------------------------------- folder
# Where the processes of an engine work.

FOLDER: Final = "/"
"""only root can put files there that Python or Java would load"""


# ------------------------------------------------------------------------------------------------------------------------- link
# What passes between the driver of the local engine and one of its processes: pickled objects, each behind its length.
#
# Only the two processes have the two ends, by inheritance: nobody else can write to them.

_LENGTH: Final = struct.Struct("<Q")


class Waits(NamedTuple):
    """What may come before a task's answer: one line about a store that the task waits for."""

    text: str


def send(link: socket.socket, message: object) -> None:
    """Send one object. Raises OSError where the other end is gone, and what pickle raises before anything is sent."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    link.sendall(_LENGTH.pack(len(data)) + data)


def receive(link: socket.socket) -> Any:
    """Wait for one object, and return it. Raises EOFError where the other end is gone."""
    return pickle.loads(_take(link, _LENGTH.unpack(_take(link, _LENGTH.size))[0]))


def _take(link: socket.socket, count: int) -> bytearray:
    data = bytearray(count)
    room = memoryview(data)
    while room:
        try:
            received = link.recv_into(room)
        except ConnectionError:
            received = 0
        if not received:
            raise EOFError
        room = room[received:]
    return data
