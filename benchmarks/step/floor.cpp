#include <algorithm>
#include <cmath>

#include <tandem/core/isa.h>
#include <tandem/core/thread_pool.h>
#include <tandem/kernels/launch.h>
#include <tandem/kernels/matmul.h>
#include <tandem/tensor/factories.h>

#include "step/floor_loops.h"
#include "step/step.h"

namespace bench {

// One table per instruction set, from the compiled copies of floor_loops.cpp.
namespace baseline {
extern const FloorLoops loops;
}
#if defined(__x86_64__)
namespace avx2 {
extern const FloorLoops loops;
}
namespace avx512 {
extern const FloorLoops loops;
}
#endif

const FloorLoops& floor_loops() {
#if defined(__x86_64__)
  const FloorLoops* const all[] = {&baseline::loops, &avx2::loops, &avx512::loops};
  return *all[static_cast<int>(tandem::core::isa())];
#else
  return baseline::loops;
#endif
}

namespace {

using tandem::Tensor;
namespace kernels = tandem::kernels;

// Up to this size a loop over the rows beats a product that packs its operands.
constexpr std::int64_t kSmallProduct = 4096;
// With fewer elements than this, a loop is not worth a second thread.
constexpr std::int64_t kShare = 16384;

struct Layer {
  std::int64_t in, out;
  float *w, *b, *dw, *db;  // pointers into the flat buffers
  const float* x;
  float *y, *dx, *dy;  // the first layer has no dx
  bool relu;
};

// Splits the work into equal shares, one per thread, of at least `least`.
template <class Body>
void shared_out(std::int64_t total, std::int64_t least, const Body& body) {
  const std::int64_t threads = tandem::num_threads();
  const std::int64_t share = ((total + threads - 1) / threads + 15) / 16 * 16;
  tandem::core::parallel_for(total, std::max(share, least), body);
}

class FloorStep final : public Step {
 public:
  explicit FloorStep(const Problem& problem)
      : spec_(problem.spec),
        loops_(floor_loops()),
        context_(kernels::context_for(tandem::Device())),
        x_(problem.x),
        y_(problem.y) {
    place(problem);
    activations(problem);
    losses_.resize(static_cast<std::size_t>(spec_.batch));
  }

  void run(std::int64_t steps) override {
    for (std::int64_t i = 0; i < steps; ++i) {
      for (const Layer& layer : layers_) {
        forward(layer);
      }
      compute_loss();
      for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
        backward(*layer);
      }
      update();
    }
  }

  double loss() const override { return loss_; }

 private:
  float* buffer(std::int64_t count) {
    owned_.push_back(tandem::zeros({count}));
    return owned_.back().mutable_span<float>().data();
  }

  // Parameters, gradients and optimiser state take one flat buffer each, so that an update is one loop.
  void place(const Problem& problem) {
    const auto padded = [](std::int64_t count) { return (count + 15) / 16 * 16; };
    for (std::size_t i = 0; i < problem.layers(); ++i) {
      count_ += padded(problem.weights[i].numel()) + padded(problem.biases[i].numel());
    }
    params_ = buffer(count_);
    grads_ = buffer(count_);
    first_ = buffer(count_);
    second_ = spec_.rule == Rule::adam ? buffer(count_) : nullptr;
    std::int64_t at = 0;
    const auto copy = [&](const Tensor& from) {
      const auto values = from.span<float>();
      std::copy(values.begin(), values.end(), params_ + at);
      const std::int64_t place = at;
      at += padded(from.numel());
      return place;
    };
    for (std::size_t i = 0; i < problem.layers(); ++i) {
      const std::int64_t w = copy(problem.weights[i]);
      const std::int64_t b = copy(problem.biases[i]);
      layers_.push_back({.in = spec_.sizes[i],
                         .out = spec_.sizes[i + 1],
                         .w = params_ + w,
                         .b = params_ + b,
                         .dw = grads_ + w,
                         .db = grads_ + b,
                         .x = nullptr,
                         .y = nullptr,
                         .dx = nullptr,
                         .dy = nullptr,
                         .relu = i + 1 < problem.layers()});
    }
  }

  void activations(const Problem& problem) {
    const float* in = problem.x.span<float>().data();
    float* in_grad = nullptr;
    for (Layer& layer : layers_) {
      layer.x = in;
      layer.dx = in_grad;
      layer.y = buffer(spec_.batch * layer.out);
      layer.dy = buffer(spec_.batch * layer.out);
      in = layer.y;
      in_grad = layer.dy;
    }
  }

  bool is_small(const Layer& layer) const { return spec_.batch * layer.in * layer.out <= kSmallProduct; }

  void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const kernels::Matrix& a, const kernels::Matrix& b,
                float* out, const float* bias = nullptr, bool relu = false) const {
    kernels::launch(context_, kernels::Matmul{.dtype = tandem::DType::f32,
                                              .m = m,
                                              .n = n,
                                              .k = k,
                                              .a = a,
                                              .b = b,
                                              .out = out,
                                              .out_stride = n,
                                              .after = {.bias = bias, .relu = relu}});
  }

  void forward(const Layer& l) const {
    if (is_small(l)) {
      loops_.forward(l.x, l.w, l.b, l.y, spec_.batch, l.in, l.out, l.relu);
    } else {
      multiply(spec_.batch, l.out, l.in, {l.x, l.in, 1}, {l.w, 1, l.in}, l.y, l.b, l.relu);
    }
  }

  void compute_loss() {
    const Layer& last = layers_.back();
    if (spec_.loss == Loss::mse) {
      loss_ = loops_.mse(last.y, y_.span<float>().data(), last.dy, spec_.batch * last.out);
      return;
    }
    const std::int64_t* classes = y_.span<std::int64_t>().data();
    std::fill(losses_.begin(), losses_.end(), 0);
    shared_out(spec_.batch, std::max<std::int64_t>(1, kShare / 4 / last.out),
               [&](std::int64_t begin, std::int64_t end) {
                 losses_[static_cast<std::size_t>(begin)] =
                     loops_.cross_entropy(last.y, classes, last.dy, spec_.batch, last.out, begin, end);
               });
    double sum = 0;
    for (const double part : losses_) {
      sum += part;
    }
    loss_ = sum / static_cast<double>(spec_.batch);
  }

  void backward(const Layer& l) const {
    const std::int64_t batch = spec_.batch;
    if (is_small(l)) {
      loops_.weight_grad(l.dy, l.x, l.dw, batch, l.in, l.out);
    } else {
      multiply(l.out, l.in, batch, {l.dy, 1, l.out}, {l.x, l.in, 1}, l.dw);
    }
    shared_out(l.out, std::max<std::int64_t>(64, 4 * kShare / batch),
               [&](std::int64_t begin, std::int64_t end) { loops_.column_sums(l.dy, l.db, batch, l.out, begin, end); });
    if (l.dx == nullptr) {
      return;
    }
    if (is_small(l)) {
      loops_.input_grad(l.dy, l.w, l.dx, batch, l.in, l.out);
    } else {
      multiply(batch, l.in, l.out, {l.dy, l.out, 1}, {l.w, l.in, 1}, l.dx);
    }
    shared_out(batch * l.in, kShare,
               [&](std::int64_t begin, std::int64_t end) { loops_.relu_mask(l.dx, l.x, begin, end); });
  }

  void update() {
    ++step_;
    const auto lr = static_cast<float>(spec_.lr);
    float rate = 0;
    float scale = 0;
    if (spec_.rule == Rule::adam) {
      const auto t = static_cast<double>(step_);
      rate = static_cast<float>(spec_.lr / (1 - std::pow(0.9, t)));
      scale = static_cast<float>(1 / std::sqrt(1 - std::pow(0.999, t)));
    }
    const auto part = [&](std::int64_t begin, std::int64_t end) {
      if (spec_.rule == Rule::adam) {
        loops_.adam(params_, grads_, first_, second_, rate, scale, begin, end);
      } else if (spec_.momentum != 0) {
        loops_.momentum(params_, grads_, first_, lr, static_cast<float>(spec_.momentum), begin, end);
      } else {
        loops_.sgd(params_, grads_, lr, begin, end);
      }
    };
    // Each thread updates the rows that it will multiply by.
    const std::int64_t threads = count_ < 8 * kShare ? 1 : tandem::num_threads();
    tandem::core::ThreadPool::instance().for_each_chunk(threads, [&](std::int64_t thread) {
      for (const Layer& l : layers_) {
        const auto border = [&](std::int64_t t) {
          return l.w - params_ + std::min(l.out, (l.out + 15) / 16 * t / threads * 16) * l.in;
        };
        part(border(thread), border(thread + 1));
        if (thread == 0) {
          part(l.b - params_, l.b - params_ + l.out);
        }
      }
    });
  }

  Spec spec_;
  const FloorLoops& loops_;
  kernels::Context& context_;
  Tensor x_;
  Tensor y_;
  std::vector<Tensor> owned_;
  std::int64_t count_ = 0;
  std::int64_t step_ = 0;
  float *params_, *grads_, *first_, *second_;
  std::vector<Layer> layers_;
  std::vector<double> losses_;  // stored at the first row of each share
  double loss_ = 0;
};

}  // namespace

std::unique_ptr<Step> make_floor(const Problem& problem) { return std::make_unique<FloorStep>(problem); }

}  // namespace bench
