#include "tasks/language/chat_task.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "data/examples/held_out.h"
#include "data/metrics/word_count.h"
#include "tasks/inference.h"

namespace linnet {
namespace {

int64_t longest_chat(const Config& config, const CausalModel& model) {
  const int64_t most = model.max_length();
  return config.data.context > 0 ? std::min(config.data.context, most) : most;
}

const PretrainedTokenizer& tokenizer_of(const LanguageModel& language, const std::string& folder) {
  if (const PretrainedTokenizer* tokenizer = language.coder->pretrained()) return *tokenizer;
  fail_user("'" + folder + "' has no tokenizer with a chat template");
}

std::vector<TargetedTokens> read_chats(const std::string& path, const Config& config, const LanguageModel& language,
                                       const std::string& folder) {
  const int64_t longest = longest_chat(config, *language.model);
  const bool may_be_longer = longest < language.model->max_length();
  return read_chats(path, tokenizer_of(language, folder), folder, longest,
                    may_be_longer ? "--set context=N takes longer ones" : "the model takes no more");
}

// Conversations to train on and to choose by: those of valid_text, or a share of the former.
std::pair<std::vector<TargetedTokens>, std::vector<TargetedTokens>> load_chats(const Config& config,
                                                                               const LanguageModel& language,
                                                                               const std::string& folder) {
  const DataConfig& data = config.data;
  if (data.text.empty()) fail_user("task = \"chat\" reads the file text, which is not given (--data FILE.jsonl)");
  const auto read = [&](const std::string& file) {
    return read_chats(data_path(data, file), config, language, folder);
  };
  std::vector<TargetedTokens> all = read(data.text), train, valid;
  if (!data.valid_text.empty()) return {std::move(all), read(data.valid_text)};
  const std::vector<bool> chosen =
      choose_held_out(std::vector<int32_t>(all.size(), 0), data.valid_share, static_cast<uint64_t>(config.train.seed));
  for (size_t i = 0; i < all.size(); ++i) (chosen[i] ? valid : train).push_back(std::move(all[i]));
  if (valid.empty()) fail_user("too few conversations to set some aside; --set data.valid_text=FILE names others");
  return {std::move(train), std::move(valid)};
}

}  // namespace

DataAtHand ChatTask::data_at_hand(bool exact) const {
  DataAtHand data = text_at_hand(config_, exact);
  if (data.read && config_.model.from.empty()) data.read = false, data.why_not = "No model folder was given";
  return data;
}

void ChatTask::open(const std::string& from) {
  const std::string& folder = from.empty() ? config_.model.from : from;
  if (folder.empty())
    fail_user("task = \"chat\" starts from a model folder, which is not given (--set model.from=FOLDER)");
  language_ = make_language_model(config_, from.empty() ? open_text_coder(folder) : load_text_coder(from), from);
  std::tie(train_, valid_) = load_chats(config_, language_, folder);
  count_ = std::ssize(train_);
  log_info(std::to_string(count_) + " conversations to train on, " + std::to_string(valid_.size()) + " to choose by");
}

std::string ChatTask::assume(const DataAtHand& data) {
  constexpr int64_t kChats = 10'000;
  language_ = make_language_model(config_, make_number_coder(config_.data.vocab_size), "");
  count_ = kChats;
  assumed_bytes_ = 2 * data.bytes;
  return data.why_not + "; assuming " + std::to_string(count_) + " conversations.";
}

std::unique_ptr<Session> ChatTask::make_session(const Config& config, bool verify) {
  return std::make_unique<LanguageSession>(config, language_.model,
                                           LanguageOptions{.packed = true, .verify_plans = verify});
}

void ChatTask::begin() {
  rows_.emplace(train_, session().chunks, static_cast<uint64_t>(config_.train.seed));
  valid_rows_.emplace(valid_, session().chunks, 0);
}

std::string ChatTask::batches_text(const Session& session) const {
  const ChunkOptions& chunks = static_cast<const LanguageSession&>(session).chunks;
  return std::to_string(chunks.rows) + " rows of " + std::to_string(chunks.length) +
         " tokens, with several conversations each";
}

Evaluation ChatTask::evaluate(SharedWork& ranks) { return evaluate_rows(session(), *valid_rows_, ranks); }

Evaluation evaluate_rows(LanguageSession& session, PackedRows& rows, SharedWork& ranks) {
  const std::vector<double> found =
      ranks.numbers(rows.batches_per_epoch(), 2, [&](int64_t index, std::span<double> result) {
        const LossTotal total = session.trainer->evaluate(rows.ordered_batch(index));
        result[0] = total.sum, result[1] = static_cast<double>(total.tokens);
      });
  double nats = 0;
  int64_t tokens = 0;
  for (size_t i = 0; i < found.size(); i += 2) nats += found[i], tokens += static_cast<int64_t>(found[i + 1]);
  return {nats / static_cast<double>(tokens), tokens, {{"perplexity", perplexity(nats, tokens)}}, {}};
}

Evaluation evaluate_chats(const OpenedLanguageModel& opened, const Config& config, const std::string& path,
                          const std::string& split) {
  const auto read = [&](const std::string& file) { return read_chats(file, config, opened, opened.folder); };
  if (path.empty() && split == "test" && config.data.test_text.empty())
    fail_user("the run's configuration names no test_text; --data FILE names one");
  const std::vector<TargetedTokens> chats = !path.empty()     ? read(path)
                                            : split == "test" ? read(data_path(config.data, config.data.test_text))
                                                              : load_chats(config, opened, opened.folder).second;
  LanguageSession session(config, opened.model, {.training = false, .packed = true});
  take_model_weights(session, opened.folder, "", [&](const ParameterLayout& layout, const ParameterTarget& parameters) {
    opened.load_weights(layout, parameters);
  });
  PackedRows rows(chats, session.chunks, 0);
  SharedWork alone = SharedWork::alone();
  return evaluate_rows(session, rows, alone);
}

}  // namespace linnet
