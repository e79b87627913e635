// Training an image classifier.
#pragma once
#include <optional>

#include "app/image_session.h"
#include "data/image_batches.h"

namespace linnet {

class ImageTask : public TrainingTask {
 public:
  explicit ImageTask(const Config& config, const std::string& from = "");  // `from` is not used: all assets are data

  Trainer& trainer() override { return *session_->trainer; }
  const Store& store() const override { return session_->store; }
  const MemoryForecast& forecast() const override { return forecast_; }
  int64_t shape_count() const override { return 1; }
  int64_t batches_per_epoch() const override { return batches_->batches_per_epoch(); }
  LoadedBatch next_batch() override;
  int64_t chunk_steps() const override { return session_->resident ? session_->resident->steps_per_chunk() : 0; }
  std::vector<DoneStep> train_chunk(std::span<const float> rates, int64_t first_step) override;
  void seek(int64_t epoch, int64_t batch) override { batches_->seek(epoch, batch); }
  Evaluation evaluate() override { return session_->evaluate(valid_); }
  void save_assets(const std::string& folder) const override { format_.save(folder); }

  const ImageFormat& format() const { return format_; }
  int64_t train_count() const { return train_.count; }

 private:
  ImageDataset train_, valid_;
  ImageFormat format_;
  std::optional<ImageSession> session_;
  std::optional<ImageBatches> batches_;
  MemoryForecast forecast_;
};

// A split of a configuration's images: "test" or "valid", as training divides them. An empty `split` becomes "test", or
// "valid" where there are no test images. User error when there is none.
ImageDataset load_image_split(const Config& config, std::string& split);
// All images of a directory of class folders, or the test images of one that is divided, for the run in `folder`.
ImageDataset load_labelled_images(const Config& config, const std::string& folder, const std::string& images);

// `linnet eval` of a run of images.
Evaluation evaluate_image_run(const std::string& folder, const Config& config, const ImageDataset& images);

}  // namespace linnet
