#include "product.h"

#include "elements.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

namespace emulated_gpu::cublaslt {

namespace {

// op(A) or op(B): element (i, l), where i counts `count` rows along m or n, and l runs along k.
struct Operand {
  cudaDataType type;
  const void* base;
  std::int64_t offset;  // start of this matrix of the batch
  std::int64_t step;    // distance to the next i
  std::int64_t step_k;
  std::int64_t count;
};

Operand operand_a(const Product& product, std::int64_t index) {
  const Problem& problem = product.problem;
  const Matrix& a = problem.a;
  return {a.type, product.a, index * a.stride, problem.trans_a ? a.ld : 1, problem.trans_a ? 1 : a.ld, problem.m};
}
Operand operand_b(const Product& product, std::int64_t index) {
  const Problem& problem = product.problem;
  const Matrix& b = problem.b;
  return {b.type, product.b, index * b.stride, problem.trans_b ? 1 : b.ld, problem.trans_b ? b.ld : 1, problem.n};
}

// A tile keeps its sums in registers: kTall of them along m in a vector, for kWide columns.
template <class Sum>
struct Tile {
  static constexpr std::int64_t kTall = 32 / sizeof(Sum);
  static constexpr std::int64_t kWide = 4;
  typedef Sum Vector __attribute__((vector_size(32)));
};

// Packs rows of an operand for l in [first, last), in groups of `group`: packed[(i / group * (last - first) + l) *
// group + i % group]. Zeros fill up the last group.
template <class Sum>
void pack(const Operand& operand, bool tf32, std::int64_t first, std::int64_t last, std::int64_t group,
          std::vector<Sum>& packed) {
  const std::int64_t depth = last - first;
  const std::int64_t groups = (operand.count + group - 1) / group;
  packed.assign(static_cast<std::size_t>(groups * group * depth), Sum{0});
  with_type(operand.type, operand.base, [&](const auto* elements) {
    for (std::int64_t i = 0; i < operand.count; ++i) {
      const auto* from = elements + operand.offset + i * operand.step + first * operand.step_k;
      Sum* into = packed.data() + i / group * depth * group + i % group;
      for (std::int64_t l = 0; l < depth; ++l) {
        const auto element = static_cast<Sum>(from[l * operand.step_k]);
        into[l * group] = tf32 ? static_cast<Sum>(to_tf32(static_cast<float>(element))) : element;
      }
    }
  });
}

// sums[j * rows + i] = sum over l in [first, last), computed in blocks of l: errors grow with the block's length plus
// the number of blocks, not with their product. `rows` is m, rounded up to whole tiles.
template <class Sum>
class Sums {
 public:
  Sums(const Product& product, std::int64_t index, std::int64_t first, std::int64_t last)
      : rows_((product.problem.m + kTall - 1) / kTall * kTall),
        columns_((product.problem.n + kWide - 1) / kWide * kWide),
        sums_(static_cast<std::size_t>(rows_ * columns_), Sum{0}) {
    const Operand a = operand_a(product, index);
    const Operand b = operand_b(product, index);
    const std::int64_t blocks = (last - first + product.block - 1) / product.block;
    for (std::int64_t i = 0; i < blocks; ++i) {
      const std::int64_t l = first + (product.backwards ? blocks - 1 - i : i) * product.block;
      const std::int64_t end = std::min(last, l + product.block);
      pack(a, product.tf32, l, end, kTall, packed_a_);
      pack(b, product.tf32, l, end, kWide, packed_b_);
      add_block(end - l);
    }
  }
  Sum* column(std::int64_t j) { return sums_.data() + j * rows_; }

 private:
  using Vector = typename Tile<Sum>::Vector;
  static constexpr std::int64_t kTall = Tile<Sum>::kTall;
  static constexpr std::int64_t kWide = Tile<Sum>::kWide;

  void add_block(std::int64_t depth) {
    for (std::int64_t j = 0; j < columns_; j += kWide) {
      for (std::int64_t i = 0; i < rows_; i += kTall) {
        const Sum* a = packed_a_.data() + i * depth;
        const Sum* b = packed_b_.data() + j * depth;
        Vector tile[kWide] = {};
        for (std::int64_t l = 0; l < depth; ++l, a += kTall, b += kWide) {
          Vector rows;
          std::memcpy(&rows, a, sizeof rows);
          tile[0] += rows * b[0];
          tile[1] += rows * b[1];
          tile[2] += rows * b[2];
          tile[3] += rows * b[3];
        }
        for (std::int64_t w = 0; w < kWide; ++w) {
          Sum* into = column(j + w) + i;
          Vector total;
          std::memcpy(&total, into, sizeof total);
          total += tile[w];
          std::memcpy(into, &total, sizeof total);
        }
      }
    }
  }

  std::int64_t rows_;
  std::int64_t columns_;
  std::vector<Sum> sums_;
  std::vector<Sum> packed_a_;
  std::vector<Sum> packed_b_;
};

template <class Sum>
Sum gelu(Sum x) {
  constexpr Sum kScale = static_cast<Sum>(0.7978845608028654);  // sqrt(2 / pi)
  return Sum{0.5} * x * (1 + std::tanh(kScale * (x + static_cast<Sum>(0.044715) * x * x * x)));
}

// Applies the epilogue to one matrix of the batch, column by column, and stores D. Rounds once, here.
template <class Sum>
class Epilogue {
 public:
  Epilogue(const Product& product, std::int64_t index)
      : product_(product), problem_(product.problem), index_(index), gradient_(rows(), Sum{0}) {
    if ((problem_.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0) {
      bias_.resize(rows());
      load(problem_.d.type, problem_.bias, index_ * problem_.bias_stride, 1, problem_.m, bias_.data());
    }
  }

  // Modifies `sums`.
  void column(std::int64_t j, Sum* sums) {
    const std::int64_t m = problem_.m;
    for (std::int64_t i = 0; i < m; ++i) {
      sums[i] *= static_cast<Sum>(product_.alpha);
    }
    if (product_.beta != 0) {  // else C is not read, because it may hold anything
      from_c_.resize(rows());
      load(problem_.c.type, product_.c, index_ * problem_.c.stride + j * problem_.c.ld, 1, m, from_c_.data());
      for (std::int64_t i = 0; i < m; ++i) {
        sums[i] += static_cast<Sum>(product_.beta) * from_c_[static_cast<std::size_t>(i)];
      }
    }
    for (std::size_t i = 0; i < bias_.size(); ++i) {
      sums[i] += bias_[i];
    }
    activate(j, sums);
    store(problem_.d.type, product_.d, index_ * problem_.d.stride + j * problem_.d.ld, m, sums);
  }

  // Completes the work after the last column.
  void finish() {
    if (problem_.epilogue == CUBLASLT_EPILOGUE_BGRADA) {
      sum_over_k(operand_a(product_, index_));
    } else if (problem_.epilogue == CUBLASLT_EPILOGUE_BGRADB) {
      sum_over_k(operand_b(product_, index_));
    }
    if (has_bias_gradient(problem_.epilogue)) {
      store(problem_.d.type, problem_.bias, index_ * problem_.bias_stride, static_cast<std::int64_t>(gradient_.size()),
            gradient_.data());
    }
  }

 private:
  std::size_t rows() const { return static_cast<std::size_t>(problem_.m); }

  void activate(std::int64_t j, Sum* sums) {
    const std::int64_t m = problem_.m;
    unsigned char* mask = nullptr;
    if (has_mask(problem_.epilogue)) {
      mask = problem_.aux + (index_ * problem_.aux_stride + j * problem_.aux_ld) / 8;
    }
    if ((problem_.epilogue & CUBLASLT_EPILOGUE_RELU) != 0) {
      for (std::int64_t i = 0; i < m; ++i) {
        const bool positive = sums[i] > 0;  // false for NaN, which becomes 0 as in the library
        if (mask != nullptr) {              // the last byte's other bits stay as they are
          const int bit = 1 << i % 8;
          mask[i / 8] = static_cast<unsigned char>(positive ? mask[i / 8] | bit : mask[i / 8] & ~bit);
        }
        sums[i] = positive ? sums[i] : Sum{0};
      }
    } else if ((problem_.epilogue & CUBLASLT_EPILOGUE_GELU) != 0) {
      std::transform(sums, sums + m, sums, gelu<Sum>);
    } else if (mask != nullptr) {  // DRELU
      for (std::int64_t i = 0; i < m; ++i) {
        sums[i] = (mask[i / 8] >> i % 8 & 1) != 0 ? sums[i] : Sum{0};
        gradient_[static_cast<std::size_t>(i)] += sums[i];
      }
    }
  }

  void sum_over_k(const Operand& operand) {
    gradient_.assign(static_cast<std::size_t>(operand.count), Sum{0});
    with_type(operand.type, operand.base, [&](const auto* elements) {
      for (std::int64_t i = 0; i < operand.count; ++i) {
        double sum = 0;
        for (std::int64_t l = 0; l < problem_.k; ++l) {
          sum += static_cast<double>(elements[operand.offset + i * operand.step + l * operand.step_k]);
        }
        gradient_[static_cast<std::size_t>(i)] = static_cast<Sum>(sum);
      }
    });
  }

  const Product& product_;
  const Problem& problem_;
  std::int64_t index_;
  std::vector<Sum> bias_;
  std::vector<Sum> from_c_;
  std::vector<Sum> gradient_;
};

template <class Sum>
void multiply_as(const Product& product) {
  const Problem& problem = product.problem;
  for (std::int64_t index = 0; index < problem.batch; ++index) {
    Sums<Sum> sums(product, index, 0, problem.k);
    Epilogue<Sum> epilogue(product, index);
    for (std::int64_t j = 0; j < problem.n; ++j) {
      epilogue.column(j, sums.column(j));
    }
    epilogue.finish();
  }
}

// The workspace holds the matrices of the first part, followed by those of the next, without gaps.
template <class Sum>
Sum* place_of(const Product& product, int part, std::int64_t index) {
  const Problem& problem = product.problem;
  return static_cast<Sum*>(product.workspace) + (part * problem.batch + index) * problem.m * problem.n;
}

template <class Sum>
void multiply_part_as(const Product& product, int part) {
  const Problem& problem = product.problem;
  const std::int64_t first = problem.k * part / product.parts;
  const std::int64_t last = problem.k * (part + 1) / product.parts;
  for (std::int64_t index = 0; index < problem.batch; ++index) {
    Sums<Sum> sums(product, index, first, last);
    for (std::int64_t j = 0; j < problem.n; ++j) {
      std::copy_n(sums.column(j), problem.m, place_of<Sum>(product, part, index) + j * problem.m);
    }
  }
}

template <class Sum>
void add_parts_as(const Product& product) {
  const Problem& problem = product.problem;
  const std::int64_t count = problem.batch * problem.m * problem.n;
  Sum* first = place_of<Sum>(product, 0, 0);
  for (int i = 1; i < product.parts; ++i) {
    const Sum* other = place_of<Sum>(product, product.backwards ? product.parts - i : i, 0);
    std::transform(first, first + count, other, first, std::plus<Sum>());
  }
}

template <class Sum>
void finish_part_as(const Product& product) {
  const Problem& problem = product.problem;
  std::vector<Sum> column(static_cast<std::size_t>(problem.m));
  for (std::int64_t index = 0; index < problem.batch; ++index) {
    Epilogue<Sum> epilogue(product, index);
    for (std::int64_t j = 0; j < problem.n; ++j) {
      std::copy_n(place_of<Sum>(product, 0, index) + j * problem.m, problem.m, column.data());
      epilogue.column(j, column.data());
    }
    epilogue.finish();
  }
}

bool in_f64(const Product& product) { return product.problem.compute == CUBLAS_COMPUTE_64F; }

}  // namespace

void multiply(const Product& product) { in_f64(product) ? multiply_as<double>(product) : multiply_as<float>(product); }
void multiply_part(const Product& product, int part) {
  in_f64(product) ? multiply_part_as<double>(product, part) : multiply_part_as<float>(product, part);
}
void add_parts(const Product& product) {
  in_f64(product) ? add_parts_as<double>(product) : add_parts_as<float>(product);
}
void finish_part(const Product& product) {
  in_f64(product) ? finish_part_as<double>(product) : finish_part_as<float>(product);
}

std::size_t bytes_of_part(const Problem& problem) {
  const std::size_t sum = problem.compute == CUBLAS_COMPUTE_64F ? sizeof(double) : sizeof(float);
  return sum * static_cast<std::size_t>(problem.batch) * static_cast<std::size_t>(problem.m) *
         static_cast<std::size_t>(problem.n);
}

}  // namespace emulated_gpu::cublaslt
