// The keys that requests must bear: "Authorization: Bearer KEY".
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace linnet {

class ApiKeys {
 public:
  ApiKeys() = default;  // no key is needed
  // A key on each line; lines that are empty or begin with # are skipped. User error for a file without a key, or one
  // that others may read.
  static ApiKeys load(const std::string& path);

  bool needed() const { return !keys_.empty(); }
  // Whether the value of the header Authorization bears one of the keys. How long it takes does not depend on how much
  // of a key is right.
  bool accept(std::string_view authorization) const;

 private:
  std::vector<std::string> keys_;
};

// KEY of "Bearer KEY"; "" of anything else. (Lines of a file of keys are not empty.)
std::string_view key_of(std::string_view authorization);

// The time depends on the sizes alone.
bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace linnet
