"""What tests of sweeps share: small grids, and tables without their times."""

from concurrent import futures
import csv
import io
import os
import signal

HEADER = "noise_multiplier,steps,selected,epochs,delta"
RESULTS = "epsilon_lower,epsilon_upper,seconds,note"


def small_grid(num_rows):
    """Distinct settings, each a few dozen milliseconds; every fifth one is bad."""
    lines = [HEADER]
    for i in range(num_rows):
        selected = 7 if i % 5 == 4 else 1
        lines.append(f"{1 + i / 7:.3f},{5},{selected},1,1e-6")
    return "\n".join(lines) + "\n"


def without_times(table):
    """The cells of a table but for its seconds, each of which must be a number."""
    rows = list(csv.reader(io.StringIO(table.decode(), newline="")))
    assert all(float(row[-2]) >= 0 for row in rows[1:])
    return [[*row[:-2], row[-1]] for row in rows]


class Inline(futures.Executor):
    """Runs what it is given, at once; counts it."""

    def __init__(self):
        self.submitted = 0

    def submit(self, fn, /, *args, **kwargs):
        self.submitted += 1
        future = futures.Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def die(*args):
    """Kills the process that runs it."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_unless_there(path):
    """Kills the process that runs it, but not where it has run before."""
    if not path.exists():
        path.touch()
        die()
    return "there"
