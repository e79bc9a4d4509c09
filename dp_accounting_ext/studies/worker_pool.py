"""Worker processes, of which any may be killed."""

from collections.abc import Callable
from concurrent import futures
from concurrent.futures import process
import functools
import multiprocessing
from multiprocessing import connection
from multiprocessing import resource_tracker
import os
import signal
import threading
from typing import ParamSpec
from typing import TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# A fork of a process with threads may never run; a new process does.
_CONTEXT = multiprocessing.get_context("spawn")


class WorkerKilledError(Exception):
    """Raised for a function whose worker was killed, and a second one, too."""


class WorkerPool(futures.Executor):
    """A `ProcessPoolExecutor` that is started anew when a worker is killed.

    Whose worker it was, for want of memory, say, is not told: all that was running
    fails. Each of these functions is run once more, in a process of its own, so that
    one which kills its worker again takes no other with it.

    Args:
        max_workers: Number of processes. They are started when they are needed.
    """

    def __init__(self, max_workers: int) -> None:
        self._max_workers = max_workers
        self._threads = futures.ThreadPoolExecutor(
            max_workers, initializer=_leave_interrupts_to_the_caller
        )
        # Workers end with its other end: when it is closed, or this process is killed.
        self._theirs, self._alive = _CONTEXT.Pipe(duplex=False)
        self._lock = threading.Lock()
        self._processes = self._start(max_workers)

    def submit(
        self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> futures.Future[T]:
        """Runs a function in some worker.

        It, what it is given, returns and raises must be such as can be pickled. The
        future raises `WorkerKilledError` where two workers in turn are killed.
        """
        return self._threads.submit(self._run, functools.partial(fn, *args, **kwargs))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends the processes: with `wait`, after what was submitted; else, at once."""
        if wait:
            self._threads.shutdown(wait=True, cancel_futures=cancel_futures)
        self._alive.close()
        self._threads.shutdown(wait=wait, cancel_futures=cancel_futures)
        self._processes.shutdown(wait=wait)

    def _run(self, task: Callable[[], T]) -> T:
        processes = self._processes
        try:
            return processes.submit(task).result()
        except process.BrokenProcessPool:
            self._replace(processes)
        try:
            with self._start(1) as alone:
                return alone.submit(task).result()
        except process.BrokenProcessPool:
            raise WorkerKilledError("its worker was killed twice") from None

    def _replace(self, broken: futures.ProcessPoolExecutor) -> None:
        """Starts new processes, unless another thread has."""
        with self._lock:
            if self._processes is broken:
                self._processes = self._start(self._max_workers)

    def _start(self, max_workers: int) -> futures.ProcessPoolExecutor:
        if self._alive.closed:
            raise futures.CancelledError
        return futures.ProcessPoolExecutor(
            max_workers,
            mp_context=_CONTEXT,
            initializer=_end_with,
            initargs=(self._theirs,),
        )


def _end_with(pipe: connection.Connection) -> None:
    """Ends this process as soon as the other end of a pipe is no more."""

    def wait() -> None:
        pipe.poll(None)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _leave_interrupts_to_the_caller() -> None:
    """Keeps Ctrl-C, which a terminal sends to all, from processes started here.

    They inherit the mask from the thread that starts them, before they could ignore
    the signal themselves.
    """
    if hasattr(signal, "pthread_sigmask"):
        # Started along with the first process, it would take the mask away.
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
