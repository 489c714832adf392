#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace tandem::inline v0::core {

template <class Signature>
class FunctionRef;

/// A callable borrowed for the length of a call: no allocation, no copy. Never store one.
template <class Result, class... Args>
class FunctionRef<Result(Args...)> {
 public:
  /// Borrows `callable`, which must outlive this object.
  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>)
  FunctionRef(F&& callable) noexcept
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        call_([](void* object, Args... args) -> Result {
          return (*static_cast<std::remove_reference_t<F>*>(object))(std::forward<Args>(args)...);
        }) {}

  /// Calls the borrowed callable.
  Result operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  Result (*call_)(void*, Args...);
};

}  // namespace tandem::inline v0::core
