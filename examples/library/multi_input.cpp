// A model of two inputs with a loss and a metric of its own: the price of a house from its numbers and its district,
// with an estimate of how uncertain it is, and a training loop of the program's own.
#include <linnet/linnet.h>
#include <cmath>
#include <cstdio>
#include <random>
using namespace linnet;

struct House {
  float rooms, age, area;
  int32_t district;
  float price;
};

std::vector<House> made_houses(int count) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(0, 1);
  std::vector<House> houses;
  for (int i = 0; i < count; ++i) {
    House house{uniform(random), uniform(random), uniform(random), static_cast<int32_t>(random() % 8), 0};
    const float spread = house.district < 4 ? 0.02f : 0.2f;  // prices in the last districts vary more
    house.price = 2 * house.area + house.rooms - 0.5f * house.age + 0.1f * static_cast<float>(house.district) +
                  spread * (2 * uniform(random) - 1);
    houses.push_back(house);
  }
  return houses;
}

struct Model : Module {
  Embedding district{this, "district", 8, 4, normal_init(0.1)};
  Linear numbers{this, "numbers", 3, 28, he_normal()}, hidden{this, "hidden", 32, 32, he_normal()};
  Linear mean{this, "mean", 32, 1}, log_variance{this, "log_variance", 32, 1};
};

int main() try {
  const std::vector<House> houses = made_houses(2000);
  Dataset data;
  data.add("numbers", houses, [](const House& h) { return std::vector<float>{h.rooms, h.age, h.area}; });
  data.add("district", houses, [](const House& h) { return h.district; });
  data.add("price", houses, [](const House& h) { return h.price; });
  const auto [train, test] = data.split(0.8);
  Loader batches(train, {.batch = 50, .shuffle = true, .drop_last = true});
  Loader test_batches(test, {.batch = 50, .drop_last = true});

  Model model;
  Learner learner(model,
      [&](Tracer& trace) -> Loss {
        const Tensor x =
            concat({relu(model.numbers(trace.input("numbers"))), model.district(trace.input("district"))}, 1);
        const Tensor h = relu(model.hidden(x));
        const Tensor price = trace.input("price");
        const Tensor mean = reshape(model.mean(h), price.shape());
        const Tensor log_variance = reshape(clamp(model.log_variance(h), -8, 4), price.shape());
        trace.output("mean", mean);
        trace.output("deviation", exp(log_variance * 0.5));
        // The negative log likelihood of a normal distribution.
        const Tensor loss = 0.5 * (square(price - mean) * exp(-log_variance) + log_variance);
        return {.sum = sum(loss), .count = trace.number(static_cast<double>(price.dim(0)))};
      },
      batches.shapes(), {.optimizer = Adam{}, .groups = {{.patterns = {"district.*"}, .rate_factor = 2}}});

  // How often the price is within two estimated deviations.
  const Metric coverage{"coverage", [](const Arrays& batch, const Arrays& outputs) {
                          const auto price = batch.get<float>("price");
                          const auto mean = outputs.get<float>("mean"), deviation = outputs.get<float>("deviation");
                          MetricPart part{.count = static_cast<double>(price.size())};
                          for (size_t i = 0; i < price.size(); ++i)
                            part.sum += std::abs(price[i] - mean[i]) <= 2 * deviation[i];
                          return part;
                        }};
  for (int epoch = 0; epoch < 80; ++epoch)
    for (const Arrays& batch : batches) {
      const StepResult result = learner.step(batch, /*rate=*/5e-3);
      if (!result.finite) return 3;
    }
  const Evaluation result = learner.evaluate(test_batches, {mean_absolute_error("mean", "price"), coverage});
  std::printf("mean error %.3f, %.0f%% within two deviations\n", result.metrics.at("mean_absolute_error"),
      100 * result.metrics.at("coverage"));
  return result.metrics.at("mean_absolute_error") < 0.15 ? 0 : 1;
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return exit_code(error.kind());
}
