#include "tasks/planning/plan_memory.h"

#include <algorithm>
#include <tuple>

#include "base/process_memory.h"
#include "engine/passes/passes.h"
#include "models/nn/stage_text.h"
#include "tasks/planning/rank_work.h"
#include "tasks/task_table.h"
#include "training/run/run_record.h"

namespace linnet {
namespace {

// The largest value with fits(value), found by doubling, then bisection; 0 if fits(least) is false.
int64_t largest_fit(int64_t least, int64_t most, const std::function<bool(int64_t)>& fits) {
  if (fits(most)) return most;
  if (!fits(least)) return 0;
  int64_t low = least, high = least;
  while (high < most && fits(high = std::min(2 * high, most))) low = high;
  while (high - low > std::max<int64_t>(least, low / 64)) {
    const int64_t middle = (low + high) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

void describe(const Session& session, PlanAnswer& answer) {
  answer.recomputation = session.trainer->largest_fit().text();
  answer.parameters = session.layout.whole_parameter_count();
  answer.stage = stage_text(session.layout);
  std::tie(answer.arena_bytes, answer.arena_lower_bound) = session.trainer->arena_use();
  answer.fusion = fusion_report(session.trainer->pass_reports());
  answer.memory_record = memory_record(*session.trainer, session.store, answer.forecast);
}

}  // namespace

PlanAnswer plan_memory(const PlanRequest& request) {
  const std::unique_ptr<SessionTask> task = task_actions(request.config).make(request.config);
  PlanAnswer answer;
  const DataAtHand data = task->data_at_hand(request.exact);
  if (data.read) {
    task->open("");
    task->prepare(Capacity::kMayBeShort);
  } else {
    answer.assumption = task->assume(data);
  }
  const uint64_t resident =
      request.resident.value_or(data.read ? task->forecast().resident : resident_bytes() + task->assumed_bytes());
  const auto make_session = [&](const Config& config) {
    std::unique_ptr<Session> session = task->make_session(config, false);
    session->finish_planning(resident);
    return session;
  };
  // What was planned for real is what a run would plan.
  const bool as_planned = data.read && !request.resident;
  const std::unique_ptr<Session> made = as_planned ? nullptr : make_session(request.config);
  const Session* session = as_planned ? &task->planned() : made.get();
  answer.forecast = as_planned ? task->forecast() : forecast_memory(resident, session->store);
  describe(*session, answer);
  answer.batches = task->batches_text(*session);
  answer.shorter_key = task->shorter_key();
  answer.batch_key = task->batch_key() == &DataConfig::batch_tokens ? "batch_tokens" : "batch_size";
  if (request.visit) request.visit(*session->trainer);
  if (request.speed) answer.step_seconds = estimated_step_seconds(*session->trainer, *request.speed);
  if (request.visit || request.speed) return answer;
  const int64_t least = task->least(), most = task->most();
  answer.largest_batch = largest_fit(least, most, [&](int64_t size) {
    Config other = request.config;
    other.data.*task->batch_key() = size;
    const uint64_t peak = forecast_memory(resident, make_session(other)->store).peak();
    if (size == least) answer.least_peak = peak;
    return peak <= request.memory;
  });
  answer.all_fit = answer.largest_batch >= most;
  return answer;
}

}  // namespace linnet
