#include "linnet/arrays.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "linnet/error.h"

namespace linnet {

Arrays::Arrays() = default;
Arrays::Arrays(const Arrays& other) = default;
Arrays& Arrays::operator=(const Arrays& other) = default;
Arrays::Arrays(Arrays&& other) noexcept = default;
Arrays& Arrays::operator=(Arrays&& other) noexcept = default;
Arrays::~Arrays() = default;

Arrays::Arrays(const InputTypes& types) {
  for (const auto& [name, type] : types) entries_[name] = {type, std::vector<std::byte>(type.bytes())};
}

void Arrays::set_bytes(const std::string& name, const TensorType& type, std::span<const std::byte> bytes) {
  for (const int64_t size : type.shape.sizes())
    if (size < 0) fail_user("array \"" + name + "\" has the shape " + type.shape.text() + "; sizes are not negative");
  if (bytes.size() != type.bytes())
    fail_user("array \"" + name + "\" is given " + std::to_string(bytes.size() / dtype_size(type.dtype)) +
              " values, and " + type.text() + " has " + std::to_string(type.shape.elements()));
  entries_[name] = {type, {bytes.begin(), bytes.end()}};
}

const Arrays::Entry& Arrays::find(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found != entries_.end()) return found->second;
  std::string names;
  for (const auto& [known, entry] : entries_) names += (names.empty() ? "" : ", ") + known;
  fail_user("there is no array \"" + name + "\"; there is " + (names.empty() ? "none" : names));
}

std::span<const std::byte> Arrays::checked(const std::string& name, DType dtype) const {
  const Entry& entry = find(name);
  if (entry.type.dtype != dtype)
    fail_user("array \"" + name + "\" is " + entry.type.text() + " and was asked for as " + dtype_name(dtype));
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
    fail_user("the " + std::to_string(k) + " largest of " + std::to_string(values.size()) + " values are asked for");
  std::vector<int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + k, order.end(), [&](int32_t a, int32_t b) {
    const float x = values[static_cast<size_t>(a)], y = values[static_cast<size_t>(b)];
    if (std::isnan(x) || std::isnan(y)) return std::isnan(x) == std::isnan(y) ? a < b : std::isnan(y);
    return x > y || (x == y && a < b);
  });
  order.resize(static_cast<size_t>(k));
  return order;
}

}  // namespace linnet
