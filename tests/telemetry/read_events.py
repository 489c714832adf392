#!/usr/bin/env python3
"""TensorBoard reads what tandem writes: read_events.py PROGRAM FOLDER.

Lets PROGRAM write a folder of event files and says what TensorBoard finds there. Exits with 77 if there is no TensorBoard.
"""

import shutil
import subprocess
import sys

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError as error:
    print(f"skipped: {error}", file=sys.stderr)
    sys.exit(77)


def main():
    program, folder = sys.argv[1:]
    shutil.rmtree(folder, ignore_errors=True)  # of an earlier run
    subprocess.run([program, folder], check=True)
    found = EventAccumulator(folder, size_guidance={"scalars": 0, "histograms": 0, "tensors": 0})
    found.Reload()

    losses = [(event.step, event.value) for event in found.Scalars("loss/train")]
    assert losses == [(0, 1.0), (1, 0.5), (2, 0.25), (3, -7.0)], losses  # from 3 on, the second file is valid

    histogram = found.Histograms("weights")[0].histogram_value
    assert histogram.num == 101 and histogram.min == -5 and histogram.max == 5, histogram
    assert abs(histogram.sum) < 1e-9 and sum(histogram.bucket) == 101, histogram
    assert len(histogram.bucket) == len(histogram.bucket_limit), histogram
    assert list(histogram.bucket_limit) == sorted(histogram.bucket_limit), histogram

    text = found.Tensors("note/text_summary")[0]
    assert text.step == 3 and text.tensor_proto.string_val[0].decode() == "**bold** and ü", text


main()
