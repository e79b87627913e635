// Runs a plan: one loop over kernels whose operands were bound to memory beforehand. Nothing is allocated.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace linnet {

class Executor {
 public:
  // The store must have been allocated; plan and store outlive the executor.
  Executor(const Plan& plan, const Store& store, const SharedRegions& shared);

  // The pool may not have more threads than the plan was made for.
  void run(ThreadPool& pool) const;
  // The same, adding each node's seconds to seconds[node].
  void run_timed(ThreadPool& pool, std::vector<double>& seconds) const;

  // Where a named output lies after run().
  const TensorView& output(const std::string& name) const;
  const Plan& plan() const { return *plan_; }

 private:
  struct Step {
    const Node* node;
    const Kernel* kernel;
    size_t in, in_count, out, out_count;  // ranges of operands_
  };
  struct Copy {
    TensorView from, to;
  };
  void check(const ThreadPool& pool) const;
  void run_step(const Step& step, ThreadPool& pool) const;

  const Plan* plan_;
  std::vector<TensorView> operands_;
  std::vector<Step> steps_;
  std::vector<Copy> copies_;
  std::map<std::string, TensorView> outputs_;
  std::byte* workspace_;
};

}  // namespace linnet
