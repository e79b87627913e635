#include "tasks/images/image_tables.h"
#include <algorithm>
#include "base/fail.h"
#include "config/hints.h"
#include "tasks/images/image_session.h"

namespace linnet {
namespace {
ImageDataset load(const TextRecords& records, const TextTask& task, const Names& outputs, ImageLoading& loading) {
  if (records.records.empty()) return {.class_names = outputs};
  std::vector<std::string> paths;
  std::vector<int32_t> classes;
  std::vector<float> numbers;
  for (const TextRecord& record : records.records) {
    paths.push_back(record.text);
    const std::vector<float> label = task.label(record, {}, outputs);
    const bool is_class = task.labels == LabelForm::Kind::kClass;
    classes.push_back(is_class ? static_cast<int32_t>(label[0]) : 0);
    if (!is_class) numbers.insert(numbers.end(), label.begin(), label.end());
  }
  ImageDataset images = read_image_files(paths, loading);
  images.labels = std::move(classes), images.numbers = std::move(numbers), images.class_names = outputs;
  loading.memory -= images.pixels.size();  // the parts share the memory
  return images;
}
}  // namespace

const TextTask& image_labels(const Config& config) {
  const std::string& task = config.data.task;
  return text_task(task == "images_several_labels" ? TextProblem::kSeveralClasses
                   : task == "images_regression"   ? TextProblem::kNumbers
                                                   : TextProblem::kOneClass);
}

ImageLoading loading_of(const Config& config) {
  return {.size = config.data.image_size,
      .fit = image_fit(config.data.image_fit),
      .threads = decoding_threads(config),
      .memory = parse_byte_size(config.data.image_memory).value_or(UINT64_MAX)};
}

ImageDataset load_image_table(const std::string& path, const Config& config, const Names& outputs) {
  ImageLoading loading = loading_of(config);
  return load(read_image_records(path, config.data), image_labels(config), outputs, loading);
}

ImageSplits load_table_splits(const Config& config) {
  const DataConfig& data = config.data;
  const TextTask& task = image_labels(config);
  const std::string path = data_path(data, data.train_tsv);
  TextRecords train = read_image_records(path, data), valid, test;
  const Names outputs = task.outputs(train, path);
  const bool classes = task.labels == LabelForm::Kind::kClass;
  const auto count = static_cast<double>(train.records.size());
  const auto seed = static_cast<uint64_t>(config.train.seed);
  const auto take = [&](double share, uint64_t with) {
    return split_off(train, classes, std::min(0.5, share * count / static_cast<double>(train.records.size())), with);
  };
  if (!data.test_tsv.empty()) test = read_image_records(data_path(data, data.test_tsv), data);
  else if (data.valid_tsv.empty()) test = take(data.held_out, seed);
  if (!data.valid_tsv.empty()) valid = read_image_records(data_path(data, data.valid_tsv), data);
  else
    valid =
        take(data.held_out_images > 0 ? static_cast<double>(data.held_out_images) / count : data.held_out, seed + 1);
  if (train.records.empty() || valid.records.empty())
    fail_user("'", path, "' has too few images to set some aside (data.valid_tsv names others to choose by)");
  ImageLoading loading = loading_of(config);
  ImageSplits splits{.train = load(train, task, outputs, loading)};
  splits.validation = load(valid, task, outputs, loading), splits.test = load(test, task, outputs, loading);
  make_alike(splits, path);
  return splits;
}

TextExamples labels_of(const ImageDataset& images, LabelForm::Kind kind) {
  TextExamples examples({kind, images.has_numbers() ? images.classes() : 1});
  for (int64_t i = 0; i < images.count; ++i) {
    const auto of_class = static_cast<float>(images.labels[i]);
    examples.add({}, images.has_numbers() ? images.numbers_of(i) : std::span(&of_class, 1));
  }
  return examples;
}
}  // namespace linnet
