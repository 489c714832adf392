#pragma once

#include <cstdint>
#include <type_traits>

#include <tandem/core/dtype.h>
#include <tandem/kernels/cpu/per_isa.h>
#include <tandem/kernels/optimizer_formulas.h>

// The loops of the optimisers. Those of f32 are compiled once per instruction set, with the same bits for all. Inlined
// by force: see per_isa.h. T is the type of gradients, S that of everything else: f32 if there is a master.

namespace tandem::inline v0::kernels::cpu {

/// Fields that the loops share. kScaled means that the gradient's factor is not 1; the extra product would cost a tenth
/// of the time while data is in cache.
template <class T, class S, class Factors>
struct StepLoop {
  using C = ComputeType<S>;
  S* param;  // the master, if there is one
  const T* grad;
  T* rounded;  // the master's 16-bit parameter, or null
  formula::Update<C, Factors> step;

  template <bool kScaled>
  [[gnu::always_inline]] inline C gradient(std::int64_t i) const {
    return kScaled ? C(grad[i]) * step.gradient : C(grad[i]);
  }
  // current() is the value to update; round() must follow the update.
  [[gnu::always_inline]] inline S& current(std::int64_t i) const {
    if constexpr (!std::is_same_v<T, S>) {
      param[i] = formula::master_of(param[i], rounded[i]);
    }
    return param[i];
  }
  [[gnu::always_inline]] inline void round(std::int64_t i) const {
    if constexpr (!std::is_same_v<T, S>) {
      rounded[i] = T(param[i]);
    }
  }
};

/// Steps Sgd for elements [begin, end).
template <class T, class S = T>
struct SgdLoop : StepLoop<T, S, formula::SgdFactors<ComputeType<S>>> {
  S* buffer;  // null without momentum

  template <bool kScaled>
  [[gnu::always_inline]] inline void run(std::int64_t begin, std::int64_t end) const {
    const SgdLoop of = *this;  // a copy that the stores below can't alias
    if (of.buffer == nullptr) {
#pragma GCC ivdep
      for (std::int64_t i = begin; i < end; ++i) {
        formula::sgd(of.step.by, of.template gradient<kScaled>(i), of.current(i));
        of.round(i);
      }
      return;
    }
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i) {
      formula::sgd(of.step.by, of.template gradient<kScaled>(i), of.current(i), of.buffer[i]);
      of.round(i);
    }
  }
};

/// Steps Adam for elements [begin, end).
template <class T, class S = T>
struct AdamLoop : StepLoop<T, S, formula::AdamFactors<ComputeType<S>>> {
  S* m;
  S* v;
  S* largest;  // null without AMSGrad

  template <bool kScaled>
  [[gnu::always_inline]] inline void run(std::int64_t begin, std::int64_t end) const {
    const AdamLoop of = *this;
    of.largest == nullptr ? of.template steps<kScaled, false>(begin, end)
                          : of.template steps<kScaled, true>(begin, end);
  }

  template <bool kScaled, bool kLargest>
  [[gnu::always_inline]] inline void steps(std::int64_t begin, std::int64_t end) const {
    S* const maximum = kLargest ? largest : v;
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i) {
      formula::adam<kLargest>(this->step.by, this->template gradient<kScaled>(i), this->current(i), m[i], v[i],
                              maximum[i]);
      this->round(i);
    }
  }
};

/// Steps RmsProp for elements [begin, end).
template <class T, class S = T>
struct RmsPropLoop : StepLoop<T, S, formula::RmsPropFactors<ComputeType<S>>> {
  S* square;
  S* mean;    // null unless centered
  S* buffer;  // null without momentum

  template <bool kScaled>
  [[gnu::always_inline]] inline void run(std::int64_t begin, std::int64_t end) const {
    const RmsPropLoop of = *this;
    if (of.mean == nullptr) {
      of.buffer == nullptr ? of.template steps<kScaled, false, false>(begin, end)
                           : of.template steps<kScaled, false, true>(begin, end);
    } else {
      of.buffer == nullptr ? of.template steps<kScaled, true, false>(begin, end)
                           : of.template steps<kScaled, true, true>(begin, end);
    }
  }

  template <bool kScaled, bool kCentered, bool kMomentum>
  [[gnu::always_inline]] inline void steps(std::int64_t begin, std::int64_t end) const {
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i) {
      formula::rms_prop<kCentered, kMomentum>(this->step.by, this->template gradient<kScaled>(i), this->current(i),
                                              square[i], kCentered ? mean[i] : square[i],
                                              kMomentum ? buffer[i] : square[i]);
      this->round(i);
    }
  }
};

/// Steps Adagrad for elements [begin, end).
template <class T, class S = T>
struct AdagradLoop : StepLoop<T, S, formula::AdagradFactors<ComputeType<S>>> {
  S* sum;

  template <bool kScaled>
  [[gnu::always_inline]] inline void run(std::int64_t begin, std::int64_t end) const {
    const AdagradLoop of = *this;
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i) {
      formula::adagrad(of.step.by, of.template gradient<kScaled>(i), of.current(i), of.sum[i]);
      of.round(i);
    }
  }
};

TANDEM_FOR_EACH_ISA(void sgd_f32(const SgdLoop<float>& loop, bool scaled, std::int64_t begin, std::int64_t end);
                    void adam_f32(const AdamLoop<float>& loop, bool scaled, std::int64_t begin, std::int64_t end);
                    void rmsprop_f32(const RmsPropLoop<float>& loop, bool scaled, std::int64_t begin, std::int64_t end);
                    void adagrad_f32(const AdagradLoop<float>& loop, bool scaled, std::int64_t begin, std::int64_t end);
                    /* Whether values[i] * factor is infinite or NaN for some i. */
                    bool any_nonfinite_f32(const float* values, float factor, std::int64_t begin, std::int64_t end);)

}  // namespace tandem::inline v0::kernels::cpu
