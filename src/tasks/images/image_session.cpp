#include "tasks/images/image_session.h"
#include "base/fail.h"
#include "base/files.h"
#include "base/json.h"
#include "config/hints.h"
#include "data/examples/images/image_batches.h"
#include "models/families/config_file.h"
#include "models/families/pretrained.h"
#include "models/families/torchvision.h"
#include "models/families/vit.h"
#include "models/modules/image_model.h"
#include "models/modules/resnet.h"
#include "onnx/text_network.h"

namespace linnet {
namespace {
constexpr const char *kFormatFile = "/images.json", *kNetworkFile = "/network.onnx", *kVitFolder = "/pretrained",
                     *kVitFile = "/pretrained/config.json";

TextExamples labels_of(const ImageDataset& images, LabelForm::Kind kind) {
  TextExamples examples({kind, images.has_numbers() ? images.classes() : 1});
  for (int64_t i = 0; i < images.count; ++i) {
    const auto of_class = static_cast<float>(images.labels[i]);
    examples.add({}, images.has_numbers() ? images.numbers_of(i) : std::span(&of_class, 1));
  }
  return examples;
}

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

std::string size_text(int64_t height, int64_t width, int64_t channels) {
  return std::to_string(height) + " x " + std::to_string(width) + " x " + std::to_string(channels);
}

std::unique_ptr<ImageModel> make_image_model(const Config& config, const ImageFormat& format) {
  const auto classes = static_cast<int64_t>(format.class_names.size());
  const ImageShape shape{format.height, format.width, format.channels, classes};
  if (!format.vit.empty() || starts_from_vit(config)) return std::make_unique<Vit>(vit_config_of(config, format));
  if (const int64_t depth = resnet_depth_of(config, format); depth > 0)
    return std::make_unique<ResNet>(ResNetConfig{depth, shape, format.mean, format.deviation});
  const std::string& network = format.network.empty() ? config.model.from : format.network;
  if (!network.empty())
    return std::make_unique<OnnxImageModel>(load_onnx(network, classes), shape, format.mean, format.deviation);
  if (config.model.architecture == "vit") return std::make_unique<Vit>(vit_config_of(config, format));
  return std::make_unique<Cnn>(CnnConfig{.height = format.height,
      .width = format.width,
      .channels = format.channels,
      .filters = config.model.filters,
      .classes = classes,
      .mean = format.mean,
      .deviation = format.deviation});
}

int64_t resnet_depth_of(const Config& config, const ImageFormat& format) {
  const std::string& from = config.model.from;
  if (format.depth > 0) return format.depth;
  if (!format.vit.empty() || !format.network.empty()) return 0;
  if (from.empty()) return config.model.architecture == "resnet" ? config.model.depth : 0;
  return is_torchvision_path(from) ? describe_torchvision(from).depth : 0;
}

bool starts_from_vit(const Config& config) {
  const std::string& folder = config.model.from;
  if (folder.empty() || is_onnx_path(folder) || !is_pretrained_folder(folder)) return false;
  const ConfigFile file(folder + "/config.json");
  const Family& family = find_family(file);
  if (family.kind != FamilyKind::kImages)
    fail_user("model.from = \"", folder, "\": a ", family.model_type, " model; task = \"images\" starts from a vit");
  if (config.model.architecture != "vit")
    fail_user(
        "model.from = \"", folder, "\": a ViT needs architecture = \"vit\", not \"", config.model.architecture, "\"");
  return true;
}

bool is_vit_folder(const std::string& folder) {
  return is_model_folder(folder, FamilyKind::kImages, {ModelHead::kClasses});
}

ImageFormat vit_folder_format(const std::string& folder) {
  const ConfigFile file(folder + "/config.json");
  const VitConfig vit = vit_config(file);
  const ImageShape& images = vit.images;
  return {.height = images.height,
      .width = images.width,
      .channels = images.channels,
      .class_names = label_names(file),
      .mean = vit.mean,
      .deviation = vit.deviation,
      .vit = file.path(),
      .problem = problem_of(file)};
}

VitConfig vit_config_of(const Config& config, const ImageFormat& format) {
  const ModelConfig& model = config.model;
  const ImageShape images{
      format.height, format.width, format.channels, static_cast<int64_t>(format.class_names.size())};
  VitConfig vit{.patch = model.patch_size,
      .width = model.d_model,
      .heads = model.num_heads,
      .layers = model.num_encoder_layers,
      .hidden = model.d_ff,
      .dropout = model.dropout,
      .activation = model.activation == "relu" ? Activation::kRelu : Activation::kGelu};
  if (!format.vit.empty() || starts_from_vit(config)) {
    vit = vit_config(ConfigFile(format.vit.empty() ? model.from + "/config.json" : format.vit));
    const ImageShape& own = vit.images;
    if (own.height != images.height || own.width != images.width || own.channels != images.channels)
      fail_user("the ViT takes images of ", size_text(own.height, own.width, own.channels), ", and the data's are ",
          size_text(images.height, images.width, images.channels),
          own.channels != images.channels ? "; pictures in color have 3 channels, grey ones 1"
                                          : " (--set image_size=" + std::to_string(own.height) + " scales them)");
  }
  vit.images = images;
  vit.mean = format.mean, vit.deviation = format.deviation;
  return vit;
}

void ImageFormat::save(const std::string& folder) const {
  Json json{{"height", height}, {"width", width}, {"channels", channels}, {"classes", class_names}, {"mean", mean},
      {"deviation", deviation}};
  if (problem != TextProblem::kOneClass) json["problem_type"] = problem_type_of(problem);
  if (depth > 0) json["depth"] = depth;
  if (!network.empty()) write_onnx(load_onnx(network, std::ssize(class_names))->model(), folder + kNetworkFile);
  if (!vit.empty()) {
    const ConfigFile file(vit);
    make_directories(folder + kVitFolder);
    file.save(folder + kVitFile);
  }
  write_file_atomically(folder + kFormatFile, json.dump(1) + "\n");
}

ImageFormat ImageFormat::load(const std::string& folder) {
  const std::string path = folder + kFormatFile;
  try {
    const Json json = Json::parse(read_file(path), JsonLimits::settings());
    ImageFormat format;
    json.at("height").get_to(format.height);
    json.at("width").get_to(format.width);
    json.at("channels").get_to(format.channels);
    json.at("classes").get_to(format.class_names);
    json.at("mean").get_to(format.mean);
    json.at("deviation").get_to(format.deviation);
    format.depth = json.value("depth", int64_t{0});
    for (const TextProblem problem : {TextProblem::kSeveralClasses, TextProblem::kNumbers})
      if (json.value("problem_type", std::string()) == problem_type_of(problem)) format.problem = problem;
    if (file_exists(folder + kNetworkFile)) format.network = folder + kNetworkFile;
    if (file_exists(folder + kVitFile)) format.vit = folder + kVitFile;
    return format;
  } catch (const JsonError& error) {
    fail_user(path, ": not what a run of images leaves there: ", error.what());
  }
}

void ImageFormat::check(const ImageDataset& images, const std::string& what) const {
  if (images.height != height || images.width != width || images.channels != channels)
    fail_user(what, " are of size ", size_text(images.height, images.width, images.channels),
        ", those the model was trained on ", size_text(height, width, channels));
  if (images.has_numbers() != (problem != TextProblem::kOneClass))
    fail_user(what, " have other labels than those the model was trained on");
  if (images.class_names != class_names)
    fail_user(what, " have other classes than those the model was trained on (", images.class_names.size(), " and ",
        class_names.size(), ")");
}

ImageSession::ImageSession(const Config& config, const ImageFormat& format, bool training, bool verify_plans,
    int64_t train_images, std::span<const float> class_weights)
    : OwnedImageModel(make_image_model(config, format), class_weights), Session(config, *owned, training, verify_plans),
      batch_size(config.data.batch_size), problem_(format.problem), decoding_threads_(decoding_threads(config)) {
  std::vector<ResidentOptions::Input> device_data;
  if (train_images > 0)
    device_data = {{"images", {DType::kU8, {train_images, format.height, format.width, format.channels}}},
        {"labels", {DType::kI32, {train_images}}}};
  const bool mixed = training && (config.data.augment_mixup > 0 || config.data.augment_cutmix > 0);
  const int64_t numbers = problem_ == TextProblem::kOneClass ? 0 : std::ssize(format.class_names);
  plan(image_inputs(batch_size, format.height * format.width * format.channels, mixed, numbers),
      {[this, mixed, smoothing = config.train.label_smoothing](Trace& trace) {
        if (problem_ == TextProblem::kSeveralClasses) return image_label_loss(*owned, trace, batch_size);
        if (problem_ == TextProblem::kNumbers) return image_number_loss(*owned, trace, batch_size);
        return image_loss(*owned, trace, batch_size, smoothing, mixed);
      }},
      device_data);
}

class ImageSession::EvaluatedBatches {
 public:
  EvaluatedBatches(ImageSession& session, const ImageDataset& dataset)
      : session_(session), dataset_(dataset),
        owned_(image_inputs(session.batch_size, dataset.image_bytes(), false, number_count(dataset))),
        pool_(dataset.in_memory() ? 1 : session.decoding_threads_) {}

  int64_t count() const { return evaluation_batches(dataset_, session_.batch_size); }

  struct Evaluated {
    int64_t rows;
    double loss_sum;
  };
  Evaluated evaluate(int64_t index) {
    const int64_t rows = fill_evaluation_batch(dataset_, session_.batch_size, index, owned_, pool_);
    return {rows, session_.trainer->evaluate(owned_.batch).sum};
  }

 private:
  ImageSession& session_;
  const ImageDataset& dataset_;
  OwnedBatch owned_;
  ThreadPool pool_;
};

std::vector<float> ImageSession::logits(const ImageDataset& dataset) {
  std::vector<float> all;
  EvaluatedBatches batches(*this, dataset);
  for (int64_t index = 0; index < batches.count(); ++index) {
    const int64_t rows = batches.evaluate(index).rows;
    const float* found = trainer->plans().evaluate_executor(0).output("logits").as<const float>();
    all.insert(all.end(), found, found + rows * owned->images.classes);
  }
  return all;
}

TaskEvaluation ImageSession::evaluate(const ImageDataset& dataset, const SharedWork& ranks) {
  EvaluatedBatches batches(*this, dataset);
  // A batch's outputs: the sum of losses and, for each row, the predicted class or all outputs.
  const bool picks = problem_ == TextProblem::kOneClass;
  const int64_t each = picks ? 1 : dataset.classes(), width = 1 + batch_size * each;
  const std::vector<double> found = ranks.numbers(batches.count(), width, [&](int64_t index, std::span<double> result) {
    const auto [rows, loss_sum] = batches.evaluate(index);
    const Executor& executor = trainer->plans().evaluate_executor(0);
    result[0] = loss_sum;
    if (picks) std::copy_n(executor.output("predictions").as<const int32_t>(), rows, result.begin() + 1);
    else std::copy_n(executor.output("logits").as<const float>(), rows * each, result.begin() + 1);
  });
  double sum = 0;
  ClassReport report(dataset.class_names);
  std::vector<std::vector<float>> outputs;
  for (int64_t i = 0; i < dataset.count; ++i) {
    const double* batch = found.data() + i / batch_size * width;
    const double* row = batch + 1 + i % batch_size * each;
    if (i % batch_size == 0) sum += batch[0];
    if (picks) report.add(static_cast<size_t>(*row), static_cast<size_t>(dataset.labels[i]));
    else outputs.emplace_back(row, row + each);
  }
  const auto count = static_cast<double>(dataset.count);
  if (picks) return {sum / count, dataset.count, report.metrics(), {}, std::move(report)};
  const TextTask& task = text_task(problem_);
  Measures measures = task.measure({}, labels_of(dataset, task.labels), outputs, dataset.class_names, {});
  return {sum / count, dataset.count, std::move(measures.metrics), {}, std::move(measures.classes)};
}

int decoding_threads(const Config& config) {
  for (const int64_t asked : {config.data.image_threads, config.train.threads})
    if (asked > 0) return static_cast<int>(asked);
  return available_threads();
}

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
}  // namespace linnet
