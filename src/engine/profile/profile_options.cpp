#include "engine/profile/profile_options.h"

#include <charconv>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace linnet {
namespace {

constexpr int64_t kMostSteps = 1'000'000, kMostActive = 1000;

int64_t number(std::string_view key, std::string_view value, int64_t least, int64_t most, const std::string& shown) {
  int64_t result = -1;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
  if (error != std::errc{} || end != value.data() + value.size() || result < least || result > most)
    fail_user(shown + ": " + std::string(key) + " must be a whole number from " + std::to_string(least) + " to " +
              std::to_string(most) + ", got '" + std::string(value) + "'");
  return result;
}

}  // namespace

ProfileOptions parse_profile_options(const std::string& text, const std::string& shown) {
  ProfileOptions options;
  options.active = 3;
  const std::pair<std::string_view, int64_t*> keys[] = {{"wait", &options.wait},
                                                        {"warmup", &options.warmup},
                                                        {"active", &options.active},
                                                        {"repeat", &options.repeat},
                                                        {"skip_first", &options.skip_first}};
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(part.size() < rest.size() ? part.size() + 1 : part.size());
    const std::string_view key = part.substr(0, part.find('='));
    const std::string_view value = key.size() < part.size() ? part.substr(key.size() + 1) : "";
    int64_t* target = nullptr;
    for (const auto& [name, field] : keys)
      if (key == name) target = field;
    if (!target)
      fail_user(shown + ": unknown key '" + std::string(key) + "'; there are wait, warmup, active, repeat, skip_first");
    const bool from_one = key == "active" || key == "repeat";
    *target = number(key, value, from_one ? 1 : 0, key == "active" ? kMostActive : kMostSteps, shown);
  }
  return options;
}

ProfileOptions profile_options_from_environment() {
  const char* text = std::getenv("LINNET_PROFILE");
  if (!text || !*text) return {};
  ProfileOptions options = parse_profile_options(text, "LINNET_PROFILE");
  if (const char* folder = std::getenv("LINNET_PROFILE_FOLDER"); folder && *folder) options.folder = folder;
  return options;
}

}  // namespace linnet
