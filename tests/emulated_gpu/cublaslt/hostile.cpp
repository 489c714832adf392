#include "hostile.h"

#include "emulated_gpu.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

namespace emulated_gpu::cublaslt {

namespace {

enum Decision : std::uint64_t { kRefuse, kDrop, kOrder, kUnusable, kParts, kDemand, kProduct, kForeign, kBlock };

Hostility mood_of(const Problem& problem, const Algo& algo) {
  return {mood_of(problem, algo.alignment), static_cast<std::uint64_t>(algo.id)};
}

// This algorithm needs no workspace, and nothing but it is sure to be there for a plain product.
bool is_last_resort(const Algo& algo) { return algo.id % kSlow == kShortBlocks; }

// Without an epilogue and without TF32, no simpler call computes the same.
bool is_plain(const Problem& problem) {
  return problem.epilogue == CUBLASLT_EPILOGUE_DEFAULT && problem.compute != CUBLAS_COMPUTE_32F_FAST_TF32;
}

int slots_of(const Algo& algo, const Problem& problem) { return is_last_resort(algo) ? 0 : parts_of(algo, problem); }

// NaN in every floating type, and two kinds of numbers.
constexpr int kNaN = 0xFF;
constexpr int kHuge = 0x7B;
constexpr int kOther = 0xA5;

void spoil_columns(void* base, std::int64_t columns, std::size_t bytes, std::size_t step) {
  for (std::int64_t j = 0; j < columns; ++j) {
    std::memset(static_cast<unsigned char*>(base) + static_cast<std::size_t>(j) * step, kNaN, bytes);
  }
}

// Overwrites everything that the product will write and does not read.
void spoil_results(const Product& product) {
  const Problem& problem = product.problem;
  const std::size_t bytes = bytes_of(problem.d.type);
  const auto at = [](void* base, std::int64_t offset, std::size_t size) {
    return static_cast<unsigned char*>(base) + static_cast<std::size_t>(offset) * size;
  };
  for (std::int64_t index = 0; index < problem.batch; ++index) {
    if (product.beta == 0) {
      spoil_columns(at(product.d, index * problem.d.stride, bytes), problem.n,
                    static_cast<std::size_t>(problem.m) * bytes, static_cast<std::size_t>(problem.d.ld) * bytes);
    }
    if (has_bias_gradient(problem.epilogue)) {
      const std::int64_t count = problem.epilogue == CUBLASLT_EPILOGUE_BGRADB ? problem.n : problem.m;
      spoil_columns(at(problem.bias, index * problem.bias_stride, bytes), 1, static_cast<std::size_t>(count) * bytes,
                    0);
    }
    if (writes_mask(problem.epilogue)) {  // whole columns: nothing says what their unused bits are
      const auto column = static_cast<std::size_t>(problem.aux_ld / 8);
      spoil_columns(problem.aux + index * problem.aux_stride / 8, problem.n, column, column);
    }
  }
}

}  // namespace

Hostility mood_of(const Problem& problem, const std::uint16_t (&alignment)[6]) {
  const auto word = [](auto value) { return static_cast<std::uint64_t>(value); };
  const auto matrix = [&](const Matrix& of) { return word(of.type) << 48 ^ word(of.ld) << 20 ^ word(of.stride); };
  std::uint64_t alignments = 0;
  for (const std::uint16_t each : alignment) {
    alignments = alignments * 512 + each;
  }
  return Hostility({word(problem.compute), word(problem.trans_a) * 2 + word(problem.trans_b), word(problem.m),
                    word(problem.n), word(problem.k), word(problem.batch), matrix(problem.a), matrix(problem.b),
                    matrix(problem.c), matrix(problem.d), word(problem.epilogue), alignments});
}

int parts_of(const Algo& algo, const Problem& problem) {
  return is_split(algo) ? 2 + static_cast<int>(mood_of(problem, algo).pick(kParts, 4)) : 1;
}

std::size_t workspace_of(const Algo& algo, const Problem& problem) {
  const Hostility mood = mood_of(problem, algo);
  if (!mood.on()) {
    return is_split(algo) ? 2 * bytes_of_part(problem) : 0;
  }
  constexpr std::size_t kMore[] = {0, 16, 4096, std::size_t{1} << 20};
  const int slots = slots_of(algo, problem);
  return slots == 0 ? 0 : static_cast<std::size_t>(slots) * bytes_of_part(problem) + kMore[mood.pick(kDemand, 4)];
}

void spoil(const Problem& problem, std::vector<cublasLtMatmulHeuristicResult_t>& results, std::size_t room) {
  if (results.empty()) {
    return;
  }
  const auto algo_of = [](const auto& result) { return content_of<Algo>(result.algo); };
  const Hostility whole = mood_of(problem, algo_of(results[0]).alignment);
  if (!whole.on()) {
    return;
  }
  if (!is_plain(problem) && whole.once_in(3, kRefuse)) {
    results.clear();
    return;
  }
  std::erase_if(results, [&](const auto& result) {
    const Algo algo = algo_of(result);
    return !is_last_resort(algo) && mood_of(problem, algo).once_in(3, kDrop);
  });
  std::rotate(results.begin(), results.begin() + static_cast<std::ptrdiff_t>(whole.pick(kOrder, results.size())),
              results.end());
  if (whole.once_in(3, kUnusable) && results.size() < room) {
    cublasLtMatmulHeuristicResult_t unusable{};
    std::memset(static_cast<void*>(&unusable), kOther, sizeof unusable);
    unusable.state = CUBLAS_STATUS_NOT_SUPPORTED;
    results.insert(results.begin(), unusable);
  }
}

bool refuses_product(const Problem& problem, const Algo& algo) {
  return !(is_plain(problem) && is_last_resort(algo)) && mood_of(problem, algo).once_in(4, kProduct);
}

bool refuses_foreign(const Problem& problem, const Algo& algo) { return mood_of(problem, algo).once_in(3, kForeign); }

cudaError_t launch_hostile(Product product, const Algo& algo, std::size_t workspace_size, cudaStream_t stream) {
  const Hostility mood = mood_of(product.problem, algo);
  product.block = std::int64_t{8} << mood.pick(kBlock, 5);
  product.backwards = mood.pick(kOrder, 2) == 0;
  product.parts = parts_of(algo, product.problem);
  const auto slots = static_cast<std::size_t>(slots_of(algo, product.problem));
  const std::size_t slot = bytes_of_part(product.problem);
  // Overwrites the workspace from a slot on.
  const auto scribble = [product, slot, workspace_size](std::size_t first, int garbage) {
    if (product.workspace != nullptr) {
      std::memset(static_cast<unsigned char*>(product.workspace) + first * slot, garbage,
                  workspace_size - first * slot);
    }
  };
  std::vector<std::pair<const char*, std::function<void()>>> kernels;
  kernels.emplace_back("cublaslt_prepare", [product, scribble] {
    scribble(0, kNaN);
    spoil_results(product);
  });
  if (slots == 0) {
    kernels.emplace_back("cublaslt_matmul", [product] { multiply(product); });
  } else {
    for (int part = 0; part < product.parts; ++part) {
      kernels.emplace_back("cublaslt_part", [product, scribble, part] {
        scribble(static_cast<std::size_t>(part), kHuge);
        multiply_part(product, part);
      });
    }
    kernels.emplace_back("cublaslt_reduce", [product, scribble] {
      add_parts(product);
      scribble(1, kOther);
    });
    kernels.emplace_back("cublaslt_epilogue", [product] { finish_part(product); });
    kernels.emplace_back("cublaslt_finish", [scribble] { scribble(0, kNaN); });
  }
  for (auto& [name, task] : kernels) {
    if (const cudaError_t error = enqueue(stream, name, std::move(task)); error != cudaSuccess) {
      return error;
    }
  }
  return cudaSuccess;
}

}  // namespace emulated_gpu::cublaslt
