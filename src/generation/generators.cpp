#include "generation/generators.h"
#include <algorithm>
#include <numeric>
#include "base/fail.h"

namespace linnet {
namespace {
// The requests of one call. Its destructor cancels them, also on an exception, as their listeners end with the call.
struct Submitted {
  explicit Submitted(Engine& engine) : engine(engine) {}
  ~Submitted() {
    cancel();
    engine.take_finished();
  }
  Submitted(const Submitted&) = delete;
  Submitted& operator=(const Submitted&) = delete;
  void cancel() {
    for (const auto& [id, index] : index_of) engine.cancel(id);
  }

  Engine& engine;
  std::map<RequestId, size_t> index_of;
};
}  // namespace

std::vector<Continuation> CausalGenerator::generate(std::span<const std::vector<int32_t>> prompts,
    const GenerateSettings& settings, ThreadPool& pool, const Listener& listener) {
  const bool search = engine_.beams() > 1;
  Submitted submitted(engine_);
  for (size_t i = 0; i < prompts.size(); ++i) {
    GenerateRequest request{.prompt = prompts[i], .settings = settings, .beams = engine_.beams()};
    request.settings.first_sample += i;
    request.listener = [&, row = static_cast<int64_t>(i)](const GeneratedToken& heard) {
      last_logits_ = heard.logits;
      if (listener && !listener(search ? -1 : row, heard.token)) submitted.cancel();
      return true;
    };
    submitted.index_of[engine_.submit(std::move(request))] = i;
  }
  while (engine_.busy()) engine_.step(pool);
  std::vector<Continuation> results(prompts.size());
  for (FinishedRequest& finished : engine_.take_finished())
    results[submitted.index_of.at(finished.id)] = std::move(finished.result);
  return results;
}

std::vector<std::vector<Hypothesis>> SourceGenerator::generate(std::span<const std::vector<int32_t>> sources,
    int64_t n_best, ThreadPool& pool, const std::function<void(int64_t done)>& progress) {
  const int64_t beams = engine_.beams();
  if (n_best < 1 || n_best > beams) fail_user("asked for the ", n_best, " best translations of ", beams, " beams");
  // Long sources first, as they take the most steps. Neighbors have similar lengths and are encoded together.
  std::vector<size_t> order(sources.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](size_t i) { return sources[i].size(); });
  Submitted submitted(engine_);
  for (const size_t i : order) {
    GenerateRequest request{
        .prompt = sources[i], .settings = settings_.generate, .beams = beams, .search = true, .n_best = n_best};
    const double most =
        settings_.length_ratio * static_cast<double>(sources[i].size()) + static_cast<double>(settings_.length_margin);
    request.settings.max_tokens = std::max<int64_t>(1, static_cast<int64_t>(most));
    submitted.index_of[engine_.submit(std::move(request))] = i;
  }
  std::vector<std::vector<Hypothesis>> results(sources.size());
  for (int64_t done = 0; engine_.busy();) {
    engine_.step(pool);
    for (FinishedRequest& finished : engine_.take_finished())
      results[submitted.index_of.at(finished.id)] = std::move(finished.hypotheses), ++done;
    if (progress) progress(done);
  }
  return results;
}
}  // namespace linnet
