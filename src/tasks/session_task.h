// A task with a session, made in steps, so that `linnet plan` does the same as a run up to the allocation of memory.
#pragma once
#include "base/functions.h"
#include "config/config.h"
#include "data/examples/batch.h"
#include "distributed/comm/agreement.h"
#include "tasks/teacher.h"
#include "training/run/pretrained_run.h"
#include "training/run/training_run.h"
#include "training/trainer/resident.h"

namespace linnet {
// A model in planned memory, with layout, trainer and batches. Derived classes add shapes, losses and evaluation.
class Session {
 public:
  // The model outlives the session. With train.quantize, a training session gives its linear layers steps
  // (models/nn/weight_quantization.h) and watches them until the observer is stopped. `training` false: only
  // evaluation. `verify_plans` false: only sizes are wanted; otherwise a model too large for the machine is a user
  // error. `loss`: a training loss, by which tensor and pipeline parallelism divide the model; without it they are user
  // errors.
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
  bool is_limited() const { return training && trainer->options().memory > 0; }
  bool has_room_for(const std::vector<ResidentOptions::Input>& data) const;
};

// The loss of each batch shape, as loss(trace, shape) traces it.
template <class Shapes, class Loss> std::vector<LossFunction> losses_of(const Shapes& shapes, const Loss& loss) {
  return mapped<LossFunction>(
      shapes, [&](const auto& shape) { return [loss, shape](Trace& trace) { return loss(trace, shape); }; });
}

LossTotal total_loss(int64_t batches, const SharedWork& ranks, FunctionRef<LossTotal(int64_t batch)> evaluate);

// For a session that only evaluates or generates: allocates the planned memory and sets the constants. `advice`: what
// would need less memory, for the error if it does not fit.
void take_memory(Session& session, const std::string& advice);
void load_weights(Session& session, const LoadWeights& load);
// Both. Linear weights are packed in place (engine/plan/plan.h), so "parameters" must not be read afterwards.
void take_weights(Session& session, const std::string& advice, const LoadWeights& load);

// Whether a configuration's data exist and are quick to read for a plan.
struct DataAtHand {
  bool read = false;
  std::string why_not;  // "No text was given": the beginning of PlanAnswer::assumption
  uint64_t bytes = 0;   // of existing files
  // Tokens of an unread text, estimated from its size.
  int64_t assumed_tokens(const DataConfig& data) const;
};

// `name`: what `paths` (files or folders; empty ones are skipped) hold. `quick`: bytes that are read in a moment.
DataAtHand data_at_hand(const std::string& name, std::vector<std::string> paths, bool exact, uint64_t quick = 8 << 20);
DataAtHand text_at_hand(const Config& config, bool exact);

// Whether a task too large for the machine is refused, or planned only to report its size.
enum class Capacity { kMustSuffice, kMayBeShort };

class SessionTask : public TrainingTask {
 public:
  explicit SessionTask(const Config& config) : config_(config) {}

  // 1. Reads the data, opens or makes the model. `from`: a run folder with model and assets; empty: as configured.
  virtual void open(const std::string& from) = 0;
  // 1, for unread data: makes a model of the right size. Returns the assumptions as the end of a sentence; "" for none.
  virtual std::string assume(const DataAtHand& data) = 0;
  virtual DataAtHand data_at_hand(bool exact) const = 0;
  // 2. Plans batches of the size in `config`. `verify`: false if only sizes are wanted.
  virtual std::unique_ptr<Session> make_session(const Config& config, bool verify) = 0;
  // 2 and 3. Plans, allocates, and begins the batches.
  void prepare(Capacity capacity);
  // Changes batch sizes for the next prepare(); the data stay.
  void set_batches(const Config& config) { config_ = config; }

  Session& planned() const { return *session_; }
  Trainer& trainer() override { return *session_->trainer; }
  const Store& store() const override { return session_->store; }
  const MemoryForecast& forecast() const override { return forecast_; }
  ResidentSteps* resident() override { return session_->resident.get(); }
  void initialize() override;
  const PretrainedModel* starts_from() const override;

  // For `linnet plan`: rows (or tokens if batches count those) that hold all examples; the least of them; the key.
  virtual int64_t most() const { return count_; }
  virtual int64_t most_planned() const { return most(); }  // less if large batches take seconds to plan
  virtual int64_t least() const { return 1; }
  virtual int64_t DataConfig::*batch_key() const { return &DataConfig::batch_size; }
  virtual int64_t host_batches() const { return 1; }         // that the process keeps, those made ahead included
  uint64_t assumed_bytes() const { return assumed_bytes_; }  // of unread data
  virtual std::string batches_text(const Session& session) const = 0;  // "16 texts of up to 128 tokens"
  virtual const char* shorter_key() const { return "context"; }        // saves memory if smaller; empty: none does

 protected:
  // Makes the batches, once memory is planned and known to suffice.
  virtual void begin() = 0;
  // The model of the initial or describing folder; null: none.
  virtual const PretrainedModel* pretrained() const { return nullptr; }

  // The configured teacher, opened once; null: none. For the arguments see Teacher::open().
  const std::shared_ptr<const Teacher>& teacher(const std::vector<std::string>& classes, const EncodeText& encode);

  Config config_;
  std::unique_ptr<Session> session_;
  int64_t count_ = 1;           // of training examples, read or assumed
  uint64_t assumed_bytes_ = 0;  // of unread data

 private:
  std::string advice() const;  // what needs less memory: the end of a message

  std::shared_ptr<const Teacher> teacher_;
  MemoryForecast forecast_;
};
}  // namespace linnet
