#!/usr/bin/env python3
"""PyTorch's training step on the data and weights that `step_bench --export` wrote.

Takes step_bench's flags and prints one JSON object in its format: us_per_step is the median of blocks of equal steps.
The precision "medium" is PyTorch's autocast to bf16.
"""
import json
import os
import statistics
import sys
import time

import numpy
import torch

from pytorch_nets import LOSSES, NETS, make_net
from step_flags import step_parser


def arguments():
    parser = step_parser(__doc__)
    parser.add_argument("--implementation", choices=["default", "foreach", "fused"], default="default",
                        help="of the optimizer")
    parser.add_argument("--precision", choices=["highest", "medium"], default="highest")
    parser.add_argument("--channels-last", action="store_true", help="of images and weights of a net")
    parser.add_argument("--compile", action="store_true", help="a net by torch.compile")
    parser.add_argument("--setting", default="default", help="a name for the environment, for the report")
    return parser.parse_args()


def make_model(options):
    load = lambda name: torch.from_numpy(numpy.load(os.path.join(options.data, name + ".npy")))
    if options.model in NETS:
        layout = torch.channels_last if options.channels_last else torch.contiguous_format
        net = make_net(options.model, options.data).to(memory_format=layout)
        compiles = options.compile and options.model not in LOSSES
        return torch.compile(net) if compiles else net, load("x").to(memory_format=layout), load("y")
    sizes = [int(size) for size in options.model.split("-")]
    layers = []
    for i, (inputs, outputs) in enumerate(zip(sizes, sizes[1:])):
        layer = torch.nn.Linear(inputs, outputs)
        with torch.no_grad():
            layer.weight.copy_(load(f"weight_{i}"))
            layer.bias.copy_(load(f"bias_{i}"))
        layers += [layer] if i + 2 == len(sizes) else [layer, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers), load("x"), load("y")


def make_optimizer(options, parameters):
    more = {} if options.implementation == "default" else {options.implementation: True}
    if options.optimizer == "adam":
        return torch.optim.Adam(parameters, lr=options.lr or 1e-4, **more)
    return torch.optim.SGD(parameters, lr=options.lr or 1e-3, momentum=options.momentum, **more)


def waited_seconds():
    """Total time that this process's threads have waited for a core. A block during which it grew was disturbed."""
    total = 0
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/schedstat") as file:
                total += int(file.read().split()[1])
        except OSError:
            pass
    return total * 1e-9


def main():
    options = arguments()
    torch.set_num_threads(options.threads)
    model, x, y = make_model(options)
    optimizer = make_optimizer(options, model.parameters())
    loss_function = torch.nn.MSELoss() if options.loss == "mse" else torch.nn.CrossEntropyLoss()

    # Like step_bench: with one thread, processor time excludes other programs.
    clock = time.process_time if options.threads == 1 else time.perf_counter

    if options.model in LOSSES:
        own_loss, compiled = LOSSES[options.model]
        forward, gradients = lambda: own_loss(model, x), compiled(model) if options.compile else None
    else:
        forward, gradients = lambda: loss_function(model(x), y), None

    def run(steps):
        for _ in range(steps):
            optimizer.zero_grad(set_to_none=True)
            if gradients is not None:
                loss = gradients(x)
            else:
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.precision == "medium"):
                    loss = forward()
                loss.backward()
            optimizer.step()
        return loss

    def timed(steps):
        start = clock()
        run(steps)
        return clock() - start

    loss = run(options.check_steps).item()
    steps = 1
    while (seconds := timed(steps)) < options.block_ms * 1e-4:
        steps *= 4
    steps = max(1, round(steps * options.block_ms * 1e-3 / seconds))
    blocks = []  # (share of time that our threads waited for a core, seconds per step)
    while sum(share < 0.01 for share, _ in blocks) < options.blocks and len(blocks) < 4 * options.blocks:
        waited = waited_seconds()
        seconds = timed(steps)
        blocks.append(((waited_seconds() - waited) / seconds, seconds / steps))
    used = sorted(blocks)[:options.blocks]
    print(json.dumps({
        "engine": "pytorch", "setting": options.setting, "implementation": options.implementation,
        "version": torch.__version__, "model": options.model, "loss": options.loss, "batch": options.batch,
        "optimizer": options.optimizer, "momentum": options.momentum,
        "products": "bf16" if options.precision == "medium" else "f32", "threads": options.threads,
        "us_per_step": statistics.median(seconds for _, seconds in used) * 1e6, "blocks": len(used),
        "disturbed": sum(share >= 0.01 for share, _ in used), "left_out": len(blocks) - len(used),
        "check_steps": options.check_steps, "loss_after_steps": loss}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
