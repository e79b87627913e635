#include "tasks/generation/text_generation.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/log.h"
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

}  // namespace

TextGeneration::TextGeneration(const std::string& folder, const std::vector<TextRequest>& requests)
    : EngineWriter(requests.at(0).options), opened_(open_language_model(folder)) {
  slides_ = true;
  ChatPrompts chat(opened_);
  bool default_temperature = false;
  const GenerationConfig makers = opened_.is_run ? GenerationConfig{} : read_generation_config(opened_.folder);
  for (const TextRequest& request : requests) {
    Job job{.prompt = encode_prompt(opened_, request, chat)};
    job.choice = choose_generation(request.options, {opened_.folder, makers, opened_.ends(),
                                                     static_cast<int64_t>(job.prompt.size()), jobs_.empty()});
    // An answer is a text of its own; what goes on from a prompt is read with it.
    const std::vector<int32_t> context = request.messages.empty() ? job.prompt : std::vector<int32_t>();
    job.flow = [this, context] { return opened_.coder->flow(context); };
    default_temperature = default_temperature || (job.choice.beams == 1 && job.choice.sampling.temperature != 0 &&
                                                  !request.options.temperature && !makers.temperature);
    add(request, std::move(job));
  }
  if (default_temperature)
    log_info("sampling at temperature 1, as nothing says otherwise; --temperature 0 takes the likeliest token");
  load(*opened_.model, plan(),
       [&](const ParameterLayout& layout, float* parameters) { opened_.load_weights(layout, parameters); });
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
  const int64_t slots = std::max(options_.samples * plan.beams, texts_at_once(kSlots));
  plan.rows = (slots + plan.beams - 1) / plan.beams;
  return plan;
}

}  // namespace linnet
