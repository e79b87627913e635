#include "generation/causal_generator.h"

namespace linnet {

std::vector<Continuation> CausalGenerator::generate(std::span<const std::vector<int32_t>> prompts,
                                                    const GenerateSettings& settings, ThreadPool& pool,
                                                    const Listener& listener) {
  const bool search = engine_.beams() > 1;
  std::vector<RequestId> ids;
  const auto cancel_all = [&] {
    for (const RequestId id : ids) engine_.cancel(id);
  };
  try {
    for (size_t i = 0; i < prompts.size(); ++i) {
      GenerateRequest request{.prompt = prompts[i], .settings = settings, .beams = engine_.beams()};
      request.settings.first_sample += i;
      request.listener = [&, row = static_cast<int64_t>(i)](const GeneratedToken& heard) {
        last_logits_ = heard.logits;
        const bool stops = !search && settings.ends_row && settings.ends_row(row, heard.token);
        if (listener && !listener(search ? -1 : row, heard.token)) cancel_all();
        return !stops;
      };
      ids.push_back(engine_.submit(std::move(request)));
    }
    while (engine_.busy()) engine_.step(pool);
  } catch (...) {
    cancel_all();  // their listeners end with this call
    engine_.take_finished();
    throw;
  }
  std::vector<Continuation> results(prompts.size());
  for (FinishedRequest& finished : engine_.take_finished())
    results[static_cast<size_t>(finished.id - ids.front())] = std::move(finished.result);
  return results;
}

}  // namespace linnet
