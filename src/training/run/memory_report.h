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
  // On the CPU: RSS before planning, then each kind of planned memory; on a device only the latter.
  std::vector<MemoryItem> items;
  uint64_t resident = 0;  // the first item
  std::string where = "the machine";
  uint64_t limit = 0;  // a device's free memory
  uint64_t peak() const;
  uint64_t bytes(MemoryKind kind) const;
  std::string text() const;  // a table, one item a line, in MB
};

// Error(kUser): a run needs more than its configured memory limit.
class DoesNotFit : public Error {
 public:
  explicit DoesNotFit(const std::string& message) : Error(ErrorKind::kUser, message) {}
};

// `resident`: the process with data, plans and prefetch buffers, before planned memory is touched.
MemoryForecast forecast_memory(uint64_t resident, const Store& store);

// What forecast_memory() counts beside the store's regions.
uint64_t bytes_beside(uint64_t resident, const Store& store);

bool fits(const Store& store);
// Throws Error(kUser) with both figures if the store and the process need more than is available.
void check_fits(const Store& store, const std::string& advice);

uint64_t available_memory();  // in bytes; less where a cgroup limits it

// Options from [lora]; empty: no adapters.
std::optional<LoraOptions> lora_options(const Config& config);

// Splits "a, b" at commas; drops blanks and empty names.
std::vector<std::string> split_names(const std::string& names);
}  // namespace linnet
