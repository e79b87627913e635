// An LSTM forecasts the next value of a noisy wave from the last 24.
#include <linnet/linnet.h>
#include <cmath>
#include <cstdio>
#include <random>
using namespace linnet;

struct Forecaster : Module {
  Lstm lstm{this, "lstm", 1, 32};
  Linear out{this, "out", 32, 1};
  Tensor operator()(Tensor x) {
    RecurrentState state;
    lstm(x, &state);
    return out(state.hidden);
  }
};

int main() {
  constexpr int64_t kPast = 24;
  std::mt19937 random(1);
  std::normal_distribution<float> noise(0, 0.05f);
  std::vector<float> wave;
  for (int i = 0; i < 2000; ++i) wave.push_back(std::sin(0.3f * static_cast<float>(i)) + noise(random));
  std::vector<float> past, next;
  for (size_t i = kPast; i < wave.size(); ++i) {
    past.insert(past.end(), wave.begin() + static_cast<ptrdiff_t>(i) - kPast, wave.begin() + static_cast<ptrdiff_t>(i));
    next.push_back(wave[i]);
  }
  Dataset data;
  data.add("past", {kPast, 1}, past).add("next", {1}, next);
  const auto [train, test] = data.split(0.8);
  Loader batches(train, {.batch = 64, .shuffle = true}), test_batches(test, {.batch = 64});

  Forecaster net;
  const TracedLoss loss = [&](Tracer& trace) {
    const Tensor forecast = net(trace.input("past"));
    trace.output("forecast", forecast);
    return squared_error_loss(trace, forecast, trace.input("next"));
  };
  std::printf("%zu bytes will be taken; with 16 MiB a batch may have %lld rows\n",
      plan(net, loss, batches.shapes(), {}).bytes,
      static_cast<long long>(largest_batch(net, loss, batches.shapes(), size_t{16} << 20)));
  Learner learner(net, loss, batches.shapes());
  learner.fit(batches, {.epochs = 15, .rate = 5e-3});
  const Evaluation result = learner.evaluate(test_batches, {mean_absolute_error("forecast", "next")});
  std::printf("mean squared error %.4f (of the noise alone 0.0025), absolute %.3f, of %lld\n", result.loss,
      result.metrics.at("mean_absolute_error"), static_cast<long long>(result.count));
  return result.loss < 0.01 ? 0 : 1;
}
