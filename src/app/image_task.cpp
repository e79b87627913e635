#include "app/image_task.h"

#include <malloc.h>

#include <algorithm>

#include "app/trained_session.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/process_memory.h"
#include "data/image_splits.h"

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

}  // namespace

ImageTask::ImageTask(const Config& config, const std::string&) {
  {
    ImageSplits splits = load_splits(config);
    train_ = std::move(splits.train), valid_ = std::move(splits.validation);
  }
  format_ = ImageFormat::of(train_);
  log_info(std::to_string(train_.count) + " images to train on, " + std::to_string(valid_.count) +
           " to choose by, of size " + std::to_string(train_.height) + " x " + std::to_string(train_.width) + " x " +
           std::to_string(train_.channels) + " in " + std::to_string(train_.classes()) + " classes");
  session_.emplace(config, format_, true, true, train_.count);
  check_fits(session_->store, "; a smaller batch_size needs less (see `linnet plan`)");
  session_->allocate();
  if (session_->resident) {
    session_->resident->stage("images", std::as_bytes(std::span(train_.pixels)));
    session_->resident->stage("labels", std::as_bytes(std::span(train_.labels)));
  }
  batches_.emplace(train_, config.data.batch_size, static_cast<uint64_t>(config.train.seed));
  malloc_trim(0);  // what loading and planning freed should not count
  forecast_ = forecast_memory(resident_bytes(), session_->store);
}

LoadedBatch ImageTask::next_batch() {
  const ImageBatch batch = batches_->next(session_->images(), session_->labels());
  return {0, batch.epoch, batch.index, batch.last_of_epoch};
}

std::vector<DoneStep> ImageTask::train_chunk(std::span<const float> rates, int64_t first_step) {
  ResidentSteps& steps = *session_->resident;
  const auto rows = static_cast<size_t>(steps.rows());
  std::vector<DoneStep> done;
  std::vector<int32_t> order;
  while (done.size() < rates.size() && (done.empty() || !done.back().batch.last_of_epoch)) {
    order.resize(order.size() + rows);
    const ImageBatch batch = batches_->next_rows(std::span(order).last(rows));
    done.push_back({{0, batch.epoch, batch.index, batch.last_of_epoch}, {}});
  }
  steps.begin_chunk(order, rates.first(done.size()), first_step);
  steps.run(static_cast<int64_t>(done.size()));
  const std::vector<StepReport> reports = steps.reports();
  for (size_t i = 0; i < done.size(); ++i) done[i].report = reports[i];
  const auto bad = std::ranges::find_if(reports, [](const StepReport& report) { return !report.finite; });
  if (bad != reports.end()) {
    auto batch = std::span(order).subspan(static_cast<size_t>(bad - reports.begin()) * rows, rows);
    batch = batch.first(static_cast<size_t>(std::ranges::find(batch, -1) - batch.begin()));
    gather_images(train_, batch, session_->batch_size, session_->images(), session_->labels());
    const int64_t index = bad - reports.begin();
    trainer().set_step(static_cast<double>(rates[static_cast<size_t>(index)]), first_step + index);
  }
  return done;
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

Evaluation evaluate_image_run(const std::string& folder, const Config& config, const ImageDataset& images) {
  const ImageFormat format = ImageFormat::load(folder);
  format.check(images, "the images in '" + config.data.data_dir + "'");
  ImageSession session(config, format, false);
  take_run_weights(session, folder);
  return session.evaluate(images);
}

}  // namespace linnet
