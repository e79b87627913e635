// References to callables; lists, sums and largest values of what a callable returns; items and values by key.
#pragma once
#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

namespace linnet {
// A borrowed callable: two words, no allocation. The callable must outlive the call.
template <class Signature> class FunctionRef;

template <class Result, class... Args> class FunctionRef<Result(Args...)> {
 public:
  template <class F, class = std::enable_if_t<!std::is_same_v<std::decay_t<F>, FunctionRef>>>
  FunctionRef(F&& f)  // NOLINT(google-explicit-constructor): a lambda is passed where this is expected
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* object, Args... args) -> Result {
          return (*static_cast<std::remove_reference_t<F>*>(object))(std::forward<Args>(args)...);
        }) {}
  Result operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  Result (*call_)(void*, Args...);
};

// fn(item) of each item, as a Result if that is given: mapped(parameters, &Parameter::name).
template <class Result = void, class Items, class Fn>
requires(!std::integral<std::remove_cvref_t<Items>>) auto mapped(Items&& items, const Fn& fn) {
  using Found = std::remove_cvref_t<std::invoke_result_t<const Fn&, decltype(*std::begin(items))>>;
  std::vector<std::conditional_t<std::is_void_v<Result>, Found, Result>> results;
  if constexpr (requires { std::size(items); }) results.reserve(std::size(items));
  for (auto&& item : items) results.emplace_back(std::invoke(fn, item));
  return results;
}

// fn(i) of each i in [0, count).
template <class Result = void, std::integral Index, class Fn> auto mapped(Index count, const Fn& fn) {
  using Found = std::remove_cvref_t<std::invoke_result_t<const Fn&, Index>>;
  std::vector<std::conditional_t<std::is_void_v<Result>, Found, Result>> results;
  results.reserve(count);
  for (Index i = 0; i < count; ++i) results.emplace_back(fn(i));
  return results;
}

// 0, 1, ..., count - 1.
template <class Number> std::vector<Number> numbers_below(size_t count) {
  std::vector<Number> numbers(count);
  std::iota(numbers.begin(), numbers.end(), Number{0});
  return numbers;
}

// `first`, then next(size) of the one before while that is below `last`, and `last`: sizes that plans are made for.
template <class Next> std::vector<int64_t> growing_sizes(int64_t first, int64_t last, Next next) {
  std::vector<int64_t> sizes;
  for (int64_t size = first; size < last; size = next(size)) sizes.push_back(size);
  sizes.push_back(last);
  return sizes;
}
inline std::vector<int64_t> doubling_sizes(int64_t first, int64_t last) {
  return growing_sizes(first, last, [](int64_t size) { return 2 * size; });
}

// The first item with key_of(item) == key, or null: find_item(parameters, name, &Parameter::name).
template <class Items, class Key, class KeyOf> auto* find_item(Items&& items, const Key& key, const KeyOf& key_of) {
  const auto found = std::ranges::find(items, key, key_of);
  return found == std::ranges::end(items) ? nullptr : &*found;
}

// Whether key_of(item) == key for some item.
template <class Items, class Key, class KeyOf = std::identity>
bool contains(const Items& items, const Key& key, const KeyOf& key_of = {}) {
  return std::ranges::find(items, key, key_of) != std::ranges::end(items);
}

// The map's value for the key; null or `otherwise` if there is none.
template <class Map, class Key> auto* find_value(Map& map, const Key& key) {
  const auto found = map.find(key);
  return found == map.end() ? nullptr : &found->second;
}
template <class Map, class Key>
typename Map::mapped_type find_or(const Map& map, const Key& key, const typename Map::mapped_type& otherwise) {
  const auto* found = find_value(map, key);
  return found ? *found : otherwise;
}

// The sum, or the largest and 0, of fn(item) of each item, or of fn(i) of each i in [0, count).
template <class Result, class Items, class Fn = std::identity> Result sum_of(const Items& items, const Fn& fn = {}) {
  Result sum{};
  if constexpr (std::integral<Items>)
    for (Items i = 0; i < items; ++i) sum += fn(i);
  else
    for (const auto& item : items) sum += std::invoke(fn, item);
  return sum;
}
template <class Result, class Items, class Fn = std::identity> Result max_of(const Items& items, const Fn& fn = {}) {
  Result most{};
  if constexpr (std::integral<Items>)
    for (Items i = 0; i < items; ++i) most = std::max<Result>(most, fn(i));
  else
    for (const auto& item : items) most = std::max<Result>(most, std::invoke(fn, item));
  return most;
}
}  // namespace linnet
