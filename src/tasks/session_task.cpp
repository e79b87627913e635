#include "tasks/session_task.h"

#include <malloc.h>

#include <utility>

#include "base/process_memory.h"
#include "training/run/pretrained_run.h"

namespace linnet {

namespace {

// What freed memory still takes is given back, so that it does not count.
uint64_t trimmed_resident_bytes() {
  malloc_trim(0);
  return resident_bytes();
}

}  // namespace

// With a limit of memory training steps are planned for what the process leaves of it. The plans themselves and what
// follows them take memory too, which is known only afterwards: then they are planned again, until all are within the
// limit or take no less.
void SessionTask::prepare(Capacity capacity) {
  constexpr uint64_t kMargin = 256 << 10;
  const bool must_suffice = capacity == Capacity::kMustSuffice;
  uint64_t reserve = 1 << 20, peak = UINT64_MAX;
  for (;;) {
    session_.reset();
    session_ = make_session(config_, must_suffice);
    session_->finish_planning(trimmed_resident_bytes() + reserve);
    if (must_suffice) check_fits(session_->store, advice());
    if (must_suffice || fits(session_->store)) session_->allocate(), begin();
    forecast_ = forecast_memory(trimmed_resident_bytes(), session_->store);
    const uint64_t limit = session_->trainer->options().memory, before = std::exchange(peak, forecast_.peak());
    if (limit == 0 || peak <= limit) return;
    if (peak >= before) break;
    reserve += peak - limit + kMargin;
  }
  if (must_suffice) check_limit(*session_, peak, advice());
}

const PretrainedModel* SessionTask::starts_from() const {
  const PretrainedModel* model = pretrained();
  return model && !model->folder.empty() ? model : nullptr;
}

void SessionTask::initialize() {
  trainer().initialize();
  if (const PretrainedModel* from = starts_from()) load_initial_weights(trainer(), *from, config_);
}

}  // namespace linnet
