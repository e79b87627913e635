#include "training/run/quantized_steps.h"

#include "base/error.h"
#include "base/log.h"
#include "models/nn/activation_observer.h"
#include "models/nn/quantized_training.h"
#include "training/trainer/trainer.h"

namespace linnet {

void calibrate_steps(TrainingTask& task) {
  Trainer& trainer = task.trainer();
  ActivationObserver* observer = trainer.layout().observer();
  if (!observer) fail_internal("a model is to be trained quantized and nothing watches its layers");
  observer->set_collecting(true);
  SharedWork alone = SharedWork::alone();  // the others get the steps from this rank
  task.evaluate(alone);
  observer->set_collecting(false);
  const auto scales = observer->scales(CalibrationMethod::kMinMax);
  int64_t steps = 0;
  for (const ParameterSlot& slot : trainer.layout().parameters()) {
    const auto scale = scales.find(weight_of_input_step(slot.spec.name));
    if (scale == scales.end()) continue;
    trainer.set_parameter(slot, [&](std::span<float> values) { values[0] = scale->second; });
    ++steps;
  }
  trainer.reset_ema();
  log_info("the inputs of " + std::to_string(steps) +
           " layers are rounded to 8 bits, by steps found on the "
           "validation examples");
}

}  // namespace linnet
