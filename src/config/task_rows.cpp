#include <algorithm>
#include <array>
#include "base/fail.h"
#include "config/config.h"
#include "config/text_tasks.h"

namespace linnet {
namespace {
using enum TaskKind;
using enum ExampleOrigin;

constexpr auto names(const auto&... each) { return std::array<std::string_view, sizeof...(each)>{each...}; }

constexpr auto kPairModels = names("transformer", "t5", "marian");
constexpr auto kDecoders = names("gpt", "llama");
constexpr auto kEncoders = names("bert");
constexpr auto kImageModels = names("cnn", "resnet", "vit");

constexpr auto kPairMetrics = names("bleu", "chrf", "exact_match");
constexpr auto kPreferenceMetrics = names("accuracy", "margin", "chosen_reward", "rejected_reward");
constexpr auto kMaskedMetrics = names("masked_accuracy");
constexpr auto kImageClassMetrics = names("accuracy", "f1_macro", "f1_weighted");
constexpr std::span<const std::string_view> kNoMetrics;

#define LINNET_NAMES(name, description, metrics, heads) \
  constexpr auto name##_metrics = metrics;              \
  constexpr auto name##_heads = heads;
LINNET_TEXT_TASKS(LINNET_NAMES)

// TaskRow's members in order.
constexpr TaskRow row(const auto&... members) { return {members...}; }

constexpr auto kPairFile = &DataConfig::train_tsv, kTextFile = &DataConfig::text, kFolder = &DataConfig::data_dir;

#define LINNET_TEXT_ROW(name, description, metrics, heads) \
  row(#name, kTexts, kFiles, kPairFile, #name, "texts", description, "texts", kEncoders, name##_metrics, name##_heads),

constexpr std::array kRows{
    row("text", kTranslation, kFiles, kPairFile, "text", "text", "translation", "tokens", kPairModels, kPairMetrics),
    row("dates", kTranslation, kDates, kPairFile, "text", "dates", "translation", "tokens", kPairModels, kPairMetrics),
    row("random", kTranslation, kRandom, kPairFile, "text", "random", "translation", "tokens", kPairModels,
        kPairMetrics),
    row("language", kLanguage, kFiles, kTextFile, "language", "language", "language model", "tokens", kDecoders,
        kNoMetrics),
    row("chat", kLanguage, kFiles, kTextFile, "chat", "language", "conversations", "tokens", kDecoders, kNoMetrics),
    row("preferences", kLanguage, kFiles, kTextFile, "preferences", "language", "preferences", "pairs", kDecoders,
        kPreferenceMetrics),
    row("masked_language", kMaskedLanguage, kFiles, kTextFile, "masked_language", "masked_language",
        "masked language model", "tokens", kEncoders, kMaskedMetrics),
    row("images", kImages, kFiles, kFolder, "images", "images", "classification of images", "images", kImageModels,
        kImageClassMetrics),
    row("images_several_labels", kImages, kFiles, kFolder, "images_several_labels", "images",
        "several labels for each image", "images", kImageModels, several_labels_metrics),
    row("images_regression", kImages, kFiles, kFolder, "images_regression", "images", "numbers for each image",
        "images", kImageModels, regression_metrics),
    LINNET_TEXT_TASKS(LINNET_TEXT_ROW)};
}  // namespace

std::span<const TaskRow> task_rows() { return kRows; }

const TaskRow& task_row(const Config& config) {
  const auto found = std::ranges::find(kRows, config.data.task, &TaskRow::name);
  if (found == kRows.end()) fail_internal("no task is called \"", config.data.task, "\"");
  return *found;
}
}  // namespace linnet
