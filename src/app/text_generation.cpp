#include "app/text_generation.h"

#include <algorithm>

#include "app/memory_report.h"
#include "app/written_row.h"
#include "base/error.h"
#include "base/log.h"
#include "exec/backend.h"
#include "nn/model_store.h"
#include "text/chat_template.h"
#include "text/utf8.h"

namespace linnet {
namespace {

constexpr int64_t kPromptStep = 16, kUncachedStep = 64;  // what padded lengths are multiples of

int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

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
  // Generators of one store share the first one's memory, so the largest comes first.
  for (const Job& job : jobs_) generators_[job.choice.beams] = nullptr;
  for (auto& [beams, generator] : generators_)
    generator = std::make_unique<CausalGenerator>(*opened_.model, layout_, store_, shared, plan_for(beams));
  check_fits(store_, "; fewer samples, beams or tokens need less");
  store_.allocate();
  for (auto& [beams, generator] : generators_) generator->bind();
  layout_.initialize_constants(store_.as<float>("constants"), pool_);
  opened_.load_weights(layout_, store_.as<float>("parameters"));
  store_.push("constants");
  store_.push("parameters");
}

// Room for the longest of all requests, whatever their beams: what one of them gives does not depend on the others.
CausalOptions TextGeneration::plan_for(int64_t beams) const {
  CausalOptions plan{.rows = options_.samples, .beams = beams, .cache = !options_.no_cache, .threads = pool_.size()};
  const int64_t most = opened_.model->max_length(), step = options_.no_cache ? kUncachedStep : kPromptStep;
  int64_t shortest = most, longest = 0;
  bool slides = false;
  for (const Job& job : jobs_) {
    const auto prompt = static_cast<int64_t>(job.prompt.size());
    shortest = std::min(shortest, prompt), longest = std::max(longest, prompt);
    plan.max_length = std::max(plan.max_length, std::min(most, prompt + job.choice.max_tokens));
    slides = slides || prompt + job.choice.max_tokens > most;
  }
  if (slides) longest = std::max(longest, plan.max_length / 2 + 1);
  if (options_.no_cache) {
    for (int64_t length = round_up(shortest, step);
         plan.prompt_lengths.empty() || plan.prompt_lengths.back() < plan.max_length; length += step)
      plan.prompt_lengths.push_back(std::min(length, plan.max_length));
    return plan;
  }
  // One length serves one prompt; of several, the shorter ones should not be computed as the longest.
  for (int64_t length = round_up(jobs_.size() == 1 ? longest : shortest, step);; length *= 2) {
    plan.prompt_lengths.push_back(std::min(std::min(length, round_up(longest, step)), plan.max_length));
    if (plan.prompt_lengths.back() >= longest) return plan;
  }
}

std::vector<WrittenText> TextGeneration::write(size_t request, const TextListener& hear) {
  const Job& job = jobs_[request];
  // An answer is a text of its own; what goes on from a prompt is read with it.
  const std::span<const int32_t> context = job.is_chat ? std::span<const int32_t>() : std::span(job.prompt);
  std::vector<WrittenRow> rows;
  for (int64_t i = 0; i < options_.samples; ++i) rows.emplace_back(opened_.coder->flow(context), job.stops);
  bool go_on = true;
  GenerateSettings settings{.max_tokens = job.choice.max_tokens,
                            .sampling = job.choice.sampling,
                            .length_penalty = job.choice.length_penalty,
                            .early_stopping = job.choice.early_stopping,
                            .ends = job.choice.ends,
                            .slide = job.choice.beams == 1};
  settings.log_probabilities = job.log_probabilities;
  settings.ends_row = [&](int64_t row, int32_t token) {
    const std::string piece = rows[static_cast<size_t>(row)].push(token);
    if (row == 0) go_on = hear(piece) && go_on;
    return rows[static_cast<size_t>(row)].stopped();
  };
  const std::vector<std::vector<int32_t>> prompts(static_cast<size_t>(options_.samples), job.prompt);
  const auto results = generators_.at(job.choice.beams)->generate(prompts, settings, pool_, [&](int64_t row, int32_t) {
    if (row != 0) go_on = hear("") && go_on;
    return go_on;
  });
  std::vector<WrittenText> texts;
  for (size_t i = 0; i < results.size(); ++i) {
    const Continuation& result = results[i];
    if (job.choice.beams > 1)  // a search knows its text only at the end
      for (const int32_t token : result.tokens)
        if (const std::string piece = rows[i].push(token); i == 0) hear(piece);
    if (const std::string rest = rows[i].finish(); i == 0 && !rest.empty()) hear(rest);
    texts.push_back(written_text(result, rows[i], go_on));
  }
  return texts;
}

}  // namespace linnet
