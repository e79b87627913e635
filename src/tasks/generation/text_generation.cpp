#include "tasks/generation/text_generation.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "exec/backend.h"
#include "nn/model_store.h"
#include "run/memory_report.h"
#include "text/chat/chat_template.h"
#include "text/unicode/utf8.h"

namespace linnet {
namespace {

constexpr int64_t kSlots = 8;  // texts that are written at once, where there are more requests than samples
constexpr int64_t kUncachedStep = 64;

int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

// The length that a prompt is padded to: at most an eighth more, so that a list of prompts needs few plans. It depends
// on this prompt alone, as the bits of its logits depend on it.
int64_t padded_length(int64_t tokens, int64_t most) {
  int64_t step = 16;
  while (tokens > 16 * step) step *= 2;
  return std::min(most, round_up(tokens, step));
}

// The folder's chat template, read when the first request needs it.
class ChatPrompts {
 public:
  explicit ChatPrompts(const OpenedLanguageModel& opened) : opened_(opened) {}

  void encode(const std::string& messages, std::vector<int32_t>& ids) {
    const PretrainedTokenizer* tokenizer = opened_.coder->pretrained();
    if (!tokenizer) fail_user("'" + opened_.folder + "' has no tokenizer with a chat template");
    if (!template_) template_.emplace(*tokenizer, opened_.folder);
    tokenizer->encode_with_special(template_->render(messages), ids);
  }

 private:
  const OpenedLanguageModel& opened_;
  std::optional<ChatTemplate> template_;
};

std::vector<int32_t> encode_prompt(const OpenedLanguageModel& opened, const TextRequest& request, ChatPrompts& chat) {
  const TextCoder& coder = *opened.coder;
  std::vector<int32_t> ids = request.tokens;
  if (!request.messages.empty()) {
    chat.encode(request.messages, ids);
  } else if (!request.has_tokens) {
    if (const size_t at = invalid_utf8_at(request.prompt); at != std::string::npos)
      fail_user(request.where + ": byte " + std::to_string(at + 1) + " is not valid UTF-8");
    coder.encode_whole(request.prompt, ids);
  }
  for (const int32_t id : ids)
    if (id >= opened.model->vocab_size())
      fail_user(request.where + ": there is no token " + std::to_string(id) + "; the model has " +
                std::to_string(opened.model->vocab_size()));
  if (const auto size = static_cast<int64_t>(ids.size()); size >= opened.model->max_length())
    fail_user(request.where + " has " + std::to_string(size) + " tokens, and the model takes " +
              std::to_string(opened.model->max_length()) + ", the text it writes included");
  if (!ids.empty()) return ids;
  if (coder.start() < 0) fail_user(request.where + " is empty, and the model has no token that begins a text");
  return {coder.start()};
}

void check_stops(const TextRequest& request, const GenerationChoice& choice) {
  for (const std::string& stop : request.options.stop)
    if (stop.empty()) fail_user(request.where + ": a stop text is empty");
  if (!request.options.stop.empty() && choice.beams > 1)
    fail_user(request.where + ": a search knows its text only at the end: give either --beam or --stop");
}

}  // namespace

TextGeneration::TextGeneration(const std::string& folder, const std::vector<TextRequest>& requests)
    : opened_(open_language_model(folder)),
      options_(requests.at(0).options),
      layout_(*opened_.model),
      store_(open_backend(options_.device)),
      pool_(options_.threads > 0 ? options_.threads : available_threads()) {
  ChatPrompts chat(opened_);
  bool default_temperature = false;
  const GenerationConfig makers = opened_.is_run ? GenerationConfig{} : read_generation_config(opened_.folder);
  for (const TextRequest& request : requests) {
    Job job{.prompt = encode_prompt(opened_, request, chat),
            .choice = {},
            .stops = request.options.stop,
            .is_chat = !request.messages.empty(),
            .log_probabilities = request.options.log_probabilities};
    job.choice = choose_generation(request.options, {opened_.folder, makers, opened_.ends(),
                                                     static_cast<int64_t>(job.prompt.size()), jobs_.empty()});
    check_stops(request, job.choice);
    default_temperature = default_temperature || (job.choice.beams == 1 && job.choice.sampling.temperature != 0 &&
                                                  !request.options.temperature && !makers.temperature);
    jobs_.push_back(std::move(job));
  }
  if (default_temperature)
    log_info("sampling at temperature 1, as nothing says otherwise; --temperature 0 takes the likeliest token");
  const SharedRegions shared = declare_model(store_, layout_);
  engine_.emplace(*opened_.model, layout_, store_, shared, plan());
  check_fits(store_, "; fewer samples, beams or tokens need less");
  store_.allocate();
  engine_->bind();
  layout_.initialize_constants(store_.as<float>("constants"), pool_);
  opened_.load_weights(layout_, store_.as<float>("parameters"));
  store_.push("constants");
  store_.push("parameters");
}

// Room for the longest of all requests.
CausalOptions TextGeneration::plan() const {
  CausalOptions plan{.cache = !options_.no_cache, .threads = pool_.size()};
  const int64_t most = opened_.model->max_length();
  std::set<int64_t> lengths;
  for (const Job& job : jobs_) {
    const auto prompt = static_cast<int64_t>(job.prompt.size()), padded = padded_length(prompt, most);
    const int64_t whole = prompt + job.choice.max_tokens;
    lengths.insert(padded);
    if (whole > most) lengths.insert(padded_length((most + 1) / 2, most));  // it goes on from its last half
    plan.max_length = std::max({plan.max_length, padded, std::min(most, whole)});
    plan.beams = std::max(plan.beams, job.choice.beams);
  }
  if (options_.no_cache)
    for (int64_t length = *lengths.begin(); length < plan.max_length; length += kUncachedStep)
      lengths.insert(std::min(length + kUncachedStep, plan.max_length));
  plan.prompt_lengths.assign(lengths.begin(), lengths.end());
  const int64_t texts = static_cast<int64_t>(jobs_.size()) * options_.samples;
  const int64_t slots = std::max(options_.samples * plan.beams, std::min(texts, kSlots));
  plan.rows = (slots + plan.beams - 1) / plan.beams;
  return plan;
}

// Gives all samples of a job to the engine.
void TextGeneration::begin(Job& job) {
  // An answer is a text of its own; what goes on from a prompt is read with it.
  const std::span<const int32_t> context = job.is_chat ? std::span<const int32_t>() : std::span(job.prompt);
  job.texts.reserve(static_cast<size_t>(options_.samples));  // listeners keep pointers
  for (int64_t i = 0; i < options_.samples; ++i) {
    Text& text = job.texts.emplace_back(Text{.row = {opened_.coder->flow(context), job.stops}});
    GenerateSettings settings{.max_tokens = job.choice.max_tokens,
                              .sampling = job.choice.sampling,
                              .length_penalty = job.choice.length_penalty,
                              .early_stopping = job.choice.early_stopping,
                              .ends = job.choice.ends,
                              .slide = job.choice.beams == 1,
                              .first_sample = static_cast<uint64_t>(i)};
    settings.log_probabilities = job.log_probabilities;
    const auto listener = [&text](const GeneratedToken& heard) {
      if (heard.token >= 0) text.unheard += text.row.push(heard.token);
      return !text.row.stopped();
    };
    writing_[engine_->submit({job.prompt, std::move(settings), job.choice.beams, listener})] = &text;
  }
}

// Keeps the engine's slots busy with the requests that come next.
void TextGeneration::begin_ahead() {
  for (; ahead_ < jobs_.size() && static_cast<int64_t>(writing_.size()) < engine_->options().slots(); ++ahead_)
    if (jobs_[ahead_].texts.empty()) begin(jobs_[ahead_]);
}

void TextGeneration::collect() {
  for (FinishedRequest& finished : engine_->take_finished()) {
    Text& text = *writing_.extract(finished.id).mapped();
    text.finished = std::move(finished), text.done = true;
  }
}

std::vector<WrittenText> TextGeneration::write(size_t request, const TextListener& hear) {
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
