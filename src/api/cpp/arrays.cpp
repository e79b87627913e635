#include "linnet/arrays.h"
#include <algorithm>
#include <cmath>
#include <new>
#include "api/cpp/helpers.h"
#include "base/text.h"
#include "linnet/error.h"

namespace linnet {
size_t checked_bytes(const std::string& what, const TensorType& type) {
  constexpr int64_t kMost = int64_t{1} << 48;
  int64_t bytes = static_cast<int64_t>(dtype_size(type.dtype));
  for (const int64_t size : type.shape.sizes()) {
    if (size < 0) fail_user(what, " has the shape ", type.shape.text(), "; sizes are not negative");
    if (__builtin_mul_overflow(bytes, size, &bytes) || bytes > kMost)
      fail_user(what, " of type ", type.text(), " is larger than any memory");
  }
  return static_cast<size_t>(bytes);
}

namespace {
std::vector<std::byte> allocate(const std::string& name, const TensorType& type) {
  const size_t bytes = checked_bytes("array \"" + name + "\"", type);
  try {
    return std::vector<std::byte>(bytes);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::kSystem, "there is no memory for array \"" + name + "\" of type " + type.text());
  }
}
}  // namespace

std::vector<int32_t> narrowed(const std::string& name, std::span<const int64_t> values) {
  std::vector<int32_t> result;
  result.reserve(values.size());
  for (const int64_t value : values) {
    if (!std::in_range<int32_t>(value))
      fail_user("\"", name, "\" has the integer ", value, " at place ", result.size(), ", which does not fit int32");
    result.push_back(static_cast<int32_t>(value));
  }
  return result;
}

Arrays::Arrays() = default;
Arrays::Arrays(const Arrays& other) = default;
Arrays& Arrays::operator=(const Arrays& other) = default;
Arrays::Arrays(Arrays&& other) noexcept = default;
Arrays& Arrays::operator=(Arrays&& other) noexcept = default;
Arrays::~Arrays() = default;

Arrays::Arrays(const InputTypes& types) {
  for (const auto& [name, type] : types) entries_[name] = {type, allocate(name, type)};
}

void Arrays::set_bytes(const std::string& name, const TensorType& type, std::span<const std::byte> bytes) {
  if (bytes.size() != checked_bytes("array \"" + name + "\"", type))
    fail_user("array \"", name, "\" is given ", bytes.size() / dtype_size(type.dtype), " values, and ", type, " has ",
        type.shape.elements());
  std::vector<std::byte> copy = allocate(name, type);
  std::copy(bytes.begin(), bytes.end(), copy.begin());  // std::ranges::copy is a loop over bytes at -Os
  entries_[name] = {type, std::move(copy)};
}

const Arrays::Entry& Arrays::find(const std::string& name) const {
  if (const Entry* found = find_value(entries_, name)) return *found;
  const std::string names = joined(entries_, ", ", [](const auto& entry) { return entry.first; });
  fail_user("there is no array \"", name, "\"; there is ", names.empty() ? "none" : names);
}

std::span<const std::byte> Arrays::checked(const std::string& name, DType dtype) const {
  const Entry& entry = find(name);
  if (entry.type.dtype != dtype)
    fail_user("array \"", name, "\" is ", entry.type.text(), " and was asked for as ", dtype_name(dtype));
  return entry.bytes;
}

std::span<const std::byte> Arrays::bytes(const std::string& name) const { return find(name).bytes; }
bool Arrays::has(const std::string& name) const { return entries_.contains(name); }
const TensorType& Arrays::type(const std::string& name) const { return find(name).type; }

InputTypes Arrays::types() const {
  InputTypes types;
  for (const auto& [name, entry] : entries_) types[name] = entry.type;
  return types;
}

std::vector<int32_t> top_k(std::span<const float> values, int64_t k) {
  if (k < 0 || k > static_cast<int64_t>(values.size()))
    fail_user("the ", k, " largest of ", values.size(), " values are asked for");
  std::vector<int32_t> order = numbers_below<int32_t>(values.size());
  std::partial_sort(order.begin(), order.begin() + k, order.end(), [&](int32_t a, int32_t b) {
    const float x = values[a], y = values[b];
    if (std::isnan(x) || std::isnan(y)) return std::isnan(x) == std::isnan(y) ? a < b : std::isnan(y);
    return x > y || (x == y && a < b);
  });
  order.resize(k);
  return order;
}
}  // namespace linnet
