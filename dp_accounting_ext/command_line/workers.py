"""Processes that work for this one, end with it, and leave Ctrl-C to it."""

from collections.abc import Callable
from concurrent import futures
import contextlib
import os
import pickle
import subprocess
import sys
import threading
from typing import Any

_SERVE = "from dp_accounting_ext.command_line import workers; workers.serve()"


class Workers(futures.ThreadPoolExecutor):
    """Threads, each with a process that does what is submitted.

    Where a process is killed its task fails, and no other. At the end of the `with`
    statement all that is not done is left.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self._mine = threading.local()
        self._processes: list[subprocess.Popen[bytes]] = []

    def submit(
        self, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> "futures.Future[Any]":
        """As in `Executor`; all must be such as can be pickled."""
        return super().submit(self._answer, function, args, kwargs)

    def _answer(self, *task: Any) -> Any:
        process = getattr(self._mine, "process", None) or self._started()
        try:
            pickle.dump(task, process.stdin)
            process.stdin.flush()
            answer, error = pickle.load(process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            self._mine.process = None
            reason = "its worker was killed, as for want of memory"
            raise ChildProcessError(reason) from None
        if error is not None:
            raise error
        return answer

    def _started(self) -> Any:
        self._mine.process = process = subprocess.Popen(
            [sys.executable, "-c", _SERVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,  # Where a terminal's Ctrl-C does not go.
        )
        self._processes.append(process)
        return process

    def __exit__(self, *error: Any) -> None:
        self.shutdown(wait=False, cancel_futures=True)
        for process in self._processes:
            process.kill()
            process.communicate()


def serve() -> None:
    """Does the tasks of the standard input, until that or the output ends."""
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            function, args, kwargs = pickle.load(sys.stdin.buffer)
            answer: tuple[Any, Exception | None]
            try:
                answer = function(*args, **kwargs), None
            except Exception as error:
                answer = None, error
            pickle.dump(answer, sys.stdout.buffer)
            sys.stdout.flush()
