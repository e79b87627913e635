// Preference learning: of two answers to a prompt, a language model learns to prefer the chosen one.
#include "base/fail.h"
#include "base/thread_pool.h"
#include "data/examples/text/record_reader.h"
#include "data/examples/text/text_examples.h"
#include "models/modules/causal_model.h"
#include "tasks/language/language_session.h"
#include "tasks/language/tuned_language_task.h"
#include "tasks/task_table.h"
#include "training/run/memory_report.h"

namespace linnet {
namespace {
PreferenceOptions preference_options(const Config& config, bool training) {
  const std::string& loss = config.preferences.method;
  return {.kind = loss == "orpo"  ? PreferenceKind::kOrpo
                  : loss == "ipo" ? PreferenceKind::kIpo
                                  : PreferenceKind::kDpo,
      .beta = config.preferences.beta,
      .label_smoothing = training ? config.train.label_smoothing : 0};
}

// Padded lengths of answers: multiples of an eighth of the longest.
std::vector<int64_t> preference_lengths(int64_t longest) {
  constexpr int64_t kLengths = 8, kMultiple = 16;
  std::vector<int64_t> lengths;
  for (int64_t i = 1; i < kLengths; ++i) {
    const int64_t length = round_up(longest * i / kLengths, kMultiple);
    if (length > 0 && length < longest && (lengths.empty() || length > lengths.back())) lengths.push_back(length);
  }
  lengths.push_back(longest);
  return lengths;
}

class PreferenceSession : public Session {
 public:
  PreferenceSession(const Config& config, std::shared_ptr<CausalModel> causal_model, bool training, bool verify)
      : Session(config, *causal_model, training, verify), pairs(config.data.batch_size),
        lengths(preference_lengths(longest_chat(config, *causal_model))),
        options_(preference_options(config, training)), model_(std::move(causal_model)) {
    plan(preference_inputs(pairs, lengths.back()), losses_of(lengths, [this](Trace& trace, int64_t length) {
      PreferenceOptions options = options_;
      if (!trace.options().training) options.label_smoothing = 0;
      return preference_loss(*model_, trace, pairs, length, options);
    }));
  }

  // Sets the pairs' references to the loaded weights' log probabilities, if the method compares with them.
  void set_references(std::vector<PreferencePair>& data) {
    if (options_.kind == PreferenceKind::kOrpo) return;
    Phase phase("reference");
    PreferenceBatches batches(data, pairs, lengths, 0);
    for (int64_t index = 0; index < batches.batches_per_epoch(); ++index) {
      phase.tick(index, batches.batches_per_epoch());
      const Batch& batch = batches.sorted_batch(index);
      trainer->evaluate(batch);
      const float* found = log_probabilities(batch);
      for (const int64_t i : batches.sorted_rows(index)) {
        data[i].reference = {found[0], found[pairs]};
        ++found;
      }
    }
  }

  // Returns the loss and, of the rewards (beta times the log probability above the reference's), how often the chosen
  // answer's is higher, the mean difference, and both means.
  TaskEvaluation evaluate(const std::vector<PreferencePair>& data, const SharedWork& ranks) {
    PreferenceBatches batches(data, pairs, lengths, 0);
    enum : size_t { kLoss, kPairs, kRight, kChosen, kRejected, kNumbers };
    const std::vector<double> found =
        ranks.numbers(batches.batches_per_epoch(), kNumbers, [&](int64_t index, std::span<double> result) {
          const Batch& batch = batches.sorted_batch(index);
          const LossTotal total = trainer->evaluate(batch);
          result[kLoss] = total.sum, result[kPairs] = static_cast<double>(total.tokens);
          const float* scores = log_probabilities(batch);
          for (const int64_t i : batches.sorted_rows(index)) {
            const std::array<float, 2>& reference = data[i].reference;
            const double chosen = scores[0] - reference[0], rejected = scores[pairs] - reference[1];
            result[kRight] += chosen > rejected, result[kChosen] += chosen, result[kRejected] += rejected;
            ++scores;
          }
        });
    std::array<double, kNumbers> sums{};
    for (size_t i = 0; i < found.size(); ++i) sums[i % kNumbers] += found[i];
    const double count = sums[kPairs], scale = options_.beta / count;
    return {sums[kLoss] / count, static_cast<int64_t>(count),
        {{"accuracy", sums[kRight] / count}, {"margin", scale * (sums[kChosen] - sums[kRejected])},
            {"chosen_reward", scale * sums[kChosen]}, {"rejected_reward", scale * sums[kRejected]}},
        {}};
  }

  const int64_t pairs;
  const std::vector<int64_t> lengths;

 private:
  const float* log_probabilities(const Batch& batch) const {
    return trainer->plans().evaluate_executor(batch.shape_index).output("log_probabilities").as<const float>();
  }

  const PreferenceOptions options_;
  const std::shared_ptr<CausalModel> model_;
};

// Loads the reference weights, if the method has any.
void load_reference(Session& session, const Config& config) {
  if (config.preferences.method == "orpo") return;
  if (!is_pretrained_folder(config.model.from))
    fail_user("the run is compared with the model that it began with, and there is no model folder '",
        config.model.from, "' any more");
  const PretrainedModel reference = open_pretrained(config.model.from, {.lora = lora_options(config)});
  session.trainer->state().load_parameters(
      [&](const ParameterTarget& parameters) { load_parameters(reference, session.layout, parameters); });
}

class PairReader {
 public:
  PairReader(const Config& config, const LanguageModel& language, const std::string& folder)
      : tokenizer_(tokenizer_of(config, language, folder)), end_(language.coder->separator()),
        longest_(longest_chat(config, *language.model)), model_(*language.model), folder_(folder) {}

  // Reads JSON lines with "prompt", "chosen" and "rejected": texts, used as they are with an end token, or lists of
  // messages for the chat template. Without "prompt" it is the messages that both answers begin with. Pairs without an
  // answer are left out; the log counts them and cut ones.
  std::vector<PreferencePair> read(const std::string& path) {
    const TimedPhase phase("reading '" + path + "'");
    RecordReader reader(path, {});
    std::vector<PreferencePair> pairs;
    int64_t all = 0, cut = 0;
    for (Json record; reader.next(record); ++all) {
      PreferencePair pair = pair_of(record, reader.where());
      bool is_cut = false;
      for (TargetedTokens& answer : pair.answers) {
        check_tokens(answer, model_, reader.where());
        is_cut |= cut_tokens(answer, longest_);
      }
      cut += is_cut;
      if (std::ranges::all_of(pair.answers, learns_anything)) pairs.push_back(std::move(pair));
    }
    if (pairs.empty())
      fail_user("'", path, "' has no pair of answers",
          cut > 0 ? " within " + std::to_string(longest_) + " tokens (" + longer_ones(longest_, model_) + ")" : "");
    tell_cut_records("pairs", all, cut, all - std::ssize(pairs), longest_, model_);
    return pairs;
  }

 private:
  PreferencePair pair_of(const Json& record, const std::string& where) {
    const Json *chosen = record.find("chosen"), *rejected = record.find("rejected"), *prompt = record.find("prompt");
    if (!chosen || !rejected)
      fail_user(where, ": there is no \"", chosen ? "rejected" : "chosen",
          "\"; each line has a \"prompt\", a \"chosen\" and a \"rejected\" answer");
    if (chosen->is_array() && rejected->is_array()) return of_messages(record, where);
    if (!prompt && chosen->is_string() && rejected->is_string())
      fail_user(where, ": there is no \"prompt\"; texts need one, and lists of messages may begin with it");
    if (!chosen->is_string() || !rejected->is_string() || !prompt || !prompt->is_string())
      fail_user(where, ": \"prompt\", \"chosen\" and \"rejected\" are all texts, or lists of messages");
    if (const Json* system = record.find("system"); system && !system->is_null() && *system != "")
      fail_user(where, ": \"system\" goes with lists of messages; of texts it is part of the \"prompt\"");
    if (chosen->text().empty() && rejected->text().empty()) fail_user(where, ": both answers are empty");
    return {{of_text(prompt->text(), chosen->text()), of_text(prompt->text(), rejected->text())}};
  }

  TargetedTokens of_text(const std::string& prompt, const std::string& answer) const {
    const std::string text = prompt + answer;
    TargetedTokens tokens = learned_tokens({text, {{prompt.size(), text.size()}}}, tokenizer_, true);
    if (end_ < 0 || tokens.tokens.empty() || tokens.tokens.back() == end_) return tokens;
    tokens.targets.back() = end_;
    tokens.tokens.push_back(end_), tokens.targets.push_back(-1);
    return tokens;
  }

  PreferencePair of_messages(const Json& record, const std::string& where) {
    const Json *prompt = record.find("prompt"), &chosen = record["chosen"], &rejected = record["rejected"];
    Json before = Json::array();
    size_t shared = 0;  // messages that both answers begin with
    if (prompt && prompt->is_array()) {
      before = *prompt;
    } else {
      while (shared < std::min(chosen.size(), rejected.size()) && chosen[shared].dump() == rejected[shared].dump())
        before.push_back(chosen[shared++]);
      if (prompt && prompt->is_string() && shared == 0)
        before.push_back({{"role", "user"}, {"content", prompt->text()}});
    }
    before = training_messages(record, before, where);
    warn_of_unusual_role(before, where, told_of_role_);
    for (Json& turn : before) turn["weight"] = 0;
    if (!chat_) chat_.emplace(tokenizer_, folder_);
    const std::string tools = training_tools(record, where);
    return {{of_turns(before, chosen, shared, tools, where), of_turns(before, rejected, shared, tools, where)}};
  }

  // The turns in `answer` from `first` on.
  TargetedTokens of_turns(
      Json messages, const Json& answer, size_t first, const std::string& tools, const std::string& where) const {
    for (size_t i = first; i < answer.size(); ++i) messages.push_back(answer[i]);
    messages = training_messages(Json(), messages, where);
    const LearnedText text = render_chat(*chat_, messages, tools, where).back();
    if (std::ssize(text.learned) < std::ranges::count_if(messages, is_learned))
      fail_user(where,
          ": the chat template writes the prompt or the first turns of an answer differently once later ones follow");
    return learned_tokens(text, tokenizer_);
  }

  const PretrainedTokenizer& tokenizer_;
  const int32_t end_;
  const int64_t longest_;
  const CausalModel& model_;
  const std::string folder_;
  std::optional<ChatTemplate> chat_;  // set once there are messages
  bool told_of_role_ = false;
};

class PreferenceTask : public TunedLanguageTask<PreferencePair> {
 public:
  explicit PreferenceTask(const Config& config) : TunedLanguageTask(config, "pairs of answers") {}

  std::unique_ptr<Session> make_session(const Config& config, bool verify) override {
    return std::make_unique<PreferenceSession>(config, language_.model, true, verify);
  }

  // The reference: weights of model.from, whatever a checkpoint holds. A resumed run has not read them.
  void initialize() override {
    SessionTask::initialize();
    if (std::exchange(has_references_, true)) return;
    if (!starts_from()) load_reference(session(), config_);
    for (std::vector<PreferencePair>* pairs : {&train_, &valid_}) session().set_references(*pairs);
  }

  int64_t most_planned() const override { return 128; }  // each answer has nodes of its own (score_answers)
  BatchSource& batches() override { return *batches_; }
  TaskEvaluation evaluate(const SharedWork& ranks) override { return session().evaluate(valid_, ranks); }
  std::string batches_text(const Session& session) const override {
    const auto& preferences = static_cast<const PreferenceSession&>(session);
    return text_of_parts(preferences.pairs, " pairs of answers of up to ", preferences.lengths.back(), " tokens");
  }

 protected:
  std::pair<std::vector<PreferencePair>, std::vector<PreferencePair>> load(const std::string& folder) override {
    return load_records<PreferencePair>(
        config_, "pairs", [&](const std::string& file) { return PairReader(config_, language_, folder).read(file); });
  }
  void begin() override {
    batches_.emplace(train_, session().pairs, session().lengths, static_cast<uint64_t>(config_.train.seed));
  }

 private:
  PreferenceSession& session() { return static_cast<PreferenceSession&>(*session_); }

  bool has_references_ = false;
  std::optional<PreferenceBatches> batches_;
};
}  // namespace

std::unique_ptr<SessionTask> make_preference_task(const Config& config) {
  return std::make_unique<PreferenceTask>(config);
}

TaskEvaluation evaluate_preferences(
    const OpenedLanguageModel& opened, const Config& config, const std::string& path, const std::string& split) {
  auto pairs = records_to_evaluate<PreferencePair>(config, "pairs", path, split,
      [&](const std::string& file) { return PairReader(config, opened, opened.folder).read(file); });
  PreferenceSession session(config, opened.model, false, true);
  take_memory(session, "");
  load_reference(session, config);
  session.set_references(pairs);
  load_weights(session, opened.weights());
  return session.evaluate(pairs, SharedWork::alone());
}
}  // namespace linnet
