// An image classifier with what a command needs around it: its planned memory, and evaluation.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>
#include "data/examples/images/image_dataset.h"
#include "models/modules/vit.h"
#include "tasks/session.h"
#include "tasks/texts/text_classifier.h"
#include "training/run/training_task.h"

namespace linnet {

// What a trained classifier must know of its images, kept beside its weights in the run folder (images.json).
struct ImageFormat {
  int64_t height = 28, width = 28, channels = 1;
  std::vector<std::string> class_names;  // of numbers: the outputs
  std::vector<double> mean, deviation;   // of the training images' channels, pixels from 0 to 1
  std::string network = {};              // the ONNX file of an imported network; empty: the configuration's model
  int64_t depth = 0;     // of the residual network whose file training began with; 0: the configuration's model
  std::string vit = {};  // config.json of the ViT folder that training began with; empty: there is none
  TextProblem problem = TextProblem::kOneClass;  // or several classes, or numbers

  static ImageFormat of(const ImageDataset& train, int threads = 0);  // see channel_moments()
  static ImageFormat load(const std::string& folder);                 // user error naming the file
  void save(const std::string& folder) const;
  // User error, saying how, when images are of another size or have other classes.
  void check(const ImageDataset& images, const std::string& what) const;
};

// Whether model.from names a model folder rather than an ONNX file. User error where that is no ViT, or where
// architecture is not "vit".
bool starts_from_vit(const Config& config);
// Whether `folder` is a model folder of a ViT that classifies images (ViTForImageClassification).
bool is_vit_folder(const std::string& folder);
// What the model of such a folder takes, and its classes.
ImageFormat vit_folder_format(const std::string& folder);
// The sizes of a vit: those of the configuration, or of the folder it began with, which has to fit the images.
VitConfig vit_config_of(const Config& config, const ImageFormat& format);

// The depth of a residual network: that of the file it began with, or the configuration's. 0: it is none.
int64_t resnet_depth_of(const Config& config, const ImageFormat& format);

// The model of a configuration, for images of this format.
std::unique_ptr<ImageModel> make_image_model(const Config& config, const ImageFormat& format);

// The model, made before the session that plans it.
struct OwnedImageModel {
  OwnedImageModel(std::unique_ptr<ImageModel> model, std::span<const float> class_weights) : owned(std::move(model)) {
    owned->class_weights.set(*owned, class_weights);
  }
  std::unique_ptr<ImageModel> owned;
};

class ImageSession : public OwnedImageModel, public Session {
 public:
  ImageModel& image_model() { return *owned; }

  // `train_images`: how many there are to train on, of which the device may hold all (Session::resident).
  // `class_weights`: see models/modules/losses.h.
  ImageSession(const Config& config, const ImageFormat& format, bool training, bool verify_plans = true,
               int64_t train_images = 0, std::span<const float> class_weights = {});

  // The outputs of each image, [images, classes].
  std::vector<float> logits(const ImageDataset& dataset);
  // Loss and metrics over all images.
  Evaluation evaluate(const ImageDataset& dataset, const SharedWork& ranks = SharedWork::alone());

  const int64_t batch_size;

 private:
  class EvaluatedBatches;
  const TextProblem problem_;
  const int decoding_threads_;
};

// Gives the session the weights of a run, which may be packed.
void take_image_weights(ImageSession& session, const std::string& folder);

// How many threads decode images for a configuration.
int decoding_threads(const Config& config);

// A split of a configuration's images: "test" or "valid", as training divides them. An empty `split` becomes "test", or
// "valid" where there are no test images. User error when there is none.
ImageDataset load_image_split(const Config& config, std::string& split);
// All images of a table or of a directory of class folders, or the test images of one that is divided, for the run in
// `folder`.
ImageDataset load_labelled_images(const Config& config, const std::string& folder, const std::string& images);

// `linnet export` of a run of images: a residual network's weights under torchvision's names
// (models/families/torchvision.h) in model.safetensors, and images.json; a ViT's model folder as transformers has it.
// User error for another architecture.
void export_image_run(const std::string& folder, const std::string& out);

// `linnet eval` of a run of images.
Evaluation evaluate_image_run(const std::string& folder, const Config& config, const ImageDataset& images);

}  // namespace linnet
