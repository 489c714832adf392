#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <rapidcheck.h>

// Properties on random inputs (RapidCheck). A failing case is reduced to a small one and printed, with a line
// RC_PARAMS="reproduce=...". With this line in front of the test program's command, only that case runs.

namespace tandem::test {

/// Runs `property` on `cases` random inputs and fails the running test at the first input that violates it.
///
/// The cases are identical in every run, unless the environment has RC_PARAMS="seed=...". A fifth of the cases runs
/// under sanitizers and without optimisation, a twenty-fifth on a GPU. For long runs, TANDEM_PROPERTY_CASES in the
/// environment replaces the number.
void run_property(int cases, const rc::detail::Property& property);

template <class Testable>
void check_property(int cases, Testable&& property) {
  run_property(cases, rc::detail::toProperty(std::forward<Testable>(property)));
}

/// A random number in [low, high]; reduction of a case tries smaller numbers.
inline std::int64_t pick(std::int64_t low, std::int64_t high) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(low, high + 1));
}
/// True once in `times`; reduction of a case tries false.
inline bool once_in(std::int64_t times) { return pick(0, times - 1) == times - 1; }
template <class T>
T one_of(const std::vector<T>& values) {
  return values[static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(values.size()) - 1))];
}
/// A random permutation of 0 ... count - 1.
std::vector<int> pick_order(int count);

}  // namespace tandem::test
