// An image classifier in planned memory, with evaluation; and its images, of class folders or listed in a table.
#pragma once
#include "data/examples/images/image_dataset.h"
#include "models/modules/vit.h"
#include "tasks/session_task.h"
#include "tasks/texts/text_classifier.h"
#include "tasks/texts/text_task.h"
#include "training/run/training_run.h"

namespace linnet {
// A trained classifier's image format and classes, in images.json of a run folder.
struct ImageFormat {
  int64_t height = 28, width = 28, channels = 1;
  std::vector<std::string> class_names;  // of numbers: the outputs
  std::vector<double> mean, deviation;   // of the training images' channels, pixels from 0 to 1
  std::string network = {};              // the ONNX file of an imported network; empty: the configuration's model
  int64_t depth = 0;                     // of the initial residual network's file; 0: the configuration's model
  std::string vit = {};                  // config.json of the initial ViT folder; empty: none
  TextProblem problem = TextProblem::kOneClass;  // or several classes, or numbers

  static ImageFormat load(const std::string& folder);  // user error naming the file
  void save(const std::string& folder) const;
  // User error, with details, if images have another size or other classes.
  void check(const ImageDataset& images, const std::string& what) const;
};

std::string size_text(int64_t height, int64_t width, int64_t channels);  // "28 x 28 x 1"

// Whether model.from names a model folder, not an ONNX file. User error if it is no ViT, or architecture is not "vit".
bool starts_from_vit(const Config& config);
bool is_vit_folder(const std::string& folder);  // of a ViTForImageClassification
ImageFormat vit_folder_format(const std::string& folder);
// The configuration's sizes, or those of the initial folder, which must fit the images.
VitConfig vit_config_of(const Config& config, const ImageFormat& format);

// The residual network's depth, from its initial file or the configuration. 0: it is none.
int64_t resnet_depth_of(const Config& config, const ImageFormat& format);

std::unique_ptr<ImageModel> make_image_model(const Config& config, const ImageFormat& format);

struct OwnedImageModel {
  OwnedImageModel(std::unique_ptr<ImageModel> model, std::span<const float> class_weights) : owned(std::move(model)) {
    owned->class_weights.set(*owned, class_weights);
  }
  std::unique_ptr<ImageModel> owned;
};

class ImageSession : public OwnedImageModel, public Session {
 public:
  // `train_images`: number of training images, which may all be kept on the device (Session::resident).
  // `class_weights`: see models/modules/losses.h.
  ImageSession(const Config& config, const ImageFormat& format, bool training, bool verify_plans = true,
      int64_t train_images = 0, std::span<const float> class_weights = {});

  std::vector<float> logits(const ImageDataset& dataset);  // [images, classes]
  TaskEvaluation evaluate(const ImageDataset& dataset, const SharedWork& ranks = SharedWork::alone());

  const int64_t batch_size;

 private:
  class EvaluatedBatches;
  const TextProblem problem_;
  const int decoding_threads_;
};

int decoding_threads(const Config& config);

// Loads "test" or "valid" as in training. Sets an empty `split` to the first that exists. User error if there is none.
ImageDataset load_image_split(const Config& config, std::string& split);
// All images of a table or of class folders, or the test images of a divided folder, for the run in `folder`.
ImageDataset load_labelled_images(const Config& config, const std::string& folder, const std::string& images);

// `linnet export` of an image run: a residual network under torchvision's names (models/families/torchvision.h) in
// model.safetensors with images.json, or a ViT as a model folder. User error for another architecture.
void export_image_run(const std::string& folder, const std::string& out);

TaskEvaluation evaluate_image_run(const std::string& folder, const Config& config, ImageDataset images);

// Labels, metrics and answers shared with tasks on texts; the records' texts are image files.
const TextTask& image_labels(const Config& config);

ImageLoading loading_of(const Config& config);

// Images of a table, labeled for a model with these outputs. User errors name the line.
ImageDataset load_image_table(const std::string& path, const Config& config, const Names& outputs);
// Images of data.train_tsv and the validation and test tables, or shares of the former if neither is given.
ImageSplits load_table_splits(const Config& config);
}  // namespace linnet
