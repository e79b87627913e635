// Sessions that only evaluate or generate: a run's or a model folder's weights in planned memory.
#pragma once
#include <string>

#include "app/memory_report.h"
#include "app/run_folder.h"
#include "train/checkpoint.h"

namespace linnet {

// Takes the memory a session has planned and has `load(layout, parameters)` fill it. `advice`: what needs less, for the
// error when it does not fit.
template <class Session, class Load>
void take_weights(Session& session, const std::string& advice, const Load& load) {
  check_fits(session.store, advice);
  session.allocate();
  session.store.touch();
  session.trainer->initialize();  // the constants; the parameters are read next
  load(session.layout, session.trainer->state("parameters"));
  session.trainer->push_states();
}

// The best weights of the run in `folder`.
template <class Session>
void take_run_weights(Session& session, const std::string& folder) {
  take_weights(session, "", [&](const ParameterLayout& layout, float* parameters) {
    load_model(RunFolder(folder).best_weights(), layout, parameters);
  });
}

}  // namespace linnet
