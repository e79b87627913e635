// Sentence embeddings with cosines (Reimers & Gurevych 2019), trained on pairs, scored pairs, or triplets.
#include <numeric>
#include "base/fail.h"
#include "base/log.h"
#include "base/numbers.h"
#include "base/text.h"
#include "data/metrics/similarity.h"
#include "models/families/sentence_embedder.h"
#include "models/modules/text_encoder.h"
#include "tasks/texts/text_task.h"

namespace linnet {
namespace {
using Kind = EmbeddingLoss::Kind;

// Parses "256,128,64".
std::vector<int64_t> dimensions_of(const std::string& text, int64_t width) {
  std::vector<int64_t> dimensions;
  if (text.empty()) return dimensions;
  for (const std::string_view part : split(text, ',')) {
    const auto value = parse_number<int64_t>(trimmed(part));
    if (!value || *value < 1 || *value > width)
      fail_user("embeddings.dimensions: \"", part, "\" is no number from 1 to ", width, ", the width of the model");
    dimensions.push_back(*value);
  }
  return dimensions;
}

bool has_scores(const TextRecords& records) { return !records.records.empty() && !records.records[0].label.is_null(); }

Kind kind_of(const std::string& loss, bool scores) {
  if (loss == "auto") return scores ? Kind::kCosent : Kind::kInBatch;
  return loss == "triplet"  ? Kind::kTriplet
         : loss == "cosent" ? Kind::kCosent
         : loss == "cosine" ? Kind::kCosine
                            : Kind::kInBatch;
}

EmbeddingLoss loss_of(const EmbeddingsConfig& config, const TextRecords& records, int64_t width) {
  return {.kind = kind_of(config.loss, has_scores(records)),
      .parts = records.records.empty() ? 1 : 2 + std::ssize(records.records[0].others),  // 1 for a model in use
      .scale = config.scale,
      .margin = config.margin,
      .dimensions = dimensions_of(config.dimensions, width)};
}

// Why a loss does not fit the examples; "" if it does.
std::string misfit(const EmbeddingLoss& loss, const TextRecords& records) {
  const bool by_score = loss.kind == Kind::kCosent || loss.kind == Kind::kCosine, scores = has_scores(records);
  if (by_score && !scores) return "learns of pairs with scores, and there is no field \"score\"";
  const auto is_first = [&](const TextRecord& record) { return record.label == records.records[0].label; };
  if (loss.kind == Kind::kCosent && std::ranges::all_of(records.records, is_first))
    return "learns of pairs with different scores, and all scores are equal";
  if (!by_score && scores)
    return "learns of pairs that belong together, and the pairs have scores (use cosent or cosine)";
  if (loss.kind == Kind::kTriplet && loss.parts < 3) return "learns of triplets, and the examples have two texts";
  return "";
}

double cosine(std::span<const float> a, std::span<const float> b) {
  const double squares =
      std::inner_product(a.begin(), a.end(), a.begin(), 0.0) * std::inner_product(b.begin(), b.end(), b.begin(), 0.0);
  return squares > 0 ? std::inner_product(a.begin(), a.end(), b.begin(), 0.0) / std::sqrt(squares) : 0;
}

class Embeddings : public TextTask {
 public:
  Embeddings() : TextTask("embeddings", TextProblem::kEmbeddings, LabelForm::Kind::kNumbers, embedding_loss) {}

  TextRecords read(const std::string& path, const DataConfig& data) const override {
    return read_related_texts(path, data);
  }
  void for_each_text(const std::string& path, const DataConfig& data, bool, const UseText& use) const override {
    for_each_related_text(path, data, use);
  }
  Names outputs(const TextRecords&, const std::string&) const override { return {}; }
  Names outputs_of(const PretrainedModel& model) const override {
    return mapped(model.as<SentenceEncoder>().width(), [](int64_t i) { return std::to_string(i); });
  }
  LabelForm form(const Names&, const TextClassifier& model, TextUse use) const override {
    const auto& encoder = dynamic_cast<const SentenceEncoder&>(model);
    return {.kind = labels,
        .numbers = 1,
        .parts = (use == TextUse::kTrain ? encoder.training_loss : encoder.evaluation_loss).parts};
  }

  void set_up(
      PretrainedModel& model, const Config& config, const TextRecords& train, const TextRecords* valid) const override {
    auto& encoder = model.as<SentenceEncoder>();
    const int64_t width = encoder.width();
    if (encoder.max_tokens == 0) encoder.max_tokens = longest_text(config, encoder);
    encoder.training_loss = loss_of(config.embeddings, train, width);
    const std::string wrong = misfit(encoder.training_loss, train);
    if (valid && !wrong.empty()) fail_user("embeddings.loss = \"", config.embeddings.loss, "\" ", wrong);
    if (valid && encoder.training_loss.is_of_batch() && encoder.training_loss.parts == 2 &&
        config.data.batch_size * config.train.accumulate_steps == 1)
      fail_user("embeddings learn of the other pairs of a batch, and batch_size = 1 has none");
    if (const int64_t shards = config.train.data_shards; valid && shards > 1 && encoder.training_loss.is_of_batch())
      log_warning("each text is compared with the ", config.data.batch_size, " of its shard, not with the batch's ",
          shards * config.data.batch_size, ": a larger batch_size makes up for it");
    // Validation examples of another form get a loss that fits them.
    const TextRecords& judged = valid ? *valid : train;
    encoder.evaluation_loss = loss_of(config.embeddings, judged, width);
    if (!misfit(encoder.evaluation_loss, judged).empty())
      encoder.evaluation_loss.kind = kind_of("auto", has_scores(judged));
    const std::string& metric = config.train.metric;
    const bool correlates = metric == "spearman" || metric == "pearson";
    if (valid && metric != "loss" && correlates != has_scores(judged))
      fail_user("metric = \"", metric, "\" is of pairs ", correlates ? "with" : "without",
          " scores, and the examples to choose by are others");
    for (const auto& [loss, records] : {std::pair{&encoder.training_loss, &train}, {&encoder.evaluation_loss, &judged}})
      if (loss->kind == Kind::kCosine)
        for (const TextRecord& record : records->records)
          if (const double score = number_of(record.label, record.where); score < -1 || score > 1)
            fail_user(record.where, ": the score ", label_text(record.label),
                " is no cosine, from -1 to 1; embeddings.loss = \"cosent\" takes any numbers");
  }

  void before_session(TextClassifier& model, Config& config) const override {
    auto& encoder = dynamic_cast<SentenceEncoder&>(model);
    // Only weight decay would change the pooler.
    if (encoder.pooler) config.train.freeze += config.train.freeze.empty() ? "pooler.*" : ",pooler.*";
    EmbeddingLoss& loss = encoder.training_loss;
    loss.cached = config.train.accumulate_steps > 1 && loss.is_of_batch();
    if (!loss.cached) return;
    if (config.process.ranks > 1 || config.train.data_shards > 1)
      fail_user(
          "embeddings learn of several micro-batches or accumulated batches as one, which several ranks or "
          "data_shards do not divide: set micro_batches and accumulate_steps to 1");
    leave_dropout_out(model);  // texts are embedded twice with equal results
  }

  // In use a model gets single texts, also of pairs.
  TextExamples encode(const TextRecords& records, const PretrainedTokenizer& tokenizer, const Names& outputs,
      const TextClassifier& model, const Config&, int64_t longest, TextUse use) const override {
    TextExamples examples(form(outputs, model, use));
    const auto tokens_of = [&](const std::string& text, const std::string& where) {
      std::vector<int32_t> ids = tokenizer.encode(text, {.max_length = longest, .offsets = false}).ids;
      if (ids.empty()) fail_user(where, ": a text without tokens");
      return ids;
    };
    for (size_t i = 0; i < records.records.size(); ++i) {
      const TextRecord& record = records.records[i];
      const float label = record.label.is_null() ? 0 : static_cast<float>(number_of(record.label, record.where));
      const auto add = [&](const std::string& text) { examples.add(tokens_of(text, record.where), {&label, 1}); };
      add(record.text);
      if (use == TextUse::kAsk) {
        if (has_pair(record)) add(record.pair);
        continue;
      }
      examples.tokens.push_back(tokens_of(record.pair, record.where));
      for (const std::string& other : record.others) examples.tokens.push_back(tokens_of(other, record.where));
    }
    return examples;
  }

  // For scored pairs, how well cosines follow scores; else how well first texts find their partners among all others.
  Measures measure(const TextRecords& records, const TextExamples&, std::span<const std::vector<float>> predicted,
      const Names& outputs, const Config&) const override {
    const size_t width = outputs.size();
    const auto part = [&](size_t record, size_t index) {
      return std::span(predicted[record]).subspan(index * width, width);
    };
    if (has_scores(records)) {
      std::vector<double> found, wanted;
      for (size_t i = 0; i < records.records.size(); ++i)
        found.push_back(cosine(part(i, 0), part(i, 1))),
            wanted.push_back(number_of(records.records[i].label, records.records[i].where));
      return {{{"spearman", spearman_correlation(found, wanted)}, {"pearson", pearson_correlation(found, wanted)}}};
    }
    Retrieval retrieval(width);
    for (size_t i = 0; i < records.records.size(); ++i) {
      const TextRecord& record = records.records[i];
      retrieval.add_pair(record.text, part(i, 0), record.pair, part(i, 1));
      for (size_t k = 0; k < record.others.size(); ++k) retrieval.add_document(record.others[k], part(i, 2 + k));
    }
    return {retrieval.metrics()};
  }

  // The embedding of a text, or the cosine of two.
  std::vector<Answer> answers(const TextRecords& records, const TextExamples&,
      std::span<const std::vector<float>> logits, const Names&, const Config&, int64_t) const override {
    std::vector<Answer> answers;
    auto next = logits.begin();
    for (const TextRecord& record : records.records) {
      const std::vector<float>& embedding = *next++;
      Answer& answer = answers.emplace_back();
      if (has_pair(record)) {
        const double similarity = cosine(embedding, *next++);
        answer.cells = {cell(similarity)}, answer.json["cosine"] = similarity;
        continue;
      }
      answer.json["embedding"] = embedding;
      append_shortest(answer.cells.emplace_back(), embedding, ' ');
    }
    return answers;
  }
  Names heading(const Names&, int64_t) const override { return {"embedding"}; }
  bool may_be_pairs() const override { return true; }

 private:
  static bool has_pair(const TextRecord& record) { return !record.pair.empty(); }
};
}  // namespace

const TextTask& embeddings_task() { return only<Embeddings>(); }
}  // namespace linnet
