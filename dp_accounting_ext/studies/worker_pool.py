"""Worker processes that end with this one, and leave Ctrl-C to it."""

from concurrent import futures
import multiprocessing
from multiprocessing import connection
from multiprocessing import resource_tracker
import os
import signal
import threading
from typing import Any


class WorkerPool(futures.ProcessPoolExecutor):
    """A `ProcessPoolExecutor` that leaves no process behind, also if it is killed.

    Its `with` statement ends at once where it ends by an error, or by Ctrl-C.

    Args:
        max_workers: Number of processes. They are started when they are needed.
    """

    def __init__(self, max_workers: int) -> None:
        # A fork of a process with threads may never run; a new process does.
        context = multiprocessing.get_context("spawn")
        # Workers end with its other end: when it is closed, or this process is killed.
        theirs, self._alive = context.Pipe(duplex=False)
        # Started along with the first worker, it would let interrupts through.
        resource_tracker.ensure_running()
        super().__init__(
            max_workers, mp_context=context, initializer=_end_with, initargs=(theirs,)
        )

    def submit(self, *args: Any, **kwargs: Any) -> "futures.Future[Any]":
        """As in `Executor`. A worker that this starts never sees a terminal's Ctrl-C.

        It inherits the mask, before it could ignore the signal itself.
        """
        if not hasattr(signal, "pthread_sigmask"):
            return super().submit(*args, **kwargs)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return super().submit(*args, **kwargs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            # First what waits is forgotten: of broken pools Python would complain.
            self.shutdown(wait=False, cancel_futures=True)
            self._alive.close()
        super().__exit__(kind, error, trace)


def _end_with(pipe: connection.Connection) -> None:
    """Ends this process as soon as the other end of a pipe is no more."""

    def wait() -> None:
        pipe.poll(None)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
