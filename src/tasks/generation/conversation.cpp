#include <nlohmann/json.hpp>

#include "tasks/generation/text_request.h"

namespace linnet {

std::string ask(const std::string& question, const std::string& system) {
  using Json = nlohmann::ordered_json;
  Json messages = Json::array();
  if (!system.empty()) messages.push_back({{"role", "system"}, {"content", system}});
  messages.push_back({{"role", "user"}, {"content", question}});
  return messages.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace linnet
