#include "engine/exec/device_run.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/rounding.h"

namespace linnet {
namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kSmall = 4096;  // bytes of an output that comes home by itself

}  // namespace

DeviceRun::DeviceRun(const Plan& plan, const Store& store, const std::map<std::string, TensorView>& outputs)
    : device_(store.device()) {
  find_batch(plan, store);
  if (slot_bytes_ > 0) staging_ = device_.allocate_host(kSlots * slot_bytes_);
  find_outputs(outputs);
}

DeviceRun::~DeviceRun() {
  if (staging_) device_.release_host(staging_);
  if (mirror_) device_.release_host(mirror_);
}

// One range for each region of batches: from the plan's first input in it to the end of the last.
void DeviceRun::find_batch(const Plan& plan, const Store& store) {
  std::map<RegionId, std::pair<size_t, size_t>> ranges;
  for (const GraphInput& input : plan.graph.inputs()) {
    const Location& location = plan.location[static_cast<size_t>(input.value)];
    if (store.regions()[static_cast<size_t>(location.region)].kind != MemoryKind::kBatch) continue;
    for (const StateUpdate& update : plan.graph.updates())
      if (update.state == input.value) fail_internal("state " + input.name + " lies among the batches");
    const size_t end = location.offset + plan.graph.value(input.value).type.bytes();
    auto [range, is_new] = ranges.try_emplace(location.region, location.offset, end);
    if (!is_new) range->second = {std::min(range->second.first, location.offset), std::max(range->second.second, end)};
  }
  for (const auto& [region, range] : ranges) {
    const auto [begin, end] = range;
    batch_.push_back({store.data(region) + begin, store.location(region) + begin, end - begin, slot_bytes_});
    slot_bytes_ += round_up(end - begin, kAlignment);
  }
}

void DeviceRun::find_outputs(const std::map<std::string, TensorView>& outputs) {
  size_t bytes = 0;
  for (const auto& [name, view] : outputs) {
    Output& output = outputs_[name];
    output.on_device = view;
    output.is_small = view.type.bytes() <= kSmall;
    bytes += round_up(view.type.bytes(), kAlignment) * (output.is_small ? kKept : 1);
  }
  if (bytes == 0) return;
  mirror_ = device_.allocate_host(bytes);
  std::byte* location = mirror_;
  for (auto& [name, output] : outputs_)
    for (int64_t i = 0; i < (output.is_small ? kKept : 1); ++i) {
      TensorView& host = output.on_host[static_cast<size_t>(i)] = output.on_device;
      host.data = std::exchange(location, location + round_up(output.on_device.type.bytes(), kAlignment));
    }
}

void DeviceRun::push_batch() {
  if (batch_.empty()) return;
  std::byte* slot = staging_ + slot_ * slot_bytes_;
  device_.reached(pushed_[slot_]);
  for (const Range& range : batch_) {
    std::memcpy(slot + range.staged, range.host, range.bytes);
    device_.upload(range.device, slot + range.staged, range.bytes);
  }
  pushed_[slot_] = device_.mark();
  slot_ = (slot_ + 1) % kSlots;
}

int64_t DeviceRun::run(FunctionRef<void()> queue_kernels, int64_t times, bool replay) {
  if (times > 1 && !batch_.empty()) fail_internal("several runs on one batch");
  push_batch();
  if (++runs_ == 1 || !replay) {
    queue_kernels();
  } else {
    std::unique_ptr<Recording>& recording = recordings_[times];
    if (!recording) recording = device_.record(queue_kernels);
    device_.replay(*recording);
  }
  pull_small_outputs();
  return runs_;
}

void DeviceRun::pull_small_outputs() {
  const auto kept = static_cast<size_t>(runs_ % kKept);
  for (auto& [name, output] : outputs_) {
    output.fresh = false;
    if (output.is_small)
      device_.download(static_cast<std::byte*>(output.on_host[kept].data),
                       static_cast<const std::byte*>(output.on_device.data), output.on_device.type.bytes());
  }
  done_[kept] = device_.mark();
}

const TensorView& DeviceRun::output(const std::string& name, int64_t run) {
  const auto found = outputs_.find(name);
  if (found == outputs_.end()) fail_internal("the plan has no output " + name);
  Output& output = found->second;
  if (run == 0) run = runs_;
  if (run <= runs_ - (output.is_small ? kKept : 1) || run > runs_)
    fail_internal("output " + name + " of run " + std::to_string(run) + " was asked for after " +
                  std::to_string(runs_) + " runs");
  if (output.is_small) {
    const auto kept = static_cast<size_t>(run % kKept);
    device_.reached(done_[kept]);
    return output.on_host[kept];
  }
  TensorView& host = output.on_host[0];
  if (!output.fresh)
    device_.download(static_cast<std::byte*>(host.data), static_cast<const std::byte*>(output.on_device.data),
                     host.type.bytes());
  output.fresh = true;
  device_.wait();
  return host;
}

}  // namespace linnet
