#include "training/run/memory_report.h"
#include <fmt/format.h>
#include "base/fail.h"
#include "base/process.h"
#include "base/text.h"

namespace linnet {
namespace {
// Program code paged in later, thread stacks, evaluation texts.
constexpr uint64_t kUnplanned = 5 << 20;

uint64_t available_for(const MemoryForecast& forecast, const Store& store) {
  return store.device().is_host() ? available_memory() : forecast.limit;
}
}  // namespace

uint64_t MemoryForecast::peak() const { return sum_of<uint64_t>(items, &MemoryItem::bytes); }

std::string MemoryForecast::text() const {
  const auto line = [](const std::string& name, uint64_t bytes) {
    return fmt::format("  {:<25} {:10.1f} MB\n", name, static_cast<double>(bytes) / 1e6);
  };
  return joined(items, "", [&](const MemoryItem& item) { return line(item.name, item.bytes); }) + line("peak", peak());
}

uint64_t MemoryForecast::bytes(MemoryKind kind) const {
  return sum_of<uint64_t>(items, [&](const MemoryItem& item) { return item.name == enum_name(kind) ? item.bytes : 0; });
}

MemoryForecast forecast_memory(uint64_t resident, const Store& store) {
  MemoryForecast forecast{.resident = resident};
  const Device& device = store.device();
  if (device.is_host()) forecast.items.push_back({"program, text, plans", resident});
  else forecast.where = device.info().name, forecast.limit = device.info().free_bytes;
  std::map<MemoryKind, uint64_t> by_kind;
  for (const Store::Region& region : store.regions()) by_kind[region.kind] += device.footprint(region.bytes);
  for (const auto& [kind, bytes] : by_kind) forecast.items.push_back({enum_name(kind), bytes});
  if (device.is_host()) forecast.items.push_back({"code, stacks, strings", kUnplanned});
  return forecast;
}

uint64_t bytes_beside(uint64_t resident, const Store& store) {
  return store.device().is_host() ? resident + kUnplanned : 0;
}

bool fits(const Store& store) {
  const MemoryForecast forecast = forecast_memory(resident_bytes(), store);
  return forecast.peak() <= available_for(forecast, store);
}

void check_fits(const Store& store, const std::string& advice) {
  const MemoryForecast forecast = forecast_memory(resident_bytes(), store);
  const uint64_t need = forecast.peak(), available = available_for(forecast, store);
  if (need > available)
    fail_user("this run needs ", need / 1000000, " MB at its peak and ", forecast.where, " has ", available / 1000000,
        " MB available", advice);
}

uint64_t available_memory() {
  const uint64_t left = memory_left();
  return left == UINT64_MAX ? left : left + own_bytes();
}

std::vector<std::string> split_names(const std::string& names) {
  std::vector<std::string> list;
  for (const std::string_view part : split(names, ','))
    if (std::erase(list.emplace_back(part), ' '); list.back().empty()) list.pop_back();
  return list;
}

std::optional<LoraOptions> lora_options(const Config& config) {
  if (config.lora.rank == 0) return {};
  return LoraOptions{.rank = config.lora.rank, .alpha = config.lora.alpha, .targets = split_names(config.lora.targets)};
}
}  // namespace linnet
