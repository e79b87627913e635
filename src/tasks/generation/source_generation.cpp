#include "tasks/generation/source_generation.h"

#include <algorithm>

#include "base/error.h"
#include "config/task_rows.h"
#include "exec/backend.h"
#include "nn/model_store.h"
#include "run/memory_report.h"
#include "run/run_folder.h"
#include "tasks/generation/written_row.h"
#include "text/pretrained_tokenizer.h"
#include "text/unicode/utf8.h"

namespace linnet {
namespace {

constexpr int64_t kSourceStep = 16;  // what the padded length is a multiple of

// As the model was trained: the text and the end token.
std::vector<int32_t> encode_source(const OpenedTranslationModel& opened, const TextRequest& request) {
  if (!request.messages.empty())
    fail_user(request.where + ": a conversation is for models that go on from their prompt");
  if (const size_t at = invalid_utf8_at(request.prompt); at != std::string::npos)
    fail_user(request.where + ": byte " + std::to_string(at + 1) + " is not valid UTF-8");
  std::vector<int32_t> ids = request.tokens;
  if (!request.has_tokens) opened.tokenizers.source->encode(request.prompt, ids);
  if (ids.empty()) fail_user(request.where + " is empty");
  if (!request.has_tokens) ids.push_back(opened.tokenizers.special.end);
  const int64_t vocabulary = opened.tokenizers.source->vocab_size();
  for (const int32_t id : ids)
    if (id >= vocabulary)
      fail_user(request.where + ": there is no token " + std::to_string(id) + "; the tokenizer has " +
                std::to_string(vocabulary));
  if (static_cast<int64_t>(ids.size()) > opened.model->max_length())
    fail_user(request.where + " has " + std::to_string(ids.size()) + " tokens, and the model takes " +
              std::to_string(opened.model->max_length()));
  return ids;
}

// Where neither the user nor the model's author says how, the likeliest answer rather than a random one.
GenerationChoice choose(const TextGenerationOptions& options, const OpenedTranslationModel& opened, bool warn) {
  if (options.no_cache) fail_user("--no-cache is for models that go on from their prompt");
  const SpecialTokens& special = opened.tokenizers.special;
  GenerationConfig makers = opened.is_run ? GenerationConfig{} : read_generation_config(opened.folder);
  makers.sample = makers.sample.value_or(false);
  // Padding is never written, which is all that Marian's folders forbid.
  std::erase_if(makers.forbidden, [&](const auto& words) { return words == std::vector<int64_t>{special.pad}; });
  GenerationChoice choice = choose_generation(options, {opened.folder, makers, {special.end}, 1, warn});
  choice.forced_end = makers.forced_end.has_value() && !options.ignore_end;
  // What is drawn needs no step for its last token, which is the end, whatever was likely.
  if (choice.forced_end && choice.beams == 1 && choice.max_tokens > 1) --choice.max_tokens;
  choice.max_tokens = std::min(choice.max_tokens, opened.model->max_length());
  return choice;
}

// The text of a target's tokens as they come.
class TargetFlow : public TextFlow {
 public:
  explicit TargetFlow(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
    if (const auto* pretrained = dynamic_cast<const PretrainedTokenizer*>(&tokenizer)) stream_.emplace(*pretrained);
  }
  std::string push(int32_t token) override {
    if (stream_) return stream_->push(token);
    ids_.push_back(token);
    const std::string text = tokenizer_.decode(ids_);
    // A tokenizer of ours may take back a blank at the end, but nothing before it.
    return text.size() > shown_ ? text.substr(std::exchange(shown_, text.size())) : "";
  }
  std::string finish() override { return stream_ ? stream_->finish() : ""; }

 private:
  const Tokenizer& tokenizer_;
  std::optional<TextStream> stream_;
  std::vector<int32_t> ids_;
  size_t shown_ = 0;
};

}  // namespace

SourceGeneration::SourceGeneration(const std::string& folder, const std::vector<TextRequest>& requests)
    : opened_(open_translation_model(folder)),
      options_(requests.at(0).options),
      layout_(*opened_.model),
      store_(open_backend(options_.device)),
      pool_(options_.threads > 0 ? options_.threads : available_threads()) {
  for (const TextRequest& request : requests) {
    Job job{encode_source(opened_, request), choose(request.options, opened_, jobs_.empty()), request.options.stop,
            request.options.log_probabilities};
    check_search(request, job);
    jobs_.push_back(std::move(job));
  }
  const SharedRegions shared = declare_model(store_, layout_);
  // Generators of one store share the first one's memory, so the largest comes first.
  for (const Job& job : jobs_) generators_[job.choice.beams] = nullptr;
  for (auto& [beams, generator] : generators_)
    generator = std::make_unique<Generator>(*opened_.model, layout_, store_, shared, plan_for(beams));
  check_fits(store_, "; fewer samples, beams or tokens need less");
  store_.allocate();
  for (auto& [beams, generator] : generators_) generator->bind();
  layout_.initialize_constants(store_.as<float>("constants"), pool_);
  opened_.load_weights(layout_, store_.as<float>("parameters"));
  store_.push("constants");
  store_.push("parameters");
}

// A search's settings are planned once: requests that search with as many beams agree on them.
void SourceGeneration::check_search(const TextRequest& request, const Job& job) const {
  for (const std::string& stop : job.stops)
    if (stop.empty()) fail_user(request.where + ": a stop text is empty");
  if (job.choice.beams == 1) return;
  if (!job.stops.empty())
    fail_user(request.where + ": a search knows its text only at the end: give either --beam or --stop");
  for (const Job& other : jobs_)
    if (other.choice.beams == job.choice.beams &&
        (other.choice.max_tokens != job.choice.max_tokens || other.choice.length_penalty != job.choice.length_penalty ||
         other.choice.ends != job.choice.ends))
      fail_user(request.where +
                ": searches of an encoder-decoder in one list have the same max_tokens, length_penalty and ignore_end");
}

GenerateOptions SourceGeneration::plan_for(int64_t beams) const {
  GenerateOptions plan;
  plan.sentences = options_.samples, plan.beams = beams;
  int64_t longest = 0, tokens = 0, all_tokens = 0;
  const GenerationChoice* choice = nullptr;
  for (const Job& job : jobs_) {
    longest = std::max(longest, static_cast<int64_t>(job.source.size()));
    all_tokens = std::max(all_tokens, job.choice.max_tokens);
    if (job.choice.beams != beams) continue;
    choice = &job.choice;
    tokens = std::max(tokens, job.choice.max_tokens);
  }
  // The first generator's caches serve the others, too.
  plan.max_length = all_tokens;
  plan.length_ratio = 0, plan.length_margin = tokens;
  const int64_t most = (longest + kSourceStep - 1) / kSourceStep * kSourceStep;
  plan.source_lengths = {std::min(most, opened_.model->max_length())};
  plan.length_penalty = choice->length_penalty, plan.early_stopping = choice->early_stopping;
  plan.forced_end = choice->forced_end;
  plan.special = opened_.tokenizers.special;
  if (std::ranges::find(choice->ends, plan.special.end) == choice->ends.end()) plan.special.end = -1;
  for (const int32_t end : choice->ends)
    if (end != plan.special.end) plan.other_ends.push_back(end);
  plan.threads = pool_.size();
  return plan;
}

std::vector<WrittenText> SourceGeneration::search(const Job& job, const TextListener& hear) {
  Generator& generator = *generators_.at(job.choice.beams);
  bool go_on = true;
  generator.set_stop([&] { return !(go_on = hear("")); });
  const std::vector<std::vector<int32_t>> sources(1, job.source);
  const auto found = generator.generate(sources, 1, pool_);
  generator.set_stop({});
  WrittenText text;
  if (!go_on) text.end = TextEnd::kInterrupted;
  if (!found[0].empty()) {
    const Hypothesis& best = found[0][0];
    text.text = opened_.tokenizers.target->decode(best.ids);
    text.tokens = best.ids, text.log_probability = best.log_probability;
    if (best.finished) text.end = TextEnd::kEndToken;
  }
  hear(text.text);  // a search knows its text only at the end
  return {text};
}

std::vector<WrittenText> SourceGeneration::write(size_t request, const TextListener& hear) {
  const Job& job = jobs_[request];
  if (job.choice.beams > 1) return search(job, hear);
  std::vector<WrittenRow> rows;
  for (int64_t i = 0; i < options_.samples; ++i)
    rows.emplace_back(std::make_unique<TargetFlow>(*opened_.tokenizers.target), job.stops);
  bool go_on = true;
  GenerateSettings settings{
      .max_tokens = job.choice.max_tokens, .sampling = job.choice.sampling, .ends = job.choice.ends};
  settings.log_probabilities = job.log_probabilities;
  settings.ends_row = [&](int64_t row, int32_t token) {
    const std::string piece = rows[static_cast<size_t>(row)].push(token);
    go_on = hear(row == 0 ? piece : "") && go_on;
    return rows[static_cast<size_t>(row)].stopped();
  };
  const std::vector<std::vector<int32_t>> sources(static_cast<size_t>(options_.samples), job.source);
  const auto results = generators_.at(1)->sample(sources, settings, pool_, [&](int64_t, int32_t) { return go_on; });
  std::vector<WrittenText> texts;
  for (size_t i = 0; i < results.size(); ++i) {
    const std::string rest = rows[i].finish();
    if (i == 0 && !rest.empty()) hear(rest);
    texts.push_back(written_text(results[i], rows[i], go_on));
  }
  return texts;
}

std::unique_ptr<TextWriter> open_text_writer(const std::string& folder, const std::vector<TextRequest>& requests) {
  const RunFolder run(folder);
  if (is_translation_folder(folder) || (run.has_config() && task_kind(run.load_config()) == TaskKind::kTranslation))
    return std::make_unique<SourceGeneration>(folder, requests);
  return std::make_unique<TextGeneration>(folder, requests);
}

}  // namespace linnet
