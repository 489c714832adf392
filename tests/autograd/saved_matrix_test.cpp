#include <cmath>
#include <optional>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tandem/autograd/spatial.h>
#include <tandem/core/error.h>

#include "leaves.h"

// Combines every op that saves a tensor with every way of changing one of its inputs or its result in place between
// forward and backward. Either the gradients equal the numeric ones, or an error names the problem.

namespace tandem {
namespace {

using test::values;

struct Op {
  const char* name;
  std::vector<Shape> inputs;
  Tensor (*fn)(const std::vector<Tensor>& in);
  bool saves = true;
};

std::ostream& operator<<(std::ostream& out, const Op& op) { return out << op.name; }

// Integer inputs are made where they are used, because they are changed too, see target().
const Op kOps[] = {
    {"mul", {{3, 3}, {3, 3}}, [](const auto& in) { return in[0] * in[1]; }},
    {"mul_broadcast", {{3, 3}, {3}}, [](const auto& in) { return in[0] * in[1]; }},
    {"mul_itself", {{3, 3}}, [](const auto& in) { return in[0] * in[0]; }},
    {"div", {{3, 3}, {3, 3}}, [](const auto& in) { return in[0] / in[1]; }},
    {"scalar_div", {{3, 3}}, [](const auto& in) { return 2 / in[0]; }},
    {"exp", {{3, 3}}, [](const auto& in) { return exp(in[0]); }},
    {"log", {{3, 3}}, [](const auto& in) { return log(in[0]); }},
    {"sqrt", {{3, 3}}, [](const auto& in) { return sqrt(in[0]); }},
    {"abs", {{3, 3}}, [](const auto& in) { return abs(in[0]); }},
    {"pow", {{3, 3}}, [](const auto& in) { return pow(in[0], 3); }},
    {"relu", {{3, 3}}, [](const auto& in) { return relu(in[0] - 1); }},
    {"softmax", {{3, 3}}, [](const auto& in) { return softmax(in[0], 1); }},
    {"log_softmax", {{3, 3}}, [](const auto& in) { return log_softmax(in[0], 0); }},
    {"matmul", {{3, 3}, {3, 3}}, [](const auto& in) { return matmul(in[0], in[1]); }},
    {"matmul_itself", {{3, 3}}, [](const auto& in) { return matmul(in[0], in[0].t()); }},
    {"linear", {{3, 3}, {3, 3}, {3}}, [](const auto& in) { return linear(in[0], in[1], in[2]); }},
    {"linear_relu", {{3, 3}, {3, 3}, {3}}, [](const auto& in) { return linear_relu(in[0], in[1] - 1, in[2]); }},
    {"conv2d", {{1, 2, 3, 3}, {2, 2, 2, 2}, {2}}, [](const auto& in) { return conv2d(in[0], in[1], in[2]); }},
    {"conv2d_relu", {{1, 2, 3, 3}, {2, 2, 2, 2}, {2}}, [](const auto& in) { return conv2d_relu(in[0], in[1], in[2]); }},
    {"conv_transpose2d",
     {{1, 2, 3, 3}, {2, 2, 2, 2}, {2}},
     [](const auto& in) { return conv_transpose2d(in[0], in[1], in[2]); }},
    {"max_pool2d", {{1, 1, 4, 4}}, [](const auto& in) { return max_pool2d(in[0], 2); }},
    {"avg_pool2d", {{1, 1, 4, 4}}, [](const auto& in) { return avg_pool2d(in[0], 2); }},
    {"layer_norm", {{3, 3}, {3}, {3}}, [](const auto& in) { return layer_norm(in[0], {3}, in[1], in[2]); }},
    {"batch_norm", {{3, 3}, {3}, {3}}, [](const auto& in) { return batch_norm(in[0], {}, {}, in[1], in[2], true); }},
    {"embedding", {{3, 3}}, [](const auto& in) { return embedding(tensor({2, 0, 2}), in[0], 1); }, false},
    {"max", {{3, 3}}, [](const auto& in) { return in[0].max(); }},
    {"max_dim", {{3, 3}}, [](const auto& in) { return in[0].max(1); }},
    {"min_dim", {{3, 3}}, [](const auto& in) { return in[0].min(0, true); }},
    {"mse_loss", {{3, 3}, {3, 3}}, [](const auto& in) { return mse_loss(in[0], in[1]); }},
    {"smooth_l1_loss", {{3, 3}, {3, 3}}, [](const auto& in) { return smooth_l1_loss(in[0], in[1]); }},
    {"binary_cross_entropy_with_logits",
     {{3, 3}, {3, 3}},
     [](const auto& in) { return binary_cross_entropy_with_logits(in[0], in[1]); }},
    {"cross_entropy", {{3, 3}}, [](const auto& in) { return cross_entropy(in[0], tensor({0, 2, 1})); }},
    {"cross_entropy_of_probabilities",
     {{3, 3}, {3, 3}},
     [](const auto& in) { return cross_entropy(in[0], in[1], {.label_smoothing = 0.1}); }},
    {"cross_entropy_of_images",
     {{3, 2, 2}},
     [](const auto& in) { return cross_entropy(in[0], zeros({3, 2}, {.dtype = DType::i64})); }},
    {"index_select", {{3, 3}}, [](const auto& in) { return in[0].index_select(0, tensor({2, 0, 2})); }},
    {"sin", {{3, 3}}, [](const auto& in) { return sin(in[0]); }},
    {"cos", {{3, 3}}, [](const auto& in) { return cos(in[0]); }},
    {"expm1", {{3, 3}}, [](const auto& in) { return expm1(in[0]); }},
    {"log1p", {{3, 3}}, [](const auto& in) { return log1p(in[0]); }},
    {"rsqrt", {{3, 3}}, [](const auto& in) { return rsqrt(in[0]); }},
    {"clamp", {{3, 3}}, [](const auto& in) { return in[0].clamp(0.75, 1.75); }},
    {"tanh", {{3, 3}}, [](const auto& in) { return tanh(in[0]); }},
    {"sigmoid", {{3, 3}}, [](const auto& in) { return sigmoid(in[0]); }},
    {"silu", {{3, 3}}, [](const auto& in) { return silu(in[0]); }},
    {"gelu", {{3, 3}}, [](const auto& in) { return gelu(in[0]); }},
    {"gelu_tanh", {{3, 3}}, [](const auto& in) { return gelu(in[0], GELUApproximation::tanh); }},
    {"leaky_relu", {{3, 3}}, [](const auto& in) { return leaky_relu(in[0] - 1.03); }},
    {"elu", {{3, 3}}, [](const auto& in) { return elu(in[0] - 1.03); }},
    {"softplus", {{3, 3}}, [](const auto& in) { return softplus(in[0]); }},
    {"pow_tensor", {{3, 3}, {3}}, [](const auto& in) { return pow(in[0], in[1]); }},
    {"maximum", {{3, 3}, {3, 3}}, [](const auto& in) { return maximum(in[0], in[1]); }},
    {"minimum", {{3, 3}, {3}}, [](const auto& in) { return minimum(in[0], in[1]); }},
    {"where", {{3, 3}, {3, 3}}, [](const auto& in) { return where(in[0].detach() > 1.2, in[0], in[1]); }},
    {"masked_fill", {{3, 3}}, [](const auto& in) { return in[0].masked_fill(in[0].detach() > 1.2, 3); }},
    {"masked_select", {{3, 3}}, [](const auto& in) { return in[0].masked_select(in[0].detach() > 0.1); }},
    {"gather", {{3, 3}}, [](const auto& in) { return in[0].gather(1, tensor({2, 0, 2}).reshape({3, 1})); }},
    {"scatter_add",
     {{3, 3}, {3, 1}},
     [](const auto& in) { return in[0].scatter_add(1, tensor({2, 0, 2}).reshape({3, 1}), in[1]); }},
    {"amax", {{3, 3}}, [](const auto& in) { return in[0].amax({1}); }},
    {"var", {{3, 3}}, [](const auto& in) { return in[0].var({1}); }},
    {"norm", {{3, 3}}, [](const auto& in) { return in[0].norm(2, {0}); }},
    {"logsumexp", {{3, 3}}, [](const auto& in) { return in[0].logsumexp({1}); }},
    {"bmm", {{2, 2, 3}, {2, 3, 1}}, [](const auto& in) { return matmul(in[0], in[1]); }},
    // These ops save nothing, so no change may cause an error in backward.
    {"cumsum", {{3, 3}}, [](const auto& in) { return in[0].cumsum(1); }, false},
    {"mean", {{3, 3}}, [](const auto& in) { return in[0].mean({0}); }, false},
    {"select", {{3, 3}}, [](const auto& in) { return in[0].select(1, 2).clone(); }, false},
    {"scalar_sub", {{3, 3}}, [](const auto& in) { return 3 - in[0]; }, false},
    {"add", {{3, 3}, {3}}, [](const auto& in) { return in[0] + in[1]; }, false},
    {"mul_scalar", {{3, 3}}, [](const auto& in) { return in[0] * 2; }, false},
    {"div_scalar", {{3, 3}}, [](const auto& in) { return in[0] / 2; }, false},
    {"sum", {{3, 3}}, [](const auto& in) { return in[0].sum({1}); }, false},
    {"cat", {{3, 3}, {3, 3}}, [](const auto& in) { return cat({in[0], in[1]}, 1); }, false},
    {"nll_loss", {{3, 3}}, [](const auto& in) { return nll_loss(in[0], tensor({0, 2, 1})); }, false},
    {"clone", {{3, 3}}, [](const auto& in) { return in[0].clone(); }, false},
};

struct Change {
  const char* name;
  void (*apply)(Tensor& t);
};

const Change kChanges[] = {
    {"add_(s)", [](Tensor& t) { t.add_(1.0); }},
    {"sub_(s)", [](Tensor& t) { t.sub_(0.25); }},
    {"mul_(s)", [](Tensor& t) { t.mul_(2.0); }},
    {"div_(s)", [](Tensor& t) { t.div_(2.0); }},
    {"add_(t)", [](Tensor& t) { t.add_(values(t.shape(), 0.5, 2, 30)); }},
    {"sub_(t)", [](Tensor& t) { t.sub_(values(t.shape(), 0.5, 2, 30)); }},
    {"mul_(t)", [](Tensor& t) { t.mul_(values(t.shape(), 0.5, 2, 30)); }},
    {"div_(t)", [](Tensor& t) { t.div_(values(t.shape(), 0.5, 2, 30)); }},
    {"add_(itself)", [](Tensor& t) { t.add_(t); }},
    {"mul_(itself)", [](Tensor& t) { t.mul_(t); }},
    {"exp_", [](Tensor& t) { t.exp_(); }},
    {"log1p_", [](Tensor& t) { t.pow_(2).log1p_(); }},
    {"neg_", [](Tensor& t) { t.neg_().add_(3); }},
    {"pow_", [](Tensor& t) { t.pow_(2); }},
    {"tanh_", [](Tensor& t) { t.tanh_(); }},
    {"clamp_", [](Tensor& t) { t.clamp_(0.7, 1.6); }},
    {"masked_fill_", [](Tensor& t) { t.masked_fill_(t.detach() > 1.3, 0.9); }},
    {"scatter_add_",
     [](Tensor& t) { t.scatter_add_(0, zeros(t.shape(), {.dtype = DType::i64}), values(t.shape(), 0.5, 2, 30)); }},
    {"copy_", [](Tensor& t) { t.copy_(values(t.shape(), 0.5, 2, 31)); }},
    {"fill_", [](Tensor& t) { t.fill_(1.5); }},
    {"zero_", [](Tensor& t) { t.zero_(); }},
    {"uniform_", [](Tensor& t) { t.uniform_(0.5, 0.75); }},
    {"normal_", [](Tensor& t) { t.normal_(1, 0); }},
    {"mutable_data", [](Tensor& t) { t.mutable_data<double>()[0] = 1.25; }},
};

enum class Route { whole, row, base, detached };
const char* const kRoutes[] = {"the tensor", "a view of it", "its base", "detach()"};

struct Program {
  const Op& op;
  const Change& change;
  Route route;
  std::size_t target;  // index of the changed input; the number of inputs stands for the result
  bool recorded;       // the change happens under grad mode
  bool from_leaf;      // the inputs are the leaves themselves
  bool used_after;     // the loss also depends on the target after the change
};

// Runs the program from the given leaves and returns the loss.
Tensor run(const Program& p, const std::vector<Tensor>& leaves) {
  std::vector<Tensor> bases;
  std::vector<Tensor> inputs;
  for (const Tensor& leaf : leaves) {
    // With a base, the input is the lower half of a tensor of twice the size.
    bases.push_back(p.from_leaf ? leaf : p.route == Route::base ? cat({leaf, leaf}, 0) : leaf.clone());
    inputs.push_back(p.route == Route::base ? bases.back().narrow(0, 0, leaf.size(0)) : bases.back());
  }
  const Tensor result = p.op.fn(inputs);
  Tensor target = p.target < inputs.size() ? (p.route == Route::base ? bases : inputs)[p.target] : result;
  {
    const GradModeScope mode(p.recorded);
    Generator fixed(3);
    const GeneratorScope draws(fixed);
    if (p.route == Route::row) {
      target = target.dim() == 0 ? target.reshape({1}) : target.narrow(0, 0, 1);
    } else if (p.route == Route::detached) {
      target = target.detach();
    }
    p.change.apply(target);
  }
  const auto weighted = [](const Tensor& t, std::uint64_t seed) {
    return (t * values(t.shape(), 0.5, 1.5, seed)).sum();
  };
  Tensor loss = weighted(result, 40);
  if (p.used_after && p.target < inputs.size()) {
    loss = loss + weighted(inputs[p.target], 41);
  }
  return loss;
}

std::vector<Tensor> make_leaves(const Op& op) {
  std::vector<Tensor> leaves;
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    leaves.push_back(test::leaf(op.inputs[i], 0.5, 2, 20 + i));
  }
  return leaves;
}

// Returns "" if the gradients were correct, else the text of the error.
std::string outcome(const Program& p) {
  std::vector<Tensor> leaves = make_leaves(p.op);
  try {
    const Tensor loss = run(p, leaves);
    if (!loss.requires_grad()) {
      return "";  // overwritten: the loss no longer depends on the leaves
    }
    loss.backward();
  } catch (const Error& e) {
    return e.what();
  }
  const NoGradGuard no_grad;
  constexpr double kStep = 1e-6;
  for (std::size_t k = 0; k < leaves.size(); ++k) {
    for (std::int64_t i = 0; i < leaves[k].numel(); ++i) {
      const auto at = [&](double step) {
        std::vector<Tensor> moved = make_leaves(p.op);
        moved[k].mutable_data<double>()[i] += step;
        return run(p, moved).item();
      };
      const double numeric = (at(kStep) - at(-kStep)) / (2 * kStep);
      const double got = leaves[k].grad().defined() ? leaves[k].grad().data<double>()[i] : 0;
      EXPECT_NEAR(got, numeric, 1e-5 + 1e-4 * std::abs(numeric)) << "silently wrong: input " << k << ", element " << i;
    }
  }
  return "";
}

class SavedMatrixOf : public ::testing::TestWithParam<Op> {};

TEST_P(SavedMatrixOf, GivesTheRightGradientOrANamedError) {
  const Op& op = GetParam();
  int right = 0;
  int refused = 0;
  for (const Change& change : kChanges) {
    for (const Route route : {Route::whole, Route::row, Route::base, Route::detached}) {
      for (std::size_t target = 0; target <= op.inputs.size(); ++target) {
        for (const int mode : {0, 1, 2, 3, 4}) {
          const Program p{.op = op,
                          .change = change,
                          .route = route,
                          .target = target,
                          .recorded = mode % 2 == 1,
                          .from_leaf = mode == 4,
                          .used_after = mode == 2 || mode == 3};
          if ((p.from_leaf && (route == Route::base || target == op.inputs.size()))) {
            continue;
          }
          SCOPED_TRACE(fmt::format("{} of {} {} ({}{}{}{})", change.name, kRoutes[static_cast<int>(route)],
                                   target < op.inputs.size() ? "input" : "result", target,
                                   p.recorded ? ", recorded" : ", not recorded", p.from_leaf ? ", a leaf" : "",
                                   p.used_after ? ", used again" : ""));
          const std::string text = outcome(p);
          if (text.empty()) {
            ++right;
            continue;
          }
          ++refused;
          EXPECT_THAT(text, ::testing::AnyOf(::testing::HasSubstr("changed in place"),
                                             ::testing::HasSubstr("change in place of a view"),
                                             ::testing::HasSubstr("do this under NoGradGuard")));
        }
      }
    }
  }
  EXPECT_GT(right, 0);
  if (op.saves) {
    EXPECT_GT(refused, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, SavedMatrixOf, ::testing::ValuesIn(kOps),
                         [](const auto& test) { return std::string(test.param.name); });

// A change that does not affect the loss must not be rejected.
TEST(SavedMatrix, OpsThatSaveNothingDoNotMind) {
  for (const Op& op : kOps) {
    for (const Change& change : kChanges) {
      for (std::size_t target = 0; target < op.inputs.size() && !op.saves; ++target) {
        EXPECT_EQ(outcome({.op = op,
                           .change = change,
                           .route = Route::whole,
                           .target = target,
                           .recorded = false,
                           .from_leaf = false,
                           .used_after = false}),
                  "")
            << op.name << ", " << change.name;
      }
    }
  }
}

}  // namespace
}  // namespace tandem
