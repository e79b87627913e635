#include "text/pipeline_reader-inl.h"

namespace linnet {

std::unique_ptr<Normalizer> read_normalizer(const JsonObject& json) {
  json.fail("has the type '" + json.text("type") + "', which Linnet does not know");
}

}  // namespace linnet
