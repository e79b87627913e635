#include "generation/engine.h"
#include "base/fail.h"
#include "engine/kernels/reduce/reduce.h"

namespace linnet {
struct Engine::Job {
  bool is_search() const { return search.has_value(); }
  int64_t first_size() const { return static_cast<int64_t>(sequence.size() - result.tokens.size()); }

  RequestId id;
  GenerateRequest request;
  Continuation result = {};
  int64_t first_slot = -1, slot_count = 0;
  int64_t first_row = 0;  // of the step's logits
  bool over = false;
  bool checked = false;                // its first logits are not NaN
  std::vector<int32_t> sequence = {};  // what the text begins with, and what was sampled

  // For sampling.
  std::optional<Sampler> sampler = {};
  std::optional<TokenFilter> filter = {};
  std::vector<int32_t> window = {};   // the end of `sequence` that the model reads
  bool window_changed = false;        // the cache does not hold the window
  int32_t picked = 0;                 // -1: no token continues the grammar
  double picked_log_probability = 0;  // with settings.log_probabilities
  std::vector<int32_t> guesses = {};  // by the draft model, after the window
  int64_t draft_length = 0;           // tokens of the window in the draft's cache; 0: not begun
  int64_t draft_row = 0;              // of the draft's logits

  // For a search.
  int64_t limit = 0;  // most generated tokens
  std::optional<BeamSearch> search = {};
  std::vector<float> values = {};  // the likeliest tokens' logits by beam
  std::vector<int32_t> ids = {};
};

namespace {
BeamOptions beam_options(const GenerateSettings& settings, const std::vector<int32_t>& before) {
  return {.length_penalty = settings.length_penalty,
      .early_stopping = settings.early_stopping,
      .forced_end = settings.forced_end,
      .first = {settings.begin.begin() + std::min<ptrdiff_t>(1, std::ssize(settings.begin)), settings.begin.end()},
      .ends = settings.ends,
      .never = settings.never,
      .rules = settings.rules,
      .before = before};
}

// Broken weights show at the first token; later ones are not checked.
void check_numbers(std::span<const float> logits) {
  if (std::ranges::any_of(logits, [](float value) { return std::isnan(value); }))
    fail_user("the model's logits are not numbers (NaN): its weights are broken");
}

void check_draft(const CausalModel& model, const CausalOptions& options, const DraftModel& draft) {
  if (draft.model.vocab_size() != model.vocab_size())
    fail_user("the draft model has a vocabulary of ", draft.model.vocab_size(), " tokens and the model one of ",
        model.vocab_size(), "; they must be the same");
  if (draft.tokens < 1) fail_user("a draft model guesses at least one token at once");
  if (options.beams > 1) fail_user("a draft model is for sampled and for greedy texts, not for beam search");
  if (!options.cache) fail_user("a draft model needs the cache");
}

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
  // What each request gives, by index.
  template <class Result> std::vector<Result> run(ThreadPool& pool, Result FinishedRequest::*result) {
    while (engine.busy()) engine.step(pool);
    std::vector<Result> results(index_of.size());
    for (FinishedRequest& finished : engine.take_finished())
      results[index_of.at(finished.id)] = std::move(finished.*result);
    return results;
  }

  Engine& engine;
  std::map<RequestId, size_t> index_of;
};
}  // namespace

Engine::Engine(CausalModel& model, const ParameterLayout& layout, Store& store, const SharedRegions& shared,
    CausalOptions options, const std::optional<DraftModel>& draft) {
  if (draft) {
    check_draft(model, options, *draft);
    draft_tokens_ = draft->tokens;
    options.tokens_per_step = draft->tokens + 1;
  }
  model_ = make_causal_slots(model, layout, store, shared, options);
  if (draft) {
    CausalOptions of_draft = options;
    of_draft.max_length = std::min(model_->room(), draft->model.max_length());
    std::erase_if(of_draft.prompt_lengths, [&](int64_t length) { return length > of_draft.max_length; });
    of_draft.adapters = 0;         // the draft guesses without adapters; the model decides
    of_draft.tokens_per_step = 2;  // the last guess, if accepted, and the token after it
    of_draft.prefix_bytes = model_->keeps_prefixes() ? kPrefixAsCache : 0;
    draft_ = make_causal_slots(draft->model, draft->layout, draft->store, draft->shared, of_draft);
  }
  taken_.resize(model_->slots());
}

Engine::Engine(EncoderDecoder& model, const ParameterLayout& layout, Store& store, const SharedRegions& shared,
    const SourceOptions& options)
    : model_(make_source_slots(model, layout, store, shared, options)), taken_(static_cast<size_t>(model_->slots())) {}

Engine::~Engine() = default;

void Engine::bind() {
  model_->bind();
  if (draft_) draft_->bind();
}

EngineCounts Engine::counts() const { return {model_->counts(), guessed_, accepted_}; }

RequestId Engine::submit(GenerateRequest request) {
  model_->check_prompt(request.prompt);
  if (request.beams < 1 || request.beams > beams())
    fail_internal("a request of ", request.beams, " beams, and the engine was planned for ", beams());
  // Names in a model's folder are unchecked; tokens beyond the vocabulary are never written.
  const auto is_unknown = [&](int32_t token) { return token < 0 || token >= model_->vocab_size(); };
  std::erase_if(request.settings.ends, is_unknown);
  std::erase_if(request.settings.never, is_unknown);
  if (const auto first = std::ranges::find_if(request.settings.begin, is_unknown);
      first != request.settings.begin.end())
    fail_user("texts of this model are to begin with token ", *first, ", and it has ", model_->vocab_size());
  auto job = std::make_unique<Job>(Job{.id = next_id_++, .request = std::move(request)});
  const GenerateSettings& settings = job->request.settings;
  job->sequence = settings.begin.empty() ? model_->first_tokens(job->request.prompt) : std::vector{settings.begin[0]};
  if (job->request.search || job->request.beams > 1) {
    job->limit = std::min(settings.max_tokens, model_->room() - job->first_size());
    job->search.emplace(job->request.beams, job->limit, beam_options(settings, job->sequence));
    const int64_t count = job->request.beams * std::min(model_->vocab_size(), job->search->candidates());
    job->values.resize(count), job->ids.resize(count);
  } else {
    job->sampler.emplace(settings.sampling, model_->vocab_size(), settings.never);
    if (settings.grammar) job->filter.emplace(settings.grammar, settings.texts, settings.ends);
    job->window = job->sequence;
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
  drop_finished();  // canceled since the last step
  decode_running(pool);
  begin_waiting(pool);
  drop_finished();
}

void Engine::decode_running(ThreadPool& pool) {
  std::vector<Job*> decoded, computed_again;
  for (const auto& job : running_)
    (model_->computes_again() || job->window_changed ? computed_again : decoded).push_back(job.get());
  if (!decoded.empty()) {
    if (draft_) guess(decoded, pool);
    model_->feed_nothing();
    for (Job* job : decoded) feed(*job);
    model_->decode(pool);
  }
  for (Job* job : decoded)
    if (!std::exchange(job->checked, true)) check_numbers(model_->decoded(job->first_row, 1).logits);
  // Prompts come last, as they overwrite the decoded logits.
  take_tokens(std::move(decoded), pool);
  std::erase_if(computed_again, [](const Job* job) { return job->over; });
  begin(computed_again, pool);
}

// Each job takes the token after its window, and further ones while the guesses were right.
void Engine::take_tokens(std::vector<Job*> jobs, ThreadPool& pool) {
  for (size_t taken = 0; !jobs.empty(); ++taken) {
    const auto output_of = [&](const Job& job) {
      return model_->decoded(job.first_row + static_cast<int64_t>(taken), job.request.beams);
    };
    pool.run(std::ssize(jobs), [&](int64_t i, int) {
      Job& job = *jobs[i];
      choose_next(job, output_of(job));
    });
    std::vector<Job*> going_on;
    for (Job* job : jobs) {
      if (job->over) continue;  // canceled by another job's listener
      const bool guessed = taken < job->guesses.size() && job->guesses[taken] == job->picked;
      accepted_ += guessed;
      accept_next(*job, output_of(*job));
      if (guessed && !job->over && !job->window_changed) going_on.push_back(job);
      else  // the draft recomputes after wrong guesses
        job->draft_length = std::min(job->draft_length, std::ssize(job->window) - 1);
    }
    jobs = std::move(going_on);
  }
}

// Tokens to guess after a window: only as many as can be taken and the draft has room for.
int64_t Engine::guesses_wanted(const Job& job) const {
  const int64_t size = std::ssize(job.window), left = job.request.settings.max_tokens - std::ssize(job.result.tokens);
  if (job.is_search() || job.draft_length == 0 || size - job.draft_length > 2) return 0;
  return std::max<int64_t>(0, std::min({draft_tokens_, left - 1, model_->room() - size, draft_->room() - size}));
}

// The draft reads what it has not seen of a window, then its own guesses.
void Engine::guess(std::span<Job* const> jobs, ThreadPool& pool) {
  std::vector<Job*> guessing;
  for (Job* job : jobs) {
    job->guesses.clear();
    if (guesses_wanted(*job) > 0) guessing.push_back(job);
  }
  while (!guessing.empty()) {
    draft_->feed_nothing();
    for (Job* job : guessing) {
      for (; job->draft_length < std::ssize(job->window); ++job->draft_length)
        job->draft_row =
            draft_->feed(job->first_slot, job->window[job->draft_length], job->draft_length + 1, job->first_slot);
      if (job->guesses.empty()) continue;
      ++job->draft_length;
      job->draft_row = draft_->feed(job->first_slot, job->guesses.back(), job->draft_length, job->first_slot);
    }
    draft_->decode(pool);
    pool.run(std::ssize(guessing), [&](int64_t i, int) {
      Job& job = *guessing[i];
      const GenerateSettings& settings = job.request.settings;
      const size_t known = job.sequence.size();
      job.sequence.insert(job.sequence.end(), job.guesses.begin(), job.guesses.end());
      job.guesses.push_back(job.sampler->pick(draft_->decoded(job.draft_row, 1).logits, job.sequence,
          settings.first_sample, job.result.tokens.size() + job.guesses.size()));
      job.sequence.resize(known);
    });
    guessed_ += std::ssize(guessing);
    std::erase_if(guessing, [&](const Job* job) { return std::ssize(job->guesses) >= guesses_wanted(*job); });
  }
}

// A search's first step feeds the beginning of the text to its first beam.
void Engine::feed(Job& job) {
  if (!job.is_search()) {
    int64_t length = std::ssize(job.window);
    job.first_row = model_->feed(job.first_slot, job.window.back(), length, job.first_slot);
    for (const int32_t guess : job.guesses) model_->feed(job.first_slot, guess, ++length, job.first_slot);
    return;
  }
  const int64_t length = job.first_size() + job.search->steps();
  if (job.search->steps() == 0) {
    job.first_row = model_->feed(job.first_slot, job.sequence.back(), length, job.first_slot);
    return;
  }
  for (int64_t beam = 0; beam < job.request.beams; ++beam) {
    const auto i = static_cast<size_t>(beam);
    const int64_t row =
        model_->feed(job.first_slot + beam, job.search->tokens()[i], length, job.first_slot + job.search->parents()[i]);
    if (beam == 0) job.first_row = row;
  }
}

// The number of requests to begin now: whole groups of prompts computed together, unless fewer wait.
int64_t Engine::worth_beginning() const {
  const int64_t at_once = model_->prompts_at_once(), waiting = std::ssize(waiting_);
  int64_t free = 0;
  for (int64_t slot = 0; slot < slots(); slot += model_->slots_for(1)) free += !taken_[slot];
  return free >= waiting ? waiting : free / at_once * at_once;
}

void Engine::begin_waiting(ThreadPool& pool) {
  std::vector<Job*> begun;
  for (int64_t left = worth_beginning(); left > 0; --left) {
    const int64_t count = model_->slots_for(waiting_.front()->request.beams), slot = find_slots(count);
    if (slot < 0) break;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    Job& job = *running_.back();
    job.first_slot = slot, job.slot_count = count;
    std::fill_n(taken_.begin() + slot, count, true);
    for (int64_t i = slot; i < slot + count; ++i) model_->use_adapter(i, job.request.adapter);
    begun.push_back(&job);
  }
  if (!begun.empty()) begin(begun, pool);
}

// The first of `count` adjacent free slots, or -1. Those of a search lie in one group, see SlotModel::feed.
int64_t Engine::find_slots(int64_t count) const {
  const int64_t group = beams();
  for (int64_t slot = 0; slot + count <= slots(); ++slot) {
    const auto first = taken_.begin() + slot;
    if (slot / group == (slot + count - 1) / group && std::find(first, first + count, true) == first + count)
      return slot;
  }
  return -1;
}

// Computes the whole prompts or windows of jobs, and takes the next tokens if the model gives logits.
void Engine::begin(std::span<Job* const> jobs, ThreadPool& pool) {
  const std::vector<SlotModel::Prompt> prompts = mapped(jobs, [&](Job* job) {
    return SlotModel::Prompt{
        job->first_slot, job->window_changed || model_->computes_again() ? job->window : job->request.prompt};
  });
  model_->begin(prompts, pool, [&](size_t i, const SlotModel::Output& output) {
    Job& job = *jobs[i];
    if (job.over) return;  // canceled by an earlier job's listener
    job.window_changed = false;
    if (!std::exchange(job.checked, true)) check_numbers(output.logits);
    choose_next(job, output);
    accept_next(job, output);
  });
  if (draft_) begin_draft(jobs, pool);
}

// The draft computes what the model has: all of a window but the token just picked.
void Engine::begin_draft(std::span<Job* const> jobs, ThreadPool& pool) {
  std::vector<SlotModel::Prompt> prompts;
  for (Job* job : jobs) {
    job->draft_length = 0;
    if (job->over || job->window_changed || job->is_search() || std::ssize(job->window) > draft_->longest_prompt())
      continue;
    job->draft_length = std::ssize(job->window) - 1;
    prompts.push_back({job->first_slot, std::span(job->window).first(job->draft_length)});
  }
  draft_->begin(prompts, pool, [](size_t, const SlotModel::Output&) {});
}

// Picks the next token, or makes a step of the search. Runs for several jobs at once.
void Engine::choose_next(Job& job, const SlotModel::Output& output) const {
  const int64_t vocab = model_->vocab_size();
  if (job.is_search()) {
    const int64_t count = static_cast<int64_t>(job.values.size()) / job.request.beams;
    const int64_t rows = job.search->steps() == 0 ? 1 : job.request.beams;
    top_k_rows(rows, vocab, count, output.logits.data(), job.values.data(), job.ids.data());
    return job.search->advance(count, job.ids.data(), job.values.data(), output.log_sum_exp.data());
  }
  const GenerateSettings& settings = job.request.settings;
  job.picked_log_probability = 0;
  if (const size_t next = job.result.tokens.size() + 1; next < settings.begin.size())
    return void(job.picked = settings.begin[next]);
  const TokenMask* allowed = job.filter ? job.filter->allowed() : nullptr;
  if (job.filter && !allowed) return void(job.picked = -1);
  const int64_t written = std::ssize(job.result.tokens);
  TokenMask ruled;
  if (settings.rules.any()) {
    ruled = allowed ? *allowed : TokenMask(static_cast<size_t>(vocab), true);
    for (const int32_t token : settings.rules.forbidden(job.sequence, written, settings.ends)) ruled[token] = false;
    allowed = &ruled;
  }
  job.picked =
      job.sampler->pick(output.logits, job.sequence, settings.first_sample, static_cast<uint64_t>(written), allowed);
  if (settings.log_probabilities)
    job.picked_log_probability = output.logits[job.picked] - log_sum_exp_of(output.logits);
}

void Engine::accept_next(Job& job, const SlotModel::Output& output) {
  job.is_search() ? accept_search_step(job) : accept_token(job, output.logits);
}

void Engine::accept_token(Job& job, std::span<const float> logits) {
  const GenerateSettings& settings = job.request.settings;
  const int32_t token = job.picked;
  if (token < 0) return finish(job, EndReason::kCacheFull);
  if (settings.log_probabilities) job.result.add(job.picked_log_probability);
  if (contains(settings.ends, token)) {
    job.result.ended = true, job.result.end_token = token;
    return finish(job, EndReason::kEndToken);
  }
  for (auto* ids : {&job.result.tokens, &job.sequence, &job.window}) ids->push_back(token);
  const bool goes_on = !job.request.listener || job.request.listener({token, logits});
  if (job.over) return;  // canceled by the listener
  if (!goes_on) return finish(job, EndReason::kListener);
  if (job.filter) job.filter->accept(token);
  if (job.filter && job.filter->finished()) {
    job.result.ended = true;
    return finish(job, EndReason::kEndToken);
  }
  if (static_cast<int64_t>(job.result.tokens.size()) == settings.max_tokens) return finish(job, EndReason::kMaxTokens);
  const int64_t room = model_->room();
  if (static_cast<int64_t>(job.window.size()) < room) return;
  if (!settings.slide) return finish(job, EndReason::kCacheFull);
  job.window.erase(job.window.begin(), job.window.end() - (room + 1) / 2);
  job.window_changed = true;
}

void Engine::accept_search_step(Job& job) {
  const bool goes_on = !job.request.listener || job.request.listener({-1, {}});
  if (job.over || (goes_on && !job.search->done())) return;
  const auto best = job.search->result(1);
  if (!job.search->done()) return finish(job, EndReason::kListener);
  if (!best.empty() && best[0].finished) return finish(job, EndReason::kEndToken);
  finish(job, job.limit < job.request.settings.max_tokens ? EndReason::kCacheFull : EndReason::kMaxTokens);
}

void Engine::finish(Job& job, EndReason reason) {
  job.over = true;
  std::vector<Hypothesis> hypotheses;
  if (job.search) hypotheses = job.search->result(job.request.n_best);
  if (!hypotheses.empty()) {
    const Hypothesis& best = hypotheses.front();
    job.result.tokens = best.ids, job.result.ended = best.finished;
    job.result.log_probability = best.log_probability;
  }
  if (job.first_slot >= 0) std::fill_n(taken_.begin() + job.first_slot, job.slot_count, false);
  finished_.push_back({job.id, std::move(job.result), reason, std::move(hypotheses)});
}

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
  return submitted.run(pool, &FinishedRequest::result);
}

std::vector<std::vector<Hypothesis>> SourceGenerator::generate(
    std::span<const std::vector<int32_t>> sources, int64_t n_best, ThreadPool& pool) {
  const int64_t beams = engine_.beams();
  if (n_best < 1 || n_best > beams) fail_user("asked for the ", n_best, " best translations of ", beams, " beams");
  // Long sources first, as they take the most steps. Neighbors have similar lengths and are encoded together.
  std::vector<size_t> order = numbers_below<size_t>(sources.size());
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
  return submitted.run(pool, &FinishedRequest::hypotheses);
}
}  // namespace linnet
