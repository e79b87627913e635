// A model in planned memory: store, layout, trainer and batches, as every task needs them. Derived classes add shapes,
// losses, evaluation and whatever else runs in this memory.
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
  // The model outlives the session. With train.quantize, a training session gives its linear layers steps
  // (models/nn/quantized_training.h) and watches them until the observer is stopped. `training` false: only evaluation.
  // `verify_plans` false: only sizes are wanted; otherwise a model too large for the machine is a user error. `loss`: a
  // training loss, by which tensor and pipeline parallelism divide the model; without it they are user errors.
  Session(const Config& config, Module& model, bool training, bool verify_plans = true, const LossFunction& loss = {});
  virtual ~Session() = default;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // With a memory limit (train.memory) plans the training steps, last, when all else is known. `resident`: process
  // bytes before planned memory is touched, these plans included. No-op without a limit, or a second time.
  void finish_planning(uint64_t resident);
  virtual void allocate();  // allocates and binds the plans; before that the store only has sizes
  // All plans of a session that does not train, for which take_weights() packs weights. A session with plans of its own
  // adds them, or returns none: then nothing is packed.
  virtual std::vector<Plan*> inference_plans() { return trainer->plans().evaluation_plans(); }

  const bool training;
  ParameterLayout layout;
  Store store;
  const SharedRegions shared;
  const std::unique_ptr<Trainer> trainer;
  std::unique_ptr<ResidentSteps> resident;  // null: batches come from the host

 protected:
  // Makes room for batch arrays and plans each shape, with a loss each. `device_data`: arrays of all training data, of
  // which batches are rows; training reads them on a device with room for them.
  void plan(const std::vector<BatchInput>& inputs, const std::vector<LossFunction>& losses,
      const std::vector<ResidentOptions::Input>& device_data = {});

 private:
  bool is_planned_ = false;
  void bind_inputs(const std::vector<BatchInput>& inputs);
  bool is_limited() const { return training && trainer->options().memory > 0; }
  bool has_room_for(const std::vector<ResidentOptions::Input>& data) const;
};

// User error if the peak exceeds the user's limit. `advice`: what needs less.
void check_limit(const Session& session, uint64_t peak, const std::string& advice);

LossTotal total_loss(int64_t batches, const SharedWork& ranks, FunctionRef<LossTotal(int64_t batch)> evaluate);

// For a session that only evaluates or generates: allocates the planned memory, and `load` fills it. Linear weights are
// packed in place (engine/plan/packed_weights.h), so "parameters" must not be read afterwards. `advice`: what needs
// less, for the error if it does not fit.
void take_weights(Session& session, const std::string& advice, const LoadWeights& load);
// The best weights of the run in `folder`, as saved: for readers of "parameters".
void take_run_weights(Session& session, const std::string& folder);
}  // namespace linnet
