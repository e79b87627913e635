
#include "base/json.h"
#include "tasks/generation/text_request.h"

namespace linnet {

std::string ask(const std::string& question, const std::string& system) {
  Json messages = Json::array();
  if (!system.empty()) messages.push_back({{"role", "system"}, {"content", system}});
  messages.push_back({{"role", "user"}, {"content", question}});
  return messages.dump();
}

}  // namespace linnet
