// What the parts of plan_memory() share.
#pragma once
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "models/nn/stage_text.h"
#include "engine/passes/passes.h"
#include "training/run/run_record.h"
#include "tasks/planning/plan_memory.h"
#include "tasks/planning/rank_work.h"

namespace linnet {

// Whether a plan reads the data of its configuration.
struct DataAtHand {
  bool read = false;
  std::string why_not;  // "No text was given": the beginning of PlanAnswer::assumption
  uint64_t bytes = 0;   // of the files that are there
  // Tokens of a text that is not read, by its size.
  int64_t assumed_tokens(const DataConfig& data) const;
};
// `name`: what `paths`, the files or folders of the data, hold: "text". `quick`: bytes that are read in a moment.
DataAtHand data_at_hand(const std::string& name, const std::vector<std::string>& paths, bool exact,
                        uint64_t quick = 8 << 20);

// The text of a language model.
DataAtHand text_at_hand(const Config& config, bool exact);

// The largest value with fits(value), found by doubling, then bisection; 0 if fits(step) is false.
int64_t largest_fit(int64_t step, int64_t most, const std::function<bool(int64_t)>& fits);

// What there is to say of `session`, and the largest batch_size within request.memory. make_session(rows): one of so
// many rows; `most`: rows that hold all examples; `measured`: what the process holds.
template <class Session, class MakeSession>
void answer_rows(PlanAnswer& answer, Session&& session, int64_t most, uint64_t measured, const PlanRequest& request,
                 const MakeSession& make_session) {
  const uint64_t resident = request.resident.value_or(measured);
  session.finish_planning(resident);
  answer.forecast = forecast_memory(resident, session.store);
  answer.recomputation = session.trainer->largest_fit().text();
  answer.parameters = session.layout.whole_parameter_count();
  answer.stage = stage_text(session.layout);
  std::tie(answer.arena_bytes, answer.arena_lower_bound) = session.trainer->arena_use();
  answer.fusion = fusion_report(session.trainer->pass_reports());
  answer.memory_record = memory_record(*session.trainer, session.store, answer.forecast);
  answer.batch_key = "batch_size";
  if (request.visit) request.visit(*session.trainer);
  if (request.speed) answer.step_seconds = estimated_step_seconds(*session.trainer, *request.speed);
  if (request.visit || request.speed) return;
  answer.largest_batch = largest_fit(1, most, [&](int64_t rows) {
    const auto other = make_session(rows);
    other->finish_planning(resident);
    const uint64_t peak = forecast_memory(resident, other->store).peak();
    if (rows == 1) answer.least_peak = peak;
    return peak <= request.memory;
  });
  answer.all_fit = answer.largest_batch >= most;
}

PlanAnswer plan_translation(const PlanRequest& request);
PlanAnswer plan_images(const PlanRequest& request);
PlanAnswer plan_language(const PlanRequest& request);
PlanAnswer plan_masked(const PlanRequest& request);
PlanAnswer plan_classification(const PlanRequest& request);

}  // namespace linnet
