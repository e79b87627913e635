#include "exec/device_run.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace linnet {
namespace {

constexpr size_t kAlignment = 256;
// Outputs up to this size (losses, counts, norms) come back together; a larger one when it is asked for.
constexpr size_t kSmall = 4096;

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

DeviceRun::DeviceRun(const Plan& plan, const Store& store, const std::map<std::string, TensorView>& outputs)
    : device_(*store.device()) {
  find_batch(plan, store);
  if (slot_bytes_ > 0) staging_ = device_.allocate_host(kSlots * slot_bytes_);
  size_t bytes = 0;
  for (const auto& [name, view] : outputs) bytes += aligned(view.type.bytes());
  if (bytes > 0) mirror_ = device_.allocate_host(bytes);
  size_t offset = 0;
  for (const auto& [name, view] : outputs) {
    TensorView host = view;
    host.data = mirror_ + offset;
    outputs_[name] = {view, host};
    offset += aligned(view.type.bytes());
  }
}

DeviceRun::~DeviceRun() {
  if (staging_) device_.release_host(staging_);
  if (mirror_) device_.release_host(mirror_);
}

// One range for each region of batches: from the plan's first input in it to the end of the last.
void DeviceRun::find_batch(const Plan& plan, const Store& store) {
  std::map<RegionId, std::pair<size_t, size_t>> ranges;
  for (const GraphInput& input : plan.graph.inputs()) {
    const Location& place = plan.location[static_cast<size_t>(input.value)];
    if (store.regions()[static_cast<size_t>(place.region)].kind != MemoryKind::kBatch) continue;
    for (const StateUpdate& update : plan.graph.updates())
      if (update.state == input.value) fail_internal("state " + input.name + " lies among the batches");
    const size_t end = place.offset + plan.graph.value(input.value).type.bytes();
    auto [range, is_new] = ranges.try_emplace(place.region, place.offset, end);
    if (!is_new) range->second = {std::min(range->second.first, place.offset), std::max(range->second.second, end)};
  }
  for (const auto& [region, range] : ranges) {
    const auto [begin, end] = range;
    batch_.push_back({store.data(region) + begin, store.place(region) + begin, end - begin, slot_bytes_});
    slot_bytes_ += aligned(end - begin);
  }
}

void DeviceRun::push_batch() {
  if (batch_.empty()) return;
  std::byte* slot = staging_ + static_cast<size_t>(slot_) * slot_bytes_;
  device_.reached(slot_);
  for (const Range& range : batch_) {
    std::memcpy(slot + range.staged, range.host, range.bytes);
    device_.upload(range.device, slot + range.staged, range.bytes);
  }
  device_.mark(slot_);
  slot_ = (slot_ + 1) % kSlots;
}

void DeviceRun::run(FunctionRef<void()> queue_kernels, int64_t times) {
  if (times > 1 && !batch_.empty()) fail_internal("several runs on one batch");
  push_batch();
  for (auto& [name, output] : outputs_) output.fresh = false;
  if (!warm_) {
    queue_kernels();
    warm_ = true;
    return;
  }
  std::unique_ptr<Recording>& recording = recordings_[times];
  if (!recording) recording = device_.record(queue_kernels);
  device_.replay(*recording);
}

const TensorView& DeviceRun::output(const std::string& name) {
  const auto found = outputs_.find(name);
  if (found == outputs_.end()) fail_internal("the plan has no output " + name);
  Output& asked = found->second;
  if (asked.fresh) return asked.on_host;
  const auto fetch = [&](Output& output) {
    device_.download(static_cast<std::byte*>(output.on_host.data), static_cast<std::byte*>(output.on_device.data),
                     output.on_device.type.bytes());
    output.fresh = true;
  };
  if (asked.on_device.type.bytes() > kSmall) fetch(asked);
  for (auto& [other_name, output] : outputs_)
    if (!output.fresh && output.on_device.type.bytes() <= kSmall) fetch(output);
  device_.wait();
  return asked.on_host;
}

}  // namespace linnet
