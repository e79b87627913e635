// A program with a training loop of its own, which saves its state after every step and goes on from it when it is
// started again; library_test kills it at random points:
//
//   resume_program STATE WEIGHTS STEPS
//
// It prints the number of each step that is in the state. Two batch shapes, dropout, and steps of two micro-batches.
#include <linnet/linnet.h>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
using namespace linnet;

namespace {
struct Net : Module {
  Embedding table{this, "table", 11, 8, normal_init(0.5)};
  Dropout dropout{this, "dropout", 0.2f};
  Linear out{this, "out", 8, 3};
  Tensor operator()(Tensor tokens) { return out(dropout(mean(table(tokens), 1))); }
};

Dataset sequences() {
  std::vector<std::vector<int32_t>> tokens;
  std::vector<int32_t> labels;
  for (int32_t i = 0; i < 97; ++i) {
    tokens.emplace_back();
    for (int32_t j = 0; j < 2 + i * 5 % 9; ++j) tokens.back().push_back((i * 3 + j * j) % 11);
    labels.push_back(tokens.back().front() % 3);
  }
  Dataset data;
  data.add_sequences("tokens", tokens);
  return data.add("labels", Shape{}, labels);
}

int run(const std::string& state, const std::string& weights, int64_t steps) {
  Loader loader(sequences(), {.batch = 8, .shuffle = true, .workers = 2, .buckets = {5, 10}});
  Net net;
  Learner learner(net,
      [&](Tracer& trace) -> Loss {
        const Tensor labels = trace.input("labels");
        return {.sum = cross_entropy_sum(net(trace.input("tokens")), labels), .count = count_targets(labels)};
      },
      loader.shapes(), {.optimizer = AdamW{}, .clip_norm = 1, .average_decay = 0.99, .accumulate = 2, .threads = 1});
  if (std::filesystem::exists(state)) loader.seek(learner.load_state(state));
  while (learner.steps() < steps) {
    const std::vector<Arrays> micro_batches{loader.next(), loader.next()};
    learner.step(micro_batches, 0.01 / (1 + static_cast<double>(learner.steps()) / 50));
    learner.save_state(state, loader.position());
    std::printf("%lld\n", static_cast<long long>(learner.steps()));
    std::fflush(stdout);
  }
  learner.save(weights);
  return 0;
}
}  // namespace

int main(int count, char** words) try {
  if (count != 4) fail_user("usage: resume_program STATE WEIGHTS STEPS");
  return run(words[1], words[2], std::atoll(words[3]));
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return exit_code(error.kind());
}
