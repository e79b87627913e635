#include "tasks/planning/measured_times.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "distributed/comm/tensor_group.h"
#include "tasks/planning/neighbors.h"
#include "tasks/planning/step_time.h"
#include "tasks/task_table.h"

namespace linnet {
namespace {

constexpr int kWarmUp = 2;
constexpr size_t kLeast = 5;
constexpr double kSeconds = 3;  // of measured steps, unless kLeast take longer

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Ranks that answer at once, with zeros.
class AbsentRanks : public Communicator {
 public:
  explicit AbsentRanks(int size) : size_(size) {}
  int rank() const override { return 0; }
  int size() const override { return size_; }
  void exchange(std::span<const Outgoing>, std::span<const Incoming> incoming, Wait) override {
    for (const auto& [from, bytes] : incoming) std::ranges::fill(bytes, std::byte{0});
  }

 private:
  const int size_;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Of the shape that takes longest.
int longest_shape(const Trainer& trainer, const MachineSpeed& speed) {
  int longest = 0;
  double most = -1;
  for (const auto& [name, plan] : trainer.plans()) {
    if (!name.starts_with("train.")) continue;
    double seconds = 0;
    for (const Node& node : plan->graph.nodes()) seconds += estimated_node_seconds(plan->graph, node, speed);
    if (seconds > most) most = seconds, longest = std::stoi(name.substr(name.find('.') + 1));
  }
  return longest;
}

// The next batch of a shape. Batches of the shape that takes longest are common: it is the fullest.
const Batch& batch_of(BatchSource& source, int shape) {
  constexpr int kMost = 10'000;
  for (int i = 0; i < kMost; ++i)
    if (const Batch& batch = source.next(); batch.shape_index == shape) return batch;
  fail_user("--measure found no batch of the largest size: leave it out");
}

// The steps of one rank.
class RankSteps {
 public:
  RankSteps(const Config& config, const MachineSpeed& speed)
      : task_(task_actions(config).train(config, "")),
        absent_(task_->trainer().options().tensor.ranks),
        scope_(absent_),
        shape_(longest_shape(task_->trainer(), speed)) {
    task_->take_memory();
    task_->initialize();
    trainer().load(batch_of(task_->batches(), shape_));
  }
  Trainer& trainer() { return task_->trainer(); }
  int shape() const { return shape_; }

  struct Times {
    std::vector<double> nodes;
    double update = 0;
  };
  Times run_one() {
    const Executor& executor = trainer().train_executor(shape_);
    Times times{.nodes = std::vector<double>(static_cast<size_t>(executor.plan().graph.node_count()))};
    trainer().set_step(0, ++step_);  // a learning rate of 0
    executor.run_timed(trainer().pool(), times.nodes);
    if (!trainer().accumulates()) return times;
    const float one = 1;
    task_->store().fill("sum_of_squares", &one, sizeof one);  // of ranks that divide it
    const double before = now();
    trainer().apply(0, step_);
    times.update = now() - before;
    return times;
  }

 private:
  const std::unique_ptr<TrainingTask> task_;
  AbsentRanks absent_;
  const TensorGroupScope scope_;
  const int shape_;
  int64_t step_ = 0;
};

}  // namespace

RankWork measured_work(const Config& config, const MachineSpeed& speed, int ranks_here) {
  Neighbors neighbors(ranks_here - 1, [&](Neighbors::Started started) {
    RankSteps steps(config, speed);
    steps.run_one();
    started();
    for (;;) steps.run_one();
  });
  RankSteps steps(config, speed);
  for (int i = 0; i < kWarmUp; ++i) steps.run_one();
  neighbors.wait_until_started();
  std::vector<RankSteps::Times> runs;
  for (const double begin = now(); runs.size() < kLeast || now() - begin < kSeconds;) runs.push_back(steps.run_one());

  NodeTimes times{.speed = speed, .shape = steps.shape()};
  std::vector<double> values(runs.size());
  const auto median_of = [&](const auto& value) {
    std::ranges::transform(runs, values.begin(), value);
    return median(values);
  };
  for (size_t node = 0; node < runs.front().nodes.size(); ++node)
    times.measured.push_back(median_of([&](const RankSteps::Times& run) { return run.nodes[node]; }));
  times.update_seconds = median_of([](const RankSteps::Times& run) { return run.update; });
  return work_of_rank(steps.trainer(), times);
}

}  // namespace linnet
