// Trains image classifiers.
#include <numeric>
#include "base/fail.h"
#include "base/files.h"
#include "base/thread_pool.h"
#include "config/hints.h"
#include "data/examples/images/image_batches.h"
#include "data/examples/images/image_dataset.h"
#include "data/examples/text/record_reader.h"
#include "models/families/config_file.h"
#include "models/families/pretrained.h"
#include "models/families/torchvision.h"
#include "models/families/vit.h"
#include "onnx/network.h"
#include "onnx/text_network.h"
#include "tasks/images/image_session.h"
#include "tasks/inference.h"
#include "tasks/session_task.h"
#include "tasks/task_table.h"
#include "tasks/texts/text_task.h"
#include "training/run/pretrained_run.h"
#include "training/run/run_folder.h"

namespace linnet {
namespace {
ImageSplits load_splits(const Config& config) {
  const TimedPhase phase("reading the images");
  const DataConfig& data = config.data;
  if (!data.train_tsv.empty()) return load_table_splits(config);
  if (data.task != "images")
    fail_user("task = \"", data.task, "\" reads a table of files and labels, which is not given (--data FILE.csv)");
  if (data.data_dir.empty())
    fail_user("task = \"images\" reads the images in data_dir, which is not given (--data FOLDER)");
  return load_image_splits(data.data_dir, loading_of(config),
      {.share = data.held_out, .held_out = data.held_out_images, .seed = static_cast<uint64_t>(config.train.seed)});
}

const std::string& name_of(const DataConfig& data) { return data.train_tsv.empty() ? data.data_dir : data.train_tsv; }

void check_image_classes(const ImageDataset& train, const std::string& directory) {
  if (train.has_numbers()) return;
  if (train.classes() < 2) fail_user("'", directory, "' has one class only: there is nothing to tell apart");
  for (int64_t i = 0; i < train.classes(); ++i)
    if (!contains(train.labels, static_cast<int32_t>(i)))
      fail_user("'", directory, "': class '", train.class_names[i],
          "' has no image to train on after a part was set aside: ",
          "add images to it, or set fewer aside (data.held_out, data.held_out_images)");
}

Augmentation augmentation_of(const Config& config, const ImageFormat& format) {
  const DataConfig& data = config.data;
  return {.shift = data.augment_shift,
      .mirror = data.augment_mirror,
      .cutout = data.augment_cutout,
      .rotate = data.augment_rotate,
      .crop = data.augment_crop,
      .random = data.augment_random,
      .strength = static_cast<int>(data.augment_strength),
      .cutmix = data.augment_cutmix,
      .mixup = data.augment_mixup,
      .fill = mapped<uint8_t>(format.mean, [](double mean) { return std::lround(255 * mean); })};
}

// The format of training images that are not read, from the table or folder names and the first file.
ImageFormat outlined_format(const Config& config, int64_t& images) {
  const std::string& directory = config.data.data_dir;
  const int64_t size = config.data.image_size;
  const std::string root = file_exists(directory + "/train") ? directory + "/train" : directory;
  ImageFormat format;
  std::string file;
  if (!config.data.train_tsv.empty()) {
    const std::string path = data_path(config.data, config.data.train_tsv);
    const TextRecords records = read_image_records(path, config.data);
    format.class_names = image_labels(config).outputs(records, path);
    images = std::ssize(records.records), file = records.records.front().text;
  } else {
    format.class_names = list_folders(root);
    const std::vector<std::string> files = find_images(root);
    images = std::ssize(files), file = files.front();
  }
  const ImageInfo first = image_info(file);
  format.height = size > 0 ? size : first.height, format.width = size > 0 ? size : first.width;
  format.channels = first.channels;
  format.mean.assign(static_cast<size_t>(format.channels), 0);
  format.deviation.assign(static_cast<size_t>(format.channels), 1);
  return format;
}

void tell_of_head(int64_t classes) { log_info("the network's last layer is a new one, for ", classes, " classes"); }

class ImageTask : public SessionTask {
 public:
  explicit ImageTask(const Config& config) : SessionTask(config) {}

  // `from`: a run folder that has a ViT's configuration.
  void open(const std::string& from) override {
    {
      ImageSplits splits = load_splits(config_);
      train_ = std::move(splits.train), valid_ = std::move(splits.validation);
    }
    check_image_classes(train_, name_of(config_.data));
    const auto [mean, deviation] = channel_moments(train_, decoding_threads(config_));
    format_ = {train_.height, train_.width, train_.channels, train_.class_names, mean, deviation};
    format_.problem = image_labels(config_).problem;
    take_model(from);
    count_ = train_.count, in_memory_ = train_.in_memory();
    log_info(count_, " images to train on, ", valid_.count, " to choose by, of size ",
        size_text(train_.height, train_.width, train_.channels), train_.has_numbers() ? " with " : " in ",
        train_.classes(), train_.has_numbers() ? " outputs" : " classes",
        in_memory_ ? "" : ", decoded for every batch (image_memory = " + config_.data.image_memory + ")");
  }

  std::string assume(const DataAtHand& data) override {
    std::string assumption;
    if (data.bytes > 0) {
      format_ = outlined_format(config_, count_);
      assumption = data.why_not + "; assuming that all images are like the first.";
    } else {
      count_ = 60'000, format_.class_names.resize(10), format_.mean = {0}, format_.deviation = {1};
      assumption = data.why_not + "; assuming MNIST's, 60,000 images of 28 x 28 x 1 in 10 classes.";
    }
    format_.problem = image_labels(config_).problem;
    const auto decoded = static_cast<uint64_t>(count_ * format_.height * format_.width * format_.channels);
    const uint64_t memory = parse_byte_size(config_.data.image_memory).value_or(UINT64_MAX);
    in_memory_ = decoded <= memory;
    assumed_bytes_ = std::min(decoded, memory);
    return assumption;
  }

  DataAtHand data_at_hand(bool exact) const override {
    constexpr uint64_t kQuickImages = 64 << 20, kQuickTable = 32 << 10;  // bytes
    if (!config_.data.train_tsv.empty())
      return linnet::data_at_hand(
          "table of images", {data_path(config_.data, config_.data.train_tsv)}, exact, kQuickTable);
    const std::string& folder = config_.data.data_dir;
    DataAtHand data = linnet::data_at_hand("folder of images", {folder}, exact, kQuickImages);
    data.read = data.read || (data.bytes > 0 && !has_class_folders(folder) && !has_class_folders(folder + "/train"));
    return data;
  }

  std::unique_ptr<Session> make_session(const Config& config, bool verify) override {
    if (std::max(config.data.augment_shift, config.data.augment_cutout) > std::min(format_.height, format_.width))
      fail_user(
          "augment_shift and augment_cutout may not exceed the images' size, ", format_.height, " x ", format_.width);
    // Images that are decoded or augmented on the fly are not kept on the device.
    const bool several = format_.problem != TextProblem::kOneClass;
    const bool as_they_are = in_memory_ && !several && !augmentation_of(config, format_).any();
    std::vector<int64_t> counts(format_.class_names.size());
    for (const int32_t label : train_.labels) counts[label] += !several;
    for (size_t i = 0; i < train_.numbers.size(); ++i) counts[i % counts.size()] += train_.numbers[i] > 0.5f;
    return std::make_unique<ImageSession>(config, format_, true, verify, as_they_are ? count_ : 0,
        class_weights(config.train.class_weights, format_.class_names, counts, std::ssize(train_.labels), several));
  }

  BatchSource& batches() override { return *batches_; }
  void initialize() override {
    trainer().state().initialize();
    if (resnet_)
      trainer().state().load_parameters([&](const ParameterTarget& parameters) {
        load_torchvision(resnet_->file, trainer().state().layout(), parameters, new_head_,
            static_cast<uint64_t>(config_.train.seed));
      });
    if (vit_folder_.empty()) return;
    const OpenOptions options{.head = ModelHead::kClasses, .labels = train_.classes()};
    load_initial_weights(trainer().state(), open_pretrained(vit_folder_, options), config_);
  }

  TaskEvaluation evaluate(const SharedWork& ranks) override { return session().evaluate(valid_, ranks); }
  void save_assets(const std::string& folder) const override { format_.save(folder); }

  std::string batches_text(const Session& session) const override {
    return std::to_string(static_cast<const ImageSession&>(session).batch_size) + " images of " +
           size_text(format_.height, format_.width, format_.channels);
  }
  const char* shorter_key() const override { return ""; }
  int64_t host_batches() const override { return in_memory_ && !augmentation_of(config_, format_).any() ? 1 : 3; }

 protected:
  void begin() override {
    batches_.emplace(train_, config_.data.batch_size, static_cast<uint64_t>(config_.train.seed),
        ImageBatchOptions{.augmentation = augmentation_of(config_, format_), .threads = decoding_threads(config_)});
    if (session_->resident)
      for (const BatchArray& data : batches_->device_data()) session_->resident->stage(data.name, data.bytes);
  }

 private:
  ImageSession& session() { return static_cast<ImageSession&>(*session_); }
  // Takes the image format of the initial model.
  void take_model(const std::string& from) {
    if (!from.empty() && file_exists(from + "/images.json")) {  // a resumed run keeps its format
      const ImageFormat saved = ImageFormat::load(from);
      if (saved.channels == 3) take_color();
      if (!saved.vit.empty() || saved.depth > 0) {
        format_.vit = saved.vit, format_.depth = saved.depth;
        format_.mean = saved.mean, format_.deviation = saved.deviation;
        return;
      }
    }
    if (is_torchvision_path(config_.model.from)) return take_resnet(describe_torchvision(config_.model.from));
    if (!starts_from_vit(config_)) {
      format_.network = config_.model.from;
      if (from.empty() && !format_.network.empty()) {
        const std::unique_ptr<OnnxNetwork> network = load_onnx(format_.network);
        if (image_channels(*network) == 3) take_color();
        const int64_t classes = head_classes(network->model());
        if (classes > 0 && classes != train_.classes()) tell_of_head(train_.classes());
      }
      return;
    }
    vit_folder_ = config_.model.from;
    format_.vit = vit_folder_ + "/config.json";
    const VitConfig vit = vit_config(ConfigFile(format_.vit));
    if (vit.images.channels == 3) take_color();
    format_.mean = vit.mean, format_.deviation = vit.deviation;
  }

  // For a model of color: grey images get three equal channels.
  void take_color() {
    make_color(train_), make_color(valid_);
    format_.channels = 3;
    format_.mean.resize(3, format_.mean.front()), format_.deviation.resize(3, format_.deviation.front());
  }

  void take_resnet(const TorchvisionNetwork& network) {
    const auto channels = static_cast<size_t>(format_.channels);
    if (format_.channels != 1 && format_.channels != network.channels)
      fail_user("'", network.file, "' takes images of ", network.channels, " channels, and the data's have ", channels);
    resnet_ = network, format_.depth = network.depth;
    format_.mean = network.mean, format_.deviation = network.deviation;
    for (std::vector<double>* of_channels : {&format_.mean, &format_.deviation}) {
      const double sum = std::accumulate(of_channels->begin(), of_channels->end(), 0.0);
      if (of_channels->size() != channels)
        of_channels->assign(channels, sum / static_cast<double>(of_channels->size()));
    }
    new_head_ =
        network.class_names.empty() ? network.classes != train_.classes() : network.class_names != train_.class_names;
    log_info("begins with the ResNet-", network.depth, " of '", network.file, "'");
    if (new_head_) tell_of_head(train_.classes());
  }

  std::optional<TorchvisionNetwork> resnet_;  // the same for a residual network's file
  bool new_head_ = false;                     // ... without its last layer
  std::string vit_folder_;                    // with the initial weights; empty: drawn, or a run's
  ImageDataset train_, valid_;
  ImageFormat format_;
  bool in_memory_ = true;  // as pixels
  std::optional<ImageBatches> batches_;
};

void export_vit(const std::string& folder, const Config& config, const ImageFormat& format, const std::string& out) {
  const VitConfig vit = vit_config_of(config, format);
  const std::unique_ptr<ImageModel> trained = make_image_model(config, format);
  const FlatWeights flat(*trained, weights_of(folder));
  ConfigFile file = vit_config_file(vit, format.class_names);
  if (format.problem != TextProblem::kOneClass) set_problem_type(file, problem_type_of(format.problem));
  const PretrainedModel model = new_pretrained(file);
  save_pretrained(model, flat.layout, flat.parameters.data(), out,
      {.files = {{"preprocessor_config.json", vit_preprocessor_file(vit, config.data.image_fit)}}});
}
}  // namespace

std::unique_ptr<SessionTask> make_image_task(const Config& config) { return std::make_unique<ImageTask>(config); }

ImageDataset load_image_split(const Config& config, std::string& split) {
  ImageSplits splits = load_splits(config);
  if (split.empty()) split = splits.test.count > 0 ? "test" : "valid";
  ImageDataset& images = split == "valid" ? splits.validation : splits.test;
  if (images.count == 0) fail_user("'", name_of(config.data), "' has no ", split, " images");
  return std::move(images);
}

ImageDataset load_labelled_images(const Config& config, const std::string& folder, const std::string& images) {
  const ImageFormat format = ImageFormat::load(folder);
  const bool is_table = has_records(images) || std::filesystem::is_regular_file(images);
  if (!is_table && config.data.task != "images")
    fail_user("task = \"", config.data.task, "\" reads tables of files and labels, and '", images, "' is none");
  if (!is_table && !file_exists(images)) fail_user("there is no image directory '", images, "'");
  if (!is_table && !has_class_folders(images)) {  // MNIST's files, or train/ and test/
    Config named = config;
    named.data.data_dir = images, named.data.train_tsv.clear();
    std::string split;
    return load_image_split(named, split);
  }
  return is_table ? load_image_table(images, config, format.class_names)
                  : read_image_folder(images, format.class_names, loading_of(config));
}

void export_image_run(const std::string& folder, const std::string& out) {
  const Config config = RunFolder(folder).load_config();
  const ImageFormat format = ImageFormat::load(folder);
  if (config.model.architecture == "vit" && format.network.empty()) return export_vit(folder, config, format, out);
  if (resnet_depth_of(config, format) == 0)
    fail_user("'", folder, "': there is no model folder of its network that other programs read; `linnet export ",
        folder, " --onnx DIR` writes an ONNX file");
  const std::unique_ptr<ImageModel> model = make_image_model(config, format);
  const FlatWeights flat(*model, weights_of(folder));
  const OutputFolder made(out);
  save_torchvision(out + "/model.safetensors", flat.layout, flat.parameters.data());
  format.save(out);
}

TaskEvaluation evaluate_image_run(const std::string& folder, const Config& config, ImageDataset images) {
  const ImageFormat format = ImageFormat::load(folder);
  if (format.channels == 3) make_color(images);
  format.check(images, "the images to evaluate");
  ImageSession session(config, format, false);
  take_model_weights(session, folder, "", weights_of(folder));
  return session.evaluate(images);
}
}  // namespace linnet
