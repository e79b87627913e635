// Where each parameter lies in the flat buffer: one fp32 array for the whole model, so that clipping, the optimizer and
// the moving average are one pass over memory for each group. Gradients, moments and the moving average have the
// offsets of their parameters.
//
// Order: the groups that are trained one after another, in each the parameters with weight decay before the others;
// then all that are frozen, then buffers (running statistics). Constants (positions) lie elsewhere.
//
// With tensor parallel the layout is that of a rank: slots have the shapes of its parts, and parameters that are
// divided make ranges of their own before those that every rank has.
//
// A layout may be one of weights that another one has laid out (`owner`): moments and gradients then lie as above, and
// each range is a run of parameters that follow each other in the owner's flat buffer, where it is bound
// (declare_shared() in models/nn/model_store.h). Frozen parameters are inputs of graphs one by one.
//
// Weights may be quantized: for inference (WeightQuantization), and in groups with a storage of their own. They come
// last in the order, and only in the buffers that weights are loaded through: the flat buffer of graphs ends
// before them, and each lies packed in a region of its own (declare_quantized() in models/nn/model_store.h).
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include "engine/kernels/quantized/packed_weight.h"
#include "engine/ops/optimizer/optimizer.h"
#include "models/nn/module.h"
#include "models/nn/weight_quantization.h"

namespace linnet {

class Store;
class ThreadPool;
struct ModelDivision;  // engine/passes/tensor_parallel.h
struct Sharding;       // engine/ops/sharding.h

// Parameters that are trained alike, chosen by their names: frozen ones, and those with a learning rate, a weight decay
// or an optimizer of their own.
struct ParameterGroup {
  // Of full names ("encoder.layers.0.linear1.weight"); '*' stands for any characters. A parameter belongs to the first
  // group that has a pattern for it; those without one are trained as the trainer's options say.
  std::vector<std::string> patterns = {};
  // Not trained: no gradient, no moments, no moving average, and the backward pass does not go through what only frozen
  // parameters need.
  bool frozen = false;
  // How the group's matrices lie in memory; empty: in fp32, as everything else does. Of a trained group kBf16 alone:
  // updates compute in fp32 and are rounded stochastically (engine/ops/quantized/quantized.h). Never kInt8, whose
  // products would round activations.
  std::optional<WeightFormat> storage = {};
  double rate_factor = 1;                        // of the learning rate
  std::optional<double> weight_decay = {};       // empty: the trainer's
  std::optional<OptimizerAttrs> optimizer = {};  // kind and its numbers; empty: the trainer's
};

bool matches(std::string_view name, std::string_view pattern);

struct ParameterSlot {
  ParameterSpec spec;
  int64_t offset;  // elements, in the parameters or in the constants
};

// A parameter that graphs read packed.
struct QuantizedSlot {
  ParameterSlot slot;
  PackedShape shape;
  size_t offset;                                                       // bytes in the region of packed weights
  float input_scale = 0;                                               // WeightQuantization::input_scales; 0: none
  std::string input() const { return "quantized." + slot.spec.name; }  // of graphs
};

// The parameters of one group that is trained: a range of the flat buffer, and one input of graphs.
struct TrainedRange {
  int64_t offset, count;  // elements
  int64_t decay_count;    // the first so many have weight decay
  ParameterGroup group;
  std::string suffix;  // of the names of its inputs: "" for the first range ("parameters", "moment1"), then ".1", ...
  // Of parameters that the ranks of a tensor group divide: the sum of squares of its gradient is a part of the model's.
  bool is_divided = false;
};

// A matrix that is trained and stored in bf16. It is a range of its own, whose states are named after it; `offset` is
// that of its slot.
struct PackedRange {
  TrainedRange range;
  size_t quantized;  // of ParameterLayout::quantized()
};

class ParameterLayout {
 public:
  // Throws Error(kUser) for a pattern that no parameter has, and when everything is frozen.
  // `quantization` is for inference: user error when one of its patterns has no parameter.
  explicit ParameterLayout(const Module& model, std::span<const ParameterGroup> groups = {},
                           const WeightQuantization& quantization = {},
                           std::shared_ptr<const ModelDivision> division = nullptr,
                           const ParameterLayout* owner = nullptr);

  const std::vector<ParameterSlot>& parameters() const { return parameters_; }  // all that is saved, in order
  std::span<const ParameterSlot> trained() const { return {parameters_.data(), trained_slots_}; }
  std::span<const ParameterSlot> frozen() const {
    return std::span(parameters_).subspan(trained_slots_, buffer_slots_ - trained_slots_);
  }
  std::span<const ParameterSlot> buffers() const {
    return std::span(parameters_).subspan(buffer_slots_, stored_slots_ - buffer_slots_);
  }
  // Frozen parameters and buffers: what is saved and has no moments and no moving average.
  std::span<const ParameterSlot> untrained() const { return std::span(parameters_).subspan(trained_slots_); }
  const std::vector<TrainedRange>& ranges() const { return ranges_; }
  size_t slots_in(const TrainedRange& range) const;  // parameters in it
  // What is trained beside those ranges.
  const std::vector<PackedRange>& packed_ranges() const { return packed_ranges_; }
  const std::vector<ParameterSlot>& constants() const { return constants_; }
  const std::vector<QuantizedSlot>& quantized() const { return quantized_; }
  bool is_quantized(const ParameterSlot& slot) const { return slot.offset >= stored_count_; }
  const QuantizedSlot& quantized_slot(const ParameterSlot& slot) const;  // of one that is
  bool is_in_blocks(const ParameterSlot& slot) const {  // of a file, which loading leaves in the place of numbers
    return is_quantized(slot) && is_file_format(quantized_slot(slot).shape.format);
  }
  size_t quantized_bytes() const { return quantized_bytes_; }  // packed
  // Elements, of which the first trained_count() are trained; from buffer_offset() on they belong to buffers, and from
  // stored_count() on to quantized parameters, which the flat buffer of graphs does not have.
  int64_t parameter_count() const { return parameter_count_; }
  int64_t trained_count() const { return trained_count_; }
  int64_t buffer_offset() const { return buffer_offset_; }
  int64_t stored_count() const { return stored_count_; }
  int64_t constant_count() const { return constant_count_; }
  // Whose weights these are, by a layout of the same model; null: they are its own.
  const ParameterLayout* owner() const { return owner_; }
  int64_t offset_at_owner(const ParameterSlot& slot) const { return owner_offsets_.at(slot.spec.name); }
  // Of tensor parallel; null: every parameter is whole.
  const ModelDivision* division() const { return division_.get(); }
  const std::shared_ptr<const ModelDivision>& shared_division() const { return division_; }
  const Sharding* sharding_of(const ParameterSlot& slot) const;  // null: it is whole
  Shape whole_shape(const ParameterSlot& slot) const;
  int64_t whole_parameter_count() const;                            // of all ranks together
  ActivationObserver* observer() const { return observer_.get(); }  // null: there is none

  // All but the quantized ones. A rank draws whole parameters and keeps its parts.
  void initialize_parameters(uint64_t seed, float* parameters, ThreadPool& pool) const;
  void initialize_constants(float* constants, ThreadPool& pool) const;

 private:
  struct QuantizedSpec {
    ParameterSpec spec;
    PackedShape shape;
    const ParameterGroup* trained;  // null: it is not
  };
  void add_range(const std::vector<ParameterSpec>& specs, const ParameterGroup& group);
  void add_range(const std::vector<ParameterSpec>& specs, const ParameterGroup& group, bool is_divided);
  void add_runs(std::vector<ParameterSpec> specs, const ParameterGroup& group);
  void take_offsets(const std::vector<ParameterSpec>& specs);
  void take_parts(std::vector<ParameterSpec>& specs) const;
  void add_quantized(const QuantizedSpec& quantized);

  std::vector<ParameterSlot> parameters_, constants_;
  std::vector<QuantizedSlot> quantized_;
  std::vector<TrainedRange> ranges_;
  std::vector<PackedRange> packed_ranges_;
  std::shared_ptr<ActivationObserver> observer_;
  std::shared_ptr<const ModelDivision> division_;
  const ParameterLayout* owner_ = nullptr;
  std::map<std::string, int64_t> owner_offsets_;
  size_t trained_slots_ = 0, buffer_slots_ = 0, stored_slots_ = 0, quantized_bytes_ = 0;
  int64_t parameter_count_ = 0, trained_count_ = 0, buffer_offset_ = 0, stored_count_ = 0, constant_count_ = 0;
};

// The graph inputs that hold the frozen parameters, and the buffers.
inline constexpr const char* kFrozenInput = "parameters.frozen";
inline constexpr const char* kBufferInput = "parameters.buffers";
// Of a frozen parameter that lies in the owner's buffer.
inline std::string shared_input(const ParameterSlot& slot) { return kFrozenInput + ("." + slot.spec.name); }

// Where parameters are read to: a flat buffer of layout.parameter_count() floats.
struct ParameterTarget {
  ParameterTarget(float* buffer) : flat(buffer) {}  // NOLINT: a plain buffer is one
  // Whoever fills the buffer calls it when all values of a parameter are in it and are not read again.
  void finish(const ParameterSlot& slot) const {
    if (finished) finished(slot);
  }
  float* flat;
  std::function<void(const ParameterSlot&)> finished = {};
};

}  // namespace linnet
