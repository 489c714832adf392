#pragma once

#include <cstdint>

#include <tandem/core/dtype.h>
#include <tandem/kernels/cpu/per_isa.h>
#include <tandem/kernels/optimizer_formulas.h>

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
  formula::SgdFactors<C> factors;

  template <bool kMaximize>
  [[gnu::always_inline]] inline void run(std::int64_t begin, std::int64_t end) const {
    const SgdLoop by = *this;  // what is stored below can't be a part of it
    if (by.buffer == nullptr) {
#pragma GCC ivdep
      for (std::int64_t i = begin; i < end; ++i) {
        formula::sgd(by.factors, downhill<kMaximize>(C(by.grad[i])), by.param[i]);
      }
      return;
    }
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i) {
      formula::sgd(by.factors, downhill<kMaximize>(C(by.grad[i])), by.param[i], by.buffer[i]);
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
  formula::AdamFactors<C> factors;

  template <bool kMaximize>
  [[gnu::always_inline]] inline void run(std::int64_t begin, std::int64_t end) const {
    const AdamLoop by = *this;
    by.largest == nullptr ? by.template steps<kMaximize, false>(begin, end)
                          : by.template steps<kMaximize, true>(begin, end);
  }

  template <bool kMaximize, bool kLargest>
  [[gnu::always_inline]] inline void steps(std::int64_t begin, std::int64_t end) const {
    T* const maximum = kLargest ? largest : v;
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i) {
      formula::adam<kLargest>(factors, downhill<kMaximize>(C(grad[i])), param[i], m[i], v[i], maximum[i]);
    }
  }
};

TANDEM_FOR_EACH_ISA(void sgd_f32(const SgdLoop<float>& loop, bool maximize, std::int64_t begin, std::int64_t end);
                    void adam_f32(const AdamLoop<float>& loop, bool maximize, std::int64_t begin, std::int64_t end);)

}  // namespace tandem::inline v0::kernels::cpu
