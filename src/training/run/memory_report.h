// The memory a run will take, known before its first step.
#pragma once
#include "base/error.h"
#include "config/config.h"
#include "engine/plan/store.h"
#include "models/families/lora.h"

namespace linnet {

struct MemoryItem {
  std::string name;
  uint64_t bytes;
};

struct MemoryForecast {
  // On the CPU what the process held before planning, then each kind of planned memory; on a device the latter alone.
  std::vector<MemoryItem> items;
  uint64_t resident = 0;  // the first of these
  std::string where = "the machine";
  uint64_t limit = 0;  // of a device: its free memory
  uint64_t peak() const;
  std::string text() const;  // a table, one item a line, in MB
};

// Error(kUser) of a run that takes more than the limit that its configuration sets.
class DoesNotFit : public Error {
 public:
  explicit DoesNotFit(const std::string& message) : Error(ErrorKind::kUser, message) {}
};

// `resident`: of the process, its data, its plans and prefetch buffers, before planned memory is touched.
MemoryForecast forecast_memory(uint64_t resident, const Store& store);

// What forecast_memory() counts beside the store's regions.
uint64_t bytes_beside(uint64_t resident, const Store& store);

// Whether the machine has what the store's memory and the process take.
bool fits(const Store& store);
// Throws Error(kUser) with both figures when the store's memory and what the process has are more than is available.
void check_fits(const Store& store, const std::string& advice);

// What the machine has left for this process: available memory, or less where a cgroup limits it.
uint64_t available_memory();

// What a configuration says of adapters.

// [lora]; empty: no adapters.
std::optional<LoraOptions> lora_options(const Config& config);

// "a, b" as {"a", "b"}; blanks and empty names are left out.
std::vector<std::string> split_names(const std::string& names);

}  // namespace linnet
