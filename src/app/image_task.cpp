#include "app/image_task.h"

#include <malloc.h>

#include "app/run_folder.h"
#include "base/error.h"
#include "base/log.h"
#include "base/process_memory.h"
#include "data/image_splits.h"
#include "train/checkpoint.h"

namespace linnet {
namespace {

// Without validation images of their own, held_out_images of the training images become it.
ImageSplits load_splits(const Config& config) {
  if (config.data.data_dir.empty())
    fail_user("task = \"images\" reads the images in data_dir, which is not given (--set data.dir=DIR)");
  ImageSplits splits = load_image_splits(config.data.data_dir);
  if (splits.validation.count > 0) return splits;
  const int64_t count = config.data.held_out_images;
  if (count >= splits.train.count)
    fail_user("held_out_images = " + std::to_string(count) + " leaves none of " + std::to_string(splits.train.count) +
              " to train on");
  splits.validation = split_off(splits.train, count);
  return splits;
}

}  // namespace

ImageTask::ImageTask(const Config& config) {
  {
    ImageSplits splits = load_splits(config);
    train_ = std::move(splits.train), valid_ = std::move(splits.validation);
  }
  format_ = ImageFormat::of(train_);
  log_info(std::to_string(train_.count) + " images to train on, " + std::to_string(valid_.count) +
           " to choose by, of size " + std::to_string(train_.height) + " x " + std::to_string(train_.width) + " x " +
           std::to_string(train_.channels) + " in " + std::to_string(train_.classes()) + " classes");
  session_.emplace(config, format_, true);
  check_fits(session_->store, "; a smaller batch_size needs less (see `linnet plan`)");
  session_->allocate();
  batches_.emplace(train_, config.data.batch_size, static_cast<uint64_t>(config.train.seed));
  malloc_trim(0);  // what loading and planning freed should not count
  forecast_ = forecast_memory(resident_bytes(), session_->store);
}

LoadedBatch ImageTask::next_batch() {
  const ImageBatch batch = batches_->next(session_->images(), session_->labels());
  return {0, batch.epoch, batch.index, batch.last_of_epoch};
}

ImageDataset load_image_split(const Config& config, const std::string& split) {
  ImageSplits splits = load_splits(config);
  ImageDataset& images = split == "valid" ? splits.validation : splits.test;
  if (images.count == 0) fail_user("'" + config.data.data_dir + "' has no " + split + " images");
  return std::move(images);
}

Evaluation evaluate_image_run(const std::string& folder, const Config& config, const ImageDataset& images) {
  const ImageFormat format = ImageFormat::load(folder);
  format.check(images, "the images in '" + config.data.data_dir + "'");
  ImageSession session(config, format, false);
  check_fits(session.store, "");
  session.allocate();
  session.store.touch();
  session.trainer->initialize();
  load_model(RunFolder(folder).model_path(), session.layout, session.trainer->state("parameters"));
  session.trainer->push_states();
  return session.evaluate(images);
}

}  // namespace linnet
