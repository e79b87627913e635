// Weights of linear layers that are packed once, in their place, where parameters do not change between runs: otherwise
// every product packs its weight again, which costs the more the fewer rows there are (7 to 12% of an encoder's time).
//
//   PackedWeights weights(plans, store);
//   ... executors are made of the plans, parameters loaded into the store ...
//   weights.pack(store, pool);
#pragma once
#include <span>
#include <vector>
#include "engine/kernels/gemm/panels.h"
#include "engine/plan/plan.h"

namespace linnet {

class PackedWeights {
 public:
  PackedWeights() = default;
  // Chooses the weights and has the plans' products read panels of them (engine/kernels/gemm/panels.h), with the same
  // bits. `plans`: all that read the store's "parameters", before executors are made of them.
  //
  // Chosen is what nothing but products reads, in any of the plans, each of which can read panels: no embeddings, no
  // heads that share their weight with one, nothing that a product of few rows reads. Nothing where the store's device
  // is no CPU.
  PackedWeights(std::span<Plan* const> plans, const Store& store);

  // After parameters were loaded, each time; parameters that are chosen are then neither to be read nor written by
  // anything but the plans.
  void pack(const Store& store, ThreadPool& pool) const;
  size_t size() const { return weights_.size(); }

 private:
  struct Weight {
    Location location;
    PanelsOf panels;
  };
  std::vector<Weight> weights_;
};

}  // namespace linnet
