"""What tests of sweeps share: small grids, and executors that run or die."""

from concurrent import futures
import os
import signal
import sys
import time

# A process of the command as it is, but for `quick_row`; its arguments follow.
QUICK_COMMAND = [
    sys.executable,
    "-c",
    "import sys, sweep_oracles\n"
    "from dp_accounting_ext import __main__\n"
    "from dp_accounting_ext.studies import sweep\n"
    "sweep.bound_row = sweep_oracles.quick_row\n"
    "sys.exit(__main__.main())",
]
# Of processes that find what tests import.
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

HEADER = "noise_multiplier,steps_per_epoch,batches_per_record,epochs,delta,sampling"


def small_grid(num_rows):
    """Distinct settings, each a few dozen milliseconds; every fifth one is bad."""
    lines = [HEADER]
    for i in range(num_rows):
        count = 7 if i % 5 == 4 else 1
        lines.append(f"{1 + i / 7:.3f},5,{count},1,1e-6,random-allocation")
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


def quick_row(row, results):
    """In place of `sweep.bound_row`: no bounds, and nothing that is slow to import."""
    time.sleep(0.03)
    if int(row["batches_per_record"]) > int(row["steps_per_epoch"]):
        raise ValueError("batches_per_record is too large.")
    noise = float(row["noise_multiplier"])
    return {
        "epsilon_lower": 1 / noise,
        "epsilon_upper": 2 / noise,
        "seconds": 0.0,
        "note": "",
    }


def deadly_row(row, results):
    """Kills its worker for one row, and always."""
    if row["noise_multiplier"] == "1.143":
        die()
    return quick_row(row, results)


def die(*args):
    """Kills the process that runs it."""
    os.kill(os.getpid(), signal.SIGKILL)
