// States that no rank has as a whole: moments of which each rank has slices (ZeRO), parameters that the ranks of a
// tensor group divide, and those of the stages of a pipeline. Files are independent of that: rank 0 writes and reads
// whole tensors, one after another, and the others take part.
#pragma once
#include <string>

#include "comm/communicator.h"
#include "nn/pipeline_parallel.h"
#include "train/divided_states.h"
#include "train/trainer.h"

namespace linnet {

class WholeStates {
 public:
  // `data`: the ranks that have the same part of the same layers, `tensor`: those that share them, `pipeline`: those
  // that have the layers before and after them; all hold this rank. Without tensor and pipeline parallel `data` is the
  // world, and the others this rank alone.
  WholeStates(Trainer& trainer, Communicator& data, Communicator& tensor, Communicator& pipeline)
      : trainer_(trainer), data_(data), tensor_(tensor), pipeline_(pipeline), slices_(trainer, data) {}

  bool is_first_rank() const { return data_.rank() == 0 && tensor_.rank() == 0 && pipeline_.rank() == 0; }
  // The tensors that there are, on all ranks together.
  static const ParameterLayout& layout(const Trainer& trainer) { return of_all_stages(trainer.layout()); }
  // Whether rank 0 may lack something of a tensor. `slot`: of that layout; so below.
  static bool is_divided(const Trainer& trainer, const std::string& state, const ParameterSlot& slot);
  bool is_divided(const std::string& state, const ParameterSlot& slot) const {
    return is_divided(trainer_, state, slot);
  }

  // Every rank calls these, in the same order.
  // A tensor of a state as a whole on rank 0, until the next call; null on the others.
  const float* gather(const std::string& state, const ParameterSlot& slot);
  // Every rank takes its part of a tensor that rank 0 has as a whole; on the others `whole` is null.
  void scatter(const std::string& state, const ParameterSlot& slot, const float* whole);
  // Where rank 0 may put the tensor that it scatters: as many floats as the whole has. Until the next call.
  float* place(const ParameterSlot& slot);
  // The same of a packed state that ranks divide.
  const std::byte* gather(const DividedPackedState& state);
  void scatter(const DividedPackedState& state, const std::byte* whole);
  std::byte* place(const DividedPackedState& state);

 private:
  // What this rank has of a tensor when its slices are together; of ranks whose state is not sliced, where it lies.
  float* own_part(const std::string& state, const ParameterSlot& slot);
  Shape part_shape(const ParameterSlot& slot, int rank) const;
  const float* gather_in_stage(const std::string& state, const ParameterSlot& slot);
  void scatter_in_stage(const std::string& state, const ParameterSlot& slot, const float* whole);
  bool is_first_of_stage() const { return data_.rank() == 0 && tensor_.rank() == 0; }
  void send(const float* whole, const ParameterSlot& slot, int stage);
  const float* receive(const ParameterSlot& slot, int stage);

  Trainer& trainer_;
  Communicator &data_, &tensor_, &pipeline_;
  DividedStates slices_;
};

}  // namespace linnet
