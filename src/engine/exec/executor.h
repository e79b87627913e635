// Runs a plan: a loop over bound kernels, without allocation. On a device the loop is recorded once and replayed.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>
#include "base/functions.h"
#include "engine/plan/plan.h"

namespace linnet {
class DeviceRun;  // executor.cpp

class Executor {
 public:
  // The store must have been allocated; plan and store outlive the executor.
  Executor(const Plan& plan, const Store& store, const SharedRegions& shared);
  Executor(Executor&& other) noexcept;
  ~Executor();

  // Runs the plan; the pool may not have more threads than the plan was made for. On a device it only queues: batches
  // may be written and other plans run after it, and output() waits. Returns the run's number for output(), 0 on the
  // CPU. While the Timeline (base/timeline.h) is active, the time of each node is recorded; on a device, nodes are then
  // queued and timed alone, and their times are put one after another from the run's beginning.
  int64_t run(ThreadPool& pool) const { return run_together(pool, 1); }
  // On the CPU: calls after(node) when a node is done, on the calling thread.
  using AfterNode = FunctionRef<void(NodeId node)>;
  void run(ThreadPool& pool, AfterNode after) const;
  // Runs `times` times, each run reading the states that the one before left; on a device this is one recording. For
  // plans whose inputs are all states, since there is one batch for all runs. Returns the number of all together.
  int64_t run_together(ThreadPool& pool, int64_t times) const;
  // As run(), adding each node's seconds to seconds[node].
  void run_timed(ThreadPool& pool, std::vector<double>& seconds) const;

  // A named output where the host can read it. `run`: 0 for the last one. On a device, a large output is that of the
  // last run and valid until the next; a small one stays readable until kKept more runs were queued.
  const TensorView& output(const std::string& name, int64_t run = 0) const;
  static constexpr int64_t kKept = 4;
  const Plan& plan() const { return *plan_; }

 private:
  struct Step {
    const Node* node;
    const Kernel* kernel;
    size_t in, in_count, out, out_count;  // ranges of operands_
    std::byte* workspace;
    int64_t aside = -1;  // its number among those that run beside others (Plan::aside); -1: in order
    int64_t after = -1;  // which of them have to be done before it
  };
  struct Copy {
    TensorView from, to;
  };
  void order_asides();
  void check(const ThreadPool& pool) const;
  void run_step(const Step& step, ThreadPool& pool) const;
  void run_all(ThreadPool& pool, AfterNode after) const;
  void run_recorded(ThreadPool& pool, AfterNode after) const;
  void copy_updates() const;

  const Plan* plan_;
  const Store& store_;
  std::vector<TensorView> operands_;
  std::vector<Step> steps_;
  int64_t asides_ = 0;
  std::vector<Copy> copies_;
  std::map<std::string, TensorView> outputs_;
  Device& device_;
  std::unique_ptr<DeviceRun> device_run_;  // null on the CPU, which runs kernels at once
};
}  // namespace linnet
