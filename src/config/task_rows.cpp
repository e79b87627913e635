#include <algorithm>
#include <array>
#include "base/error.h"
#include "config/config.h"

namespace linnet {
namespace {

using Names = std::string_view;
constexpr std::array kPairModels{Names("transformer"), Names("t5"), Names("marian")};
constexpr std::array kPairMetrics{Names("bleu"), Names("chrf"), Names("exact_match")};
constexpr std::array kDecoders{Names("gpt"), Names("llama")};
constexpr std::array kEncoders{Names("bert")};
constexpr std::array kImageModels{Names("cnn"), Names("resnet"), Names("vit")};
constexpr std::array kPreferenceMetrics{Names("accuracy"), Names("margin"), Names("chosen_reward"),
                                        Names("rejected_reward")};
constexpr std::array kMaskedMetrics{Names("masked_accuracy")};
constexpr std::array kTextClassMetrics{Names("accuracy"), Names("f1"), Names("f1_macro"), Names("f1_weighted")};
constexpr std::array kSeveralMetrics{Names("f1"), Names("f1_macro"), Names("precision"), Names("recall"),
                                     Names("accuracy")};
constexpr std::array kNumberMetrics{Names("pearson"), Names("spearman")};
constexpr std::array kEntityMetrics{Names("f1"), Names("precision"), Names("recall"), Names("accuracy")};
constexpr std::array kAnswerMetrics{Names("f1"), Names("exact_match")};
constexpr std::array kEmbeddingMetrics{Names("spearman"), Names("pearson"),  Names("mrr_10"),
                                       Names("ndcg_10"),  Names("recall_1"), Names("recall_10")};
constexpr std::array kImageClassMetrics{Names("accuracy"), Names("f1_macro"), Names("f1_weighted")};

constexpr TaskRow pairs(std::string_view name, ExampleOrigin origin) {
  return {name,          TaskKind::kTranslation,
          origin,        &DataConfig::train_tsv,
          "text",        name,
          "translation", "tokens",
          kPairModels,   kPairMetrics};
}

constexpr std::array kTextHeads{Names("classifier.*"), Names("pooler.*")};
constexpr std::array kTokenHeads{Names("classifier.*")};
constexpr std::array kAnswerHeads{Names("qa_outputs.*")};

// What an encoder of texts with a head learns (tasks/texts/text_task.h).
constexpr TaskRow texts(std::string_view name, const char* description, std::span<const Names> metrics,
                        std::span<const Names> heads = kTextHeads) {
  return {name,
          TaskKind::kTexts,
          ExampleOrigin::kFiles,
          &DataConfig::train_tsv,
          name,
          "texts",
          description,
          "texts",
          kEncoders,
          metrics,
          heads};
}

constexpr TaskRow images(std::string_view name, const char* description, std::span<const Names> metrics) {
  return {name,
          TaskKind::kImages,
          ExampleOrigin::kFiles,
          &DataConfig::data_dir,
          name,
          "images",
          description,
          "images",
          kImageModels,
          metrics};
}

constexpr std::array kRows{
    pairs("text", ExampleOrigin::kFiles),
    pairs("dates", ExampleOrigin::kDates),
    pairs("random", ExampleOrigin::kRandom),
    TaskRow{"language",
            TaskKind::kLanguage,
            ExampleOrigin::kFiles,
            &DataConfig::text,
            "language",
            "language",
            "language model",
            "tokens",
            kDecoders,
            {}},
    TaskRow{"chat",
            TaskKind::kLanguage,
            ExampleOrigin::kFiles,
            &DataConfig::text,
            "chat",
            "language",
            "conversations",
            "tokens",
            kDecoders,
            {}},
    TaskRow{"preferences", TaskKind::kLanguage, ExampleOrigin::kFiles, &DataConfig::text, "preferences", "language",
            "preferences", "pairs", kDecoders, kPreferenceMetrics},
    TaskRow{"masked_language", TaskKind::kMaskedLanguage, ExampleOrigin::kFiles, &DataConfig::text, "masked_language",
            "masked_language", "masked language model", "tokens", kEncoders, kMaskedMetrics},
    texts("classification", "classification of texts", kTextClassMetrics),
    texts("several_labels", "several labels for each text", kSeveralMetrics),
    texts("regression", "numbers for each text", kNumberMetrics),
    texts("token_classification", "classification of words", kEntityMetrics, kTokenHeads),
    texts("answers", "answers in texts", kAnswerMetrics, kAnswerHeads),
    texts("embeddings", "embeddings of texts", kEmbeddingMetrics, {}),
    images("images", "classification of images", kImageClassMetrics),
    images("images_several_labels", "several labels for each image", kSeveralMetrics),
    images("images_regression", "numbers for each image", kNumberMetrics),
};

}  // namespace

std::span<const TaskRow> task_rows() { return kRows; }

const TaskRow& task_row(const Config& config) {
  const auto found = std::ranges::find(kRows, config.data.task, &TaskRow::name);
  if (found == kRows.end()) fail_internal("no task is called \"" + config.data.task + "\"");
  return *found;
}

}  // namespace linnet
