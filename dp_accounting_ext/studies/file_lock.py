"""A file that one process writes: the system's lock, gone with the process."""

import sys
from typing import BinaryIO

if sys.platform == "win32":
    import msvcrt

    # A lock keeps others from reading what it is on: here, a byte that no file has.
    _BEYOND = 2**62

    def take(file: BinaryIO) -> bool:
        """Locks an open file, unless it is locked; tells whether it did.

        The lock ends when the file is closed, or with the process, however it ends.
        """
        file.seek(_BEYOND)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import errno
    import fcntl

    _HELD = errno.EACCES, errno.EAGAIN

    def take(file: BinaryIO) -> bool:
        """Locks an open file, unless it is locked; tells whether it did.

        The lock ends when the file is closed, or with the process, however it ends. A
        file system that has no locks is trusted.
        """
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno not in _HELD
        return True
