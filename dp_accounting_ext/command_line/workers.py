"""Processes of sweeps and of pages, which are killed without harm to each other."""

from collections.abc import Callable
from concurrent import futures
import contextlib
import multiprocessing
from multiprocessing import forkserver
import queue
import signal
import threading
from typing import Any
import warnings

_PROCESSES = 2  # Of a page.
_CONTEXT: Any = multiprocessing.get_context(
    "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
)


def prepare() -> None:
    """Starts the server that forks processes, and returns before its imports are done.

    A process that the server forks has imported all that its tasks need.
    """
    if _CONTEXT.get_start_method() == "forkserver":
        _CONTEXT.set_forkserver_preload(["dp_accounting_ext.command_line.explorer"])
        forkserver.ensure_running()


class Workers(futures.ThreadPoolExecutor):
    """Threads, each with a process that runs the tasks that are submitted.

    If a process is killed, only its own task fails. At the end of the `with` statement,
    unfinished tasks are abandoned.
    """

    def __init__(self, number: int, *, warns: bool = True) -> None:
        super().__init__(number)
        self._warns = warns
        prepare()
        self._of_thread = threading.local()
        self._processes: list[Any] = []
        self._has_ended = False

    def submit(
        self, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> "futures.Future[Any]":
        """Submits a task, as in `Executor`; all of it must be picklable."""
        return super().submit(self._answer, function, args, kwargs)

    def _answer(self, *task: Any) -> Any:
        """Returns the result of a task, which the process of this thread runs.

        A task is a function, its arguments and its keyword arguments.
        """
        pipe = getattr(self._of_thread, "pipe", None) or self._started()
        try:
            pipe.send(task)
            answer, error = pipe.recv()
        except (EOFError, OSError):
            self._of_thread.pipe = None
            reason = "its worker was killed, as for want of memory"
            raise ChildProcessError(reason) from None
        if error is not None:
            raise error
        return answer

    def _started(self) -> Any:
        """Starts a process for this thread, and returns the pipe to it."""
        self._of_thread.pipe, pipe_of_process = _CONTEXT.Pipe()
        process = _CONTEXT.Process(
            target=_serve, args=(pipe_of_process, self._warns), daemon=True
        )
        process.start()
        pipe_of_process.close()
        self._processes.append(process)
        if self._has_ended:  # While this one began.
            process.kill()
        return self._of_thread.pipe

    def end(self) -> None:
        """Kills the processes, and abandons unfinished tasks."""
        self._has_ended = True
        self.shutdown(wait=False, cancel_futures=True)
        for process in list(self._processes):
            process.kill()

    def __exit__(self, *error: Any) -> None:
        self.end()


def _serve(pipe: Any, warns: bool) -> None:
    """Runs the tasks that come through a pipe, until its other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if not warns:
        warnings.simplefilter("ignore")
    with contextlib.suppress(EOFError, OSError):
        while True:
            function, args, kwargs = pipe.recv()
            answer: tuple[Any, Exception | None]
            try:
                answer = function(*args, **kwargs), None
            except Exception as error:
                answer = None, error
            pipe.send(answer)


def _workers_of_page() -> Workers:
    return Workers(_PROCESSES, warns=False)  # The page shows the warnings.


class Answers:
    """Sends questions to processes, and keeps their answers.

    No method waits. The method `look` delivers the answers since its last call. The
    function `answered` is called after each answer, in another thread. It must not call
    `look` itself, but must have it called in the thread that asks.
    """

    def __init__(self, answered: Callable[[], object]) -> None:
        self._workers = _workers_of_page()
        self._answered = answered
        self._answers: dict[Any, Any] = {}
        self._waiting = 0
        self._arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def ask(
        self, then: Callable[[Any], None], function: Callable[..., Any], *arguments: Any
    ) -> None:
        """Starts a computation of a module's function, unless its answer is known.

        The function `then` is called with the answer, or with the message of an error:
        at once if it is known, otherwise by `look`.
        """
        key = function, *arguments
        if key in self._answers:
            then(self._answers[key])
            return
        # `forget` replaces the queue, so that late answers in this one are never read.
        arrived = self._arrived

        def put(future: "futures.Future[Any]") -> None:
            if not future.cancelled():
                arrived.put((key, then, future))
                self._answered()

        self._waiting += 1
        self._workers.submit(function, *arguments).add_done_callback(put)

    def look(self) -> None:
        """Delivers the answers since its last call."""
        while not self._arrived.empty():
            key, then, future = self._arrived.get()
            self._waiting -= 1
            error = future.exception()
            self._answers[key] = future.result() if error is None else str(error)
            then(self._answers[key])

    def forget(self) -> None:
        """Stops all computations, whose answers are not delivered."""
        if self._waiting:
            self.end()
            self._workers, self._waiting = _workers_of_page(), 0
            self._arrived = queue.SimpleQueue()

    def end(self) -> None:
        """Ends the processes."""
        self._workers.end()
