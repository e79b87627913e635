#include <algorithm>
#include <array>
#include "base/error.h"
#include "config/config.h"

namespace linnet {
namespace {

using enum TaskKind;
using enum ExampleOrigin;

constexpr auto names(const auto&... each) { return std::array{std::string_view(each)...}; }

constexpr auto kPairModels = names("transformer", "t5", "marian");
constexpr auto kDecoders = names("gpt", "llama");
constexpr auto kEncoders = names("bert");
constexpr auto kImageModels = names("cnn", "resnet", "vit");

constexpr auto kPairMetrics = names("bleu", "chrf", "exact_match");
constexpr auto kPreferenceMetrics = names("accuracy", "margin", "chosen_reward", "rejected_reward");
constexpr auto kMaskedMetrics = names("masked_accuracy");
constexpr auto kTextClassMetrics = names("accuracy", "f1", "f1_macro", "f1_weighted");
constexpr auto kSeveralMetrics = names("f1", "f1_macro", "precision", "recall", "accuracy");
constexpr auto kNumberMetrics = names("pearson", "spearman");
constexpr auto kEntityMetrics = names("f1", "precision", "recall", "accuracy");
constexpr auto kAnswerMetrics = names("f1", "exact_match");
constexpr auto kEmbeddingMetrics = names("spearman", "pearson", "mrr_10", "ndcg_10", "recall_1", "recall_10");
constexpr auto kImageClassMetrics = names("accuracy", "f1_macro", "f1_weighted");
constexpr std::span<const std::string_view> kNone;

constexpr auto kTextHeads = names("classifier.*", "pooler.*");
constexpr auto kTokenHeads = names("classifier.*");
constexpr auto kAnswerHeads = names("qa_outputs.*");

// The members of TaskRow in their order.
constexpr TaskRow row(const auto&... members) { return {members...}; }

constexpr auto kPairFile = &DataConfig::train_tsv, kTextFile = &DataConfig::text, kFolder = &DataConfig::data_dir;

constexpr std::array kRows{
    row("text", kTranslation, kFiles, kPairFile, "text", "text", "translation", "tokens", kPairModels, kPairMetrics),
    row("dates", kTranslation, kDates, kPairFile, "text", "dates", "translation", "tokens", kPairModels, kPairMetrics),
    row("random", kTranslation, kRandom, kPairFile, "text", "random", "translation", "tokens", kPairModels,
        kPairMetrics),
    row("language", kLanguage, kFiles, kTextFile, "language", "language", "language model", "tokens", kDecoders, kNone),
    row("chat", kLanguage, kFiles, kTextFile, "chat", "language", "conversations", "tokens", kDecoders, kNone),
    row("preferences", kLanguage, kFiles, kTextFile, "preferences", "language", "preferences", "pairs", kDecoders,
        kPreferenceMetrics),
    row("masked_language", kMaskedLanguage, kFiles, kTextFile, "masked_language", "masked_language",
        "masked language model", "tokens", kEncoders, kMaskedMetrics),
    // What an encoder of texts with a head learns (tasks/texts/text_task.h).
    row("classification", kTexts, kFiles, kPairFile, "classification", "texts", "classification of texts", "texts",
        kEncoders, kTextClassMetrics, kTextHeads),
    row("several_labels", kTexts, kFiles, kPairFile, "several_labels", "texts", "several labels for each text", "texts",
        kEncoders, kSeveralMetrics, kTextHeads),
    row("regression", kTexts, kFiles, kPairFile, "regression", "texts", "numbers for each text", "texts", kEncoders,
        kNumberMetrics, kTextHeads),
    row("token_classification", kTexts, kFiles, kPairFile, "token_classification", "texts", "classification of words",
        "texts", kEncoders, kEntityMetrics, kTokenHeads),
    row("answers", kTexts, kFiles, kPairFile, "answers", "texts", "answers in texts", "texts", kEncoders,
        kAnswerMetrics, kAnswerHeads),
    row("embeddings", kTexts, kFiles, kPairFile, "embeddings", "texts", "embeddings of texts", "texts", kEncoders,
        kEmbeddingMetrics),
    row("images", kImages, kFiles, kFolder, "images", "images", "classification of images", "images", kImageModels,
        kImageClassMetrics),
    row("images_several_labels", kImages, kFiles, kFolder, "images_several_labels", "images",
        "several labels for each image", "images", kImageModels, kSeveralMetrics),
    row("images_regression", kImages, kFiles, kFolder, "images_regression", "images", "numbers for each image",
        "images", kImageModels, kNumberMetrics),
};

}  // namespace

std::span<const TaskRow> task_rows() { return kRows; }

const TaskRow& task_row(const Config& config) {
  const auto found = std::ranges::find(kRows, config.data.task, &TaskRow::name);
  if (found == kRows.end()) fail_internal("no task is called \"" + config.data.task + "\"");
  return *found;
}

}  // namespace linnet
