// Two linear layers on MNIST, with validation data split off and early stopping: mnist_mlp FOLDER [EPOCHS]
#include <linnet/linnet.h>
#include <cstdio>
#include <cstdlib>
using namespace linnet;

struct Mlp : Module {
  Linear hidden{this, "hidden", 28 * 28, 256, he_normal()}, out{this, "out", 256, 10};
  Dropout dropout{this, "dropout", 0.2f};
  Tensor operator()(Tensor images) {
    const Tensor x = reshape(scale_images(images, {0.1307}, {0.3081}), {images.dim(0), 28 * 28});
    return out(dropout(relu(hidden(x))));
  }
};

int run(int count, char** words) {
  const std::string folder = count > 1 ? words[1] : ".";
  const int64_t epochs = count > 2 ? std::atoll(words[2]) : 20;
  const Dataset all = Dataset::idx(folder + "/train-images-idx3-ubyte.gz", folder + "/train-labels-idx1-ubyte.gz");
  const auto [train, validation] = all.split(0.9, /*seed=*/1);
  Loader train_batches(train, {.batch = 128, .shuffle = true, .drop_last = true});
  Loader validation_batches(validation, {.batch = 128});

  Mlp mlp;
  Learner learner(mlp,
      [&](Tracer& trace) -> Loss {
        const Tensor logits = mlp(trace.input("images")), labels = trace.input("labels");
        trace.output("logits", logits);
        return {.sum = cross_entropy_sum(logits, labels), .count = count_targets(labels)};
      },
      train_batches.shapes(), {.optimizer = AdamW{.weight_decay = 0.01}, .clip_norm = 1});

  const FitReport report = learner.fit(train_batches,
      {.epochs = epochs,
          .rate = 1e-3,
          .validation = &validation_batches,
          .metrics = {accuracy()},
          .patience = 2,
          .on_epoch = [](const FitEvent& event) {
            std::printf("epoch %d: loss %.4f, validation loss %.4f, accuracy %.2f%%\n", static_cast<int>(event.epoch),
                event.mean_loss, event.evaluation->loss, 100 * event.evaluation->metrics.at("accuracy"));
            return true;
          }});
  std::printf("stopped by %s after %d epochs; the weights are those of validation loss %.4f\n", report.reason.c_str(),
      static_cast<int>(report.epochs), report.best->loss);
  learner.save("mlp.safetensors");

  // Prediction takes fewer rows than a batch has, and no labels.
  Arrays three;
  three.set("images", {3, 28, 28, 1}, std::vector<uint8_t>(3 * 28 * 28));
  const Arrays answer = learner.predict(three);
  std::printf("logits of three black images: %s\n", answer.type("logits").text().c_str());
  return 0;
}

int main(int count, char** words) try { return run(count, words); } catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return exit_code(error.kind());
}
