"""Answers that are computed in processes, while a page goes on."""

from collections.abc import Callable
import multiprocessing
import signal
from typing import Any
import warnings

PROCESSES = 2


class Answers:
    """Asks processes, and keeps what they answered.

    Nothing here waits: whoever asks calls `look` now and then.
    """

    def __init__(self) -> None:
        self._pool = make_pool()
        self._known: dict[Any, Any] = {}
        self._waiting: list[tuple[Any, Any, Callable[[Any], None]]] = []

    def ask(
        self, then: Callable[[Any], None], function: Callable[..., Any], *asked: Any
    ) -> None:
        """Has something computed, unless it is known.

        Args:
            then: Is told the answer, or of an error its words: by `look`, or at once.
            function: Of a module; what it returns depends on its arguments alone.
            asked: Its arguments, which can be pickled and hashed.
        """
        key = function, *asked
        if key in self._known:
            then(self._known[key])
        else:
            self._waiting.append((key, self._pool.apply_async(function, asked), then))

    def look(self) -> None:
        """Tells what was answered since it was called last."""
        for each in self._waiting[:]:
            key, result, then = each
            # What was told before may have led to `forget`.
            if each in self._waiting and result.ready():
                self._waiting.remove(each)
                try:
                    self._known[key] = result.get()
                except Exception as error:  # Whatever it is, its words are told.
                    self._known[key] = str(error)
                then(self._known[key])

    def forget(self) -> None:
        """Stops what is being computed; nobody is told of it."""
        if self._waiting:
            self._pool.terminate()
            self._pool, self._waiting = make_pool(), []

    def end(self) -> None:
        """Ends the processes."""
        self._pool.terminate()
        self._waiting.clear()


def make_pool() -> Any:
    """Returns processes; where a server forks them, they start in no time."""
    kinds = multiprocessing.get_all_start_methods()
    kind = "forkserver" if "forkserver" in kinds else "spawn"
    context = multiprocessing.get_context(kind)
    context.set_forkserver_preload(["dp_accounting_ext.command_line.explorer"])
    return context.Pool(PROCESSES, _begin)


def _begin() -> None:
    """Begins a process: it ends with the page, where its warnings are told."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")
