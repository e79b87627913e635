// Training an image classifier.
#pragma once
#include <optional>

#include "data/examples/images/image_batches.h"
#include "models/families/torchvision.h"
#include "tasks/images/image_session.h"
#include "tasks/session_task.h"

namespace linnet {

class ImageTask : public SessionTask {
 public:
  explicit ImageTask(const Config& config) : SessionTask(config) {}

  // `from`: a run folder, from which a ViT's configuration is taken.
  void open(const std::string& from) override;
  std::string assume(const DataAtHand& data) override;
  DataAtHand data_at_hand(bool exact) const override;
  std::unique_ptr<Session> make_session(const Config& config, bool verify) override;
  BatchSource& batches() override { return *batches_; }
  void initialize() override;
  Evaluation evaluate(SharedWork& ranks) override { return session().evaluate(valid_, ranks); }
  void save_assets(const std::string& folder) const override { format_.save(folder); }

  int64_t most() const override { return count_; }
  uint64_t assumed_bytes() const override { return assumed_bytes_; }
  std::string batches_text(const Session& session) const override;

 protected:
  void begin() override;

 private:
  ImageSession& session() { return static_cast<ImageSession&>(*session_); }
  void take_model(const std::string& from);
  void take_resnet(const TorchvisionNetwork& network);

  std::optional<TorchvisionNetwork> resnet_;  // the same of a residual network's file
  bool new_head_ = false;                     // ... of which all but the last layer is taken
  std::string vit_folder_;                    // whose weights training begins with; empty: drawn, or those of a run
  ImageDataset train_, valid_;
  ImageFormat format_;
  int64_t count_ = 60'000;  // of training images
  bool in_memory_ = true;   // as pixels
  uint64_t assumed_bytes_ = 0;
  std::optional<ImageBatches> batches_;
};

// A split of a configuration's images: "test" or "valid", as training divides them. An empty `split` becomes "test", or
// "valid" where there are no test images. User error when there is none.
ImageDataset load_image_split(const Config& config, std::string& split);
// All images of a directory of class folders, or the test images of one that is divided, for the run in `folder`.
ImageDataset load_labelled_images(const Config& config, const std::string& folder, const std::string& images);

// `linnet export` of a run of images: a residual network's weights under torchvision's names
// (models/families/torchvision.h) in model.safetensors, and images.json; a ViT's model folder as transformers has it.
// User error for another architecture.
void export_image_run(const std::string& folder, const std::string& out);

// `linnet eval` of a run of images.
Evaluation evaluate_image_run(const std::string& folder, const Config& config, const ImageDataset& images);

}  // namespace linnet
