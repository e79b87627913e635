#include "tasks/teacher.h"
#include "base/fail.h"
#include "base/log.h"
#include "data/text/pretrained_tokenizer.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "models/families/config_file.h"
#include "models/nn/model_store.h"
#include "tasks/texts/text_classifier.h"

namespace linnet {
namespace {
constexpr size_t kFew = 8;  // classes that a message names
constexpr const char *kWeights = "teacher.parameters", *kConstants = "teacher.constants";

// With another tokenization the teacher would answer another question.
void check_tokenizer(const EncodeText& student, const std::string& folder, const std::string& key) {
  if (!has_pretrained_tokenizer(folder)) return;
  const auto teacher = load_pretrained_tokenizer(folder);
  for (const char* text : {"The quick brown fox, 1984: naïve déjà vu!", "don't\nSTOP  at 3.14%"}) {
    std::vector<TokenId> own, other;
    student(text, own), teacher->encode(text, other);
    if (own != other) fail_user(key, ": its tokenizer is another than that of the model that learns");
  }
}

void check_teacher_classes(
    const std::vector<std::string>& classes, const std::vector<std::string>& own, const std::string& key) {
  if (own.size() != classes.size()) fail_user(key, ": it has ", own.size(), " classes, and the data ", classes.size());
  if (own == classes) return;
  if (std::ranges::is_permutation(own, classes))
    fail_user(key, ": its classes are ", first_names(own, kFew),
        ", and those of the data are in another order: ", first_names(classes, kFew));
  log_warning(key + ": its classes are called " + first_names(own, kFew) + "; they are taken for " +
              first_names(classes, kFew));
}
}  // namespace

Teacher::Teacher(PretrainedModel model, const Distillation& options)
    : model_(std::move(model)), layout_(*model_.module), options_(options) {}

std::shared_ptr<const Teacher> Teacher::open(
    const Config& config, const std::vector<std::string>& classes, const EncodeText& encode) {
  const std::string& folder = config.distillation.teacher;
  if (folder.empty()) return nullptr;
  const std::string key = "teacher = \"" + folder + "\"";
  if (!is_pretrained_folder(folder))
    fail_user(
        key, ": not a model folder, which has a config.json with a \"model_type\"; `linnet export` makes one of a run");
  OpenOptions options;
  if (!classes.empty()) options.head = ModelHead::kClasses;
  PretrainedModel model = open_pretrained(folder, options);
  const FamilyKind kind = classes.empty() ? FamilyKind::kDecoder : FamilyKind::kEncoder;
  if (model.family->kind != kind || (!classes.empty() && !model.fresh.empty()))
    fail_user(key, ": a ", model.architecture, " is no ", classes.empty() ? "language model" : "classifier of texts");
  if (encode) check_tokenizer(encode, folder, key);
  if (encode && !classes.empty()) check_teacher_classes(classes, label_names(model.config), key);
  return std::shared_ptr<const Teacher>(
      new Teacher(std::move(model), {config.distillation.temperature, config.distillation.teacher_alpha}));
}

void Teacher::declare(Store& store) const {
  declare_flat(store, layout_, kWeights, MemoryKind::kParameters, false);
  if (layout_.constant_count() > 0)
    store.declare(kConstants, MemoryKind::kConstants, float_bytes(layout_.constant_count()));
}

void Teacher::load(const Store& store, ThreadPool& pool) const {
  load_parameters(model_, layout_, store.as<float>(kWeights));
  store.push(kWeights);
  if (layout_.constant_count() == 0) return;
  layout_.initialize_constants(store.as<float>(kConstants), pool);
  store.push(kConstants);
}

Tensor Teacher::logits(Trace& trace, const std::function<Tensor(Trace&)>& answer) const {
  Trace own({.dtype = trace.options().dtype, .layout = &layout_, .flat_name = kWeights});
  const ValueId result = answer(own).id;
  return append_graph(trace.graph(), own.finish(), result, "teacher",
      [](const std::string& name) { return name == state::kConstants ? std::string(kConstants) : name; });
}

Loss Teacher::causal_loss(
    CausalModel& student, Trace& trace, int64_t batch, int64_t length, bool packed, double label_smoothing) const {
  const TensorType ids{DType::kI32, {batch, length}};
  const auto logits_of = [&](CausalModel& model, Trace& of) {
    TokenRows rows{of.input("tokens", ids)};
    if (packed) rows.positions = of.input("positions", ids), rows.starts = of.input("starts", ids);
    return model.logits(model.hidden(rows));
  };
  const Tensor given = logits_of(student, trace);
  const Tensor wanted = logits(trace, [&](Trace& own) { return logits_of(model_.as<CausalModel>(), own); });
  if (given.shape() != wanted.shape())
    fail_user("the teacher has a vocabulary of ", wanted.dim(2), " tokens, and the model one of ", given.dim(2));
  const Tensor targets = trace.input("targets", ids);
  const Tensor count = count_targets(targets, given.type().dtype);
  Loss loss =
      distilled_loss({cross_entropy_sum(given, targets, label_smoothing), count}, given, wanted, targets, options_);
  const Tensor more = student.training_loss();
  if (more.defined()) loss.sum = loss.sum + more * count;
  return loss;
}

Loss Teacher::classification_loss(
    TextClassifier& student, Trace& trace, int64_t batch, int64_t length, bool types) const {
  const TensorType ids{DType::kI32, {batch, length}};
  const auto logits_of = [&](TextClassifier& model, Trace& of) {
    return model.logits(of.input("tokens", ids), of.input("lengths", {DType::kI32, {batch}}),
        types ? of.input("types", ids) : Tensor{});
  };
  const Tensor given = logits_of(student, trace);
  const Tensor wanted = logits(trace, [&](Trace& own) { return logits_of(model_.as<TextClassifier>(), own); });
  const Tensor labels = trace.input("labels", {DType::kI32, {batch}});
  const Loss data{weighted_cross_entropy_sum(given, labels, 0, student.class_weights.tensor(trace)),
      count_targets(labels, given.type().dtype)};
  return distilled_loss(data, given, wanted, labels, options_);
}
}  // namespace linnet
