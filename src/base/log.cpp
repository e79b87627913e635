#include "base/log.h"
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace linnet {
namespace {

enum class Level { kInfo, kWarning, kOff };

Level level_from_environment() {
  const char* text = std::getenv("LINNET_LOG");
  const std::string_view level = text ? text : "info";
  if (level == "off") return Level::kOff;
  return level == "warning" ? Level::kWarning : Level::kInfo;
}

std::atomic<Level>& level() {
  static std::atomic<Level> current = level_from_environment();
  return current;
}

// The whole line in one call, so that lines of several threads do not mix.
void print(const char* begin, const std::string& message) {
  const std::string line = begin + message + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

bool log_shows_info() { return level() == Level::kInfo; }
void silence_log() { level() = Level::kOff; }
void log_info(const std::string& message) {
  if (log_shows_info()) print("linnet: ", message);
}
void log_warning(const std::string& message) {
  if (level() != Level::kOff) print("linnet: warning: ", message);
}

}  // namespace linnet
