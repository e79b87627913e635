#include "engine/ir/source_line.h"
#include <cstring>
#include <mutex>
#include <set>

namespace linnet {
namespace {
const char* intern(std::string_view text) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>> strings;
  const std::lock_guard lock(mutex);
  const auto found = strings.find(text);
  return (found != strings.end() ? found : strings.emplace(text).first)->c_str();
}
}  // namespace

std::string SourceLine::text() const {
  const char* slash = std::strrchr(file, '/');
  return std::string(slash ? slash + 1 : file) + ":" + std::to_string(line);
}

SourceLine intern_source_line(std::string_view file, uint32_t line, std::string_view function) {
  return {intern(file), line, intern(function)};
}
}  // namespace linnet
