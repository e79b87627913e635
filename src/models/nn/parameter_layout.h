// Where each parameter lies in the flat buffer: one fp32 array for the whole model, so that clipping, the optimizer and
// the moving average are one pass over memory per group. Gradients, moments and the moving average use the same
// offsets.
//
// Order: the trained groups, in each the parameters with weight decay first; then all frozen ones, then buffers
// (running statistics). Constants (positions) lie elsewhere.
//
// With tensor parallel the layout is that of a rank: slots have the shapes of its parts, and divided parameters make
// ranges of their own before those that every rank has.
//
// A layout may use the weights of another one (`owner`): moments and gradients then lie as above, and each range is a
// run of parameters that are adjacent in the owner's flat buffer (declare_shared() in models/nn/model_store.h). Frozen
// parameters are then separate inputs of graphs.
//
// Weights may be quantized: for inference (WeightQuantization), and in groups with a storage. They come last, and only
// in the buffers that load weights: the flat buffer of graphs ends before them, and each lies packed in another region
// (declare_quantized() in models/nn/model_store.h).
#pragma once
#include "engine/kernels/quantized/packed_weight.h"
#include "engine/ops/optimizer/optimizer.h"
#include "models/nn/module.h"
#include "models/nn/weight_quantization.h"

namespace linnet {
class Store;
class ThreadPool;
struct ModelDivision;  // engine/passes/tensor_parallel.h
struct Sharding;       // engine/ops/collective/collective.h

inline size_t float_bytes(int64_t count) { return static_cast<size_t>(count) * sizeof(float); }

// Parameters, by name, that are frozen or have a learning rate, weight decay or optimizer of their own.
struct ParameterGroup {
  // Patterns of full names ("encoder.layers.0.linear1.weight"); '*' stands for any characters. The first group with a
  // matching pattern has the parameter; without one the trainer's options apply.
  std::vector<std::string> patterns = {};
  // No gradient, moments or moving average; the backward pass skips what only frozen parameters need.
  bool frozen = false;
  // How the group's matrices are stored; empty: in fp32, as everything else. Trained groups: kBf16 alone, with updates
  // in fp32 and stochastic rounding (engine/ops/quantized/quantized.h). Never kInt8, whose products round activations.
  std::optional<WeightFormat> storage = {};
  double rate_factor = 1;                        // of the learning rate
  std::optional<double> weight_decay = {};       // empty: the trainer's
  std::optional<OptimizerAttrs> optimizer = {};  // kind and its numbers; empty: the trainer's
};

bool matches(std::string_view name, std::string_view pattern);
bool matches_any(std::string_view name, const std::vector<std::string>& patterns);

// The parameter up to which all together have more than `most` elements; null: there is none.
const ParameterSpec* find_beyond(const std::vector<ParameterSpec>& specs, int64_t most);
// Fills all elements of the parameter.
void initialize(const ParameterSpec& spec, uint64_t seed, float* values);

struct ParameterSlot {
  ParameterSpec spec;
  int64_t offset;  // elements, in the parameters or in the constants
  const std::string& name() const { return spec.name; }
};

struct QuantizedSlot {
  ParameterSlot slot;
  PackedShape shape;
  size_t offset;                                                       // bytes in the region of packed weights
  float input_scale = 0;                                               // WeightQuantization::input_scales; 0: none
  std::string input() const { return "quantized." + slot.spec.name; }  // of graphs
  TensorType type() const { return {DType::kU8, {static_cast<int64_t>(shape.bytes())}}; }  // of that input
};

// The trained parameters of one group: a range of the flat buffer, and one input of graphs.
struct TrainedRange {
  int64_t offset, count;  // elements
  int64_t decay_count;    // the first so many have weight decay
  ParameterGroup group;
  std::string suffix;  // of the names of its inputs: "" for the first range ("parameters", "moment1"), then ".1", ...
  // The ranks of a tensor group divide these: the gradient's sum of squares is a part of the model's.
  bool is_divided = false;
};

// A matrix trained and stored in bf16: a range of its own at its slot's offset; its states are named after it.
struct PackedRange {
  TrainedRange range;
  size_t quantized;  // of ParameterLayout::quantized()
};

class ParameterLayout {
 public:
  // Throws Error(kUser) for a pattern that no parameter has, also in `quantization`, and if everything is frozen.
  explicit ParameterLayout(const Module& model, std::span<const ParameterGroup> groups = {},
      const WeightQuantization& quantization = {}, std::shared_ptr<const ModelDivision> division = nullptr,
      const ParameterLayout* owner = nullptr);

  const std::vector<ParameterSlot>& parameters() const { return parameters_; }  // all that is saved, in order
  std::span<const ParameterSlot> trained() const { return {parameters_.data(), trained_slots_}; }
  std::span<const ParameterSlot> frozen() const {
    return std::span(parameters_).subspan(trained_slots_, buffer_slots_ - trained_slots_);
  }
  std::span<const ParameterSlot> buffers() const {
    return std::span(parameters_).subspan(buffer_slots_, stored_slots_ - buffer_slots_);
  }
  // Frozen parameters and buffers: saved, without moments and moving average.
  std::span<const ParameterSlot> untrained() const { return std::span(parameters_).subspan(trained_slots_); }
  const std::vector<TrainedRange>& ranges() const { return ranges_; }
  size_t slots_in(const TrainedRange& range) const;                                 // parameters in it
  const std::vector<PackedRange>& packed_ranges() const { return packed_ranges_; }  // trained beside ranges()
  const std::vector<ParameterSlot>& constants() const { return constants_; }
  const std::vector<QuantizedSlot>& quantized() const { return quantized_; }
  bool is_quantized(const ParameterSlot& slot) const { return slot.offset >= stored_count_; }
  const QuantizedSlot& quantized_slot(const ParameterSlot& slot) const;  // of one that is
  bool is_in_blocks(const ParameterSlot& slot) const {  // of a file, which loading leaves in the place of numbers
    return is_quantized(slot) && is_file_format(quantized_slot(slot).shape.format);
  }
  size_t quantized_bytes() const { return quantized_bytes_; }  // packed
  // Elements. The first trained_count() are trained; from buffer_offset() on they belong to buffers, from
  // stored_count() on to quantized parameters, which the flat buffer of graphs does not have.
  int64_t parameter_count() const { return parameter_count_; }
  int64_t trained_count() const { return trained_count_; }
  int64_t buffer_offset() const { return buffer_offset_; }
  int64_t stored_count() const { return stored_count_; }
  int64_t constant_count() const { return constant_count_; }
  // The layout of the same model whose weights these are; null: they are its own.
  const ParameterLayout* owner() const { return owner_; }
  int64_t offset_at_owner(const ParameterSlot& slot) const { return owner_offsets_.at(slot.spec.name); }
  // For tensor parallel; null: every parameter is whole.
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

inline constexpr const char* kFrozenInput = "parameters.frozen";
inline constexpr const char* kBufferInput = "parameters.buffers";
// The input of a frozen parameter that lies in the owner's buffer.
inline std::string shared_input(const ParameterSlot& slot) { return kFrozenInput + ("." + slot.spec.name); }

// Where parameters are read to: a flat buffer of layout.parameter_count() floats.
struct ParameterTarget {
  ParameterTarget(float* buffer) : flat(buffer) {}  // NOLINT: a plain buffer is one
  // To be called when all values of a parameter are in the buffer and will not be read again.
  void finish(const ParameterSlot& slot) const {
    if (finished) finished(slot);
  }
  float* flat;
  std::function<void(const ParameterSlot&)> finished = {};
};
using LoadWeights = std::function<void(const ParameterLayout& layout, const ParameterTarget& parameters)>;
}  // namespace linnet
