#include <functional>

#include <fmt/format.h>

#include <tandem/core/error.h>
#include <tandem/tandem.h>

#include "gpu/bench.h"
#include "gpu/cases.h"

namespace bench::gpu {

namespace {

using namespace tandem;

// A function that calls the case's op once on inputs of its own.
std::function<void()> body_of(const PassCase& c) {
  Tensor x = randn({c.rows, c.columns}).to(c.dtype);
  Tensor row = randn({c.columns}).to(c.dtype);
  if (c.op == "bias_relu") {
    return [=] {
      const NoGradGuard no_grad;
      relu(x + row);
    };
  }
  if (c.op == "bias_grad") {
    return [=] {
      const NoGradGuard no_grad;
      x.sum(0);
    };
  }
  if (c.op == "cast") {
    return [=] {
      const NoGradGuard no_grad;
      x.to(DType::bf16);
    };
  }
  Tensor shift = randn({c.columns}).to(c.dtype);
  if (c.op == "layer_norm") {
    return [=] {
      const NoGradGuard no_grad;
      nn::layer_norm(x, {c.columns}, row, shift);
    };
  }
  for (Tensor* leaf : {&x, &row, &shift}) {
    leaf->requires_grad_();
  }
  const Tensor gradient = randn({c.rows, c.columns}).to(c.dtype);
  return [=] {
    for (const Tensor& leaf : {x, row, shift}) {
      leaf.zero_grad();
    }
    nn::layer_norm(x, {c.columns}, row, shift).backward(gradient);
  };
}

std::function<void()> body_of(const HostCase& c) {
  const Tensor x = randn({16, 16});
  const Tensor y = randn({16, 16});
  if (c.op == "add") {
    return [=] { x + y; };
  }
  if (c.op == "relu") {
    return [=] { relu(x); };
  }
  if (c.op == "matmul") {
    return [=] { x.matmul(y); };
  }
  Tensor weight = randn({16, 16});
  weight.requires_grad_();
  return [=] {
    weight.zero_grad();
    nn::linear(x, weight).backward(y);
  };
}

}  // namespace

void run_passes(const Options& options, Ceilings& ceilings) {
  for (const PassCase& c : pass_cases(options.smoke)) {
    export_case(options, fields_of(c));
    print_result(fields_of(c), "eager", measure(options.effort, body_of(c)), ceilings.floor_us(c.bytes, 0, c.dtype));
  }
}

void run_cross_entropy(const Options& options, Ceilings& ceilings) {
  for (const CrossEntropyCase& c : cross_entropy_cases(options.smoke)) {
    export_case(options, fields_of(c));
    Tensor logits = randn({c.rows, c.classes}).to(c.dtype);
    logits.requires_grad_();
    const Tensor y = randint(0, c.classes, {c.rows});
    // The floor reads the logits once and writes their gradient once.
    const double bytes = 2.0 * static_cast<double>(c.rows * c.classes) * static_cast<double>(item_size(c.dtype));
    const auto body = [&] {
      logits.zero_grad();
      nn::cross_entropy(logits, y).backward();
    };
    print_result(fields_of(c), "eager", measure(options.effort, body), ceilings.floor_us(bytes, 0, c.dtype));
  }
}

void run_host(const Options& options) {
  for (const HostCase& c : host_cases()) {
    export_case(options, fields_of(c));
    print_result(fields_of(c), "eager", measure(options.effort, body_of(c)), 0);
  }
}

}  // namespace bench::gpu
