#include "distributed/comm/pipeline_group.h"

#include "base/error.h"

namespace linnet {
namespace {

thread_local Communicator* t_pipeline_group = nullptr;

}  // namespace

PipelineScope::PipelineScope(Communicator& group) : outer_(t_pipeline_group) { t_pipeline_group = &group; }
PipelineScope::~PipelineScope() { t_pipeline_group = outer_; }

Communicator& pipeline_group(int stages) {
  if (!t_pipeline_group || t_pipeline_group->size() != stages)
    fail_internal("a pipeline of " + std::to_string(stages) + " stages is run by " +
                  std::to_string(t_pipeline_group ? t_pipeline_group->size() : 1));
  return *t_pipeline_group;
}

}  // namespace linnet
