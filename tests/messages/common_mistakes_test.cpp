#include <functional>
#include <limits>
#include <memory>
#include <ostream>
#include <regex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "support/gpu.h"
#include "support/temp_dir.h"

// A list of the most common mistakes with the messages that users read. A message names the place (a layer or
// parameter), the expected and the actual value, and the fix; and it fits on a screen.

namespace tandem {
namespace {

struct Net : nn::Module<Net> {
  nn::Linear fc1 = child("fc1", nn::Linear(4, 8));
  nn::BatchNorm1d norm = child("norm", nn::BatchNorm1d(8));
  nn::Linear fc2 = child("fc2", nn::Linear(8, 3));
  Tensor forward(const Tensor& x) const { return fc2(relu(norm(fc1(x)))); }
};

struct Words : nn::Module<Words> {
  nn::Embedding table = child("table", nn::Embedding(10, 4));
  Tensor forward(const Tensor& x) const { return table(x); }
};

struct Forgetful : nn::Module<Forgetful> {
  nn::Linear fc{4, 2};
  Tensor forward(const Tensor& x) const { return fc(x); }
};

struct Twice : nn::Module<Twice> {
  nn::Linear a = child("fc", nn::Linear(2, 2));
  nn::Linear b = child("fc", nn::Linear(2, 2));
};

struct Holds : nn::Module<Holds> {
  explicit Holds(const Tensor& value) : p(parameter("p", value)) {}
  Parameter p;
};

// Objects with which most of the mistakes are made.
struct Scene {
  Net net;
  Words words;
  Tensor x = randn({5, 4});
  Tensor labels = tensor({0, 1, 2, 0, 1});
};

struct Mistake {
  const char* name;
  std::function<void(Scene&)> make;
  const char* text;
};

void PrintTo(const Mistake& mistake, std::ostream* out) { *out << mistake.name; }

const Mistake kMistakes[] = {
    {"features", [](Scene& s) { s.net(randn({5, 3})); },
     "Linear 'fc1': input [5, 3] has 3 features, layer expects 4 (weight [8, 4]) [TDM-E101]"},
    {"integers_into_a_layer", [](Scene& s) { s.net(randint(0, 9, {5, 4})); },
     "Linear 'fc1': input is i64, weight f32. Convert the input: x.to(DType::f32) [TDM-E102]"},
    {"device", [](Scene& s) { s.net(randn({5, 4}, {.device = "cpu:1"})); },
     "Linear 'fc1': input is on cpu:1, weight on cpu:0. Move the input: x.to(\"cpu:0\") [TDM-E103]"},
    {"batch_of_one", [](Scene& s) { s.net(randn({1, 4})); },
     "BatchNorm1d 'norm': batch_norm: training needs more than one value per channel, got the input [1, 8]; use a "
     "larger batch, or evaluation mode [TDM-E305]"},
    {"norm_features", [](Scene& s) { s.net.norm(randn({5, 3})); },
     "BatchNorm1d 'norm': input [5, 3] has 3 features, layer expects 8 [TDM-E101]"},
    {"word_out_of_range", [](Scene& s) { s.words(tensor({3, 10})); },
     "Embedding 'table': index 10 at position 1 is outside [0, 10) [TDM-E306]"},
    {"float_words", [](Scene& s) { s.words(tensor({3.0, 1.0})); },
     "Embedding 'table': indices must be i64 or i32, got f32; convert with .to(DType::i64) [TDM-E307]"},
    {"forgot_child", [](Scene& s) { Forgetful()(s.x); },
     "Forgetful: a Linear with parameters is called here but is no child of any module, so it would not be trained. "
     "Register it: child(\"name\", nn::Linear(...)) [TDM-E308]"},
    {"ce_class_range", [](Scene& s) { cross_entropy(s.net(s.x), tensor({0, 1, 2, 3, 0})); },
     "cross_entropy: target 3 in row 3 is not a class index: expected 0 to 2, or -100 (ignore_index) [TDM-E303]"},
    {"ce_rows", [](Scene& s) { cross_entropy(s.net(s.x), tensor({0, 1})); },
     "cross_entropy: expected logits [rows, classes] and targets [rows], got [5, 3] and [2] [TDM-E301]"},
    {"ce_one_hot_i64", [](Scene& s) { cross_entropy(s.net(s.x), zeros({5, 3}, {.dtype = DType::i64})); },
     "cross_entropy: targets [5, 3] of type i64 have the shape of the logits: class indices are one a row "
     "(.argmax(1)); probabilities are floating point (.to(DType::f32)) [TDM-E302]"},
    {"no_probability", [](Scene&) { binary_cross_entropy(full({2}, 1.5), ones({2})); },
     "binary_cross_entropy: element 0 of the input is 1.5, expected a probability between 0 and 1; for logits use "
     "binary_cross_entropy_with_logits [TDM-E315]"},
    {"mse_broadcast", [](Scene&) { mse_loss(randn({5, 1}), randn({5})); },
     "mse_loss: input [5, 1] and target [5] differ; reshape one (y.reshape({-1, 1}) for a column) [TDM-E304]"},
    {"bce_target", [](Scene&) { binary_cross_entropy_with_logits(randn({5, 1}), randn({5})); },
     "binary_cross_entropy_with_logits: logits [5, 1] and target [5] differ; reshape one (y.reshape({-1, 1}) for a "
     "column) [TDM-E304]"},
    {"broadcast", [](Scene&) { randn({2, 3}) + randn({2, 4}); },
     "add: shapes [2, 3] and [2, 4] do not broadcast: sizes 3 and 4 at dimension -1 differ and neither is 1 "
     "[TDM-E104]"},
    {"matmul", [](Scene&) { matmul(randn({2, 3}), randn({2, 3})); },
     "matmul: [2, 3] times [2, 3]: the inner sizes 3 and 2 differ; is a .transpose(-2, -1) missing? [TDM-E105]"},
    {"reshape", [](Scene& s) { s.x.reshape({3, -1}); },
     "reshape: [5, 4] with 20 elements cannot become [3, -1] [TDM-E106]"},
    {"view_of_t", [](Scene& s) { s.x.t().view({20}); },
     "view: [4, 5] with strides [1, 4] cannot become [20] without a copy; use reshape() or contiguous() [TDM-E107]"},
    {"cat", [](Scene&) { cat({randn({2, 3}), randn({2, 4})}); },
     "cat: [2, 3] and [2, 4] differ outside dimension 0, where all sizes must be equal [TDM-E108]"},
    {"index", [](Scene& s) { s.x[5]; },
     "select: index 5 is out of range for dimension 0 of [5, 4]: expected -5 to 4 [TDM-E109]"},
    {"item", [](Scene& s) { s.x.item(); },
     "item: needs exactly one element, the tensor [5, 4] has 20; reduce it, or use to_vector() [TDM-E111]"},
    {"data_type", [](Scene& s) { s.x.data<double>(); },
     "data<f64>: the tensor holds f32; convert with .to(DType::f64) [TDM-E112]"},
    {"undefined",
     [](Scene&) {
       Tensor t;
       t + 1;
     },
     "an undefined tensor was used (a default-constructed Tensor, a bias that a layer does not have, or a gradient "
     "that is not there yet) [TDM-E113]"},
    {"backward_vector", [](Scene& s) { s.net(s.x).backward(); },
     "backward: the tensor [5, 3] is not a scalar; reduce it (.mean(), .sum()) or pass its gradient [TDM-E201]"},
    {"backward_twice",
     [](Scene& s) {
       Tensor l = s.net(s.x).sum();
       l.backward();
       l.backward();
     },
     "backward: the graph through 'sum' was freed by an earlier backward(); pass retain_graph=true to the first one, "
     "or compute the forward pass again [TDM-E202]"},
    {"backward_no_grad",
     [](Scene& s) {
       Tensor l;
       {
         NoGradGuard g;
         l = s.net(s.x).sum();
       }
       l.backward();
     },
     "backward: this tensor [] depends on nothing that requires a gradient (was it computed under NoGradGuard, or from "
     "detached values?) [TDM-E203]"},
    {"grad_of_a_result",
     [](Scene& s) {
       Tensor h = s.net(s.x);
       h.sum().backward();
       h.grad();
     },
     "grad: this is the result of 'linear', whose gradient is not kept; call retain_grad() before backward() "
     "[TDM-E204]"},
    {"inplace_leaf",
     [](Scene& s) {
       Tensor w = s.net.fc1.weight;
       w.mul_(2);
     },
     "mul_: parameter 'fc1.weight' [8, 4] requires a gradient and is changed in place; do it under NoGradGuard "
     "[TDM-E205]"},
    {"inplace_saved",
     [](Scene& s) {
       Tensor l = (s.net.fc1(s.x) * s.net.fc1.bias).sum();
       {
         NoGradGuard g;
         Tensor b = s.net.fc1.bias;
         b.zero_();
       }
       l.backward();
     },
     "backward of 'mul': parameter 'fc1.bias' [8] that it saved was changed in place since (version 1, now 2). Call "
     "backward() before changing it, or change a copy (.clone()) [TDM-E206]"},
    {"inplace_view",
     [](Scene& s) {
       Tensor h = s.net(s.x);
       h[0].zero_();
     },
     "zero_: recording a change in place of a view [3] is not supported; build the whole with cat() or stack(), or use "
     "NoGradGuard [TDM-E207]"},
    {"state_dict_of_a_wrapper",
     [](Scene& s) {
       StateDict state;
       for (const auto& [name, value] : s.net.state_dict()) {
         state.set("teacher." + name, value);
       }
       s.net.load_state_dict(state);
     },
     "load_state_dict: the state does not fit Net; nothing was loaded\n  all 9 names in the state begin with "
     "'teacher.', such as 'teacher.fc1.weight': it is of a model that was wrapped; take the prefix off [TDM-E314]"},
    {"state_dict_of_another_model",
     [](Scene& s) {
       StateDict state;
       for (const auto& [name, value] : s.net.state_dict()) {
         state.set(name == "fc2.bias" ? "fc2.bais" : name, name == "fc1.weight" ? zeros({8, 5}) : value);
       }
       s.net.load_state_dict(state);
     },
     "load_state_dict: the state does not fit Net; nothing was loaded\n  shape of 'fc1.weight': the module has [8, 4], "
     "the state [8, 5]\n  missing: 'fc2.bias'\n  unexpected: 'fc2.bais' (is it 'fc2.bias'?) [TDM-E314]"},
    {"optimizer_empty", [](Scene&) { optim::SGD sgd(std::vector<Tensor>{}, {.lr = 0.1}); },
     "SGD: the list of parameters is empty (did the model register its layers?) [TDM-E401]"},
    {"optimizer_negative", [](Scene& s) { optim::Adam a(s.net.parameters(), {.lr = -1}); },
     "Adam: the learning rate must be a number >= 0, got -1 [TDM-E404]"},
    {"optimizer_result", [](Scene& s) { optim::SGD sgd({s.net(s.x)}, {.lr = 0.1}); },
     "SGD: parameter 0 is the result of an op; only leaves can be optimised, such as a module's parameters() "
     "[TDM-E402]"},
    {"shuffle_and_sampler",
     [](Scene& s) {
       data::TensorDataset d(s.x, s.labels);
       data::DataLoader(d, {.shuffle = true, .sampler = std::make_shared<data::SequentialSampler>(d)});
     },
     "DataLoader: sampler option is mutually exclusive with shuffle [TDM-E501]"},
    {"dataset_sizes", [](Scene&) { data::TensorDataset(randn({4, 2}), randn({5})); },
     "TensorDataset: x [4, 2] and y [5] must have the same number of rows [TDM-E502]"},
    {"a_layer_in_two_models",
     [](Scene& s) {
       Net other;
       s.net.fc1 = std::move(other.fc1);
     },
     "Linear 'fc1' cannot be replaced by 'fc1', which is a child of another module [TDM-E310]"},
    {"dropout_p", [](Scene&) { nn::Dropout(1.5); },
     "Dropout: the probability must be between 0 and 1, got 1.5 [TDM-E313]"},
    {"no_param", [](Scene& s) { s.net.get_parameter("fc1.wieght"); },
     "Net: there is no parameter 'fc1.wieght' (is it 'fc1.weight'?) [TDM-E312]"},
    {"name_twice", [](Scene&) { Twice(); }, "Twice: the name 'fc' is taken already [TDM-E309]"},
    {"sample_out_of_range", [](Scene& s) { data::TensorDataset(s.x, s.labels).get(5); },
     "TensorDataset: there is no sample 5: expected 0 to 4 [TDM-E503]"},
    {"dim", [](Scene& s) { softmax(s.x, 2); },
     "softmax: dimension 2 is out of range for a tensor with 2 dimensions (expected -2 to 1) [TDM-E110]"},
    {"new_dim", [](Scene& s) { s.x.unsqueeze(3); },
     "unsqueeze: dimension 3 is out of range for a tensor with 2 dimensions (expected -3 to 2) [TDM-E110]"},
    {"matmul_batches", [](Scene&) { matmul(randn({2, 2, 3}), randn({3, 3, 2})); },
     "matmul: [2, 2, 3] times [3, 3, 2]: the batches [2] and [3] do not broadcast [TDM-E105]"},
    {"cat_undefined", [](Scene& s) { cat({s.x, Tensor()}); }, "cat: tensor 1 is undefined [TDM-E113]"},
    {"stack_undefined", [](Scene& s) { stack({Tensor(), s.x}); }, "stack: tensor 0 is undefined [TDM-E113]"},
    {"ce_column", [](Scene& s) { cross_entropy(s.net(s.x), s.labels.reshape({5, 1})); },
     "cross_entropy: expected logits [rows, classes] and targets [rows], got [5, 3] and [5, 1]; take the dimension of "
     "1 away: y.squeeze(1) [TDM-E301]"},
    {"save_undefined", [](Scene&) { data::save_npy("f", Tensor()); }, "save_npy: 'f': the tensor is undefined"},
    {"parameter_of_integers", [](Scene&) { Holds(tensor({1, 2})); },
     "Holds: parameter 'p' is i64 [2], only floating point has gradients; convert with .to(DType::f32), or make it a "
     "buffer() [TDM-E311]"},
    {"parameter_undefined", [](Scene&) { Holds{Tensor()}; }, "Holds: parameter 'p' is undefined [TDM-E311]"},
    {"parameter_of_a_result", [](Scene& s) { Holds(s.net.fc1.weight * 2); },
     "Holds: parameter 'p' is the result of an op, expected a plain tensor; call detach() first [TDM-E311]"},
    {"optimizer_twice",
     [](Scene&) {
       const Tensor w = randn({2}, {.requires_grad = true});
       optim::SGD sgd({w, w}, {.lr = 0.1});
     },
     "SGD: parameter 1 appears twice [TDM-E403]"},
    {"split_fraction", [](Scene&) { data::random_split(10, 1.0, 1); },
     "random_split: test_fraction 1 leaves no rows of 10 for training; it is a share of the rows, between 0 and 1 "
     "[TDM-E504]"},
    {"split_nothing", [](Scene&) { data::random_split(3, 0.1, 1); },
     "random_split: test_fraction 0.1 leaves no rows of 3 for the test; it is a share of the rows, between 0 and 1 "
     "[TDM-E504]"},
    {"gradient_norm_nan",
     [](Scene&) {
       const Tensor w = zeros({2}, {.requires_grad = true});
       w.backward(tensor({-std::numeric_limits<float>::quiet_NaN(), 1.0F}));
       optim::clip_grad_norm_({w}, 1, 2, true);
     },
     "clip_grad_norm_: the norm of the gradients is nan, not finite; nothing was scaled. Look for what overflows, or "
     "lower the learning rate [TDM-E208]"},
    {"layer_norm", [](Scene& s) { nn::LayerNorm(5)(s.x); },
     "LayerNorm: the last dimensions of the input [5, 4] must be the normalized_shape [5] [TDM-E101]"},
    {"host_read_in_a_captured_step",
     [](Scene& s) {
       auto step = graph::capture([&](const Tensor& x) {
         const Tensor loss = s.net(x).sum();
         loss.item();
         return loss;
       });
       step(s.x);
     },
     "item: a captured step cannot read or write elements on the host, a replay would not do it again. Return the "
     "tensor and look at it after the step; make constants before it [TDM-E209]"},
    {"no_file", [](Scene&) { data::read_csv("/nowhere/table.csv"); },
     "cannot open '/nowhere/table.csv': No such file or directory [TDM-E505]"},
    {"text_among_numbers", [](Scene&) { data::to_tensor(data::parse_csv("a,b\n1,x\n", "t.csv"), {"a", "b"}); },
     "t.csv:2:3: column 'b' holds text where numbers are due: 'x' [TDM-E506]"},
    {"ragged_row", [](Scene&) { data::parse_csv("a,b\n1,2\n3\n", "t.csv"); },
     "t.csv:3:2: expected 2 fields as in line 1, found 1: '3' [TDM-E507]"},
    {"no_idx_file", [](Scene&) { data::parse_idx({'P', 'K', 3, 4}, "train-images"); },
     "train-images: not an IDX file: its first bytes are [50 4b 03 04], expected [00 00], a type code and the number "
     "of dimensions; this looks like a zip archive or a spreadsheet [TDM-E508]"},
    {"half_an_idx_file", [](Scene&) { data::parse_idx({0, 0, 8, 1, 0, 0, 0, 9, 1}, "train-labels"); },
     "train-labels: byte 9: the file ends early: sizes [9] of u8 need 9 bytes after the header, found 1 [TDM-E510]"},
    {"no_whole_checkpoint",
     [](Scene& s) {
       const test::TempDir dir;
       optim::SGD sgd(s.net.parameters(), {.lr = 0.1});
       {
         checkpoint::Run run(dir.file("run"));
         run.track(s.net, sgd);
         run.step(s.net(s.x).sum());
         run.save();
       }
       test::write_text(dir.file("run/checkpoints/step-0000000001.safetensors"), "half of it");
       try {
         checkpoint::Run run(dir.file("run"));
       } catch (const Error& error) {
         throw IoError(std::regex_replace(std::string(error.what()), std::regex(dir.path()), "runs"));
       }
     },
     "'runs/run/checkpoints': no checkpoint of this run is whole, and beginning anew here would hide that; give "
     "another folder. The newest: safetensors 'runs/run/checkpoints/step-0000000001.safetensors': byte 0 says that the "
     "header has 2334675641786196328 bytes; expected at most 2: this is another format, or the file is cut off "
     "[TDM-E509]"},
};

class CommonMistake : public ::testing::TestWithParam<Mistake> {};

TEST_P(CommonMistake, IsExplained) {
  Scene scene;
  std::string text = "nothing was thrown";
  try {
    GetParam().make(scene);
    test::wait_for_gpu();
  } catch (const Error& error) {
    text = test::as_on_cpu(error.what());
  }
  EXPECT_EQ(text, GetParam().text);
  EXPECT_LE(text.size(), 80U * 24U) << "more than a screen";
}

INSTANTIATE_TEST_SUITE_P(List, CommonMistake, ::testing::ValuesIn(kMistakes),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace tandem
