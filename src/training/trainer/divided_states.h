// States that no rank has as a whole.
#pragma once
#include "base/function_ref.h"
#include "distributed/comm/communicator.h"
#include "models/nn/pipeline_parallel.h"
#include "training/trainer/training_state.h"

namespace linnet {

// Binds the inputs of apply_slices_graph(). `states` are declared: whole, or, if divided, this rank's slices in order.
void bind_own_slices(Store& store, const ParameterLayout& layout, const std::vector<RangeSlice>& slices,
                     const std::vector<std::string>& states);
// The same of one state whose slices lie one after the other from `start` on.
void bind_slices_in_order(Store& store, const ParameterLayout& layout, const std::vector<RangeSlice>& slices,
                          const std::string& state, Location start);

// States that no rank has as a whole: moments of which each rank has slices (ZeRO), parameters that the ranks of a
// tensor group divide, and those of the stages of a pipeline. Files are independent of that: rank 0 writes and reads
// whole tensors, one after another and piece by piece, and the others take part. A piece is small, so that no rank
// needs more memory for that than training planned.

// A tensor of a file: of a state, in fp32, or what an optimizer keeps in other forms.
struct WholeTensor {
  std::string name;
  TensorType type;
  std::string state = {};
  const ParameterSlot* slot = nullptr;         // of the layout of all stages
  const DividedPackedState* packed = nullptr;  // if it is set, the tensor is this one
};
WholeTensor whole_tensor(const TrainingState& states, const std::string& state, const ParameterSlot& slot,
                         const std::string& prefix = "");

class WholeStates {
 public:
  // `data`: the ranks that have the same part of the same layers, `tensor`: those that share them, `pipeline`: those
  // that have the layers before and after them; all hold this rank. Without tensor and pipeline parallel `data` is the
  // world, and the others this rank alone. `piece_floats`: the most of a piece, a multiple of 8.
  WholeStates(TrainingState& states, Communicator& data, Communicator& tensor, Communicator& pipeline,
              int64_t piece_floats = 1 << 18)
      : states_(states), data_(data), tensor_(tensor), pipeline_(pipeline), piece_floats_(piece_floats) {}

  bool is_first_rank() const { return data_.rank() == 0 && tensor_.rank() == 0 && pipeline_.rank() == 0; }
  // Whether rank 0 may lack something of a tensor. `slot`: of the layout of all stages.
  static bool is_divided(const TrainingState& states, const std::string& state, const ParameterSlot& slot);
  bool is_divided(const std::string& state, const ParameterSlot& slot) const {
    return is_divided(states_, state, slot);
  }

  // Every rank calls these, in the same order.
  // The piece that begins at a byte comes to rank 0, until the next call; nothing on the others.
  std::span<const std::byte> gather(const WholeTensor& tensor, size_t first);
  // All pieces one after another: what the others do while rank 0 writes a tensor.
  void give(const WholeTensor& tensor);
  // Every rank takes what it has of a tensor, which rank 0 has in `whole`; null on the others.
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
  // The elements of a piece that the tensor rank `rank` has: consecutive ones of its part.
  Piece part_of(const ParameterSlot& slot, int rank, Piece piece) const;
  // Calls visit(in the piece, in the rank's elements of the piece, count).
  template <class Visit>
  void for_runs_of(const ParameterSlot& slot, int rank, Piece piece, const Visit& visit) const;
  // Where this rank has these elements of its part; of a sliced state, where they are put together.
  float* own_part(const std::string& state, const ParameterSlot& slot, Piece part, int64_t piece_count);
  const float* gather_in_stage(const std::string& state, const ParameterSlot& slot, Piece piece);
  void scatter_in_stage(const std::string& state, const ParameterSlot& slot, Piece piece, const float* values);
  bool is_first_of_stage() const { return data_.rank() == 0 && tensor_.rank() == 0; }

  TrainingState& states_;
  Communicator &data_, &tensor_, &pipeline_;
  const int64_t piece_floats_;
};

}  // namespace linnet
