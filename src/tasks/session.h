// A model in planned memory: the wiring of store, layout, trainer and batches, which is the same for every kind of
// task. A kind adds its shapes and losses, how it is evaluated, and what else runs in the same memory.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>
#include "base/function_ref.h"
#include "config/config.h"
#include "data/examples/batch.h"
#include "distributed/comm/agreement.h"
#include "training/run/pretrained_run.h"
#include "training/trainer/resident.h"

namespace linnet {

class Session {
 public:
  // The model must outlive the session. With train.quantize, a session that trains gives its linear layers steps
  // (models/nn/quantized_training.h) and watches them, until somebody stops the observer. `training` false: evaluation
  // only. `verify_plans` false: only sizes are wanted, also of a model that the machine cannot hold; otherwise that is
  // a user error before anything is planned. `loss`: one of the model's training losses, by which tensor and pipeline
  // parallel divide it; without one those are user errors.
  Session(const Config& config, Module& model, bool training, bool verify_plans = true, const LossFunction& loss = {});
  virtual ~Session() = default;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // With a limit of memory (train.memory) the training steps are planned last, when all else is known: here.
  // `resident`: bytes the process holds before planned memory is touched, these plans included. Without a limit, or a
  // second time, nothing happens.
  void finish_planning(uint64_t resident);
  virtual void allocate();  // takes addresses and binds the plans to them; until then the store only has sizes
  // All plans that a session runs which does not train, so that take_weights() packs weights for them. A session with
  // plans beside the trainer's adds those, or gives none: then nothing is packed.
  virtual std::vector<Plan*> inference_plans() { return trainer->plans().evaluation_plans(); }

  const bool training;
  ParameterLayout layout;
  Store store;
  const SharedRegions shared;
  const std::unique_ptr<Trainer> trainer;
  std::unique_ptr<ResidentSteps> resident;  // null: batches come from the host

 protected:
  // Makes room for the arrays of batches and plans each shape, a loss each. `device_data`: the arrays of all training
  // data, where batches are rows of those; on a device with room for them training will find its data there.
  void plan(const std::vector<BatchInput>& inputs, const std::vector<LossFunction>& losses,
            const std::vector<ResidentOptions::Input>& device_data = {});

 private:
  bool is_planned_ = false;
  void bind_inputs(const std::vector<BatchInput>& inputs);
  bool is_limited() const { return training && trainer->options().memory > 0; }
  bool has_room_for(const std::vector<ResidentOptions::Input>& data) const;
};

// User error where the peak is above the limit that the user set. `advice`: what needs less.
void check_limit(const Session& session, uint64_t peak, const std::string& advice);

// The loss of all batches of an evaluation, which the ranks share.
LossTotal total_loss(int64_t batches, const SharedWork& ranks, FunctionRef<LossTotal(int64_t batch)> evaluate);

// For a session that only evaluates or generates: takes the memory it has planned and has `load` fill it. Weights of
// linear layers are packed for the plans, in their place (engine/plan/packed_weights.h): "parameters" is not to be read
// afterwards. `advice`: what needs less, for the error when it does not fit.
void take_weights(Session& session, const std::string& advice, const LoadWeights& load);
// The best weights of the run in `folder`, as they were saved: for whoever reads "parameters".
void take_run_weights(Session& session, const std::string& folder);

}  // namespace linnet
