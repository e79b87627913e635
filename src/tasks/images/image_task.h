// Training an image classifier.
#pragma once
#include <optional>

#include "data/examples/images/image_batches.h"
#include "tasks/images/image_session.h"

namespace linnet {

class ImageTask : public TrainingTask {
 public:
  // `from`: a run folder, from which a ViT's configuration is taken.
  explicit ImageTask(const Config& config, const std::string& from = "", Capacity capacity = Capacity::kMustSuffice);

  Trainer& trainer() override { return *session_->trainer; }
  const Store& store() const override { return session_->store; }
  const MemoryForecast& forecast() const override { return forecast_; }
  BatchSource& batches() override { return *batches_; }
  void initialize() override;
  ResidentSteps* resident() override { return session_->resident.get(); }
  Evaluation evaluate(SharedWork& ranks) override { return session_->evaluate(valid_, ranks); }
  void save_assets(const std::string& folder) const override { format_.save(folder); }

  const ImageFormat& format() const { return format_; }
  int64_t train_count() const { return train_.count; }

 private:
  void take_model(const std::string& from);

  Config config_;
  std::string vit_folder_;  // whose weights training begins with; empty: drawn, or those of a run
  ImageDataset train_, valid_;
  ImageFormat format_;
  std::optional<ImageSession> session_;
  std::optional<ImageBatches> batches_;
  MemoryForecast forecast_;
};

// How a configuration changes training images.
Augmentation augmentation_of(const Config& config, const ImageFormat& format);

// A split of a configuration's images: "test" or "valid", as training divides them. An empty `split` becomes "test", or
// "valid" where there are no test images. User error when there is none.
ImageDataset load_image_split(const Config& config, std::string& split);
// All images of a directory of class folders, or the test images of one that is divided, for the run in `folder`.
ImageDataset load_labelled_images(const Config& config, const std::string& folder, const std::string& images);

// `linnet export` of a run of images: a residual network's weights under torchvision's names (models/families/torchvision.h)
// in model.safetensors, and images.json; a ViT's model folder as transformers has it. User error for another
// architecture.
void export_image_run(const std::string& folder, const std::string& out);

// `linnet eval` of a run of images.
Evaluation evaluate_image_run(const std::string& folder, const Config& config, const ImageDataset& images);

}  // namespace linnet
