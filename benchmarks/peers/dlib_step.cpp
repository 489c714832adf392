// dlib's training step on the data and weights that `step_bench --export` wrote, with one thread. Takes step_bench's
// flags and prints one JSON object in its format to stdout. A net of dlib is a type, so there are nets of one linear
// layer and of three.

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <dlib/dnn.h>
#include <dlib/revision.h>

#include "peer_step.h"

namespace {

using Input = dlib::input<dlib::matrix<float>>;
template <class Below>
using Linear = dlib::fc<1, Below>;  // the constructor's num_fc_outputs replaces the 1
template <class Below>
using Hidden = dlib::relu<Linear<Below>>;

template <class Label>
std::vector<Label> load(const std::string& path, std::int64_t count) {
  std::vector<Label> values(static_cast<std::size_t>(count));
  peer::load(path, values.data(), values.size() * sizeof(Label));
  return values;
}

// Sets dlib's parameters, the weight of shape (in, out) and after it the bias, from PyTorch's of shape (out, in).
template <class Layer>
void set(Layer& layer, const std::string& folder, std::int64_t number, std::int64_t in, std::int64_t out) {
  const std::string end = std::to_string(number) + ".npy";
  const auto weight = load<float>(folder + "weight_" + end, out * in);
  const auto bias = load<float>(folder + "bias_" + end, out);
  dlib::tensor& parameters = layer.layer_details().get_layer_params();
  if (parameters.size() != weight.size() + bias.size()) {
    throw std::runtime_error("dlib's layer " + std::to_string(number) + " has another number of parameters");
  }
  float* to = parameters.host();
  for (std::int64_t i = 0; i < in; ++i) {
    for (std::int64_t o = 0; o < out; ++o) {
      *to++ = weight[static_cast<std::size_t>(o * in + i)];
    }
  }
  std::copy(bias.begin(), bias.end(), to);
}

/// Layers are counted from the output, as dlib does: linear, relu, linear, relu, linear.
template <class Net, class Solver, std::size_t kLinears>
class Training {
 public:
  /// `rate` is of dlib's loss.
  Training(const peer::Flags& flags, const Solver& solver, double rate, bool squared)
      : solvers_(Net::num_computational_layers, solver), rate_(rate) {
    const std::vector<std::int64_t> sizes = peer::sizes_of(flags.at("--model"));
    const std::int64_t batch = std::stoll(flags.at("--batch"));
    const std::string folder = flags.at("--data") + "/";
    const auto x = load<float>(folder + "x.npy", batch * sizes.front());
    std::vector<dlib::matrix<float>> rows;
    for (auto row = x.begin(); row != x.end(); row += sizes.front()) {
      rows.push_back(dlib::mat(&*row, sizes.front(), 1));
    }
    net_.to_tensor(rows.begin(), rows.end(), x_);
    if (squared) {
      for (const float y : load<float>(folder + "y.npy", batch))
        labels_.push_back(static_cast<Label>(y));
    } else {
      for (const std::int64_t y : load<std::int64_t>(folder + "y.npy", batch))
        labels_.push_back(static_cast<Label>(y));
    }
    set_layers(sizes, folder, std::make_index_sequence<kLinears>());
  }

  void run(std::int64_t steps) {
    for (std::int64_t i = 0; i < steps; ++i) {
      loss_ = net_.compute_parameter_gradients(x_, labels_.begin());
      net_.update_parameters(solvers_, rate_);
    }
  }
  double loss() const { return loss_; }

 private:
  using Label = typename Net::training_label_type;

  template <std::size_t... Index>
  void set_layers(const std::vector<std::int64_t>& sizes, const std::string& folder, std::index_sequence<Index...>) {
    (dlib::layer<2 * Index + 1>(net_).layer_details().set_num_outputs(sizes[kLinears - Index]), ...);
    net_.forward(x_);  // allocates parameters
    (set(dlib::layer<2 * Index + 1>(net_), folder, static_cast<std::int64_t>(kLinears - 1 - Index),
         sizes[kLinears - 1 - Index], sizes[kLinears - Index]),
     ...);
  }

  Net net_;
  std::vector<Solver> solvers_;
  double rate_;
  dlib::resizable_tensor x_;
  std::vector<Label> labels_;
  double loss_ = 0;
};

template <class Net, std::size_t kLinears>
void measure(const peer::Flags& flags, bool squared) {
  // dlib's gradient of the mean squared error is half of PyTorch's.
  const double rate = (squared ? 2 : 1) * peer::rate_of(flags);
  const std::string version = std::to_string(DLIB_MAJOR_VERSION) + "." + std::to_string(DLIB_MINOR_VERSION);
  const auto with = [&](const auto& solver) {
    Training<Net, std::decay_t<decltype(solver)>, kLinears> training(flags, solver, rate, squared);
    peer::measure(flags, training, "dlib", version.c_str());
  };
  if (flags.at("--optimizer") == "adam") {
    with(dlib::adam(0, 0.9F, 0.999F));
  } else {
    with(dlib::sgd(0, std::stof(flags.at("--momentum"))));
  }
}

}  // namespace

int main(int argc, char** argv) {
  return peer::run_main(argc, argv, [](const peer::Flags& flags) {
    const bool squared = flags.at("--loss") == "mse";
    const std::size_t linears = peer::sizes_of(flags.at("--model")).size() - 1;
    if (flags.at("--threads") != "1") {
      throw std::runtime_error("--threads: dlib's step has one thread");
    }
    if (squared && linears == 1) {
      measure<dlib::loss_mean_squared<Linear<Input>>, 1>(flags, true);
    } else if (!squared && linears == 3) {
      measure<dlib::loss_multiclass_log<Linear<Hidden<Hidden<Input>>>>, 3>(flags, false);
    } else {
      throw std::runtime_error("--model: there are nets of one layer with --loss mse and of three with --loss ce");
    }
  });
}
