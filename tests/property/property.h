#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <rapidcheck.h>

// Properties on random inputs (RapidCheck). A failing case is made as small as it gets and printed, with a line
// RC_PARAMS="reproduce=..." that, put before the test program, runs that case alone.

namespace tandem::test {

/// Runs `property` on `cases` random inputs, and fails the running test for the first that it does not hold for.
///
/// The same cases each time, unless the environment has RC_PARAMS="seed=...". Under sanitizers and without optimisation
/// it is a fifth of the cases, on a GPU a twenty-fifth. TANDEM_PROPERTY_CASES in the environment replaces the number,
/// for long runs.
void run_property(int cases, const rc::detail::Property& property);

template <class Testable>
void check_property(int cases, Testable&& property) {
  run_property(cases, rc::detail::toProperty(std::forward<Testable>(property)));
}

/// A random number in [low, high]; smaller ones are tried when a case is made small.
inline std::int64_t pick(std::int64_t low, std::int64_t high) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(low, high + 1));
}
/// True once in `times`; false is the smaller one.
inline bool once_in(std::int64_t times) { return pick(0, times - 1) == times - 1; }
template <class T>
T one_of(const std::vector<T>& values) {
  return values[static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(values.size()) - 1))];
}
/// A random order of 0 ... count - 1.
std::vector<int> pick_order(int count);

}  // namespace tandem::test
