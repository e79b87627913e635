#include "tasks/session_task.h"

#include <malloc.h>

#include "base/process_memory.h"
#include "training/run/pretrained_run.h"

namespace linnet {

void SessionTask::prepare(Capacity capacity) {
  session_ = make_session(config_, capacity == Capacity::kMustSuffice);
  if (allocate_within(*session_, advice(), capacity)) begin();
  malloc_trim(0);  // what loading and planning freed should not count
  forecast_ = forecast_memory(resident_bytes(), session_->store);
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
