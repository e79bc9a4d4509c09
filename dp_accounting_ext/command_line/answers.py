"""Answers that are computed in processes, while a page goes on."""

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
    """Asks processes, and keeps what they answered.

    Nothing here waits: `look` hands over what was answered since its last call.

    Args:
        answered: Called without arguments after each answer, in another thread. It
            must not call `look`, but have it called in the thread that asks.
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
        """Has something computed, unless it is known.

        Args:
            then: Called with the answer, or with an error's message: at once if it is
                known, otherwise by `look`.
            function: Of a module; what it returns depends on its arguments alone.
            asked: Its arguments, which can be pickled and hashed.
        """
        key = function, *asked
        if key in self._known:
            then(self._known[key])
            return
        # `forget` replaces the queue: what comes into this one later is never read.
        found = self._found

        def keep(answer: Any) -> None:
            found.put((key, then, answer))
            self._answered()

        self._waiting += 1
        self._pool.apply_async(function, asked, callback=keep, error_callback=keep)

    def look(self) -> None:
        """Hands over what was answered since it was called last."""
        while not self._found.empty():
            key, then, answer = self._found.get()
            self._waiting -= 1
            is_error = isinstance(answer, Exception)
            self._known[key] = str(answer) if is_error else answer
            then(self._known[key])

    def forget(self) -> None:
        """Stops what is being computed; its answers are handed to nobody."""
        if self._waiting:
            self._pool.terminate()
            self._pool, self._waiting = make_pool(), 0
            self._found = queue.SimpleQueue()

    def end(self) -> None:
        """Ends the processes."""
        self._pool.terminate()


def prepare() -> None:
    """Starts the server that forks processes, and returns while it still imports.

    `make_pool` waits until the server has imported all that its processes need.
    """
    if _CONTEXT.get_start_method() == "forkserver":
        _CONTEXT.set_forkserver_preload(["dp_accounting_ext.command_line.explorer"])
        forkserver.ensure_running()


def make_pool() -> Any:
    """Returns processes; where a server forks them, they start in no time."""
    prepare()
    return _CONTEXT.Pool(PROCESSES, _begin)


def _begin() -> None:
    """Begins a process, which ends with the page; the page itself shows warnings."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")
