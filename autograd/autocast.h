#pragma once

#include <initializer_list>
#include <memory>
#include <optional>

#include <tandem/core/dtype.h>
#include <tandem/core/export.h>
#include <tandem/core/thread_state.h>
#include <tandem/tensor/tensor.h>

namespace tandem::inline v0 {

/// Settings of an AutocastScope.
struct AutocastOptions {
  bool enabled = true;        ///< false: ops compute in the types of their arguments again
  bool cache_enabled = true;  ///< convert a parameter once, not in each op that uses it
};

/// While it exists, ops of its thread choose the types in which they compute, like torch.autocast: linear layers,
/// matrix products and convolutions take f32 and 16-bit arguments in `dtype`; losses, softmax, norms, sums and
/// functions with a large range (exp, log, pow) take 16-bit arguments in f32. All other ops keep the types of their
/// arguments, and f64 is never converted. The conversions are part of the recorded graph, so parameters and their
/// gradients stay in f32. Wrap forward pass and loss; scopes nest. The work that an op hands to other threads
/// (replicas, backward passes) is in the scope, too.
///
/// With f16, scale the loss with optim::GradScaler. Throws DTypeError unless `dtype` is bf16 or f16.
class TANDEM_API AutocastScope {
 public:
  [[nodiscard]] explicit AutocastScope(DType dtype = DType::bf16, const AutocastOptions& options = {});
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  std::unique_ptr<autograd::Autocast> own_;  // null: not enabled
  const autograd::Autocast* saved_;
};

/// The type of the innermost AutocastScope of this thread; nothing outside of scopes, and in one that is not enabled.
TANDEM_API std::optional<DType> autocast_dtype() noexcept;

namespace autograd {

// ---- internal: what ops ask ----

inline bool autocasts() noexcept { return core::thread_state().autocast != nullptr; }

bool lowers_any(std::initializer_list<const Tensor*> tensors);
bool raises_any(std::initializer_list<const Tensor*> tensors);

/// Whether one of the tensors, which may be undefined, has to be converted by lowered().
inline bool lowers(std::initializer_list<const Tensor*> tensors) { return autocasts() && lowers_any(tensors); }
/// The tensor in the scope's type; as it is if it is undefined, an integer or f64.
Tensor lowered(const Tensor& tensor);

/// Whether one of the tensors, which may be undefined, has to be converted by raised().
inline bool raises(std::initializer_list<const Tensor*> tensors) { return autocasts() && raises_any(tensors); }
/// A 16-bit tensor in f32; others as they are.
Tensor raised(const Tensor& tensor);

}  // namespace autograd

}  // namespace tandem::inline v0
