// An image classifier with what a command needs around it: its planned memory, and evaluation.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "app/training_task.h"
#include "data/image_dataset.h"
#include "models/cnn.h"
#include "train/resident.h"

namespace linnet {

// What a trained classifier must know of its images, kept beside its weights in the run folder (images.json).
struct ImageFormat {
  int64_t height = 28, width = 28, channels = 1;
  std::vector<std::string> class_names;
  std::vector<double> mean, deviation;  // of the training images' channels, pixels from 0 to 1

  static ImageFormat of(const ImageDataset& train);
  static ImageFormat load(const std::string& folder);  // user error naming the file
  void save(const std::string& folder) const;
  // User error, saying how, when images are of another size or have other classes.
  void check(const ImageDataset& images, const std::string& what) const;
};

class ImageSession {
 public:
  // Plans everything; takes no memory yet. `training` false: evaluation only. `train_images`: how many there are to
  // train on; on a device with room for them they will be staged there (resident).
  ImageSession(const Config& config, const ImageFormat& format, bool training, bool verify_plans = true,
               int64_t train_images = 0);

  void allocate();  // takes addresses and binds the plans to them
  uint8_t* images() const { return store.as<uint8_t>("images"); }
  int32_t* labels() const { return store.as<int32_t>("labels"); }
  // The classes' logits of each image, [images, classes].
  std::vector<float> logits(const ImageDataset& dataset);
  // Loss and accuracy over all images.
  Evaluation evaluate(const ImageDataset& dataset);

  const int64_t batch_size;
  Cnn model;
  ParameterLayout layout;
  Store store;
  SharedRegions shared;
  std::unique_ptr<Trainer> trainer;         // one shape
  std::unique_ptr<ResidentSteps> resident;  // null: batches come from the host
};

}  // namespace linnet
