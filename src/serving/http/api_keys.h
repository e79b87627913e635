// API keys, required as "Authorization: Bearer KEY".
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace linnet {
class ApiKeys {
 public:
  ApiKeys() = default;  // no key required
  // One key a line; skips empty lines and # comments. User error for a file without keys, or readable by others.
  static ApiKeys load(const std::string& path);

  bool needed() const { return !keys_.empty(); }
  // Whether the Authorization header has one of the keys. The time does not depend on how much of a key is right.
  bool accept(std::string_view authorization) const;

 private:
  std::vector<std::string> keys_;
};

// KEY of "Bearer KEY"; "" of anything else, which is never a key.
std::string_view key_of(std::string_view authorization);

// The time depends on the sizes alone.
bool equal_in_constant_time(std::string_view a, std::string_view b);
}  // namespace linnet
