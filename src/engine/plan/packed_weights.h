// Weights of linear layers, packed once and in place for plans with constant parameters: packing them again in every
// product takes 7 to 12% of an encoder's time, more the fewer rows there are. Order: construct, make executors of the
// plans, load parameters into the store, pack().
#pragma once
#include <span>
#include <vector>
#include "engine/kernels/gemm/gemm.h"
#include "engine/plan/plan.h"

namespace linnet {
class PackedWeights {
 public:
  PackedWeights() = default;
  // Chooses the weights and lets the plans' products read panels of them (engine/kernels/gemm/gemm.h), with the same
  // bits. `plans`: all that read the store's "parameters", before executors are made of them.
  //
  // Chosen are weights that only products read, each of which can read panels: no embeddings or heads tied to them, and
  // nothing that a product of few rows reads. None if the store's device is no CPU.
  PackedWeights(std::span<Plan* const> plans, const Store& store);

  // Call it each time after parameters were loaded; only the plans may then use the chosen parameters.
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
