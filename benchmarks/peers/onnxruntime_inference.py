#!/usr/bin/env python3
"""ONNX Runtime's forward pass of a multi-layer perceptron with ReLU, as inference_bench takes it: microseconds per call.

Inputs and outputs are bound once, so that a call copies nothing; what Python adds to a call is part of the time.
"""
import argparse
import statistics
import time

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper


def make_model(sizes, batch):
    random = numpy.random.default_rng(20)
    nodes, weights, last = [], [], "x"
    for i, (inputs, outputs) in enumerate(zip(sizes, sizes[1:])):
        values = [random.uniform(-1, 1, (outputs, inputs)) / inputs**0.5, random.uniform(-1, 1, outputs) / inputs**0.5]
        weights += [onnx.numpy_helper.from_array(value.astype(numpy.float32), f"{name}{i}")
                    for value, name in zip(values, ("weight", "bias"))]
        nodes.append(helper.make_node("Gemm", [last, f"weight{i}", f"bias{i}"], [f"out{i}"], transB=1))
        last = f"out{i}"
        if i + 2 < len(sizes):
            nodes.append(helper.make_node("Relu", [last], [f"relu{i}"]))
            last = f"relu{i}"
    value = lambda name, width: helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, width])
    graph = helper.make_graph(nodes, "mlp", [value("x", sizes[0])], [value(last, sizes[-1])], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model, last


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="128-256-128-10")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    sizes = [int(size) for size in options.model.split("-")]
    model, output = make_model(sizes, options.batch)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = options.threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    x = numpy.random.default_rng(1).standard_normal((options.batch, sizes[0])).astype(numpy.float32)
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    result = numpy.empty((options.batch, sizes[-1]), numpy.float32)
    binding.bind_output(output, "cpu", 0, numpy.float32, result.shape, result.ctypes.data)
    calls = 200
    times = []
    for _ in range(50):
        begin = time.perf_counter()
        for _ in range(calls):
            session.run_with_iobinding(binding)
        times.append(1e6 * (time.perf_counter() - begin) / calls)
    print(f"ONNX Runtime {onnxruntime.__version__}, {options.model}, batch {options.batch}, {options.threads} thread(s): "
          f"{statistics.median(times):.2f} us per call")


if __name__ == "__main__":
    main()
