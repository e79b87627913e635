#pragma once
#include "base/functions.h"
#include "distributed/comm/communicator.h"
#include "models/nn/pipeline_parallel.h"
#include "training/trainer/training_state.h"

namespace linnet {
// Binds inputs of apply_slices_graph(). `states` are declared: whole, or, if divided, as this rank's slices in order.
void bind_own_slices(Store& store, const ParameterLayout& layout, const std::vector<RangeSlice>& slices,
    const std::vector<std::string>& states);
// The same for one state whose slices lie one after the other from `start` on.
void bind_slices_in_order(Store& store, const ParameterLayout& layout, const std::vector<RangeSlice>& slices,
    const std::string& state, Location start);

// States that no rank has as a whole: moments (ZeRO), parameters divided in a tensor group, and those of pipeline
// stages. Files do not depend on the division: rank 0 reads and writes whole tensors in small pieces, which need no
// more memory than training planned, and the other ranks take part.

// A tensor of a file: fp32 values of a state, or a packed state of an optimizer.
struct WholeTensor {
  std::string name;
  TensorType type;
  std::string state = {};
  const ParameterSlot* slot = nullptr;         // of the layout of all stages
  const DividedPackedState* packed = nullptr;  // set: the tensor is this one
};
WholeTensor whole_tensor(
    const TrainingState& states, const std::string& state, const ParameterSlot& slot, const std::string& prefix = "");

class WholeStates {
 public:
  // `data`: ranks with the same part of the same layers; `tensor`: ranks that share layers; `pipeline`: ranks with the
  // layers before and after. All include this rank. Without tensor and pipeline parallelism `data` is the world, the
  // others this rank alone. `piece_floats`: the largest piece, a multiple of 8.
  WholeStates(TrainingState& states, Communicator& data, Communicator& tensor, Communicator& pipeline,
      int64_t piece_floats = 1 << 18)
      : states_(states), data_(data), tensor_(tensor), pipeline_(pipeline), piece_floats_(piece_floats) {}

  bool is_first_rank() const { return data_.rank() == 0 && tensor_.rank() == 0 && pipeline_.rank() == 0; }
  // Whether rank 0 may lack a part of a tensor. `slot`: of the layout of all stages.
  static bool is_divided(const TrainingState& states, const std::string& state, const ParameterSlot& slot);
  bool is_divided(const std::string& state, const ParameterSlot& slot) const {
    return is_divided(states_, state, slot);
  }

  // Every rank calls these, in the same order.
  // Rank 0 gets the piece that begins at byte `first`, valid until the next call; other ranks get nothing.
  std::span<const std::byte> gather(const WholeTensor& tensor, size_t first);
  // Sends all pieces: called by the others while rank 0 writes a tensor.
  void give(const WholeTensor& tensor);
  // Sends every rank its part of a tensor, which rank 0 has in `whole`; null on the others.
  void scatter(
      const WholeTensor& tensor, const std::byte* whole, FunctionRef<void()> after_piece = [] {});

 private:
  struct Piece {  // of elements
    int64_t first, count;
  };
  template <class Visit>
  void for_pieces(const WholeTensor& tensor, const Visit& visit) const;  // visit(first byte, bytes)
  float* place(int64_t floats);                                          // scratch memory until the next call
  void exchange_slices(const std::string& state, Piece piece, bool gathers, float* whole);
  void exchange_packed(const DividedPackedState& state, Slice piece, bool gathers, std::byte* whole);
  const float* gather_floats(const std::string& state, const ParameterSlot& slot, Piece piece);
  void scatter_floats(const std::string& state, const ParameterSlot& slot, Piece piece, const float* values);
  // The elements of a piece that tensor rank `rank` has; they are consecutive in its part.
  Piece part_of(const ParameterSlot& slot, int rank, Piece piece) const;
  // Calls visit(index in the piece, index in the rank's elements of the piece, count).
  template <class Visit> void for_runs_of(const ParameterSlot& slot, int rank, Piece piece, const Visit& visit) const;
  // This rank's memory of these elements; for a sliced state, where the slices are assembled.
  float* own_part(const std::string& state, const ParameterSlot& slot, Piece part, int64_t piece_count);
  const float* gather_in_stage(const std::string& state, const ParameterSlot& slot, Piece piece);
  void scatter_in_stage(const std::string& state, const ParameterSlot& slot, Piece piece, const float* values);
  bool is_first_of_stage() const { return data_.rank() == 0 && tensor_.rank() == 0; }

  TrainingState& states_;
  Communicator &data_, &tensor_, &pipeline_;
  const int64_t piece_floats_;
};
}  // namespace linnet
