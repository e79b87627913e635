// Any text is either a configuration that survives its own printing, or a user error of one line.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include "base/error.h"
#include "config/config.h"

namespace {
template <typename Action> void only_user_errors(Action action) {
  try {
    action();
  } catch (const linnet::Error& error) {
    if (error.kind() != linnet::ErrorKind::kUser || std::strchr(error.what(), '\n')) std::abort();
  }
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  only_user_errors([&] {
    const linnet::Config config = linnet::parse_config(text, "fuzz");
    if (linnet::parse_config(linnet::to_toml(config, true), "printed") != config) std::abort();
    linnet::validate(config);
  });
  only_user_errors([&] {
    linnet::Config config;
    linnet::set_value(config, text);
    if (linnet::parse_config(linnet::to_toml(config, false), "printed") != config) std::abort();
  });
  return 0;
}
