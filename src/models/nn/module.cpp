#include "models/nn/module.h"
#include <algorithm>
#include <cmath>
#include <numbers>
#include "base/fail.h"
#include "base/numbers.h"
#include "engine/kernels/random/philox.h"
#include "models/nn/trace.h"

namespace linnet {
namespace {
// '*' is a wildcard in patterns of names; control characters would break messages of one line.
void check_name(const char* what, const std::string& name) {
  const auto is_odd = [](char c) { return c == '*' || static_cast<unsigned char>(c) < ' '; };
  std::string shown = name;
  std::ranges::replace_if(
      shown, [](char c) { return static_cast<unsigned char>(c) < ' '; }, '?');
  if (std::ranges::any_of(name, is_odd))
    fail_user(what, " \"", shown, "\": a name has no '*' and no control characters");
}

std::string join_names(const std::string& above, const std::string& name) {
  if (above.empty() || name.empty()) return above + name;
  return above.back() == '_' ? above + name : above + "." + name;
}

// Checks the arguments of a parameter; returns its name with the path of its module.
std::string full_name(
    const Module* module, const std::string& name, const Shape& shape, const Initializer& initializer) {
  if (!module) fail_user("parameter \"", name, "\" has no module: pass `this` of the module that it is a part of");
  check_name("parameter", name);
  const std::string full = join_names(module->path(), name);
  if (!initializer) fail_user("parameter \"", full, "\" has no initializer");
  for (const int64_t size : shape.sizes())
    if (size < 1) fail_user("parameter \"", full, "\" has the shape ", shape.text(), "; sizes are at least 1");
  return full;
}
}  // namespace

Module::Module(Module* parent, std::string name) : parent_(parent), name_(std::move(name)) {
  check_name("module", name_);
  if (!parent) fail_user("module \"", name_, "\" has no parent: pass `this` of the module that it is a part of");
  parent->members_.push_back({this, nullptr});
}

Module::Module(Module&& other) noexcept
    : parent_(std::exchange(other.parent_, nullptr)), name_(std::move(other.name_)),
      members_(std::exchange(other.members_, {})) {
  if (parent_) parent_->replace({&other, nullptr}, {this, nullptr});
  for (const Member& member : members_)
    if (member.module) member.module->parent_ = this;
    else member.parameter->module_ = this;
}

void Module::replace(const Member& member, const Member& with) { std::ranges::replace(members_, member, with); }

Module::~Module() {
  for (const Member& member : members_)
    if (member.module) member.module->parent_ = nullptr;
    else member.parameter->module_ = nullptr;
  if (parent_) parent_->remove({this, nullptr});
}

// Members are usually destroyed in the opposite order of their declaration, so the search begins at the end.
void Module::remove(const Member& member) {
  const auto found = std::find(members_.rbegin(), members_.rend(), member);
  if (found != members_.rend()) members_.erase(std::next(found).base());
}

bool Module::is_within(const Module& root) const {
  const Module* module = this;
  while (module && module != &root) module = module->parent_;
  return module != nullptr;
}

std::string Module::path() const { return parent_ ? join_names(parent_->path(), name_) : name_; }

std::vector<ParameterSpec> Module::parameters() const {
  std::vector<ParameterSpec> out;
  collect(out);
  return out;
}

void Module::collect(std::vector<ParameterSpec>& out) const {
  for (const Member& member : members_) {
    if (member.module) member.module->collect(out);
    else out.push_back(member.parameter->spec());
  }
}

void Module::visit(const std::function<void(Module&)>& visitor) {
  visitor(*this);
  for (const Member& member : members_)
    if (member.module) member.module->visit(visitor);
}

void Module::adopt(Module& root, const std::string& name) {
  if (root.parent_) fail_user("a module that is a part of another one cannot be adopted as \"", name, "\"");
  for (const Module* above = this; above; above = above->parent_)
    if (above == &root) fail_user("a module cannot be a part of itself: it was to be adopted as \"", name, "\"");
  root.parent_ = this, root.name_ = name;
  members_.push_back({&root, nullptr});
  const std::string path = root.path();
  if (!path.empty()) root.prefix_names(path + ".");
}

void Module::begin(Learner&) {}

void Module::prefix_names(const std::string& prefix) {
  for (const Member& member : members_)
    if (member.module) member.module->prefix_names(prefix);
    else member.parameter->spec_.name = prefix + member.parameter->spec_.name;
}

int64_t Module::parameter_count() const {
  return sum_of<int64_t>(
      parameters(), [&](const ParameterSpec& spec) { return spec.trainable ? spec.shape.elements() : 0; });
}

Parameter::Parameter(Module* module, const std::string& name, Shape shape, Initializer initializer, bool table)
    : spec_{full_name(module, name, shape, initializer), shape, std::move(initializer), shape.rank() >= 2},
      module_(module) {
  spec_.table = table;
  module->members_.push_back({nullptr, this});
}

Parameter::Parameter(Parameter&& other) noexcept
    : spec_(std::move(other.spec_)), module_(std::exchange(other.module_, nullptr)) {
  if (module_) module_->replace({nullptr, &other}, {nullptr, this});
}

Parameter::~Parameter() {
  if (module_) module_->remove({nullptr, this});
}

Parameter::operator Tensor() const {
  Trace& trace = Trace::current();
  const Module* model = trace.model();
  if (model && !(module_ && module_->is_within(*model)))
    fail_user("the model that is traced has no parameter \"", spec_.name, "\" of shape ", spec_.shape.text(),
        ": its module is no part of the model");
  return trace.parameter(spec_);
}

void SavedBuffer::update(Tensor next) const { Trace::current().update_buffer(spec_, next); }

void fail_module_index(const std::string& path, size_t i, size_t size) {
  fail_user("the list \"", path, "\" has ", size, " modules, numbered from 0; there is no ", i);
}

ModuleScope::ModuleScope(const Module& module) : outer_(Trace::current().graph().enter_scope(module.path())) {}
ModuleScope::~ModuleScope() { Trace::current().graph().set_scope(outer_); }

Initializer constant_init(double value) {
  return [value](std::span<float> values, const Shape&, const auto&) {
    std::ranges::fill(values, static_cast<float>(value));
  };
}

Initializer xavier_uniform(int64_t parts) {
  return [parts](std::span<float> values, const Shape& shape, const auto& uniform) {
    const auto elements = static_cast<double>(shape.elements());
    const bool is_vector = shape.rank() < 2;  // whose fans are its size
    const double in = is_vector ? elements : elements / static_cast<double>(shape[0]);
    const double out = is_vector ? elements : elements / static_cast<double>(shape[-1]);
    uniform_init(std::sqrt(6.0 / (in + out / static_cast<double>(parts))))(values, shape, uniform);
  };
}

Initializer uniform_init(double bound) {
  return [bound](std::span<float> values, const Shape&, const auto& uniform) {
    for (float& value : values) value = static_cast<float>((2 * uniform() - 1) * bound);
  };
}

Initializer normal_init(double deviation) {
  return [deviation](std::span<float> values, const Shape&, const auto& uniform) {
    for (size_t i = 0; i < values.size(); i += 2) {  // Box & Muller 1958
      const double radius = deviation * std::sqrt(-2 * std::log(1 - uniform()));
      const double angle = 2 * std::numbers::pi * uniform();
      values[i] = static_cast<float>(radius * std::cos(angle));
      if (i + 1 < values.size()) values[i + 1] = static_cast<float>(radius * std::sin(angle));
    }
  };
}

Initializer sinusoidal_positions(bool halves) {
  return [halves](std::span<float> values, const Shape& shape, const auto&) {
    const int64_t width = shape[1];
    for (int64_t position = 0; position < shape[0]; ++position)
      for (int64_t i = 0; i < width; ++i) {
        const double angle = static_cast<double>(position) /
                             std::pow(10000.0, static_cast<double>(i / 2 * 2) / static_cast<double>(width));
        const int64_t column = halves ? i / 2 + i % 2 * ((width + 1) / 2) : i;
        values[position * width + column] = static_cast<float>(i % 2 ? std::cos(angle) : std::sin(angle));
      }
  };
}

void initialize(
    const Initializer& initializer, std::string_view name, uint64_t seed, const Shape& shape, std::span<float> values) {
  const uint64_t key = fnv1a(name, 0xcbf29ce484222325u ^ seed * 0x9e3779b97f4a7c15u);
  uint64_t count = 0;
  std::array<uint32_t, 4> words{};
  const auto uniform = [&] {
    const uint64_t counter = count / 2;  // four words are two numbers
    if (count % 2 == 0)
      words = philox4x32({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0}, key);
    const size_t first = count++ % 2 * 2;
    return static_cast<double>((static_cast<uint64_t>(words[first]) << 32 | words[first + 1]) >> 11) * 0x1p-53;
  };
  initializer(values, shape, uniform);
}
}  // namespace linnet
