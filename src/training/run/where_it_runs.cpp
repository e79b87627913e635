#include "training/run/where_it_runs.h"

#include "engine/exec/backend.h"
#include "engine/kernels/isa.h"
#include "training/run/trainer_options.h"
#include "training/trainer/trainer.h"

namespace linnet {
namespace {

// "fp32", or why it is not what was asked for.
std::string cpu_products_text(const std::string& wanted) {
  if (wanted == "fp16") return "fp32 with operands of products rounded to fp16";
  const std::string real = precision_name(cpu_precision(precision_of(wanted)));
  return real == wanted
             ? real
             : real + " (" + wanted + " was asked for, and " + current_isa() + " has no instructions for it)";
}

}  // namespace

std::string where_it_runs(const TrainConfig& train, int threads, int ranks) {
  if (ranks > 1) return std::to_string(ranks) + " ranks of " + where_it_runs(train, threads, 1);
  const Device& device = *open_backend(train.device).device;
  const bool other = train.attention_precision != "same" && train.attention_precision != train.precision;
  const auto attention = [&](const std::string& precision) {
    return other ? ", " + precision + " products in attention" : "";
  };
  const bool stores_bf16 =
      train.storage == "auto" && train.precision == "bf16" && cpu_precision(Precision::kBf16) == Precision::kBf16;
  if (device.is_host())
    return std::to_string(threads) + (threads == 1 ? " thread, " : " threads, ") + current_isa() + ", " +
           cpu_products_text(train.precision) +
           (stores_bf16 ? " products and activations, fp32 weights and sums" : "") +
           attention(cpu_products_text(train.attention_precision));
  const std::string precision = train.precision == "bf16"   ? "bf16 products and activations, fp32 weights and sums"
                                : train.precision == "tf32" ? "tf32 products, the rest fp32"
                                                            : "strict fp32";
  return device.info().name + ", " + precision + attention(train.attention_precision);
}

}  // namespace linnet
