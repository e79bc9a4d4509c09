"""What tests of sweeps share: small grids, and executors that run or die."""

from concurrent import futures
import os
import signal

HEADER = "noise_multiplier,steps_per_epoch,batches_per_record,epochs,delta"


def small_grid(num_rows):
    """Distinct settings, each a few dozen milliseconds; every fifth one is bad."""
    lines = [HEADER]
    for i in range(num_rows):
        count = 7 if i % 5 == 4 else 1
        lines.append(f"{1 + i / 7:.3f},5,{count},1,1e-6")
    return "\n".join(lines) + "\n"


class Inline(futures.Executor):
    """Runs what it is given, at once; counts it."""

    def __init__(self, workers=1):
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
