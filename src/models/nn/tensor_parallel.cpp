#include "models/nn/tensor_parallel.h"
#include "base/error.h"
#include "models/nn/parameter_layout.h"
#include "models/nn/whole_loss.h"

namespace linnet {
namespace {

const ParameterSlot* find_slot(std::span<const ParameterSlot> slots, const std::string& name) {
  for (const ParameterSlot& slot : slots)
    if (slot.spec.name == name) return &slot;
  return nullptr;
}

}  // namespace

std::shared_ptr<const ModelDivision> divide_model(const Module& model, const LossFunction& loss,
                                                  const TensorRank& rank) {
  std::set<std::string> parameters;
  for (const ParameterSpec& spec : model.parameters()) {
    if (spec.buffer) fail_user("tensor parallel cannot train a model with batch normalization");
    // The first of an adapter's matrices is small (models/nn/low_rank.h): divided by its rows it would cost a sum of
    // the layer's whole result. Every rank has all of it, and of the second matrix what it has of the layer's outputs.
    if (spec.trainable && !matches(spec.name, "*.lora_A.*")) parameters.insert(spec.name);
  }
  const WholeLoss whole(loss, DType::kF32, true);
  auto division = std::make_shared<const ModelDivision>(choose_division(whole.graph, whole.results, parameters, rank));
  if (division->parameters.empty())
    fail_user(
        "tensor parallel finds nothing to divide in this model: it divides attention, pairs of linear layers, "
        "and vocabularies");
  return division;
}

LossFunction loss_of_rank(LossFunction loss, std::shared_ptr<const ModelDivision> division) {
  if (!division || division->rank.ranks == 1) return loss;
  return [loss = std::move(loss), division = std::move(division)](Trace& trace) -> Loss {
    const WholeLoss whole(loss, trace.options().dtype, trace.options().training);
    const ParameterLayout* layout = trace.options().layout;
    const auto input = [&](const std::string& name, const TensorType& type) {
      if (!layout) return trace.input(name, type);  // a WholeLoss of the rank, which is cut into stages
      for (const auto slots : {std::span(layout->parameters()), std::span(layout->constants())})
        if (const ParameterSlot* slot = find_slot(slots, name)) return trace.parameter(slot->spec);
      return trace.input(name, type);
    };
    const std::vector<Tensor> found = append_of_rank(whole.graph, whole.results, *division, trace.graph(), input);
    return {found[0], found[1]};
  };
}

}  // namespace linnet
