#include <cmath>

#include <Eigen/Core>

#include "peers_of.h"

// Eigen: expressions as its users write them.

namespace bench::kernel {

namespace {

template <class T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T>
using In = Eigen::Map<const Matrix<T>>;
template <class T>
using Out = Eigen::Map<Matrix<T>>;

template <class T>
Eigen::Map<const Eigen::Array<T, Eigen::Dynamic, 1>> array(const void* data, std::int64_t count) {
  return {static_cast<const T*>(data), count};
}
template <class T>
Eigen::Map<Eigen::Array<T, Eigen::Dynamic, 1>> array(void* data, std::int64_t count) {
  return {static_cast<T*>(data), count};
}
template <class T>
In<T> matrix(const void* data, std::int64_t rows, std::int64_t columns) {
  return {static_cast<const T*>(data), rows, columns};
}
template <class T>
Out<T> matrix(void* data, std::int64_t rows, std::int64_t columns) {
  return {static_cast<T*>(data), rows, columns};
}

template <class T>
std::function<void()> product(const Operation& of) {
  const std::int64_t batch = of.sizes[0], in = of.sizes[1], out = of.sizes[2];
  if (of.name == "product") {
    return [=, &of] {
      matrix<T>(of.out[0], batch, out).noalias() =
          matrix<T>(of.in[0], batch, in) * matrix<T>(of.in[1], out, in).transpose();
    };
  }
  if (of.name == "product data gradient") {
    return [=, &of] {
      matrix<T>(of.out[0], batch, in).noalias() = matrix<T>(of.in[0], batch, out) * matrix<T>(of.in[1], out, in);
    };
  }
  return [=, &of] {
    matrix<T>(of.out[0], out, in).noalias() =
        matrix<T>(of.in[0], batch, out).transpose() * matrix<T>(of.in[1], batch, in);
  };
}

// An element-wise function, from its expression of the inputs a and b.
template <class T, class Expression>
std::function<void()> each(const Operation& of, Expression expression) {
  return [&of, expression, count = of.sizes[0]] {
    const auto a = array<T>(of.in[0], count);
    array<T>(of.out[0], count) = expression(a, array<T>(of.in.back(), count));
  };
}

template <class T>
std::function<void()> element_wise(const Operation& of) {
  const std::string& name = of.name;
  if (name == "add") return each<T>(of, [](const auto& a, const auto& b) { return a + b; });
  if (name == "sub") return each<T>(of, [](const auto& a, const auto& b) { return a - b; });
  if (name == "mul") return each<T>(of, [](const auto& a, const auto& b) { return a * b; });
  if (name == "div") return each<T>(of, [](const auto& a, const auto& b) { return a / b; });
  if (name == "maximum") return each<T>(of, [](const auto& a, const auto& b) { return a.max(b); });
  if (name == "copy") return each<T>(of, [](const auto& a, const auto&) { return a; });
  if (name == "abs") return each<T>(of, [](const auto& a, const auto&) { return a.abs(); });
  if (name == "relu") return each<T>(of, [](const auto& a, const auto&) { return a.max(T(0)); });
  if (name == "sqrt") return each<T>(of, [](const auto& a, const auto&) { return a.sqrt(); });
  if (name == "rsqrt") return each<T>(of, [](const auto& a, const auto&) { return a.rsqrt(); });
  if (name == "floor") return each<T>(of, [](const auto& a, const auto&) { return a.floor(); });
  if (name == "exp") return each<T>(of, [](const auto& a, const auto&) { return a.exp(); });
  if (name == "log") return each<T>(of, [](const auto& a, const auto&) { return a.log(); });
  if (name == "tanh") return each<T>(of, [](const auto& a, const auto&) { return a.tanh(); });
  if (name == "sigmoid") return each<T>(of, [](const auto& a, const auto&) { return a.logistic(); });
  if (name == "sin") return each<T>(of, [](const auto& a, const auto&) { return a.sin(); });
  if (name == "cos") return each<T>(of, [](const auto& a, const auto&) { return a.cos(); });
  if (name == "pow") return each<T>(of, [](const auto& a, const auto& b) { return a.pow(b); });
  return {};
}

template <class T>
std::function<void()> rows(const Operation& of) {
  const std::string& name = of.name;
  const auto& s = of.sizes;
  if (name == "sum" || name == "max" || name == "norm") {
    const std::int64_t count = s.size() > 1 ? s[0] * s[1] : s[0];
    return [&of, &name, count] {
      const auto in = array<T>(of.in[0], count);
      volatile T result = name == "sum" ? in.sum() : name == "max" ? in.maxCoeff() : in.square().sum();
      static_cast<void>(result);
    };
  }
  if (name == "sum of rows") {
    return [&of, s] { matrix<T>(of.out[0], s[0], 1) = matrix<T>(of.in[0], s[0], s[1]).rowwise().sum(); };
  }
  if (name == "sum of columns") {
    return [&of, s] { matrix<T>(of.out[0], 1, s[1]) = matrix<T>(of.in[0], s[0], s[1]).colwise().sum(); };
  }
  if (name == "max of rows") {
    return [&of, s] { matrix<T>(of.out[0], s[0], 1) = matrix<T>(of.in[0], s[0], s[1]).rowwise().maxCoeff(); };
  }
  if (name == "softmax" && s[2] == 1) {
    return [&of, s] {
      const auto in = matrix<T>(of.in[0], s[0], s[1]);
      auto out = matrix<T>(of.out[0], s[0], s[1]);
      for (std::int64_t row = 0; row < s[0]; ++row) {
        out.row(row).array() = (in.row(row).array() - in.row(row).maxCoeff()).exp();
        out.row(row) /= out.row(row).sum();
      }
    };
  }
  if (name == "copy transposed") {
    return [&of, s] { matrix<T>(of.out[0], s[0], s[1]) = matrix<T>(of.in[0], s[1], s[0]).transpose(); };
  }
  if (name == "sgd") {
    return [&of, s] { array<T>(of.out[0], s[0]) -= T(1e-4) * array<T>(of.in[0], s[0]); };
  }
  if (name == "adam") {
    return [&of, s] {
      const auto g = array<T>(of.in[0], s[0]);
      auto m = array<T>(of.out[1], s[0]);
      auto v = array<T>(of.out[2], s[0]);
      m = T(0.9) * m + T(0.1) * g;
      v = T(0.999) * v + T(0.001) * g.square();
      array<T>(of.out[0], s[0]) -= T(1e-4) * m / (v.sqrt() + T(1e-8));
    };
  }
  return {};
}

template <class T>
std::function<void()> run_of(const Operation& of) {
  if (of.name.starts_with("product")) {
    return product<T>(of);
  }
  if (auto run = of.in.empty() ? std::function<void()>() : rows<T>(of)) {
    return run;
  }
  return of.in.empty() || of.out.empty() || of.sizes.size() != 1 ? std::function<void()>() : element_wise<T>(of);
}

}  // namespace

void find_eigen(const Operation& operation, std::vector<Peer>& peers) {
  std::function<void()> run;
  if (operation.dtype == "f32") {
    run = run_of<float>(operation);
  } else if (operation.dtype == "f64") {
    run = run_of<double>(operation);
  }
  if (run) {
    peers.push_back({"Eigen", std::move(run)});
  }
}

}  // namespace bench::kernel
