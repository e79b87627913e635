// Trains text or token classifiers from an encoder folder, an ONNX file, or from scratch.
#include "base/fail.h"
#include "base/files.h"
#include "base/thread_pool.h"
#include "data/text/trained_tokenizers.h"
#include "engine/passes/passes.h"
#include "models/families/config_file.h"
#include "models/families/sentence_embedder.h"
#include "models/modules/text_encoder.h"
#include "models/nn/forward.h"
#include "tasks/inference.h"
#include "tasks/masked/masked_task.h"
#include "tasks/session_task.h"
#include "tasks/task_table.h"
#include "tasks/text_files.h"
#include "tasks/texts/onnx_classifier.h"
#include "tasks/texts/text_session.h"
#include "training/run/pretrained_run.h"

namespace linnet {
namespace {
constexpr int64_t kAssumedTexts = 10'000, kBytesOfText = 200;  // of data that were not read

// Contrastive batches too large for memory (GradCache, Gao et al. 2021): all parts are embedded first; then each part
// is embedded again and trained with the gradient of the whole loss.
class CachedBatches : public BatchSource {
 public:
  // `together`: batches of `parts` that make one. Both outlive this.
  CachedBatches(BatchSource& parts, TextSession& session, const EmbeddingLoss& loss, int64_t together)
      : parts_(parts), session_(session), loss_(loss), together_(together) {
    const int64_t all = together * session.rows, width = std::ssize(session.outputs);
    embeddings_.resize(loss.parts * all * width);
    weights_.resize(all), labels_.resize(weights_.size());
    const auto whole = [loss, all, width](Trace& trace) {
      const Tensor embeddings = trace.input("embeddings", {DType::kF32, {loss.parts * all, width}});
      const Loss traced = embedding_loss_of(loss, trace, embeddings, all);
      trace.graph().output("gradients", gradients(traced.sum, std::span(&embeddings, 1))[0]);
      trace.graph().output("sum", traced.sum), trace.graph().output("count", traced.count);
    };
    forward_ =
        std::make_unique<Forward>(Module(), std::vector<Forward::Function>{whole}, session.trainer->options().threads);
  }

  const Batch& next() override {
    if (next_ == group_.size()) embed_all();
    return group_[next_++].batch;
  }
  void seek(int64_t epoch, int64_t index) override {
    parts_.seek(epoch, index);
    group_.clear(), next_ = 0;
  }
  void take_share(BatchShare share) override { parts_.take_share(share); }
  int64_t shape_count() const override { return parts_.shape_count(); }
  int64_t batches_per_epoch() const override { return parts_.batches_per_epoch(); }

 private:
  // A batch of parts_ with its own memory; after its arrays "gradients" and "share" (embedding_loss).
  struct Part {
    Batch batch;
    std::vector<std::vector<std::byte>> arrays;
    void keep(const char* name, const void* data, size_t bytes) {
      const auto* begin = static_cast<const std::byte*>(data);
      arrays.emplace_back(begin, begin + bytes);
      batch.arrays.push_back({name, arrays.back()});
    }
  };
  void embed_all() {
    group_.clear(), next_ = 0;
    std::ranges::fill(weights_, 0.0f);
    std::ranges::fill(embeddings_, 0.0f);
    do {
      const Batch& batch = parts_.next();
      Part& part = group_.emplace_back();
      static_cast<BatchPosition&>(part.batch) = batch;
      part.batch.shape_index = batch.shape_index;
      for (const BatchArray& array : batch.arrays) part.keep(array.name, array.bytes.data(), array.bytes.size());
      const size_t first = (group_.size() - 1) * static_cast<size_t>(session_.rows);
      std::ranges::copy(batch.floats("weights"), weights_.begin() + first);
      std::ranges::copy(batch.floats("labels"), labels_.begin() + first);
      const std::span<const float> embedded = session_.embed_training(part.batch);
      for_each_run(first, [&](size_t whole, size_t own, size_t count) {
        std::copy_n(embedded.begin() + own, count, embeddings_.begin() + whole);
      });
    } while (std::ssize(group_) < together_ && !group_.back().batch.last_of_epoch);
    forward_->set("embeddings", embeddings_), forward_->set("weights", weights_);
    if (loss_.has_labels()) forward_->set("labels", labels_);
    forward_->run();
    const std::span<const float> all = forward_->output("gradients");
    const std::array<float, 2> share{forward_->output("sum")[0], forward_->output("count")[0]};
    std::vector<float> own(loss_.parts * session_.rows * std::ssize(session_.outputs));
    for (size_t i = 0; i < group_.size(); ++i) {
      for_each_run(i * static_cast<size_t>(session_.rows),
          [&](size_t whole, size_t to, size_t count) { std::copy_n(all.begin() + whole, count, own.begin() + to); });
      group_[i].keep("gradients", own.data(), own.size() * sizeof(float));
      const std::array<float, 2> told = i == 0 ? share : std::array<float, 2>{};  // count the loss only once
      group_[i].keep("share", told.data(), sizeof told);
    }
  }

  // Runs of a part's embeddings, from example `first` on: their offset among all and within the part.
  void for_each_run(size_t first, FunctionRef<void(size_t whole, size_t own, size_t count)> use) const {
    const size_t width = session_.outputs.size(), rows = static_cast<size_t>(session_.rows), all = weights_.size();
    for (size_t part = 0; part < static_cast<size_t>(loss_.parts); ++part)
      use((part * all + first) * width, part * rows * width, rows * width);
  }

  BatchSource& parts_;
  TextSession& session_;
  const EmbeddingLoss loss_;
  const int64_t together_;
  std::vector<Part> group_;
  size_t next_ = 0;                                   // of the group
  std::vector<float> embeddings_, weights_, labels_;  // of all parts
  std::unique_ptr<Forward> forward_;                  // the loss of all and its gradients
};

// Training and validation texts: valid_tsv, or a share of the former. Sets `outputs` to their names unless null.
std::pair<TextRecords, TextRecords> load_texts(const TextTask& task, const Config& config, Names* outputs) {
  const TimedPhase phase("reading the texts");
  const DataConfig& data = config.data;
  const std::string path = text_path(config, data.train_tsv, "train_tsv");
  TextRecords train = task.read(path, data), valid;
  if (outputs) *outputs = task.outputs(train, path);  // also reports unfit labels
  if (!data.valid_tsv.empty()) valid = task.read(data_path(data, data.valid_tsv), data);
  else
    valid = split_off(
        train, task.problem == TextProblem::kOneClass, data.held_out, static_cast<uint64_t>(config.train.seed));
  if (valid.records.empty() && task.problem == TextProblem::kOneClass)
    fail_user(
        "no label of the training file occurs often enough to set some lines aside: are its columns text<TAB>label? "
        "(--set data.valid_tsv=FILE names other lines to choose by)");
  if (train.records.empty() || valid.records.empty())
    fail_user("'", path, "' has too few examples to set some aside (data.valid_tsv names others)",
        task.problem == TextProblem::kTokenClasses ? "; a blank line ends each sentence of a CoNLL file" : "");
  if (train.pairs != valid.pairs)
    fail_user("the training file has ", train.pairs ? "pairs of texts" : "single texts", ", the validation file has ",
        valid.pairs ? "pairs" : "single ones");
  return {std::move(train), std::move(valid)};
}

// The data's labels; or, if the folder's labels include all of them in any letter case, the folder's in its order, as
// its head has a row for each.
Names labels_with(const std::string& folder, Names of_data) {
  const ConfigFile config(folder + "/config.json");
  if (of_data.empty() || config.count("id2label") == 0) return of_data;
  Names own = label_names(config);
  const auto is_own = [&](const std::string& label) { return contains(own, label); };
  if (std::ranges::all_of(of_data, is_own)) return own;
  for (std::string& name : own)
    for (const std::string& label : of_data)
      if (lower_ascii(label) == lower_ascii(name)) name = label;  // as the data spell it
  return std::ranges::all_of(of_data, is_own) ? own : of_data;
}

class TextTraining : public SessionTask {
 public:
  explicit TextTraining(const Config& config) : SessionTask(config), task_(text_task(config)) {}

  void open(const std::string& from) override {
    auto [train, valid] = load_texts(task_, config_, from.empty() ? &outputs_ : nullptr);
    open_model(from, train);
    pairs_ = train.pairs;
    const bool may_be_single = !task_.are_pairs();
    if (may_be_single && !from.empty() && pairs_ != has_pairs(model_.config))
      fail_user("'", from, "' was trained on ", pairs_ ? "single texts, and the data are pairs" : "pairs of texts");
    if (may_be_single) set_pairs(model_.config, pairs_);
    task_.set_up(model_, config_, train, &valid);
    config_.answers.may_lack = may_lack_answers(model_.config);
    const int64_t longest = longest_text(config_, model_.as<TextClassifier>());
    const TimedPhase phase("tokenizing");
    train_ = task_.encode(train, *tokenizer_, outputs_, model_.as<TextClassifier>(), config_, longest, TextUse::kTrain);
    valid_ =
        task_.encode(valid, *tokenizer_, outputs_, model_.as<TextClassifier>(), config_, longest, TextUse::kEvaluate);
    valid_records_ = valid;  // a copy: the original is spread over the pages that the training texts leave
    count_ = train_.size();
    weigh_classes();
    log_info(count_, pairs_ ? " pairs of texts" : " texts", " to train on, ", valid_.size(), " to choose by",
        task_.problem == TextProblem::kOneClass ? ", of " + std::to_string(outputs_.size()) + " classes" : "");
  }

  std::string assume(const DataAtHand& data) override {
    const std::string& folder = config_.model.from;
    count_ = data.bytes > 0 ? std::max<int64_t>(1, static_cast<int64_t>(data.bytes) / kBytesOfText) : kAssumedTexts;
    assumed_bytes_ = data.bytes * 3 / 2;  // as tokens
    outputs_ = task_.assumed_outputs();
    pairs_ = task_.are_pairs();
    const auto labels = static_cast<int64_t>(outputs_.size());
    const std::string texts = "assuming " + std::to_string(count_) + " texts",
                      classes = std::to_string(labels) + " classes.";
    if (is_onnx_path(folder)) {
      outputs_.clear();
      model_ = open_onnx_classifier(folder, outputs_);
      return data.why_not + "; " + texts + ".";
    }
    const ModelHead head = head_of(task_.problem);
    if (is_pretrained_folder(folder)) {
      model_ = open_pretrained(folder, {.head = head, .labels = labels, .lora = lora_options(config_)});
      return data.why_not + "; " + texts + (labels > 1 ? " in " + classes : ".");
    }
    ConfigFile file = describe_model(config_.data.vocab_size, 0);
    if (const auto lora = lora_options(config_)) write_lora_options(*lora, file);
    model_ = new_pretrained(file);
    return data.why_not + "; " + texts + " and an encoder of the configuration's sizes" +
           (labels > 1 ? ", and " + classes : ".");
  }

  DataAtHand data_at_hand(bool exact) const override {
    DataAtHand data = linnet::data_at_hand("training text",
        {data_path(config_.data, config_.data.train_tsv), data_path(config_.data, config_.data.valid_tsv)}, exact);
    const std::string& from = config_.model.from;
    const bool known = from.empty() || is_onnx_path(from) || is_pretrained_folder(from);
    if (data.read && !known) data.read = false, data.why_not = "There is no model folder '" + from + "'";
    return data;
  }

  std::unique_ptr<Session> make_session(const Config& config, bool verify) override {
    Config settled = config;
    task_.before_session(model_.as<TextClassifier>(), settled);
    EncodeText encode;
    if (tokenizer_)
      encode = [this](std::string_view text, std::vector<int32_t>& ids) { tokenizer_->encode(text, ids); };
    return std::make_unique<TextSession>(
        settled, task_, model_.as<TextClassifier>(), outputs_, pairs_, true, verify, teacher(outputs_, encode));
  }

  BatchSource& batches() override { return cached_ ? static_cast<BatchSource&>(*cached_) : *batches_; }
  TaskEvaluation evaluate(const SharedWork& ranks) override {
    return session().evaluate(valid_records_, valid_, ranks);
  }
  void save_assets(const std::string& folder) const override {
    if (!model_.family) return save_onnx_assets(folder, model_, *tokenizer_);
    save_pretrained_assets(folder, model_, *tokenizer_);
  }

  std::string batches_text(const Session& session) const override {
    const auto& texts = static_cast<const TextSession&>(session);
    return text_of_parts(texts.rows, " texts of up to ", texts.lengths.back(), " tokens, ", outputs_.size(),
        task_.labels == LabelForm::Kind::kNumbers || pairs_ ? " outputs" : " classes");
  }

 protected:
  void begin() override {
    batches_.emplace(train_, session().rows, session().lengths, static_cast<uint64_t>(config_.train.seed));
    const auto* sentences = dynamic_cast<const SentenceEncoder*>(model_.module.get());
    if (sentences && sentences->training_loss.cached)
      cached_.emplace(*batches_, session(), sentences->training_loss, trainer().options().accumulate_steps);
  }

  const PretrainedModel* pretrained() const override { return &model_; }

 private:
  TextSession& session() { return static_cast<TextSession&>(*session_); }
  // Opens model.from with a new head for outputs_, makes a new model, or opens a run's with its outputs.
  void open_model(const std::string& from, const TextRecords& train) {
    const std::string& folder = config_.model.from;
    if (!from.empty()) {
      tokenizer_ = open_run_tokenizer(from);
      model_ = open_classification_run(from);
      outputs_ = task_.outputs_of(model_);
      return;
    }
    if (is_onnx_path(folder)) {
      if (task_.problem != TextProblem::kOneClass)
        fail_user("an ONNX file learns task = \"classification\"; task = \"", config_.data.task,
            "\" starts from a model folder");
      if (config_.lora.rank > 0)
        fail_user("lora.rank trains adapters beside a model folder; a network of an ONNX file has none");
      model_ = open_onnx_classifier(folder, outputs_);
      tokenizer_ = load_onnx_tokenizer(folder);
      return;
    }
    if (folder.empty()) {
      make_model(train);
    } else {
      tokenizer_ = load_pretrained_tokenizer(folder);
      if (task_.problem != TextProblem::kNumbers) outputs_ = labels_with(folder, std::move(outputs_));
      model_ = open_pretrained(folder, {.head = head_of(task_.problem),
                                           .labels = static_cast<int64_t>(outputs_.size()),
                                           .lora = lora_options(config_)});
      if (task_.problem == TextProblem::kEmbeddings) take_pooling(model_, folder);
    }
    if (task_.problem == TextProblem::kSpans || task_.problem == TextProblem::kEmbeddings) {
      outputs_ = task_.outputs_of(model_);
      return;
    }
    if (!folder.empty()) warn_of_other_classes(folder);
    name_labels(model_.config, outputs_);
    if (const std::string type = problem_type_of(task_.problem);
        task_.problem != TextProblem::kOneClass && !type.empty())
      set_problem_type(model_.config, type);
  }

  // Of a head that is trained on, not drawn anew.
  void warn_of_other_classes(const std::string& folder) const {
    const Names own = label_names(model_.config);
    if (task_.problem == TextProblem::kNumbers || !model_.fresh.empty() || own.size() != outputs_.size()) return;
    if (lower_ascii(joined(own)) != lower_ascii(joined(outputs_)))
      log_warning("model.from = \"" + folder + "\": its classes are called " + first_names(own) +
                  "; they are taken for " + first_names(outputs_));
  }

  // Makes a model of the configuration's sizes, and trains a tokenizer if none is given.
  void make_model(const TextRecords& train) {
    if (!config_.data.tokenizer_dir.empty()) {
      tokenizer_ = load_pretrained_tokenizer(config_.data.tokenizer_dir);
    } else {
      const TimedPhase phase("learning the vocabulary");
      std::vector<std::string> texts;
      for (const TextRecord& record : train.records)
        for (const std::string& text : {record.text, record.pair}) texts.push_back(text);
      // Names differ from other words by their capitals.
      const bool lowercase = task_.problem != TextProblem::kTokenClasses;
      tokenizer_ = train_wordpiece(texts, {.vocab_size = config_.data.vocab_size, .lowercase = lowercase});
      log_info("a vocabulary of ", tokenizer_->vocab_size(), " pieces was learned of the texts");
    }
    model_ = new_pretrained(describe_model(tokenizer_->vocab_size(), tokenizer_->roles().pad));
  }

  void weigh_classes() {
    if (config_.train.class_weights.empty()) return;
    const bool several = task_.labels == LabelForm::Kind::kNumbers;
    std::vector<int64_t> counts(outputs_.size());
    int64_t total = several ? count_ : 0;
    for (size_t i = 0; i < static_cast<size_t>(count_); ++i) {
      const std::span<const float> labels = train_.labels(i);
      for (size_t k = 0; several && k < labels.size(); ++k) counts[k] += labels[k] > 0.5f;
      for (size_t k = 0; !several && k < labels.size(); ++k)
        if (labels[k] >= 0) ++counts[labels[k]], ++total;
    }
    const std::vector<float> weights = class_weights(config_.train.class_weights, outputs_, counts, total, several);
    model_.as<TextClassifier>().class_weights.set(*model_.module, weights);
  }

  ConfigFile describe_model(int64_t vocab_size, int64_t pad_token) const {
    ConfigFile file = describe_encoder(config_, vocab_size, pad_token, head_of(task_.problem));
    if (!outputs_.empty()) file.set("num_labels", static_cast<int64_t>(outputs_.size()));
    return file;
  }

  const TextTask& task_;
  std::unique_ptr<PretrainedTokenizer> tokenizer_;
  PretrainedModel model_;
  Names outputs_;
  bool pairs_ = false;
  TextExamples train_, valid_;
  TextRecords valid_records_;
  std::optional<TextBatches> batches_;
  std::optional<CachedBatches> cached_;  // of batches_, with cached gradients
};
}  // namespace

std::unique_ptr<SessionTask> make_text_task(const Config& config) { return std::make_unique<TextTraining>(config); }

void export_classification_run(const std::string& folder, const std::string& out) {
  if (is_onnx_run(folder))
    fail_user("'", folder, "' trained the network of an ONNX file; `linnet export RUN --onnx DIR` writes it again");
  export_pretrained_run(folder, out);
}

TaskEvaluation evaluate_texts_of(
    const std::string& folder, const Config& config, const std::string& path, const std::string& split) {
  OpenedTextClassifier opened = open_text_classifier(folder);
  const TextTask& task = text_task(opened);
  const auto read = [&](const std::string& file) {
    const TimedPhase phase("reading the texts");
    return task.read(file, config.data);
  };
  const TextRecords records = !path.empty()      ? read(path)
                              : split == "valid" ? load_texts(task, config, nullptr).second
                                                 : read(text_path(config, config.data.test_tsv, "test_tsv"));
  auto& classifier = opened.model.as<TextClassifier>();
  Config with_model = config;
  with_model.answers.may_lack = opened.config.answers.may_lack;
  task.set_up(opened.model, with_model, records, nullptr);
  std::optional<TimedPhase> phase(std::in_place, "tokenizing");
  const TextExamples examples = task.encode(records, *opened.tokenizer, opened.outputs, classifier, with_model,
      longest_text(config, classifier), TextUse::kEvaluate);
  phase.reset();
  TextSession session(with_model, task, classifier, opened.outputs, records.pairs, false);
  take_model_weights(session, folder, "", opened.weights());
  return session.evaluate(records, examples, SharedWork::alone());
}
}  // namespace linnet
