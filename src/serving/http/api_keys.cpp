#include "serving/http/api_keys.h"
#include <sys/stat.h>
#include <algorithm>
#include "base/fail.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"

namespace linnet {
ApiKeys ApiKeys::load(const std::string& path) {
  ApiKeys keys;
  const std::string text = read_input(path);
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    std::string line = text.substr(start, end - start);
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ' || line.back() == '\t')) line.pop_back();
    if (!line.empty() && line[0] != '#') keys.keys_.push_back(std::move(line));
    start = end + 1;
  }
  if (keys.keys_.empty()) fail_user("'", path, "' holds no key");
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && (status.st_mode & (S_IRGRP | S_IROTH)) != 0)
    log_warning("'" + path + "' holds keys, and other users may read it: chmod 600 " + path);
  return keys;
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i] ^ (b.empty() ? '\0' : b[i % b.size()]));
  // volatile: the compiler must not end the loop at the first difference.
  const volatile unsigned char result = difference;
  return result == 0;
}

std::string_view key_of(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (lower_ascii(authorization.substr(0, kScheme.size())) != kScheme) return {};
  authorization.remove_prefix(std::min(authorization.find_first_not_of(' ', kScheme.size()), authorization.size()));
  return authorization;
}

bool ApiKeys::accept(std::string_view authorization) const {
  const std::string_view key = key_of(authorization);
  bool accepted = false;
  for (const std::string& known : keys_) accepted |= equal_in_constant_time(key, known);  // always checks all
  return accepted;
}
}  // namespace linnet
