#include "tasks/images/image_session.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "data/images/image_batches.h"
#include "models/cnn.h"
#include "models/resnet.h"
#include "onnx/image_network.h"

namespace linnet {
namespace {

constexpr const char *kFormatFile = "/images.json", *kNetworkFile = "/network.onnx";

std::string size_text(int64_t height, int64_t width, int64_t channels) {
  return std::to_string(height) + " x " + std::to_string(width) + " x " + std::to_string(channels);
}

std::unique_ptr<ImageModel> make_model(const Config& config, const ImageFormat& format) {
  const auto classes = static_cast<int64_t>(format.class_names.size());
  const ImageShape shape{format.height, format.width, format.channels, classes};
  const std::string& network = format.network.empty() ? config.model.from : format.network;
  if (!network.empty())
    return std::make_unique<OnnxImageModel>(load_onnx(network), shape, format.mean, format.deviation);
  if (config.model.architecture == "resnet")
    return std::make_unique<ResNet>(ResNetConfig{config.model.depth, shape, format.mean, format.deviation});
  return std::make_unique<Cnn>(CnnConfig{.height = format.height,
                                         .width = format.width,
                                         .channels = format.channels,
                                         .filters = config.model.filters,
                                         .classes = classes,
                                         .mean = format.mean,
                                         .deviation = format.deviation});
}

}  // namespace

ImageFormat ImageFormat::of(const ImageDataset& train) {
  const ChannelMoments moments = channel_moments(train);
  return {train.height, train.width, train.channels, train.class_names, moments.mean, moments.deviation};
}

void ImageFormat::save(const std::string& folder) const {
  const nlohmann::ordered_json json{{"height", height},       {"width", width}, {"channels", channels},
                                    {"classes", class_names}, {"mean", mean},   {"deviation", deviation}};
  if (!network.empty()) write_onnx(load_onnx(network)->model(), folder + kNetworkFile);
  write_file_atomically(folder + kFormatFile, json.dump(1) + "\n");
}

ImageFormat ImageFormat::load(const std::string& folder) {
  const std::string path = folder + kFormatFile;
  try {
    const auto json = nlohmann::json::parse(read_file(path));
    ImageFormat format;
    json.at("height").get_to(format.height);
    json.at("width").get_to(format.width);
    json.at("channels").get_to(format.channels);
    json.at("classes").get_to(format.class_names);
    json.at("mean").get_to(format.mean);
    json.at("deviation").get_to(format.deviation);
    if (file_exists(folder + kNetworkFile)) format.network = folder + kNetworkFile;
    return format;
  } catch (const nlohmann::json::exception& error) {
    fail_user(path + ": not what a run of images leaves there: " + error.what());
  }
}

void ImageFormat::check(const ImageDataset& images, const std::string& what) const {
  if (images.height != height || images.width != width || images.channels != channels)
    fail_user(what + " are of size " + size_text(images.height, images.width, images.channels) +
              ", those the model was trained on " + size_text(height, width, channels));
  if (images.class_names != class_names)
    fail_user(what + " have other classes than those the model was trained on (" +
              std::to_string(images.class_names.size()) + " and " + std::to_string(class_names.size()) + ")");
}

ImageSession::ImageSession(const Config& config, const ImageFormat& format, bool training, bool verify_plans,
                           int64_t train_images)
    : OwnedImageModel{make_model(config, format)},
      Session(config, *owned, training, verify_plans),
      batch_size(config.data.batch_size) {
  std::vector<ResidentOptions::Input> device_data;
  if (train_images > 0)
    device_data = {{"images", {DType::kU8, {train_images, format.height, format.width, format.channels}}},
                   {"labels", {DType::kI32, {train_images}}}};
  plan(image_inputs(batch_size, format.height * format.width * format.channels),
       {[this, smoothing = config.train.label_smoothing](Trace& trace) {
         return image_loss(*owned, trace, batch_size, smoothing);
       }},
       device_data);
}

std::vector<float> ImageSession::logits(const ImageDataset& dataset) {
  OwnedBatch owned(image_inputs(batch_size, dataset.image_bytes()));
  std::vector<float> all;
  for (int64_t index = 0; index < evaluation_batches(dataset, batch_size); ++index) {
    const int64_t rows = fill_evaluation_batch(dataset, batch_size, index, owned.data<uint8_t>(0), owned.data(1));
    trainer->evaluate(owned.batch);
    const float* found = trainer->evaluation_output(0, "logits").as<const float>();
    all.insert(all.end(), found, found + rows * image_model().images.classes);
  }
  return all;
}

Evaluation ImageSession::evaluate(const ImageDataset& dataset) {
  OwnedBatch owned(image_inputs(batch_size, dataset.image_bytes()));
  double sum = 0;
  int64_t right = 0;
  for (int64_t index = 0; index < evaluation_batches(dataset, batch_size); ++index) {
    const int64_t rows = fill_evaluation_batch(dataset, batch_size, index, owned.data<uint8_t>(0), owned.data(1));
    sum += trainer->evaluate(owned.batch).sum;
    const int32_t* predictions = trainer->evaluation_output(0, "predictions").as<const int32_t>();
    for (int64_t row = 0; row < rows; ++row) right += predictions[row] == owned.data(1)[row];
  }
  const auto count = static_cast<double>(dataset.count);
  return {sum / count, dataset.count, {{"accuracy", static_cast<double>(right) / count}}, {}};
}

}  // namespace linnet
