#include "engine/plan/store.h"
#include "base/fail.h"
#include "base/numbers.h"
#include "base/process.h"

namespace linnet {
RegionId Store::add_region(std::string name, MemoryKind kind, size_t bytes) {
  regions_.push_back({std::move(name), kind, bytes});
  return static_cast<RegionId>(regions_.size()) - 1;
}

RegionId Store::share_region(const Store& owner, RegionId region) {
  const Region& from = owner.regions_[region];
  Region& made = regions_.emplace_back(Region{from.name, from.kind, from.bytes});
  made.owner = &owner, made.owned_as = region;
  return static_cast<RegionId>(regions_.size()) - 1;
}

void Store::grow_region(RegionId region, size_t bytes) {
  size_t& size = regions_[region].bytes;
  if (bytes <= size) return;
  if (allocated_) fail_internal("a region grows after memory was taken");
  size = bytes;
}

void Store::bind(const std::string& name, Location location, size_t capacity) {
  if (!bindings_.try_emplace(name, Binding{location, capacity}).second) fail_internal(name, " is bound twice");
  if (location.offset + capacity > regions_[location.region].bytes) fail_internal(name, " is bound beyond its region");
}

void Store::declare(const std::string& name, MemoryKind kind, size_t bytes) {
  bind(name, {add_region(name, kind, bytes), 0}, bytes);
}

RegionId Store::declare_together(std::string region, MemoryKind kind, const Parts& parts, size_t alignment) {
  const RegionId id = add_region(std::move(region), kind, 0);
  bind_together({id, 0}, parts, alignment);
  return id;
}

void Store::bind_together(Location begin, const Parts& parts, size_t alignment) {
  for (const auto& [name, bytes] : parts) {
    const Location location = begin;
    begin.offset += round_up(bytes, alignment);
    grow_region(begin.region, begin.offset);
    bind(name, location, bytes);
  }
}

const Location& Store::find(const std::string& name, size_t bytes) const {
  const auto found = bindings_.find(name);
  if (found == bindings_.end()) fail_internal("graph input ", name, " is not bound to memory");
  if (bytes > found->second.capacity)
    fail_internal("graph input ", name, " takes ", bytes, " bytes, bound to ", found->second.capacity);
  return found->second.location;
}

bool Store::is_on_host(const Region& region) const {
  return device().is_host() || (region.kind != MemoryKind::kActivations && region.kind != MemoryKind::kWorkspace &&
                                   region.kind != MemoryKind::kCache && region.kind != MemoryKind::kData);
}

void Store::allocate() {
  const uint64_t need = total_bytes(), left = memory_left();
  if (device().is_host() && need > left)  // a process that takes more is killed without a word
    fail_user("this needs ", need / 1'000'000, " MB and the machine has ", left / 1'000'000, " MB available");
  for (Region& region : regions_) {
    if (region.owner) {
      region.memory = region.owner->location(region.owned_as);
      continue;
    }
    if (region.bytes > 0) region.memory = device().allocate(region.bytes, region.name);
    if (!is_on_host(region) || device().is_host()) continue;
    region.host_copy = Buffer(region.bytes);
    // A sum over steps must begin as 0.
    if (region.bytes > 0) device().upload(region.memory, region.host_copy.data(), region.bytes);
  }
  device().wait();
  allocated_ = true;
}

Store::~Store() {
  for (const Region& region : regions_)
    if (region.memory && !region.owner) device().release(region.memory);
}

// Host copies are touched when they are used.
void Store::touch() const {
  for (const Region& region : regions_)
    if (!region.owner) device().touch(region.memory);
}

std::byte* Store::location(RegionId region) const { return regions_[region].memory; }

void Store::fill(const std::string& name, const void* from, size_t bytes) const {
  const Location& to = find(name, bytes);
  device().upload(location(to.region) + to.offset, static_cast<const std::byte*>(from), bytes);
  device().wait();
}

std::byte* Store::data(RegionId id) const {
  const Region& region = regions_[id];
  if (!is_on_host(region)) fail_internal("region ", region.name, " has no copy on the host");
  if (region.owner) return region.owner->data(region.owned_as);
  return device().is_host() ? region.memory : region.host_copy.data();
}

void Store::push(const std::string& name) const {
  const size_t bytes = bindings_.at(name).capacity;
  if (!device().is_host() && bytes > 0) fill(name, data(name), bytes);
}

void Store::pull(const std::string& name) const {
  const Binding& binding = bindings_.at(name);
  if (device().is_host() || binding.capacity == 0) return;
  device().download(data(name), location(binding.location.region) + binding.location.offset, binding.capacity);
  device().wait();
}

std::byte* Store::data(const std::string& name) const {
  const Location& location = find(name, 0);
  return data(location.region) + location.offset;
}

size_t Store::total_bytes() const {
  return sum_of<size_t>(
      regions_, [&](const Region& region) { return region.owner ? 0 : device().footprint(region.bytes); });
}

void set_totals(const Store& store, float loss_sum, float token_count) {
  store.fill(state::kLossSum, &loss_sum, sizeof loss_sum);
  store.fill(state::kTokenCount, &token_count, sizeof token_count);
}
}  // namespace linnet
