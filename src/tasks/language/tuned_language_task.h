// For tasks that fine-tune a folder's language model on JSON lines: conversations as tokens, and a task's steps.
#pragma once
#include <tuple>
#include "base/fail.h"
#include "base/json.h"
#include "base/log.h"
#include "config/config.h"
#include "data/examples/batch.h"
#include "data/examples/text/token_chunks.h"
#include "data/text/chat/chat_template.h"
#include "tasks/language/language_model.h"
#include "tasks/session_task.h"

namespace linnet {
// template_messages() behind the record's "system", if it has one and they do not begin with a system message. User
// errors, also for weights other than 0 and 1, begin with `where`.
Json training_messages(const Json& record, const Json& messages, const std::string& where);
// Warns of a role that few chat templates know, unless `told`, and sets it.
void warn_of_unusual_role(const Json& messages, const std::string& where, bool& told);
// A record's "tools" for ChatTemplate::render(), "" if it has none. User error unless they are a list of objects, or
// its JSON text.
std::string training_tools(const Json& record, const std::string& where);
bool is_learned(const Json& message);  // the assistant's are, unless their "weight" is 0

// A text and which of its bytes are learned, in order.
struct LearnedText {
  std::string text;
  std::vector<TextRange> learned;
};

// Renders a conversation; the assistant's turns, including their ends, are learned. A template may render earlier turns
// differently once later ones follow (Qwen3 drops thoughts): then there are several texts, each as the model sees it
// when it writes the answers learned from it. Not learned: an answer that is the first message, or that changes how the
// template writes earlier turns. User error beginning with `where` for roles that the template refuses.
std::vector<LearnedText> render_chat(
    const ChatTemplate& chat, const Json& messages, const std::string& tools, const std::string& where);
// `special`: with the tokens that the tokenizer puts around a text.
TargetedTokens learned_tokens(const LearnedText& text, const PretrainedTokenizer& tokenizer, bool special = false);
bool learns_anything(const TargetedTokens& tokens);
bool cut_tokens(TargetedTokens& tokens, int64_t longest);  // whether there was anything to cut

// The most tokens of a conversation.
int64_t longest_chat(const Config& config, const CausalModel& model);
// The tokenizer of the model's folder. User error naming `folder` if it has none.
const PretrainedTokenizer& tokenizer_of(const Config& config, const LanguageModel& language, const std::string& folder);

// Training and validation records (valid_text, or a share) by read(path). `what`: their name, "conversations".
template <class Record, class Read> std::pair<std::vector<Record>, std::vector<Record>> load_records(
    const Config& config, const char* what, const Read& read) {
  const DataConfig& data = config.data;
  if (data.text.empty())
    fail_user("task = \"", data.task, "\" reads the file text, which is not given (--data FILE.jsonl)");
  std::vector<Record> all = read(data_path(data, data.text)), train, valid;
  if (!data.valid_text.empty()) return {std::move(all), read(data_path(data, data.valid_text))};
  const auto goes_on = [](const Record& record) {
    if constexpr (requires { record.goes_on; }) return record.goes_on;
    return false;
  };
  const auto whole = static_cast<size_t>(std::ranges::count_if(all, std::not_fn(goes_on)));
  const std::vector<bool> chosen =
      choose_held_out(std::vector<int32_t>(whole, 0), data.valid_share, static_cast<uint64_t>(config.train.seed));
  size_t next = 0;
  for (Record& record : all) {
    if (!goes_on(record)) ++next;
    (chosen[next - 1] ? valid : train).push_back(std::move(record));
  }
  if (valid.empty()) fail_user("too few ", what, " to set some aside; --set data.valid_text=FILE names others");
  return {std::move(train), std::move(valid)};
}

// User error for a token that the tokenizer has and the model has not.
void check_tokens(const TargetedTokens& tokens, const CausalModel& model, const std::string& where);
// What to do about records of more than `longest` tokens, for messages.
std::string longer_ones(int64_t longest, const CausalModel& model);
void tell_cut_records(
    const char* what, int64_t all, int64_t cut, int64_t left_out, int64_t longest, const CausalModel& model);

template <class Record> class TunedLanguageTask : public SessionTask {
 public:
  // `what` names the records in messages: "conversations".
  TunedLanguageTask(const Config& config, std::string what) : SessionTask(config), what_(std::move(what)) {}

  void open(const std::string& from) override {
    const std::string& folder = from.empty() ? config_.model.from : from;
    if (folder.empty())
      fail_user("task = \"", config_.data.task,
          "\" starts from a model folder, which is not given (--set model.from=FOLDER)");
    language_ = make_language_model(config_, from.empty() ? open_text_coder(folder) : load_text_coder(from), from);
    std::tie(train_, valid_) = load(folder);
    count_ = std::ssize(train_);
    log_info(count_, " ", what_, " to train on, ", valid_.size(), " to choose by");
  }

  std::string assume(const DataAtHand& data) override {
    constexpr int64_t kRecords = 10'000;
    const std::string& folder = config_.model.from;
    language_ = make_language_model(config_,
        folder.empty() ? make_number_coder(config_.data.vocab_size) : open_text_coder(folder), "",
        /*to_plan=*/true);
    count_ = kRecords;
    assumed_bytes_ = 2 * data.bytes;
    return data.why_not + "; assuming " + std::to_string(count_) + " " + what_ + ".";
  }

  DataAtHand data_at_hand(bool exact) const override {
    DataAtHand data = text_at_hand(config_, exact);
    if (data.read && config_.model.from.empty()) data.read = false, data.why_not = "No model folder was given";
    return data;
  }

  void save_assets(const std::string& folder) const override { language_.save_assets(folder); }

 protected:
  // Training and validation records.
  virtual std::pair<std::vector<Record>, std::vector<Record>> load(const std::string& folder) = 0;

  const PretrainedModel* pretrained() const override { return language_.pretrained.get(); }

  LanguageModel language_;
  std::vector<Record> train_, valid_;

 private:
  const std::string what_;
};

// Records of `path`, by read(path), or if empty of the run's split: test_text or validation records.
template <class Record, class Read> std::vector<Record> records_to_evaluate(
    const Config& config, const char* what, const std::string& path, const std::string& split, const Read& read) {
  if (!path.empty()) return read(path);
  if (split != "test") return load_records<Record>(config, what, read).second;
  if (config.data.test_text.empty()) fail_user("the run's configuration names no test_text; --data FILE names one");
  return read(data_path(config.data, config.data.test_text));
}
}  // namespace linnet
