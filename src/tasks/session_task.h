// A task with a session, made in steps, so that `linnet plan` does the same as a run up to the allocation of memory.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>
#include "config/config.h"
#include "tasks/session.h"
#include "tasks/teacher.h"
#include "training/run/training_task.h"

namespace linnet {
// Whether a configuration's data exist and are quick to read for a plan.

struct DataAtHand {
  bool read = false;
  std::string why_not;  // "No text was given": the beginning of PlanAnswer::assumption
  uint64_t bytes = 0;   // of existing files
  // Tokens of an unread text, estimated from its size.
  int64_t assumed_tokens(const DataConfig& data) const;
};

// `name`: what `paths` (files or folders; empty ones are skipped) hold. `quick`: bytes that are read in a moment.
DataAtHand data_at_hand(
    const std::string& name, const std::vector<std::string>& paths, bool exact, uint64_t quick = 8 << 20);
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

  const Session& planned() const { return *session_; }
  Trainer& trainer() override { return *session_->trainer; }
  const Store& store() const override { return session_->store; }
  const MemoryForecast& forecast() const override { return forecast_; }
  ResidentSteps* resident() override { return session_->resident.get(); }
  void initialize() override;
  const PretrainedModel* starts_from() const override;

  // For `linnet plan`: rows (or tokens if batches count those) that hold all examples; the least of them; the key.
  virtual int64_t most() const = 0;
  virtual int64_t most_planned() const { return most(); }  // less if large batches take seconds to plan
  virtual int64_t least() const { return 1; }
  virtual int64_t DataConfig::*batch_key() const { return &DataConfig::batch_size; }
  virtual uint64_t assumed_bytes() const { return 0; }                 // of unread data
  virtual std::string batches_text(const Session& session) const = 0;  // "16 texts of up to 128 tokens"
  virtual const char* shorter_key() const { return ""; }               // a key that saves memory with a smaller value

 protected:
  // Makes the batches, once memory is planned and known to suffice.
  virtual void begin() = 0;
  virtual const char* advice() const { return "; a smaller batch_size needs less (see `linnet plan`)"; }
  // The model of the initial or describing folder; null: none.
  virtual const PretrainedModel* pretrained() const { return nullptr; }

  // The configured teacher, opened once; null: none. For the arguments see Teacher::open().
  const std::shared_ptr<const Teacher>& teacher(const std::vector<std::string>& classes, const EncodeText& encode);

  Config config_;
  std::unique_ptr<Session> session_;

 private:
  std::shared_ptr<const Teacher> teacher_;
  MemoryForecast forecast_;
};
}  // namespace linnet
