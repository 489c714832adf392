#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <optional>
#include <ranges>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tandem/core/error.h>
#include <tandem/tensor/tensor.h>

// The types that a batch may have: tensors; tuples, pairs, optionals, containers and maps of them, nested as you like;
// and structs that list their members:
//
//   struct Batch {
//     Tensor image, label;
//     std::string source;
//     friend auto members(Batch& batch) { return std::tie(batch.image, batch.label, batch.source); }
//   };
//
// All other types are plain values and are not searched for tensors.

namespace tandem::inline v0::parallel {

/// A struct whose members a function members(), declared beside it, ties together.
template <class T>
concept WithMembers = requires(T& value) { members(value); };

namespace detail {

template <class T>
concept TupleLike = requires { std::tuple_size<T>::value; };
template <class T>
concept Range = std::ranges::forward_range<T>;

template <class T>
concept Map = Range<T> && requires(T& map, const typename T::key_type& key) { map.at(key); };

template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;

template <class T>
consteval bool holds_tensors();

template <class Tied>
struct AnyHolds;
template <class... Ts>
struct AnyHolds<std::tuple<Ts...>> {
  static constexpr bool value = (holds_tensors<std::remove_cvref_t<Ts>>() || ...);
  static constexpr bool elsewhere = ((std::is_reference_v<Ts> && holds_tensors<std::remove_cvref_t<Ts>>()) || ...);
};
template <class A, class B>
struct AnyHolds<std::pair<A, B>> : AnyHolds<std::tuple<A, B>> {};

template <class T>
consteval bool holds_tensors() {
  if constexpr (std::derived_from<T, Tensor>) {
    return true;
  } else if constexpr (WithMembers<T>) {
    return AnyHolds<decltype(members(std::declval<T&>()))>::value;
  } else if constexpr (Range<T>) {
    constexpr bool holds =
        !std::same_as<std::ranges::range_value_t<T>, T> && holds_tensors<std::ranges::range_value_t<T>>();
    static_assert(!holds || !std::ranges::view<T>,
                  "a view (std::span) of tensors is not cut up, its owner's tensors would be: pass a container");
    return holds;
  } else if constexpr (is_optional<T>) {
    return holds_tensors<typename T::value_type>();
  } else if constexpr (TupleLike<T>) {
    static_assert(!AnyHolds<T>::elsewhere,
                  "a tuple of references (std::tie) is not cut up, what it refers to would be: pass std::tuple(x, y)");
    return AnyHolds<T>::value;
  } else {
    return false;
  }
}

/// Throws ConfigError: a value has a different structure in two replicas.
[[noreturn]] TANDEM_API void throw_different(const char* what, std::size_t first, std::size_t other);

/// Calls visit(a, b) for each pair of corresponding tensors and plain values of two values with the same structure.
/// Throws ConfigError when the structures differ. Pass the same object as `a` and `b` to visit one.
template <class T, class Visit>
void for_each_leaf(T& a, T& b, const Visit& visit) {
  const auto both = [&visit]<class... As, class... Bs>(std::tuple<As&...> first, std::tuple<Bs&...> second) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (for_each_leaf(std::get<I>(first), std::get<I>(second), visit), ...);
    }(std::index_sequence_for<As...>());
  };
  const auto tied = [](auto& tuple) {
    return std::apply([](auto&... members) { return std::tie(members...); }, tuple);
  };
  if constexpr (!holds_tensors<std::remove_const_t<T>>() || std::derived_from<T, Tensor>) {
    visit(a, b);
  } else if constexpr (WithMembers<T>) {
    both(members(a), members(b));
  } else if constexpr (Map<T>) {  // handled apart, because a map may be unordered
    if (a.size() != b.size()) {
      throw_different("elements in a map", a.size(), b.size());
    }
    for (auto& [key, value] : a) {
      const auto other = b.find(key);
      if (other == b.end()) {
        throw_different("values for a key of a map", 1, 0);
      }
      for_each_leaf(value, other->second, visit);
    }
  } else if constexpr (Range<T>) {
    const auto count = [](T& range) { return static_cast<std::size_t>(std::ranges::distance(range)); };
    if (count(a) != count(b)) {
      throw_different("elements in a container", count(a), count(b));
    }
    for (auto i = std::ranges::begin(a), j = std::ranges::begin(b); i != std::ranges::end(a); ++i, ++j) {
      for_each_leaf(*i, *j, visit);
    }
  } else if constexpr (is_optional<T>) {
    if (a.has_value() != b.has_value()) {
      throw_different("values in an optional", a.has_value() ? 1 : 0, b.has_value() ? 1 : 0);
    }
    if (a.has_value()) {
      for_each_leaf(*a, *b, visit);
    }
  } else {
    both(tied(a), tied(b));
  }
}

/// Calls visit(tensor) for every tensor in `value`, in a fixed order.
template <class T, class Visit>
void for_each_tensor(T& value, const Visit& visit) {
  for_each_leaf(value, value, [&]<class Leaf>(Leaf& leaf, Leaf&) {
    if constexpr (std::derived_from<Leaf, Tensor>) {
      visit(leaf);
    }
  });
}

// Stand for a member of a struct in an initialiser: one of any type, a tensor, and something that only a member of any
// content takes, such as a std::any.
struct AnyMember {
  template <class T>
  operator T() const;
};
struct TensorMember {
  operator Tensor() const;
};

struct Nothing {};

template <class T, std::size_t... kBefore>
consteval bool has_tensor_at(std::index_sequence<kBefore...>) {
  return requires { T{(static_cast<void>(kBefore), AnyMember())..., TensorMember()}; } &&
         !requires { T{(static_cast<void>(kBefore), AnyMember())..., Nothing()}; };
}

/// Whether one of the first 8 members of an aggregate is a tensor, though the aggregate has no members() by which
/// it could be cut up. Other structs and members do not show.
template <class T>
consteval bool lacks_members() {
  if constexpr (std::is_class_v<T> && std::is_aggregate_v<T> && !holds_tensors<T>() && !Range<T> && !TupleLike<T>) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return (has_tensor_at<T>(std::make_index_sequence<I>()) || ...);
    }(std::make_index_sequence<8>());
  } else {
    return false;
  }
}

/// Whether lacks_members() holds for an element of a tuple, or for what such an element refers to.
template <class Tuple>
consteval bool any_lacks_members() {
  return []<std::size_t... I>(std::index_sequence<I...>) {
    return (lacks_members<std::remove_cvref_t<std::unwrap_reference_t<std::tuple_element_t<I, Tuple>>>>() || ...);
  }(std::make_index_sequence<std::tuple_size_v<Tuple>>());
}

}  // namespace detail

/// Whether a T is a tensor, or may contain tensors, that scatter() cuts up and gather() joins.
template <class T>
concept HoldsTensors = detail::holds_tensors<T>();

}  // namespace tandem::inline v0::parallel
