#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <tandem/autograd/parameter_store.h>
#include <tandem/kernels/step_state.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0::optim {

/// Base of the optimisers. Takes leaves that require a gradient (others are passed over), packs them into a
/// ParameterStore, and updates whole stretches of it in one pass each. A parameter without a gradient is left alone by
/// step(), and its step count does not move. Moving the module to another device or dtype afterwards is fine.
/// Packing moves the parameters' elements, once: views, detach()ed handles and data pointers that were taken before
/// keep the old memory and do not follow the training. Take them after the optimiser is built.
/// One thread at a time.
class TANDEM_API Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;  // nor moves: schedulers refer to it
  Optimizer& operator=(const Optimizer&) = delete;

  /// One update of every parameter that has a gradient.
  void step();
  /// Forgets the gradients; their memory is kept.
  void zero_grad();

  /// The rate of the next step.
  double learning_rate() const noexcept { return learning_rate_; }
  /// Takes effect at the next step. Throws ConfigError unless finite and >= 0.
  void set_learning_rate(double learning_rate);
  /// The list that it was given.
  const std::vector<Tensor>& parameters() const noexcept { return parameters_; }

 protected:
  /// One stretch of memory whose members have taken the same number of steps.
  struct Slice {
    ParameterRun run;            // the stretch
    kernels::StepState state;    // rate and step count of this update
    std::vector<void*> buffers;  // what the optimiser keeps per element, starting at zero
  };

  /// Throws ConfigError for an empty or repeated list, undefined tensors, results of ops.
  Optimizer(const char* name, const std::vector<Tensor>& parameters, double learning_rate, int num_buffers);
  /// Updates one stretch from its gradients.
  virtual void update(const Slice& slice) = 0;

 private:
  struct Member;
  bool layout_changed() const;
  void cut();
  void* gather_buffer(const ParameterRun& run, std::size_t buffer);

  const char* name_;
  double learning_rate_;
  int num_buffers_;
  std::vector<Tensor> parameters_;
  std::vector<Member> members_;                 // in the order of memory
  std::vector<std::unique_ptr<Slice>> slices_;  // kernels read slice->state: it must stay where it is
};

}  // namespace tandem::inline v0::optim
