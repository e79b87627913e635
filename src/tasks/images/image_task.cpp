#include "tasks/images/image_task.h"

#include <malloc.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/process_memory.h"
#include "data/images/image_splits.h"
#include "pretrained/torchvision.h"
#include "run/run_folder.h"

namespace linnet {
namespace {

ImageLoading loading_of(const Config& config) {
  return {.size = config.data.image_size, .fit = image_fit(config.data.image_fit)};
}

ImageSplits load_splits(const Config& config) {
  const DataConfig& data = config.data;
  if (data.data_dir.empty())
    fail_user("task = \"images\" reads the images in data_dir, which is not given (--data FOLDER)");
  return load_image_splits(
      data.data_dir, loading_of(config),
      {.share = data.held_out, .held_out = data.held_out_images, .seed = static_cast<uint64_t>(config.train.seed)});
}

Augmentation augmentation_of(const Config& config, const ImageFormat& format) {
  const DataConfig& data = config.data;
  Augmentation how{.shift = data.augment_shift, .mirror = data.augment_mirror, .cutout = data.augment_cutout};
  for (const double mean : format.mean) how.fill.push_back(static_cast<uint8_t>(std::lround(255 * mean)));
  return how;
}

void check_classes(const ImageDataset& train, const std::string& directory) {
  if (train.classes() < 2) fail_user("'" + directory + "' has one class only: there is nothing to tell apart");
  for (int64_t i = 0; i < train.classes(); ++i)
    if (std::ranges::count(train.labels, static_cast<int32_t>(i)) == 0)
      fail_user("'" + directory + "': class '" + train.class_names[static_cast<size_t>(i)] +
                "' has no image to train on after a part was set aside");
}

}  // namespace

ImageTask::ImageTask(const Config& config, const std::string&, Capacity capacity) {
  {
    ImageSplits splits = load_splits(config);
    train_ = std::move(splits.train), valid_ = std::move(splits.validation);
  }
  check_classes(train_, config.data.data_dir);
  format_ = ImageFormat::of(train_);
  format_.network = config.model.from;
  log_info(std::to_string(train_.count) + " images to train on, " + std::to_string(valid_.count) +
           " to choose by, of size " + std::to_string(train_.height) + " x " + std::to_string(train_.width) + " x " +
           std::to_string(train_.channels) + " in " + std::to_string(train_.classes()) + " classes");
  const Augmentation augmentation = augmentation_of(config, format_);
  session_.emplace(config, format_, true, capacity == Capacity::kMustSuffice, augmentation.any() ? 0 : train_.count);
  if (allocate_within(*session_, "; a smaller batch_size needs less (see `linnet plan`)", capacity)) {
    batches_.emplace(train_, config.data.batch_size, static_cast<uint64_t>(config.train.seed), augmentation);
    if (session_->resident)
      for (const BatchArray& data : batches_->device_data()) session_->resident->stage(data.name, data.bytes);
  }
  malloc_trim(0);  // what loading and planning freed should not count
  forecast_ = forecast_memory(resident_bytes(), session_->store);
}

ImageDataset load_image_split(const Config& config, std::string& split) {
  ImageSplits splits = load_splits(config);
  if (split.empty()) split = splits.test.count > 0 ? "test" : "valid";
  ImageDataset& images = split == "valid" ? splits.validation : splits.test;
  if (images.count == 0) fail_user("'" + config.data.data_dir + "' has no " + split + " images");
  return std::move(images);
}

ImageDataset load_labelled_images(const Config& config, const std::string& folder, const std::string& images) {
  const ImageFormat format = ImageFormat::load(folder);
  if (!file_exists(images)) fail_user("there is no image directory '" + images + "'");
  if (!has_class_folders(images)) {  // MNIST's files, or train/ and test/
    Config named = config;
    named.data.data_dir = images;
    std::string split;
    return load_image_split(named, split);
  }
  ImageDataset all = read_image_folder(images, format.class_names, loading_of(config));
  if (format.channels == 3) make_colour(all);
  return all;
}

void export_image_run(const std::string& folder, const std::string& out) {
  const Config config = RunFolder(folder).load_config();
  if (config.model.architecture != "resnet")
    fail_user("'" + folder + "': the architecture \"" + config.model.architecture +
              "\" has no model folder that other programs read; `linnet export --onnx` writes an ONNX file");
  const ImageFormat format = ImageFormat::load(folder);
  ImageSession session(config, format, false);
  take_run_weights(session, folder);
  make_directories(out);
  save_torchvision(out + "/model.safetensors", session.layout, session.store.as<float>("parameters"));
  format.save(out);
}

Evaluation evaluate_image_run(const std::string& folder, const Config& config, const ImageDataset& images) {
  const ImageFormat format = ImageFormat::load(folder);
  format.check(images, "the images in '" + config.data.data_dir + "'");
  ImageSession session(config, format, false);
  take_run_weights(session, folder);
  return session.evaluate(images);
}

}  // namespace linnet
