"""Processes of sweeps, killed without harm to each other, and those of a page.

Only the standard library is imported here, so that a process starts at once and imports
what its tasks need.
"""

from collections.abc import Callable
from concurrent import futures
import contextlib
import multiprocessing
from multiprocessing import forkserver
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from typing import Any
import warnings

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


_PROCESSES = 2  # Of a page.
_CONTEXT: Any = multiprocessing.get_context(
    "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
)


class Answers:
    """Sends questions to processes, and keeps their answers.

    No method waits. The method `look` delivers the answers since its last call.

    Args:
        answered: A function that is called without arguments after each answer, in
            another thread. It must not call `look` itself, but must have it called in
            the thread that asks.
    """

    def __init__(self, answered: Callable[[], object]) -> None:
        self._pool = make_pool()
        self._answered = answered
        self._known: dict[Any, Any] = {}
        self._waiting = 0
        self._found: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def ask(
        self, then: Callable[[Any], None], function: Callable[..., Any], *asked: Any
    ) -> None:
        """Starts a computation of a module's function, unless its answer is known.

        The function `then` is called with the answer, or with the message of an error:
        at once if it is known, otherwise by `look`.
        """
        key = function, *asked
        if key in self._known:
            then(self._known[key])
            return
        # `forget` replaces the queue, so that late answers in this one are never read.
        found = self._found

        def keep(answer: Any) -> None:
            found.put((key, then, answer))
            self._answered()

        self._waiting += 1
        self._pool.apply_async(function, asked, callback=keep, error_callback=keep)

    def look(self) -> None:
        """Delivers the answers since its last call."""
        while not self._found.empty():
            key, then, answer = self._found.get()
            self._waiting -= 1
            is_error = isinstance(answer, Exception)
            self._known[key] = str(answer) if is_error else answer
            then(self._known[key])

    def forget(self) -> None:
        """Stops all computations, whose answers are not delivered."""
        if self._waiting:
            self._pool.terminate()
            self._pool, self._waiting = make_pool(), 0
            self._found = queue.SimpleQueue()

    def end(self) -> None:
        """Ends the processes."""
        self._pool.terminate()


def prepare() -> None:
    """Starts the server that forks processes, and returns before its imports are done.

    `make_pool` waits until the server has imported all that its processes need.
    """
    if _CONTEXT.get_start_method() == "forkserver":
        _CONTEXT.set_forkserver_preload(["dp_accounting_ext.command_line.explorer"])
        forkserver.ensure_running()


def make_pool() -> Any:
    """Returns a pool of processes. If a server forks them, they start at once."""
    prepare()
    return _CONTEXT.Pool(_PROCESSES, _begin)


def _begin() -> None:
    """Initializes a process, which ends with the page. The page shows warnings."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")
