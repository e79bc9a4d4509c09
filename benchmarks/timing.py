"""CPU time of a job, over that of a fixed NumPy workload timed beside it.

A goal in these yardsticks holds on a fast machine as on a slow or a busy one.
"""

import time

import numpy as np


class Clock:
    """CPU seconds since it was made."""

    def __init__(self) -> None:
        self._begin = time.process_time()

    def seconds(self) -> float:
        """Returns how many have passed."""
        return time.process_time() - self._begin


def yardstick() -> float:
    """Returns the CPU seconds of some transforms and exponentials, about 5 ms."""
    values = np.linspace(-1.0, 1.0, 1 << 16)
    clock = Clock()
    for _ in range(4):
        spectrum = np.fft.rfft(np.exp(values))
        np.fft.irfft(spectrum * spectrum)
    return clock.seconds()
