#!/usr/bin/env python3
"""Runs PyTorch on the cases that `gpu_bench --export FOLDER` wrote. Prints a line of JSON per case, like gpu_bench.

usage: torch_peers.py FOLDER/cases.jsonl [--variants a,b] [--seconds S] [--smoke]

Timing works as in gpu_bench: warm-up, then blocks of equal calls between two events. A variant that fails prints a line
with the error, and the others continue. --smoke tries the script on the CPU, without CUDA graphs and compilation.
"""
import argparse
import json
import os
import statistics
import sys
import time

import numpy
import torch
import torch.nn.functional as F

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "peers"))  # a bundle has it here
from pytorch_nets import NETS, make_net

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
BLOCKS, BLOCK_MS, WARM_UPS, WARM_UP_SECONDS, QUEUED = 20, 10, 50, 2, 20


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", help="cases.jsonl")
    parser.add_argument("--variants", default="", help="names, with ',' between them; default: all of a case")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing after this many")
    parser.add_argument("--smoke", action="store_true", help="on the CPU, few calls")
    return parser.parse_args()


class Timer:
    """Times by events of the GPU, or by the wall clock without a GPU."""

    def __init__(self, smoke):
        self.smoke = smoke

    def synchronize(self):
        if not self.smoke:
            torch.cuda.synchronize()

    def block(self, body, calls):
        self.synchronize()
        start = time.perf_counter()
        if not self.smoke:
            events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            events[0].record()
        for _ in range(calls):
            body()
        if not self.smoke:
            events[1].record()
            events[1].synchronize()
        wall = (time.perf_counter() - start) * 1e6 / calls
        return wall if self.smoke else events[0].elapsed_time(events[1]) * 1e3 / calls, wall

    def measure(self, body):
        start = time.perf_counter()
        for i in range(3 if self.smoke else WARM_UPS):
            if i and time.perf_counter() - start > WARM_UP_SECONDS:
                break
            body()
            self.synchronize()
        once = max(self.block(body, 1)[0], 0.1)
        calls = 1 if self.smoke else int(min(max(1e3 * BLOCK_MS / once, 1), 1e5))
        us, walls, hosts = [], [], []
        for _ in range(3 if self.smoke else BLOCKS):
            block, wall = self.block(body, calls)
            us.append(block)
            walls.append(wall)
            queued = min(QUEUED, calls)
            began = time.perf_counter()
            for _ in range(queued):
                body()
            hosts.append((time.perf_counter() - began) * 1e6 / queued)
            self.synchronize()
        quartiles = statistics.quantiles(us, n=4, method="inclusive")
        return {"us": quartiles[1], "quartiles": [quartiles[0], quartiles[2]], "wall_us": statistics.median(walls),
                "host_us": statistics.median(hosts), "calls_per_block": calls}


def graphed(body):
    """Captures `body` as one CUDA graph as PyTorch's documentation shows: with a warm-up on a side stream."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            body()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        body()
    return graph.replay


# ---- training steps: W1 to W3, W8 ----

class Training:
    VARIANTS = ["eager", "eager fused", "compile", "compile with Adam", "step graph", "compiled step graph"]

    def __init__(self, case, device, variant):
        load = lambda name: torch.from_numpy(numpy.load(os.path.join(case["data"], name + ".npy"))).to(device)
        dtype = DTYPES[case["dtype"]]
        self.x, self.y = load("x").to(dtype), load("y")
        if case["model"] in NETS:
            layout = torch.channels_last if case["channels_last"] else torch.contiguous_format
            self.model = make_net(case["model"], case["data"]).to(device, dtype).to(memory_format=layout)
            self.x = self.x.to(memory_format=layout)
        else:
            self.model = self.perceptron(case, device, dtype, load)
        self.loss_function = F.mse_loss if case["loss"] == "mse" else F.cross_entropy
        if self.y.is_floating_point():
            self.y = self.y.to(dtype)
        torch.set_float32_matmul_precision("high" if case["tf32"] else "highest")
        graph = "graph" in variant
        # A compiled optimizer must be capturable and not fused. A captured one is fused, like the eager one.
        compiled = variant == "compile with Adam"
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=case["lr"], capturable=graph or compiled,
                                          **({"fused": True} if variant != "eager" and not compiled else {}))
        forward = lambda: self.loss_function(self.model(self.x), self.y)
        if "compile" in variant:
            # A graph cannot contain another graph, so a step that is captured whole is compiled without graphs.
            forward = torch.compile(forward, mode=None if graph else "reduce-overhead")
        step = torch.compile(self.optimizer.step, mode="reduce-overhead") if compiled else self.optimizer.step

        def body():
            if "compile" in variant and not graph:
                torch.compiler.cudagraph_mark_step_begin()
            self.optimizer.zero_grad(set_to_none=True)
            self.loss = forward()
            self.loss.backward()
            step()

        self.body = body

    @staticmethod
    def perceptron(case, device, dtype, load):
        sizes = [int(size) for size in case["model"].split("-")]
        layers = []
        for i, (inputs, outputs) in enumerate(zip(sizes, sizes[1:])):
            layer = torch.nn.Linear(inputs, outputs, device=device, dtype=dtype)
            with torch.no_grad():
                layer.weight.copy_(load(f"weight_{i}"))
                layer.bias.copy_(load(f"bias_{i}"))
            layers += [layer] if i + 2 == len(sizes) else [layer, torch.nn.ReLU()]
        return torch.nn.Sequential(*layers)

    def check(self, case, variant):
        """Returns the loss of the last of check_steps steps, and the function to time."""
        if "graph" not in variant:
            for _ in range(case["check_steps"]):
                self.body()
            return self.loss.item(), self.body
        # Capturing itself takes no step, but needs three warm-up steps before.
        replay = graphed(self.body)
        for _ in range(case["check_steps"] - 3):
            replay()
        return self.loss.item(), replay


def train(case, device, variant, timer):
    loss, body = Training(case, device, variant).check(case, variant)
    return {**timer.measure(body), "check_steps": case["check_steps"], "loss_after_steps": loss}


# ---- Adam alone: W4 ----

def adam(case, device, variant, timer):
    parameters = [torch.randn(case["elements"], device=device).to(DTYPES[case["dtype"]])
                  for _ in range(case["tensors"])]
    for parameter in parameters:
        parameter.requires_grad_()
        parameter.grad = 2 * parameter.detach()
    options = {"fused": True} if "fused" in variant else {"foreach": True}
    graph = "graph" in variant
    optimizer = torch.optim.Adam(parameters, lr=case["lr"], capturable=graph or variant == "compile", **options)
    step = torch.compile(optimizer.step) if variant == "compile" else optimizer.step
    return timer.measure(graphed(step) if graph else step)


# ---- cross-entropy: W5, and passes: W7 ----

def cross_entropy(case, device, variant, timer):
    logits = torch.randn(case["rows"], case["classes"], device=device).to(DTYPES[case["dtype"]]).requires_grad_()
    y = torch.randint(0, case["classes"], (case["rows"],), device=device)
    loss = torch.compile(F.cross_entropy, dynamic=False) if variant == "compile" else F.cross_entropy

    def body():
        logits.grad = None
        loss(logits, y).backward()

    return timer.measure(body)


def pass_over(case, device, variant, timer):
    dtype = DTYPES[case["dtype"]]
    rows, columns = case["rows"], case["columns"]
    x = torch.randn(rows, columns, device=device).to(dtype)
    row, shift = (torch.randn(columns, device=device).to(dtype) for _ in range(2))
    functions = {
        "bias_relu": lambda x: torch.relu(x + row),
        "bias_grad": lambda x: x.sum(0),
        "cast": lambda x: x.to(torch.bfloat16),
        "layer_norm": lambda x: F.layer_norm(x, (columns,), row, shift),
    }
    leaves = [x, row, shift]
    if case["op"] != "layer_norm_grad":
        function = functions[case["op"]]
        function = torch.compile(function, dynamic=False) if variant == "compile" else function

        @torch.no_grad()
        def body():
            function(x)
        return timer.measure(body)
    for leaf in leaves:
        leaf.requires_grad_()
    gradient = torch.randn(rows, columns, device=device).to(dtype)
    norm = lambda x, row, shift: F.layer_norm(x, (columns,), row, shift)
    norm = torch.compile(norm, dynamic=False) if variant == "compile" else norm

    def body():
        for leaf in leaves:
            leaf.grad = None
        norm(x, row, shift).backward(gradient)

    return timer.measure(body)


# ---- time of an op on the host ----

def host(case, device, variant, timer):
    x, y, weight = (torch.randn(16, 16, device=device) for _ in range(3))
    weight.requires_grad_()

    def linear_grad():
        weight.grad = None
        F.linear(x, weight).backward(y)

    return timer.measure({"add": lambda: x + y, "relu": lambda: torch.relu(x), "matmul": lambda: x @ y,
                          "linear_grad": linear_grad}[case["op"]])


KINDS = {
    "train": (train, Training.VARIANTS),
    "adam": (adam, ["fused", "foreach", "fused graph", "compile"]),
    "cross_entropy": (cross_entropy, ["eager", "compile"]),
    "pass": (pass_over, ["eager", "compile"]),
    "host": (host, ["eager"]),
}


def variants_of(case, options):
    names = KINDS[case["kind"]][1]
    if options.variants:
        names = [name for name in names if name in options.variants.split(",")]
    if options.smoke:
        names = [name for name in names if "compile" not in name and "graph" not in name]
    if case["kind"] == "adam" and case["tensors"] >= 1000:
        names = [name for name in names if name != "compile"]  # compiling takes minutes
    return names


def main():
    options = arguments()
    start = time.monotonic()
    device = "cpu" if options.smoke else "cuda"
    timer = Timer(options.smoke)
    with open(options.cases, encoding="utf-8") as file:
        cases = [json.loads(line) for line in file]
    for case in cases:
        for variant in variants_of(case, options):
            if time.monotonic() - start > options.seconds:
                print(f"torch_peers: no time left for {case['workload']} {case['case']}, {variant}", file=sys.stderr)
                continue
            torch.manual_seed(20)
            torch.compiler.reset()
            line = {"workload": case["workload"], "case": case["case"], "engine": "pytorch", "variant": variant,
                    "version": torch.__version__, "dtype": case.get("dtype", "")}
            try:
                line.update(KINDS[case["kind"]][0](case, device, variant, timer))
            except Exception as error:  # one variant fails, the others continue
                line["failed"] = (f"{type(error).__name__}: {error}".splitlines() or [""])[0][:200]
            print(json.dumps(line), flush=True)
            if not options.smoke:
                torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
