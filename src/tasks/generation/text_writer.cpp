#include "tasks/generation/text_writer.h"
#include "base/log.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
void log_reuse(const EngineCounts& counts) {
  if (counts.reused_tokens > 0)
    log_info(
        "prefix cache: ", counts.reused_tokens, " of ", counts.prompt_tokens, " tokens of prompts were there already");
  if (counts.guessed > 0)
    log_info("draft model: ", counts.accepted, " of ", counts.guessed, " guesses were right (",
        100 * counts.accepted / counts.guessed, "%)");
}

TextWriter::TextWriter(const std::string& folder, const std::vector<TextRequest>& requests)
    : model_(open_text_model(folder, requests.at(0).options)), samples_(requests[0].options.samples) {
  bool default_temperature = false;
  for (const TextRequest& request : requests) {
    jobs_.push_back(model_->prepare(request, jobs_.empty()));
    default_temperature = default_temperature || jobs_.back().choice.default_temperature;
  }
  if (default_temperature)
    log_info("sampling at temperature 1, as nothing says otherwise; --temperature 0 takes the likeliest token");
  texts_.resize(jobs_.size());
  model_->plan(jobs_, samples_);
}

// Submits all samples of a job to the engine.
void TextWriter::begin(size_t job) {
  std::vector<Text>& texts = texts_[job];
  texts.reserve(samples_);  // listeners keep pointers
  for (int64_t i = 0; i < samples_; ++i) {
    Text& text = texts.emplace_back(Text{.row = WrittenRow(jobs_[job])});
    GenerateRequest request = model_->engine_request(jobs_[job], static_cast<uint64_t>(i));
    request.listener = [&text](const GeneratedToken& heard) {
      if (heard.token >= 0) text.unheard += text.row.push(heard.token);
      return !text.row.stopped();
    };
    writing_[model_->engine().submit(std::move(request))] = &text;
  }
}

void TextWriter::collect() {
  for (FinishedRequest& finished : model_->engine().take_finished()) {
    Text& text = *writing_.extract(finished.id).mapped();
    text.finished = std::move(finished), text.done = true;
  }
}

std::vector<WrittenText> TextWriter::write(size_t request, const TextListener& hear) {
  std::vector<Text>& texts = texts_[request];
  if (texts.empty()) begin(request);
  ahead_ = std::max(ahead_, request + 1);
  bool go_on = hear(std::exchange(texts[0].unheard, {}));
  while (go_on && !std::ranges::all_of(texts, &Text::done)) {
    // Fills free engine slots with the next requests.
    for (; ahead_ < jobs_.size() && static_cast<int64_t>(writing_.size()) < model_->engine().slots(); ++ahead_)
      if (texts_[ahead_].empty()) begin(ahead_);
    model_->engine().step(model_->pool());
    collect();
    go_on = hear(std::exchange(texts[0].unheard, {}));
  }
  if (!go_on)
    for (const auto& [id, text] : writing_)
      if (text >= &texts.front() && text <= &texts.back()) model_->engine().cancel(id);
  collect();
  std::vector<WrittenText> written;
  for (Text& text : texts) {
    const bool first = &text == &texts[0];
    if (const std::string rest = text.row.finish(text.finished.result); first && !rest.empty()) hear(rest);
    written.push_back(written_text(text.finished.result, text.row, text.finished.reason != EndReason::kCancelled));
  }
  texts.clear();
  return written;
}

std::string WrittenRow::finish(const Continuation& result) {
  std::string rest;
  for (size_t i = 0; search_ && i < result.tokens.size(); ++i) rest += push(result.tokens[i]);
  return stopped_ ? rest : rest + take(flow_->finish(), true);
}

std::string WrittenRow::take(const std::string& piece, bool last) {
  pending_ += replace_invalid_utf8(piece);
  size_t first = pending_.npos;
  for (const std::string& stop : stops_) first = std::min(first, pending_.find(stop));
  stopped_ = first != pending_.npos;
  const size_t size = stopped_ ? first : pending_.size() - (last ? 0 : held_back());
  const std::string certain = pending_.substr(0, size);
  pending_.erase(0, size);
  text_ += certain;
  return certain;
}

size_t WrittenRow::held_back() const {
  size_t most = 0;
  for (const std::string& stop : stops_)
    for (size_t size = std::min(stop.size() - 1, pending_.size()); size > most; --size)
      if (pending_.ends_with(std::string_view(stop).substr(0, size))) most = size;
  return most;
}

WrittenText written_text(const Continuation& result, const WrittenRow& row, bool go_on) {
  WrittenText text{.text = row.text(),
      .tokens = result.tokens,
      .log_probabilities = result.log_probabilities,
      .log_probability = result.log_probability,
      .end_token = result.end_token,
      .end = go_on ? TextEnd::kLength : TextEnd::kInterrupted};
  if (row.stopped()) text.end = TextEnd::kStopText;
  if (result.ended) text.end = TextEnd::kEndToken;
  return text;
}
}  // namespace linnet
