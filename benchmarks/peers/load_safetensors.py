#!/usr/bin/env python3
"""Loads a file with Python's safetensors and reads every element, as checkpoint_bench does: load_safetensors.py FILE.

Prints the median of 9 runs in ms, with NumPy and, where it is installed, with torch.
"""

import statistics
import sys
import time


def median_ms(load):
    times = []
    for _ in range(9):
        start = time.perf_counter()
        sum(float(tensor.sum()) for tensor in load().values())
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def main():
    from safetensors.numpy import load_file

    print(f"numpy {median_ms(lambda: load_file(sys.argv[1])):.1f} ms")
    try:
        from safetensors.torch import load_file as load_torch
    except ImportError:
        return
    print(f"torch {median_ms(lambda: load_torch(sys.argv[1])):.1f} ms")


main()
