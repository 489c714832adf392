#!/usr/bin/env python3
"""Prints a table of the kernels in a file that `ncu --csv --page raw` wrote: the median of all launches of a kernel that
have the same grid.

usage: profile_table.py FILE.csv
"""
import csv
import re
import statistics
import sys

DURATION, MEMORY = "gpu__time_duration.sum", "dram__throughput.avg.pct_of_peak_sustained_elapsed"
REGISTERS, OCCUPANCY = "launch__registers_per_thread", "sm__warps_active.avg.pct_of_peak_sustained_active"
MICROSECONDS = {"ns": 1e-3, "nsecond": 1e-3, "us": 1, "usecond": 1, "ms": 1e3, "msecond": 1e3, "s": 1e6, "second": 1e6}


def short(name):
    """The name without namespaces, parameters and "void"."""
    name = re.sub(r"^void ", "", name.replace("(anonymous namespace)::", ""))
    name = re.sub(r"\w+::", "", name)
    depth = 0
    for i, letter in enumerate(name):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0:
            return name[:i]
    return name


def main():
    with open(sys.argv[1], encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("==")))
    if len(rows) < 2:
        return 1
    units, launches = rows[0], rows[1:]
    kernels = {}
    for launch in launches:
        kernels.setdefault((short(launch["Kernel Name"]), launch["Grid Size"], launch["Block Size"]), []).append(launch)
    print("| kernel | grid, block | launches | us | memory | registers | occupancy |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for (name, grid, block), same in kernels.items():
        median = lambda metric: statistics.median(float(launch[metric].replace(",", "")) for launch in same)
        print(f"| {name} | {grid} {block} | {len(same)} | {median(DURATION) * MICROSECONDS[units[DURATION]]:.2f} "
              f"| {median(MEMORY):.1f} % | {median(REGISTERS):.0f} | {median(OCCUPANCY):.1f} % |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
