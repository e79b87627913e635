#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <memory>
#include <string_view>

namespace linnet {
namespace {

spdlog::level::level_enum level_from_environment() {
  const char* text = std::getenv("LINNET_LOG");
  const std::string_view level = text ? text : "info";
  if (level == "off") return spdlog::level::off;
  if (level == "warning") return spdlog::level::warn;
  return spdlog::level::info;
}

spdlog::logger& logger() {
  static const auto instance = [] {
    auto made = std::make_shared<spdlog::logger>("linnet", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("linnet: %v");
    made->set_level(level_from_environment());
    made->flush_on(spdlog::level::info);
    return made;
  }();
  return *instance;
}

}  // namespace

void log_info(const std::string& message) { logger().info("{}", message); }
bool log_shows_info() { return logger().should_log(spdlog::level::info); }
void silence_log() { logger().set_level(spdlog::level::off); }
void log_warning(const std::string& message) { logger().warn("warning: {}", message); }

}  // namespace linnet
