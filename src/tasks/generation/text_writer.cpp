#include "tasks/generation/text_writer.h"

#include <algorithm>

#include "base/error.h"
#include "exec/backend.h"
#include "run/memory_report.h"

namespace linnet {

EngineWriter::EngineWriter(const TextGenerationOptions& options)
    : options_(options),
      pool_(options.threads > 0 ? options.threads : available_threads()),
      store_(open_backend(options.device)) {}

void EngineWriter::add(const TextRequest& request, Job job) {
  job.stops = request.options.stop, job.log_probabilities = request.options.log_probabilities;
  for (const std::string& stop : job.stops)
    if (stop.empty()) fail_user(request.where + ": a stop text is empty");
  if (!job.stops.empty() && job.choice.beams > 1)
    fail_user(request.where + ": a search knows its text only at the end: give either --beam or --stop");
  jobs_.push_back(std::move(job));
}

int64_t EngineWriter::texts_at_once(int64_t most) const {
  return std::max(options_.samples, std::min(static_cast<int64_t>(jobs_.size()) * options_.samples, most));
}

void EngineWriter::allocate(const std::function<void(const ParameterLayout&, float*)>& weights) {
  check_fits(store_, "; fewer samples, beams or tokens need less");
  store_.allocate();
  engine_->bind();
  layout_->initialize_constants(store_.as<float>("constants"), pool_);
  weights(*layout_, store_.as<float>("parameters"));
  store_.push("constants");
  store_.push("parameters");
}

// Gives all samples of a job to the engine.
void EngineWriter::begin(Job& job) {
  job.texts.reserve(static_cast<size_t>(options_.samples));  // listeners keep pointers
  for (int64_t i = 0; i < options_.samples; ++i) {
    Text& text = job.texts.emplace_back(Text{.row = {job.flow(), job.stops}});
    GenerateSettings settings{.max_tokens = job.choice.max_tokens,
                              .sampling = job.choice.sampling,
                              .length_penalty = job.choice.length_penalty,
                              .early_stopping = job.choice.early_stopping,
                              .forced_end = job.choice.forced_end,
                              .ends = job.choice.ends,
                              .never = never_,
                              .slide = slides_ && job.choice.beams == 1,
                              .first_sample = static_cast<uint64_t>(i)};
    settings.log_probabilities = job.log_probabilities;
    const auto listener = [&text](const GeneratedToken& heard) {
      if (heard.token >= 0) text.unheard += text.row.push(heard.token);
      return !text.row.stopped();
    };
    GenerateRequest request{.prompt = job.prompt, .settings = std::move(settings), .beams = job.choice.beams};
    request.listener = listener;
    writing_[engine_->submit(std::move(request))] = &text;
  }
}

// Keeps the engine's slots busy with the requests that come next.
void EngineWriter::begin_ahead() {
  for (; ahead_ < jobs_.size() && static_cast<int64_t>(writing_.size()) < engine_->slots(); ++ahead_)
    if (jobs_[ahead_].texts.empty()) begin(jobs_[ahead_]);
}

void EngineWriter::collect() {
  for (FinishedRequest& finished : engine_->take_finished()) {
    Text& text = *writing_.extract(finished.id).mapped();
    text.finished = std::move(finished), text.done = true;
  }
}

std::vector<WrittenText> EngineWriter::write(size_t request, const TextListener& hear) {
  Job& job = jobs_[request];
  if (job.texts.empty()) begin(job);
  ahead_ = std::max(ahead_, request + 1);
  bool go_on = hear(std::exchange(job.texts[0].unheard, {}));
  while (go_on && !std::ranges::all_of(job.texts, &Text::done)) {
    begin_ahead();
    engine_->step(pool_);
    collect();
    go_on = hear(std::exchange(job.texts[0].unheard, {}));
  }
  if (!go_on)
    for (const auto& [id, text] : writing_)
      if (text >= &job.texts.front() && text <= &job.texts.back()) engine_->cancel(id);
  collect();
  std::vector<WrittenText> texts;
  for (Text& text : job.texts) {
    const bool first = &text == &job.texts[0];
    if (job.choice.beams > 1)  // a search knows its text only at the end
      for (const int32_t token : text.finished.result.tokens)
        if (const std::string piece = text.row.push(token); first) hear(piece);
    if (const std::string rest = text.row.finish(); first && !rest.empty()) hear(rest);
    texts.push_back(written_text(text.finished.result, text.row, text.finished.reason != EndReason::kCancelled));
  }
  job.texts.clear();
  return texts;
}

}  // namespace linnet
