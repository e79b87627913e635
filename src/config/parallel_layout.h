// How train.parallel arranges ranks.
#pragma once
#include <string>

namespace linnet {

// "data=2,pipeline=3" of 6 ranks: each 3 ranks compute one model together, of which each has some of the layers, and
// two such models train on different data.
struct ParallelLayout {
  int data = 1, tensor = 1, pipeline = 1;
  int interleave = 1;  // stages of each rank of a pipeline
  // "pipeline=encoder-decoder": two ranks, the encoder on one and the decoder on the other
  bool splits_encoder = false;
  int ranks_of_model() const { return tensor * pipeline; }
};

// User error where it does not fit the number of ranks.
ParallelLayout parallel_layout(const std::string& parallel, int ranks);
// User error where it is not understood, for whatever number of ranks.
void check_parallel(const std::string& parallel);

}  // namespace linnet
