// How ranks share the work: train.parallel (config/config.h).
#pragma once

namespace linnet {

// "data=2,pipeline=3" of 6 ranks: each 3 ranks compute one model together, of which each has some of the layers, and
// two such models train on different data. Ranks are numbered as in distributed/comm/tensor_group.h: those of a tensor
// group follow each other, then the stages of a pipeline, then the groups that train on different data.
struct RankLayout {
  int data = 1, tensor = 1, pipeline = 1;
  int interleave = 1;  // stages of each rank of a pipeline
  // "pipeline=encoder-decoder": two ranks, the encoder on one and the decoder on the other
  bool splits_encoder = false;
  int ranks() const { return data * ranks_of_model(); }
  int ranks_of_model() const { return tensor * pipeline; }
  int stages() const { return pipeline * interleave; }
  bool operator==(const RankLayout&) const = default;
};

}  // namespace linnet
