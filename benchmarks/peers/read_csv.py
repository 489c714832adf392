#!/usr/bin/env python3
"""Reads a CSV file of numbers with pandas and polars, as csv_bench does: read_csv.py FILE [THREADS].

Prints the median of 9 runs in ms.
"""

import os
import statistics
import sys
import time

if len(sys.argv) > 2:
    os.environ["POLARS_MAX_THREADS"] = sys.argv[2]


def median_ms(read):
    times = []
    for _ in range(9):
        start = time.perf_counter()
        read()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def main():
    path = sys.argv[1]
    try:
        import pandas

        print(f"pandas {median_ms(lambda: pandas.read_csv(path)):.0f} ms")
    except ImportError:
        print("no pandas", file=sys.stderr)
    try:
        import polars

        print(f"polars {median_ms(lambda: polars.read_csv(path)):.0f} ms")
    except ImportError:
        print("no polars", file=sys.stderr)


main()
