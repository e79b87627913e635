#include "tasks/predictor.h"
#include "base/fail.h"
#include "base/log.h"
#include "data/examples/text/token_chunks.h"
#include "tasks/images/image_session.h"
#include "tasks/language/language_model.h"
#include "tasks/task_table.h"
#include "tasks/texts/text_classifier.h"
#include "tasks/texts/text_session.h"
#include "tasks/translation/translation_session.h"
#include "training/run/run_folder.h"

namespace linnet {
namespace {
class PredictorOfTexts : public Predictor {
 public:
  PredictorOfTexts(const std::string& folder, const InferenceOptions& options, int64_t rows, bool pairs)
      : opened_(open_text_classifier(folder, parse_adapters(options.adapters))), task_(text_task(opened_)) {
    if (!opened_.is_run) opened_.pairs = opened_.pairs || pairs;
    apply(options, opened_.config, folder);
    opened_.config.data.batch_size = rows;
    task_.set_up(opened_.model, opened_.config, {}, nullptr);
    session_ = std::make_unique<TextSession>(
        opened_.config, task_, opened_.model.as<TextClassifier>(), opened_.outputs, opened_.pairs, false);
    take_model_weights(*session_, folder, "", opened_.weights());
  }
  bool takes_pairs() const override { return opened_.pairs || task_.may_be_pairs(); }
  void for_each_text(const std::string& path, const DataConfig& named, const UseText& use) const override {
    DataConfig columns = opened_.config.data;
    if (!named.text_column.empty()) columns.text_column = named.text_column;
    if (!named.pair_column.empty()) columns.pair_column = named.pair_column;
    task_.for_each_text(path, columns, opened_.pairs, use);
  }
  int64_t outputs() const override { return std::ssize(opened_.outputs); }
  int64_t choices() const override { return task_.choices(opened_.outputs, opened_.config); }
  std::vector<Answer> answer(const std::vector<std::string>& texts, int64_t top) override {
    if (texts.empty()) return {};
    TextRecords records{.records = {}, .pairs = opened_.pairs};
    for (const std::string& text : texts) {
      TextRecord& record = records.records.emplace_back();
      const size_t tab = takes_pairs() ? text.find('\t') : text.npos;
      if (opened_.pairs && tab == text.npos)
        fail_user("the model takes two texts with a tab between them, and '", text.substr(0, 60), "' has none");
      record.text = text.substr(0, tab);
      if (tab != text.npos) record.pair = text.substr(tab + 1);
    }
    const int64_t longest = session_->lengths.back();
    const TextExamples examples = task_.encode(records, *opened_.tokenizer, opened_.outputs,
        opened_.model.as<TextClassifier>(), opened_.config, longest, TextUse::kAsk);
    const auto is_full = [&](const std::vector<int32_t>& tokens) { return std::ssize(tokens) >= longest; };
    if (examples.records.empty() && std::ranges::any_of(examples.tokens, is_full) && !std::exchange(told_of_cut_, true))
      log_warning("a text fills the ", longest,
          " tokens that the model reads; what may follow them is not read (this is told once)");
    return task_.answers(records, examples, session_->logits(examples), opened_.outputs, opened_.config, top);
  }
  std::vector<std::string> heading(int64_t top) const override { return task_.heading(opened_.outputs, top); }

 private:
  OpenedTextClassifier opened_;
  const TextTask& task_;
  std::unique_ptr<TextSession> session_;
  bool told_of_cut_ = false;
};

class PredictorOfImages : public Predictor {
 public:
  PredictorOfImages(const std::string& folder, Config config, ImageFormat format, const InferenceOptions& options,
      int64_t rows, const PretrainedModel* vit = nullptr)
      : format_(std::move(format)), task_(text_task(format_.problem)), columns_(config.data) {
    apply(options, config, folder);
    config.data.batch_size = rows;
    fit_ = image_fit(config.data.image_fit);
    session_ = std::make_unique<ImageSession>(config, format_, false);
    take_model_weights(*session_, folder, "", weights_of(folder, vit));
  }
  int64_t outputs() const override { return std::ssize(format_.class_names); }
  int64_t choices() const override { return task_.choices(format_.class_names, {}); }
  bool takes_images() const override { return true; }
  std::vector<Answer> answer(const std::vector<std::string>& paths, int64_t top) override {
    if (paths.empty()) return {};
    ImageDataset images{.count = static_cast<int64_t>(paths.size()),
        .height = format_.height,
        .width = format_.width,
        .channels = format_.channels};
    images.class_names = format_.class_names;
    images.labels.assign(paths.size(), -1);
    if (format_.problem != TextProblem::kOneClass) images.numbers.resize(paths.size() * format_.class_names.size());
    images.files = {.paths = paths, .fit = fit_, .channels = format_.channels};
    const size_t outputs = format_.class_names.size();
    const std::vector<float> logits = session_->logits(images);
    return mapped(paths.size(), [&](size_t i) {
      return task_.answer(paths[i], {}, std::span(logits).subspan(i * outputs, outputs), format_.class_names, top);
    });
  }
  std::vector<std::string> heading(int64_t top) const override { return task_.heading(format_.class_names, top); }
  void for_each_text(const std::string& path, const DataConfig& named, const UseText& use) const override {
    DataConfig columns = columns_;
    if (!named.text_column.empty()) columns.text_column = named.text_column;
    for_each_image(path, columns, use);
  }

 private:
  ImageFormat format_;
  const TextTask& task_;
  const DataConfig columns_;
  ImageFit fit_ = ImageFit::kCrop;
  std::unique_ptr<ImageSession> session_;
};

// A ViT's folder. Exported runs name their "image_fit"; other folders scale both sides by the filter "resample".
std::unique_ptr<Predictor> predict_by_vit(const std::string& folder, const InferenceOptions& options, int64_t rows) {
  if (!options.adapters.empty()) fail_user("--adapter is for models of text, and '", folder, "' is a ViT");
  const ConfigFile processor = ConfigFile::if_exists(folder + "/preprocessor_config.json");
  const int64_t filter = processor.integer("resample", 2);
  if (filter != 2 && filter != 3) processor.fail("\"resample\" is ", filter, ", Linnet supports 2 and 3");
  Config config;
  config.data.task = "images", config.data.image_fit = filter == 2 ? "bilinear" : "bicubic";
  if (processor.has("image_fit")) config.data.image_fit = processor.choice("image_fit", {"crop", "stretch"});
  config.model.architecture = "vit";
  const PretrainedModel vit = open_pretrained(folder);
  return std::make_unique<PredictorOfImages>(folder, config, vit_folder_format(folder), options, rows, &vit);
}

constexpr int64_t kShortest = 16;  // the least padded length of a text; texts are scored one at a time

class ScoringSession : public Session {
 public:
  ScoringSession(const Config& config, CausalModel& model, const std::vector<int64_t>& lengths)
      : Session(config, model, false) {
    const auto loss = [&model](Trace& trace, int64_t length) { return causal_loss(model, trace, 1, length); };
    plan(token_inputs({.rows = 1, .length = lengths.back()}, false), losses_of(lengths, loss));
  }
};

class LanguageScorer : public Scorer {
 public:
  LanguageScorer(const std::string& folder, const InferenceOptions& options)
      : opened_(open_language_model(folder, parse_adapters(options.adapters))) {
    apply(options, opened_.config, folder);
    const int64_t context = opened_.config.data.context;
    const CausalModel& model = *opened_.model;
    lengths_ = doubling_sizes(kShortest, context > 0 ? std::min(context, model.max_length()) : model.usual_length());
    session_ = std::make_unique<ScoringSession>(opened_.config, *opened_.model, lengths_);
    take_model_weights(*session_, folder, "", opened_.weights());
  }
  bool takes_pairs() const override { return false; }

  TextScore score(const std::string& text, const std::string&) override {
    std::vector<int32_t> ids;
    if (const int32_t start = opened_.coder->start(); start >= 0) ids.push_back(start);
    opened_.coder->encode(text, ids);
    TextScore total;
    const auto longest = static_cast<size_t>(lengths_.back());
    for (size_t begin = 0; begin + 1 < ids.size(); begin += longest) {
      const size_t size = std::min(longest, ids.size() - 1 - begin);
      const size_t shape = padded_to(lengths_, static_cast<int64_t>(size));
      const auto length = static_cast<size_t>(lengths_[shape]);
      std::vector<int32_t> tokens(length, 0), targets(length, -1);
      std::copy_n(ids.begin() + begin, size, tokens.begin());
      std::copy_n(ids.begin() + begin + 1, size, targets.begin());
      Batch batch;
      batch.shape_index = static_cast<int>(shape);
      batch.arrays = {batch_array("tokens", tokens.data(), lengths_[shape]),
          batch_array("targets", targets.data(), lengths_[shape])};
      const LossTotal loss = session_->trainer->evaluate(batch);
      total.log_probability -= loss.sum;
      total.tokens += loss.tokens;
    }
    return total;
  }

 private:
  OpenedLanguageModel opened_;
  std::vector<int64_t> lengths_;
  std::unique_ptr<ScoringSession> session_;
};

class TranslationScorer : public Scorer {
 public:
  TranslationScorer(const std::string& folder, const InferenceOptions& options)
      : opened_(open_translation_model(folder, parse_adapters(options.adapters), options.languages)) {
    Config config = opened_.config;
    apply(options, config, folder);
    config.train.label_smoothing = 0;
    lengths_ = doubling_sizes(kShortest, config.model.max_seq_len);
    SessionOptions needs;
    needs.training = false;
    for (const int64_t source : lengths_)
      for (const int64_t target : lengths_) needs.shapes.push_back({1, source, target});
    session_ = std::make_unique<TranslationSession>(config, opened_, std::move(needs));
    take_model_weights(*session_, folder, "", opened_.weights());
  }
  bool takes_pairs() const override { return true; }

  TextScore score(const std::string& text, const std::string& source_text) override {
    const TokenizerPair& tokenizers = session_->tokenizers;
    const SentenceFrame frame = tokenizers.frame();
    std::vector<int32_t> source, begun;
    tokenizers.source->encode(source_text, source);
    tokenizers.target->encode(text, begun);
    const bool cut = frame_sentence(source, frame.source_begin, frame.source_end, lengths_.back());
    cut_texts_ += frame_sentence(begun, frame.target_begin, frame.target_end, lengths_.back() + 1) || cut;
    std::vector<int32_t> target(begun.begin() + 1, begun.end());
    begun.pop_back();
    const size_t rows = padded_to(lengths_, std::ssize(source)), columns = padded_to(lengths_, std::ssize(target));
    const auto source_length = static_cast<int32_t>(source.size()), target_length = static_cast<int32_t>(target.size());
    source.resize(lengths_[rows], tokenizers.special.pad);
    for (std::vector<int32_t>* side : {&begun, &target}) side->resize(lengths_[columns], tokenizers.special.pad);
    Batch batch;
    batch.shape_index = static_cast<int>(rows * lengths_.size() + columns);
    batch.arrays = {batch_array("source", source.data(), lengths_[rows]),
        batch_array("source_lengths", &source_length, 1), batch_array("target_in", begun.data(), lengths_[columns]),
        batch_array("target_out", target.data(), lengths_[columns]), batch_array("target_lengths", &target_length, 1)};
    const LossTotal loss = session_->trainer->evaluate(batch);
    return {-loss.sum, loss.tokens};
  }

 private:
  OpenedTranslationModel opened_;
  std::vector<int64_t> lengths_;
  std::unique_ptr<TranslationSession> session_;
};

// Like sentence-transformers' CrossEncoder: the model's one output, without a sigmoid.
class PairScorer : public Scorer {
 public:
  PairScorer(const std::string& folder, const InferenceOptions& options)
      : predictor_(open_predictor(folder, options, 1, true)) {
    if (predictor_->outputs() != 1)
      fail_user("'", folder, "' tells classes; `linnet predict` gives their probabilities");
  }
  bool takes_pairs() const override { return true; }
  TextScore score(const std::string& text, const std::string& source) override {
    return {.score = predictor_->answer({source + '\t' + text}, 1)[0].json.at("number").get<double>()};
  }

 private:
  const std::unique_ptr<Predictor> predictor_;
};
}  // namespace

std::unique_ptr<Predictor> predict_texts(const std::string& folder, const InferenceOptions& options, int64_t rows) {
  return std::make_unique<PredictorOfTexts>(folder, options, rows, false);
}

std::unique_ptr<Predictor> predict_images(const std::string& folder, const InferenceOptions& options, int64_t rows) {
  return std::make_unique<PredictorOfImages>(
      folder, RunFolder(folder).load_config(), ImageFormat::load(folder), options, rows);
}

std::unique_ptr<Predictor> open_predictor(
    const std::string& folder, const InferenceOptions& options, int64_t rows, bool pairs) {
  if (is_vit_folder(folder)) return predict_by_vit(folder, options, rows);
  const bool adapted = !options.adapters.empty() && !RunFolder(folder).has_config();
  if (adapted || is_text_classifier_folder(folder) || is_sentence_folder(folder))
    return std::make_unique<PredictorOfTexts>(folder, options, rows, pairs);
  const std::optional<Config> run = run_config(folder);
  if (!run)
    fail_user("'", folder, "' is a ", ConfigFile(folder + "/config.json").text("model_type"),
        " model, and Linnet knows no classifier in it; `linnet train classify --set model.from=", folder,
        "` makes one from a text model; of image models Linnet knows ViT");
  if (const auto predict = task_actions(*run).predict) return predict(folder, options, rows);
  fail_user("run '", folder, "' is no classifier: its task is \"", run->data.task,
      "\"; `linnet score` gives probabilities of texts");
}

std::unique_ptr<Scorer> open_language_scorer(const std::string& folder, const InferenceOptions& options) {
  return std::make_unique<LanguageScorer>(folder, options);
}

std::unique_ptr<Scorer> open_translation_scorer(const std::string& folder, const InferenceOptions& options) {
  return std::make_unique<TranslationScorer>(folder, options);
}

std::unique_ptr<Scorer> open_scorer(const std::string& folder, const InferenceOptions& options) {
  if (is_translation_folder(folder)) return open_translation_scorer(folder, options);
  if (is_text_classifier_folder(folder)) return std::make_unique<PairScorer>(folder, options);
  const std::optional<Config> run = run_config(folder);
  if (!run) return open_language_scorer(folder, options);
  const TaskActions& task = task_actions(*run);
  if (!task.score) fail_user("run '", folder, "' ", task.no_score);
  return task.score(folder, options);
}
}  // namespace linnet
