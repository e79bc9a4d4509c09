"""Processes that run tasks, each of them killed without harm to the others.

Only the standard library is imported here, so that a process starts at once and imports
what its tasks need.
"""

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
    """Threads, each with a process that runs the tasks that are submitted.

    If a process is killed, only its own task fails. At the end of the `with` statement,
    unfinished tasks are abandoned.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self._mine = threading.local()
        self._processes: list[subprocess.Popen[bytes]] = []

    def submit(
        self, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> "futures.Future[Any]":
        """Submits a task, as in `Executor`; all of it must be picklable."""
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
            start_new_session=True,  # Not reached by the terminal's Ctrl-C.
        )
        self._processes.append(process)
        return process

    def __exit__(self, *error: Any) -> None:
        self.shutdown(wait=False, cancel_futures=True)
        for process in self._processes:
            process.kill()
            process.communicate()


def serve() -> None:
    """Runs the tasks of the standard input, until the input or the output is closed."""
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
