// The ranks of a pipeline (training/trainer/pipeline.h), of which each computes a stage of the model: number s of them is stage s.
#pragma once
#include "distributed/comm/communicator.h"

namespace linnet {

// While it lives, the trainers that this thread runs are stages of the group's pipeline.
class PipelineScope {
 public:
  explicit PipelineScope(Communicator& group);
  ~PipelineScope();
  PipelineScope(const PipelineScope&) = delete;
  PipelineScope& operator=(const PipelineScope&) = delete;

 private:
  Communicator* outer_;
};

// The group of the scope that this thread is in. Internal error unless it has `stages` ranks.
Communicator& pipeline_group(int stages);

}  // namespace linnet
