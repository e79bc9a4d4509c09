"""Answers that are computed in other processes, while a page stays responsive."""

from collections.abc import Callable
import multiprocessing
from multiprocessing import forkserver
import queue
import signal
from typing import Any
import warnings

PROCESSES = 2
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
        """Starts a computation, unless its answer is known.

        Args:
            then: The function that is called with the answer, or with the message of an
                error. It is called at once if the answer is known, otherwise by `look`.
            function: A function of a module, whose result depends on its arguments
                alone.
            asked: The arguments of the function, which can be pickled and hashed.
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
    return _CONTEXT.Pool(PROCESSES, _begin)


def _begin() -> None:
    """Initializes a process, which ends with the page. The page shows warnings."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")
