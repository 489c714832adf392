#pragma once

#include <cmath>
#include <cstdint>

#include <tandem/core/dtype.h>
#include <tandem/kernels/cpu/per_isa.h>

// The loops of Sgd and Adam, which f32 has once per instruction set; the bits are the same for all. Inlined by force:
// see per_isa.h.

namespace tandem::inline v0::kernels::cpu {

/// The gradient to go against.
template <bool kMaximize, class T>
[[gnu::always_inline]] inline T downhill(T gradient) {
  return kMaximize ? -gradient : gradient;
}

/// Elements [begin, end) of a step of Sgd.
template <class T>
struct SgdLoop {
  using C = ComputeType<T>;
  T* param;
  const T* grad;
  T* buffer;  // null without momentum
  C lr, decay, keep, take, ahead, now;

  template <bool kMaximize>
  [[gnu::always_inline]] inline void run(std::int64_t begin, std::int64_t end) const {
    const SgdLoop by = *this;  // what is stored below can't be a part of it
    if (by.buffer == nullptr) {
#pragma GCC ivdep
      for (std::int64_t i = begin; i < end; ++i) {
        by.param[i] = T(by.param[i] - by.lr * (downhill<kMaximize>(C(by.grad[i])) + by.decay * by.param[i]));
      }
      return;
    }
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i) {
      const C g = downhill<kMaximize>(C(by.grad[i])) + by.decay * by.param[i];
      by.buffer[i] = T(by.keep * by.buffer[i] + by.take * g);
      by.param[i] = T(by.param[i] - by.lr * (by.now * g + by.ahead * by.buffer[i]));
    }
  }
};

/// Elements [begin, end) of a step of Adam.
template <class T>
struct AdamLoop {
  using C = ComputeType<T>;
  T* param;
  const T* grad;
  T* m;
  T* v;
  T* largest;  // null without AMSGrad
  C step_size, root2, beta1, beta2, rest1, rest2, eps, shrink, decay;

  template <bool kMaximize>
  [[gnu::always_inline]] inline void run(std::int64_t begin, std::int64_t end) const {
    const AdamLoop by = *this;
    by.largest == nullptr ? by.template steps<kMaximize, false>(begin, end)
                          : by.template steps<kMaximize, true>(begin, end);
  }

  template <bool kMaximize, bool kLargest>
  [[gnu::always_inline]] inline void steps(std::int64_t begin, std::int64_t end) const {
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i) {
      const C p = param[i] * shrink;
      const C g = downhill<kMaximize>(C(grad[i])) + decay * p;
      m[i] = T(beta1 * m[i] + rest1 * g);
      v[i] = T(beta2 * v[i] + rest2 * g * g);
      if constexpr (kLargest) {
        largest[i] = C(v[i]) <= C(largest[i]) ? largest[i] : v[i];  // NaN comes through
      }
      const C second = C(kLargest ? largest[i] : v[i]);
      param[i] = T(p - step_size * m[i] / (std::sqrt(second) * root2 + eps));
    }
  }
};

TANDEM_FOR_EACH_ISA(void sgd_f32(const SgdLoop<float>& loop, bool maximize, std::int64_t begin, std::int64_t end);
                    void adam_f32(const AdamLoop<float>& loop, bool maximize, std::int64_t begin, std::int64_t end);)

}  // namespace tandem::inline v0::kernels::cpu
