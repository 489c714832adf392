#!/usr/bin/env python3
"""JAX's training step on the data and weights that `step_bench --export` wrote: many steps in one compiled lax.scan.

Takes step_bench's flags and prints one JSON object in its format: us_per_step is the median of blocks of equal steps.
"""
import glob
import json
import os
import statistics
import time

from step_flags import step_parser

options = step_parser(__doc__).parse_args()


def first_of_each_core(cpus):
    """One CPU of each core: two threads on one core would share it."""
    seen, first = set(), []
    for cpu in sorted(cpus):
        try:
            with open(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") as file:
                core = file.read()
        except OSError:
            core = str(cpu)
        if core not in seen:
            seen.add(core)
            first.append(cpu)
    return first


# Read when JAX starts. XLA's pool otherwise has as many threads as the process has cores.
os.sched_setaffinity(0, first_of_each_core(os.sched_getaffinity(0))[:options.threads])
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy  # noqa: E402

from jax_nets import LOSSES, NETS  # noqa: E402

LAYERS = options.model.count("-")
RATE = options.lr or (1e-4 if options.optimizer == "adam" else 1e-3)


def load(name):
    return jnp.asarray(numpy.load(os.path.join(options.data, name + ".npy")))


def loss_of(parameters, x, y):
    if options.model in LOSSES:
        return LOSSES[options.model](parameters, x)
    if options.model in NETS:
        x = NETS[options.model](parameters, x)
    else:
        for i, (weight, bias) in enumerate(parameters):
            x = x @ weight.T + bias
            x = x if i + 1 == LAYERS else jax.nn.relu(x)
    if options.loss == "mse":
        return jnp.mean((x - y) ** 2)
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], axis=1))


def sgd(parameters, gradients, state, step):
    if options.momentum:
        state = jax.tree.map(lambda m, g: options.momentum * m + g, state, gradients)
        gradients = state
    return jax.tree.map(lambda p, g: p - RATE * g, parameters, gradients), state


def adam(parameters, gradients, state, step):
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state[0], gradients)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, state[1], gradients)
    scale = RATE / (1 - 0.9 ** step)
    root = jnp.sqrt(1 - 0.999 ** step)
    update = lambda p, m, v: p - scale * m / (jnp.sqrt(v) / root + 1e-8)
    return jax.tree.map(update, parameters, first, second), (first, second)


def main():
    x, y = load("x"), load("y")
    if options.model in NETS:
        names = [os.path.basename(path)[:-4] for path in glob.glob(os.path.join(options.data, "*.npy"))]
        parameters = {name: load(name) for name in names if name.endswith((".weight", ".bias"))}
    else:
        parameters = [(load(f"weight_{i}"), load(f"bias_{i}")) for i in range(LAYERS)]
    zeros = jax.tree.map(jnp.zeros_like, parameters)
    update, state = (adam, (zeros, zeros)) if options.optimizer == "adam" else (sgd, zeros)

    def step(carry, _):
        parameters, state, count = carry
        loss, gradients = jax.value_and_grad(loss_of)(parameters, x, y)
        parameters, state = update(parameters, gradients, state, count + 1)
        return (parameters, state, count + 1), loss

    run = jax.jit(lambda carry, steps: jax.lax.scan(step, carry, None, length=steps), static_argnums=1)
    carry, losses = run((parameters, state, jnp.float32(0)), options.check_steps)
    loss = float(losses[-1])
    clock = time.process_time if options.threads == 1 else time.perf_counter

    def timed(steps):
        nonlocal carry
        start = clock()
        carry, losses = run(carry, steps)
        losses.block_until_ready()
        return clock() - start

    def seconds_of(steps):
        timed(steps)  # compiles
        return timed(steps)

    steps = 1
    while (seconds := seconds_of(steps)) < options.block_ms * 1e-4:
        steps *= 4
    steps = max(1, round(steps * options.block_ms * 1e-3 / seconds))
    timed(steps)
    blocks = [timed(steps) / steps for _ in range(options.blocks)]
    print(json.dumps({
        "engine": "jax", "setting": "scan", "version": jax.__version__, "model": options.model, "loss": options.loss,
        "batch": options.batch, "optimizer": options.optimizer, "momentum": options.momentum,
        "threads": options.threads, "us_per_step": statistics.median(blocks) * 1e6, "blocks": len(blocks),
        "check_steps": options.check_steps, "loss_after_steps": loss}))


if __name__ == "__main__":
    main()
