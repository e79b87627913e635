// Any bytes are either a file of plans that can be written again, or a user error of one line. The checksum is made
// right here, so that the reader behind it is reached.
#include "base/hash.h"
#include "fuzz/fuzzing.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/plan/plan_file.h"

using namespace linnet;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string contents = fuzzing::as_text(data, size);
  const uint64_t hash = fnv1a(contents);
  const uint32_t version = 1;
  std::string bytes = "LINNETPL";
  bytes.append(reinterpret_cast<const char*>(&hash), sizeof hash);
  bytes.append(reinterpret_cast<const char*>(&version), sizeof version);
  bytes += contents;
  fuzzing::only_user_errors([&] {
    Store store;
    const LoadedPlans loaded = parse_plans(bytes, store, fuzzing::kName);
    NamedPlans plans;
    for (const auto& [name, plan] : loaded.plans) plans[name] = &plan;
    Store again;
    parse_plans(plans_to_bytes(store, loaded.shared, plans), again, fuzzing::kName);
  });
  return 0;
}
