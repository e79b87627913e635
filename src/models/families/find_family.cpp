#include "models/families/family.h"

namespace linnet {

const Family& find_family(const ConfigFile& config) {
  const std::string type = config.text("model_type");
  std::string known;
  for (const Family* family : families()) {
    if (type == family->model_type) return *family;
    known += (known.empty() ? "" : ", ") + std::string(family->model_type);
  }
  config.fail("\"model_type\" is \"" + type + "\", which Linnet does not know (" + known + ")");
}

}  // namespace linnet
