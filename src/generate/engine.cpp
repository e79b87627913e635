#include "generate/engine.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/reduce/top_k.h"

namespace linnet {

struct Engine::Job {
  bool is_search() const { return request.beams > 1; }
  int64_t prompt_size() const { return static_cast<int64_t>(request.prompt.size()); }

  RequestId id;
  GenerateRequest request;
  Continuation result = {};
  int64_t first_slot = -1;
  bool over = false;

  // Of a sampled request.
  std::optional<Sampler> sampler = {};
  std::vector<int32_t> sequence = {};  // prompt and everything generated
  std::vector<int32_t> window = {};    // the end of it that the model looks at
  bool window_changed = false;         // the cache does not hold the window
  int32_t picked = 0;
  double picked_log_probability = 0;  // with settings.log_probabilities

  // Of a search.
  int64_t limit = 0;  // tokens that it may generate
  int64_t steps = 0;
  std::optional<BeamSearch> search = {};
  std::vector<float> values = {}, sums = {};  // the likeliest tokens' logits by beam, log-sum-exps
  std::vector<int32_t> ids = {};
};

namespace {

BeamSearch start_search(const GenerateSettings& settings, int64_t beams, int64_t limit) {
  const auto& ends = settings.ends;
  BeamSearch search(1, beams, limit,
                    {.length_penalty = settings.length_penalty,
                     .early_stopping = settings.early_stopping,
                     .special = {-1, -1, -1, ends.empty() ? -1 : ends[0]},
                     .other_ends = {ends.begin() + !ends.empty(), ends.end()}});
  search.start({&limit, 1});
  return search;
}

}  // namespace

Engine::Engine(CausalModel& model, const ParameterLayout& layout, Store& store, const SharedRegions& shared,
               const CausalOptions& options)
    : model_(model, layout, store, shared, options), taken_(static_cast<size_t>(options.slots())) {}

Engine::~Engine() = default;

void Engine::bind() { model_.bind(); }

RequestId Engine::submit(GenerateRequest request) {
  model_.check_prompt(request.prompt);
  if (request.beams < 1 || request.beams > options().beams)
    fail_internal("a request of " + std::to_string(request.beams) + " beams, and the engine was planned for " +
                  std::to_string(options().beams));
  auto job = std::make_unique<Job>(Job{.id = next_id_++, .request = std::move(request)});
  const GenerateSettings& settings = job->request.settings;
  if (job->is_search()) {
    const int64_t beams = job->request.beams;
    job->limit = std::min(settings.max_tokens, options().max_length - job->prompt_size());
    job->search.emplace(start_search(settings, beams, job->limit));
    const int64_t count = beams * std::min(model_.vocab_size(), job->search->candidates());
    job->values.resize(static_cast<size_t>(count)), job->ids.resize(static_cast<size_t>(count));
    job->sums.resize(static_cast<size_t>(beams));
  } else {
    job->sampler.emplace(settings.sampling, model_.vocab_size());
    job->sequence = job->window = job->request.prompt;
  }
  waiting_.push_back(std::move(job));
  return waiting_.back()->id;
}

void Engine::cancel(RequestId id) {
  const auto is_it = [id](const auto& job) { return job->id == id && !job->over; };
  if (const auto job = std::ranges::find_if(running_, is_it); job != running_.end())
    return finish(**job, EndReason::kCancelled);
  if (const auto job = std::ranges::find_if(waiting_, is_it); job != waiting_.end()) {
    finish(**job, EndReason::kCancelled);
    waiting_.erase(job);
  }
}

bool Engine::busy() const {
  return !waiting_.empty() || std::ranges::any_of(running_, [](const auto& job) { return !job->over; });
}

std::vector<FinishedRequest> Engine::take_finished() { return std::exchange(finished_, {}); }

void Engine::step(ThreadPool& pool) {
  const auto drop_finished = [&] { std::erase_if(running_, [](const auto& job) { return job->over; }); };
  drop_finished();  // what was cancelled since the last step
  decode_running(pool);
  begin_waiting(pool);
  drop_finished();
}

void Engine::decode_running(ThreadPool& pool) {
  std::vector<Job*> decoded, sampled, computed_again;
  for (const auto& job : running_) {
    const bool again = !options().cache || job->window_changed;
    (again ? computed_again : decoded).push_back(job.get());
    if (!again && !job->is_search()) sampled.push_back(job.get());
  }
  if (!decoded.empty()) {
    model_.feed_nothing();
    for (const Job* job : decoded) feed(*job);
    model_.decode(pool);
  }
  pool.run(static_cast<int64_t>(sampled.size()), [&](int64_t i, int) {
    Job& job = *sampled[static_cast<size_t>(i)];
    pick(job, model_.decoded(job.first_slot, 1).logits);
  });
  // A listener may have cancelled a later job. Prefills come last, as they overwrite the decoded logits.
  for (Job* job : decoded) {
    if (job->over) continue;
    const SlotModel::Output output = model_.decoded(job->first_slot, job->request.beams);
    job->is_search() ? advance_search(*job, output, pool) : accept(*job, output.logits);
  }
  for (Job* job : computed_again)
    if (!job->over) begin(*job, pool);
}

void Engine::feed(const Job& job) {
  if (!job.is_search()) return model_.feed(job.first_slot, job.window.back(), static_cast<int64_t>(job.window.size()));
  for (int64_t beam = 0; beam < job.request.beams; ++beam) {
    const auto i = static_cast<size_t>(beam);
    model_.feed(job.first_slot + beam, job.search->tokens()[i], job.prompt_size() + job.steps,
                job.first_slot + job.search->parents()[i]);
  }
}

void Engine::begin_waiting(ThreadPool& pool) {
  while (!waiting_.empty()) {
    const int64_t slot = find_slots(waiting_.front()->request.beams);
    if (slot < 0) return;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    Job& job = *running_.back();
    job.first_slot = slot;
    std::fill_n(taken_.begin() + slot, job.request.beams, true);
    begin(job, pool);
  }
}

// The first of `count` free slots next to each other, or -1. Those of a search lie in one group, see SlotModel::feed.
int64_t Engine::find_slots(int64_t count) const {
  const int64_t group = options().beams;
  for (int64_t slot = 0; slot + count <= options().slots(); ++slot) {
    const auto first = taken_.begin() + slot;
    if (slot / group == (slot + count - 1) / group && std::find(first, first + count, true) == first + count)
      return slot;
  }
  return -1;
}

// Computes the whole prompt or window of a job, and takes what follows it.
void Engine::begin(Job& job, ThreadPool& pool) {
  job.window_changed = false;
  const SlotModel::Output output =
      model_.prefill(job.first_slot, job.is_search() ? job.request.prompt : job.window, pool);
  // Broken weights show after the prompt; what comes later is taken as it is.
  if (std::isnan(output.logits[0])) fail_user("the model's logits are not numbers (NaN): its weights are broken");
  if (job.is_search()) return advance_search(job, output, pool);
  pick(job, output.logits);
  accept(job, output.logits);
}

void Engine::pick(Job& job, std::span<const float> logits) const {
  const GenerateSettings& settings = job.request.settings;
  job.picked = job.sampler->pick(logits, job.sequence, settings.first_sample,
                                 static_cast<uint64_t>(job.sequence.size()) - job.request.prompt.size());
  if (settings.log_probabilities) job.picked_log_probability = log_probability_of(logits, job.picked);
}

// Adds the picked token to the text.
void Engine::accept(Job& job, std::span<const float> logits) {
  const GenerateSettings& settings = job.request.settings;
  const int32_t token = job.picked;
  if (settings.log_probabilities) job.result.add(job.picked_log_probability);
  if (std::ranges::find(settings.ends, token) != settings.ends.end()) {
    job.result.ended = true, job.result.end_token = token;
    return finish(job, EndReason::kEndToken);
  }
  for (auto* ids : {&job.result.tokens, &job.sequence, &job.window}) ids->push_back(token);
  const bool goes_on = !job.request.listener || job.request.listener({token, logits});
  if (job.over) return;  // the listener cancelled it
  if (!goes_on) return finish(job, EndReason::kListener);
  if (static_cast<int64_t>(job.result.tokens.size()) == settings.max_tokens) return finish(job, EndReason::kMaxTokens);
  const int64_t room = options().max_length;
  if (static_cast<int64_t>(job.window.size()) < room) return;
  if (!settings.slide) return finish(job, EndReason::kCacheFull);
  job.window.erase(job.window.begin(), job.window.end() - (room + 1) / 2);
  job.window_changed = true;
}

// One step of a search, whose beams `output` holds; after the prompt the first beam alone.
void Engine::advance_search(Job& job, const SlotModel::Output& output, ThreadPool& pool) {
  const auto rows = static_cast<int64_t>(output.log_sum_exp.size());
  const int64_t count = static_cast<int64_t>(job.values.size()) / job.request.beams;
  top_k_rows(rows, model_.vocab_size(), count, output.logits.data(), job.values.data(), job.ids.data(), pool);
  std::ranges::copy(output.log_sum_exp, job.sums.begin());
  job.search->advance(count, job.ids.data(), job.values.data(), job.sums.data());
  ++job.steps;
  const bool goes_on = !job.request.listener || job.request.listener({-1, {}});
  if (job.over || (goes_on && !job.search->done())) return;
  const auto best = job.search->result(0, 1);
  if (!job.search->done()) return finish(job, EndReason::kListener);
  if (!best.empty() && best[0].finished) return finish(job, EndReason::kEndToken);
  finish(job, job.limit < job.request.settings.max_tokens ? EndReason::kCacheFull : EndReason::kMaxTokens);
}

void Engine::finish(Job& job, EndReason reason) {
  job.over = true;
  if (job.search)
    for (Hypothesis& best : job.search->result(0, 1)) {
      job.result.tokens = std::move(best.ids), job.result.ended = best.finished;
      job.result.log_probability = best.log_probability;
    }
  if (job.first_slot >= 0) std::fill_n(taken_.begin() + job.first_slot, job.request.beams, false);
  finished_.push_back({job.id, std::move(job.result), reason});
}

}  // namespace linnet
