// States that no rank has as a whole (ZeRO): each has them for its slices of the parameters. See also
// training/trainer/divided_states.h.
#pragma once
#include <cstdint>
#include <string>
#include <vector>
#include "base/function_ref.h"
#include "distributed/comm/communicator.h"
#include "models/nn/pipeline_parallel.h"
#include "training/trainer/training_state.h"

namespace linnet {

// Binds the inputs of apply_slices_graph(), of this rank's slices. `states` are declared: whole, or, if divided, those
// slices one after the other.
void bind_own_slices(Store& store, const ParameterLayout& layout, const std::vector<RangeSlice>& slices,
                     const std::vector<std::string>& states);
// The same of one state whose slices lie one after the other from `start` on.
void bind_slices_in_order(Store& store, const ParameterLayout& layout, const std::vector<RangeSlice>& slices,
                          const std::string& state, Location start);

class DividedStates {
 public:
  DividedStates(TrainingState& states, Communicator& world) : states_(states), world_(world) {}

  // Every rank calls these, in the same order.
  // The elements [first, first + count) of a state come to `whole` on rank 0; other ranks give null.
  void gather(const std::string& state, int64_t first, int64_t count, float* whole);
  // All ranks take their slices of the same elements, which rank 0 has in `whole`.
  void scatter(const std::string& state, int64_t first, int64_t count, const float* whole);
  // The same of the bytes [first, first + count) of a packed state.
  void gather(const DividedPackedState& state, int64_t first, int64_t count, std::byte* whole);
  void scatter(const DividedPackedState& state, int64_t first, int64_t count, const std::byte* whole);

 private:
  // What this rank has of `part`, which is of the whole state.
  std::span<std::byte> own_part(const DividedPackedState& state, Slice part) const;
  // visit(rank, first in the state, first in the rank's slices, count) for what the ranks have of a part.
  template <class Visit>
  void for_parts(int64_t first, int64_t count, const Visit& visit) const;

  TrainingState& states_;
  Communicator& world_;
};

// States that no rank has as a whole: moments of which each rank has slices (ZeRO), parameters that the ranks of a
// tensor group divide, and those of the stages of a pipeline. Files are independent of that: rank 0 writes and reads
// whole tensors, one after another and piece by piece, and the others take part. A piece is small, so that no rank
// needs more memory for that than training planned.

class WholeStates {
 public:
  // `data`: the ranks that have the same part of the same layers, `tensor`: those that share them, `pipeline`: those
  // that have the layers before and after them; all hold this rank. Without tensor and pipeline parallel `data` is the
  // world, and the others this rank alone. `piece_floats`: the most of a piece, a multiple of 8.
  WholeStates(TrainingState& states, Communicator& data, Communicator& tensor, Communicator& pipeline,
              int64_t piece_floats = 1 << 18)
      : states_(states),
        data_(data),
        tensor_(tensor),
        pipeline_(pipeline),
        slices_(states, data),
        piece_floats_(piece_floats) {}

  bool is_first_rank() const { return data_.rank() == 0 && tensor_.rank() == 0 && pipeline_.rank() == 0; }
  // Whether rank 0 may lack something of a tensor. `slot`: of the layout of all stages; so
  // below.
  static bool is_divided(const TrainingState& states, const std::string& state, const ParameterSlot& slot);
  bool is_divided(const std::string& state, const ParameterSlot& slot) const {
    return is_divided(states_, state, slot);
  }

  // Elements, or bytes of a packed state, of the whole.
  struct Piece {
    int64_t first, count;
  };
  // The piece of a tensor, or of a packed state, that begins there.
  Piece piece(const ParameterSlot& slot, int64_t first) const;
  Piece piece(const DividedPackedState& state, int64_t first) const;
  // All pieces, in the order of files.
  void for_pieces(const ParameterSlot& slot, FunctionRef<void(Piece)> visit) const;
  void for_pieces(const DividedPackedState& state, FunctionRef<void(Piece)> visit) const;

  // Every rank calls these, in the same order.
  // A piece of a tensor of a state on rank 0, until the next call; null on the others.
  const float* gather(const std::string& state, const ParameterSlot& slot, Piece piece);
  // Every rank takes what it has of a piece, whose values rank 0 gives; those of other ranks are null.
  void scatter(const std::string& state, const ParameterSlot& slot, Piece piece, const float* values);
  // Where rank 0 may put a piece that it scatters. Until the next call.
  float* place(int64_t floats);
  // The same of a packed state that ranks divide.
  const std::byte* gather(const DividedPackedState& state, Piece piece);
  void scatter(const DividedPackedState& state, Piece piece, const std::byte* values);

 private:
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
  void send(const float* values, Piece piece, int stage);
  const float* receive(Piece piece, int stage);

  TrainingState& states_;
  Communicator &data_, &tensor_, &pipeline_;
  DividedStates slices_;
  const int64_t piece_floats_;
};

}  // namespace linnet
