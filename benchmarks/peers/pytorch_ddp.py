#!/usr/bin/env python3
"""Trains like `ddp_bench`, but with PyTorch's DistributedDataParallel over Gloo. The process is one rank, set by RANK,
WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Rank 0 prints one JSON object: us_per_step is the median over blocks of equal
steps, each timed by its slowest rank.
"""
import argparse
import json
import statistics
import time

import torch
import torch.distributed


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--batch", type=int, required=True, help="rows of each rank")
    parser.add_argument("--optimizer", choices=["sgd", "adam"], required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--block-ms", type=float, default=50)
    parser.add_argument("--setting", default="default", help="a name for the environment; tuned: a fused optimizer, too")
    return parser.parse_args()


def main():
    options = arguments()
    torch.set_num_threads(options.threads)
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    torch.manual_seed(rank)
    sizes = [int(size) for size in options.model.split("-")]
    layers = []
    for inputs, outputs in zip(sizes, sizes[1:]):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers[:-1])
    ddp = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=options.setting == "tuned")
    more = {"fused": True} if options.setting == "tuned" else {}
    rule = torch.optim.Adam if options.optimizer == "adam" else torch.optim.SGD
    optimizer = rule(model.parameters(), lr=1e-9, **more)
    x = torch.randn(options.batch, sizes[0])
    y = torch.randint(sizes[-1], (options.batch,))

    def block(steps):
        torch.distributed.barrier()
        start = time.perf_counter()
        for _ in range(steps):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(ddp(x), y).backward()
            optimizer.step()
        seconds = torch.tensor([time.perf_counter() - start], dtype=torch.float64)
        torch.distributed.all_reduce(seconds, torch.distributed.ReduceOp.MAX)
        return seconds.item()

    block(5)
    steps = max(1, round(5 * options.block_ms * 1e-3 / block(5)))
    us = [1e6 * block(steps) / steps for _ in range(options.rounds)]
    if rank == 0:
        print(json.dumps({"engine": "pytorch", "version": torch.__version__, "setting": options.setting,
                          "model": options.model, "batch": options.batch, "optimizer": options.optimizer,
                          "ranks": torch.distributed.get_world_size(), "threads": options.threads,
                          "us_per_step": statistics.median(us), "rounds_us": us}))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
