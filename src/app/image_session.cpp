#include "app/image_session.h"

#include <nlohmann/json.hpp>

#include "app/trainer_options.h"
#include "base/error.h"
#include "base/files.h"
#include "data/image_batches.h"
#include "exec/backend.h"

namespace linnet {
namespace {

constexpr const char* kFormatFile = "/images.json";

std::string size_text(int64_t height, int64_t width, int64_t channels) {
  return std::to_string(height) + " x " + std::to_string(width) + " x " + std::to_string(channels);
}

CnnConfig cnn_config(const Config& config, const ImageFormat& format) {
  return {.height = format.height,
          .width = format.width,
          .channels = format.channels,
          .filters = config.model.filters,
          .classes = static_cast<int64_t>(format.class_names.size()),
          .mean = format.mean,
          .deviation = format.deviation};
}

// Whether the images are to lie on the device that trains, if there is one: then steps do not need the host.
bool is_kept_on_device(const Config& config, const Store& store, const TensorType& images) {
  return !store.device().is_host() && config.train.accumulate_steps == 1 &&
         images.bytes() < store.device().info().free_bytes / 4;
}

}  // namespace

ImageFormat ImageFormat::of(const ImageDataset& train) {
  const ChannelMoments moments = channel_moments(train);
  return {train.height, train.width, train.channels, train.class_names, moments.mean, moments.deviation};
}

void ImageFormat::save(const std::string& folder) const {
  const nlohmann::ordered_json json{{"height", height},       {"width", width}, {"channels", channels},
                                    {"classes", class_names}, {"mean", mean},   {"deviation", deviation}};
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
    : batch_size(config.data.batch_size),
      model(cnn_config(config, format)),
      layout(model, parameter_groups(config)),
      store(open_backend(config.train.device)) {
  shared = {store.add_region("arena", MemoryKind::kActivations, 0),
            store.add_region("workspace", MemoryKind::kWorkspace, 0)};
  TrainerOptions options = trainer_options(config, training);
  options.verify_plans = verify_plans;
  trainer = std::make_unique<Trainer>(layout, store, shared, options);
  const size_t pixels = static_cast<size_t>(batch_size * format.height * format.width * format.channels);
  store.bind("images", {store.add_region("images", MemoryKind::kBatch, pixels), 0}, pixels);
  const size_t labels = static_cast<size_t>(batch_size) * sizeof(int32_t);
  store.bind("labels", {store.add_region("labels", MemoryKind::kBatch, labels), 0}, labels);
  const LossFunction loss = [this](Trace& trace) { return cnn_loss(model, trace, batch_size); };
  const TensorType all_images{DType::kU8, {train_images, format.height, format.width, format.channels}};
  if (training && train_images > 0 && is_kept_on_device(config, store, all_images)) {
    const ResidentOptions options{.data = {{"images", all_images}, {"labels", {DType::kI32, {train_images}}}}};
    resident = std::make_unique<ResidentSteps>(*trainer, store, shared, loss, options);
  }
  if (training)
    trainer->add_shape(loss);
  else
    trainer->add_evaluation_shape(loss);
}

void ImageSession::allocate() {
  store.allocate();
  trainer->bind();
  if (resident) resident->bind();
}

std::vector<float> ImageSession::logits(const ImageDataset& dataset) {
  std::vector<float> all;
  for (int64_t index = 0; index < evaluation_batches(dataset, batch_size); ++index) {
    const int64_t rows = fill_evaluation_batch(dataset, batch_size, index, images(), labels());
    trainer->evaluate(0);
    const float* found = trainer->evaluation_output(0, "logits").as<const float>();
    all.insert(all.end(), found, found + rows * model.config.classes);
  }
  return all;
}

Evaluation ImageSession::evaluate(const ImageDataset& dataset) {
  double sum = 0;
  int64_t right = 0;
  for (int64_t index = 0; index < evaluation_batches(dataset, batch_size); ++index) {
    const int64_t rows = fill_evaluation_batch(dataset, batch_size, index, images(), labels());
    sum += trainer->evaluate(0).sum;
    const int32_t* predictions = trainer->evaluation_output(0, "predictions").as<const int32_t>();
    for (int64_t row = 0; row < rows; ++row) right += predictions[row] == labels()[row];
  }
  const auto count = static_cast<double>(dataset.count);
  return {sum / count, dataset.count, {{"accuracy", static_cast<double>(right) / count}}, {}};
}

}  // namespace linnet
