// Division and multiples, rounded up.
#pragma once
#include <type_traits>

namespace linnet {

// a / b for a >= 0 and b > 0, rounded up.
template <class A, class B>
constexpr std::common_type_t<A, B> ceil_div(A a, B b) {
  return (a + b - 1) / b;
}

// The least multiple of `unit` that is at least `value`.
template <class A, class B>
constexpr std::common_type_t<A, B> round_up(A value, B unit) {
  return ceil_div(value, unit) * unit;
}

}  // namespace linnet
