#include <set>
#include "base/fail.h"
#include "base/functions.h"
#include "base/text.h"
#include "models/families/family.h"
#include "models/families/fields.h"

namespace linnet {
// A new family is a file of this folder and its name here. The file <name>.cpp defines families_of_<name>().
#define LINNET_FAMILIES(ROW) \
  ROW(gpt2)                  \
  ROW(bert)                  \
  ROW(roberta)               \
  ROW(llama)                 \
  ROW(qwen3)                 \
  ROW(moe)                   \
  ROW(t5)                    \
  ROW(marian)                \
  ROW(bart)                  \
  ROW(gemma)                 \
  ROW(embedding_gemma)       \
  ROW(phi3)                  \
  ROW(olmo2)                 \
  ROW(smollm3)               \
  ROW(granite)               \
  ROW(gpt_neox)              \
  ROW(opt)                   \
  ROW(starcoder2)            \
  ROW(stablelm)              \
  ROW(distilbert)            \
  ROW(electra)               \
  ROW(mpnet)                 \
  ROW(albert)                \
  ROW(modernbert)            \
  ROW(deberta)               \
  ROW(nomic)                 \
  ROW(gte)                   \
  ROW(jina)                  \
  ROW(vit)

#define LINNET_DECLARE(name) FamilyList families_of_##name();
LINNET_FAMILIES(LINNET_DECLARE)

const FamilyList& families() {
  static const FamilyList list = [] {
    FamilyList all;
#define LINNET_ADD(name) \
  for (const auto& family : families_of_##name()) all.push_back(family);
    LINNET_FAMILIES(LINNET_ADD)
    return all;
  }();
  return list;
}

namespace {
// Of several families of one model_type, the last with the architecture that takes the folder; else the first.
const Family* family_of(std::string_view model_type, const ConfigFile& config = ConfigFile()) {
  const std::vector<std::string> named = config.texts("architectures");
  const Family *found = nullptr, *taken = nullptr;
  for (const auto& family : families()) {
    if (model_type != family->model_type) continue;
    if (!found) found = family.get();
    for (const Architecture& own : family->architectures)
      if (!named.empty() && own.name == named[0] && family->takes(config)) taken = family.get();
  }
  return taken ? taken : found;
}

const Family* family_of(const ConfigFile& config) { return family_of(config.text("model_type", ""), config); }

template <class Which> std::string names_of_families(const char* quote, Which which) {
  std::string text;
  for (const auto& family : families())
    if (which(*family) && family.get() == family_of(family->model_type))
      text += (text.empty() ? "" : ", ") + (quote + std::string(family->model_type)) + quote;
  return text;
}

// `name` with these numbers for its stars.
std::string numbered(std::string name, std::initializer_list<int64_t> numbers) {
  for (const int64_t number : numbers)
    if (const size_t star = name.find('*'); star != name.npos) name.replace(star, 1, std::to_string(number));
  return name;
}

std::vector<std::string> tensors_of(const std::string& theirs, int64_t layer, const NameSizes& sizes) {
  const bool in_groups = std::ranges::count(theirs.substr(0, theirs.find(' ')), '*') > 1;
  const bool is_of_experts = theirs.find('#') != theirs.npos;
  std::vector<std::string> tensors;
  for (int64_t expert = 0; expert < (is_of_experts ? sizes.experts : 1); ++expert)
    for (const std::string_view part : split(theirs, ' ')) {
      std::string name = in_groups
                             ? numbered(std::string(part), {layer / sizes.group_layers, layer % sizes.group_layers})
                             : numbered(std::string(part), {layer});
      replace_all(name, "#", std::to_string(expert));
      tensors.push_back(std::move(name));
    }
  return tensors;
}

constexpr std::array<std::pair<const char*, Activation>, 9> kActivationWords{{
    {"relu", Activation::kRelu},
    {"gelu", Activation::kGelu},
    {"gelu_python", Activation::kGelu},
    {"gelu_new", Activation::kGeluTanh},
    {"gelu_pytorch_tanh", Activation::kGeluTanh},
    {"gelu_fast", Activation::kGeluTanh},
    {"silu", Activation::kSilu},
    {"swish", Activation::kSilu},
    {"tanh", Activation::kTanh},
}};
}  // namespace

const Architecture& Family::architecture(ModelHead head) const {
  if (const Architecture* own = find_item(architectures, head, &Architecture::head)) return *own;
  const char* what = head == ModelHead::kClasses        ? "classifier"
                     : head == ModelHead::kTokens       ? "head that finds tokens"
                     : head == ModelHead::kTokenClasses ? "classifier of tokens"
                     : head == ModelHead::kSpans        ? "head that finds answers in a text"
                                                        : "form without a head";
  fail_user("a model of type \"", model_type, "\" has no ", what);
}

const Family& find_family(const ConfigFile& config) {
  const std::string type = config.text("model_type");
  if (const Family* family = family_of(config)) return *family;
  config.fail("\"model_type\" is \"", type, "\", which Linnet does not know (",
      names_of_families("", [](const Family&) { return true; }), ")");
}

const Family& find_family(std::string_view model_type) {
  if (const Family* family = family_of(model_type)) return *family;
  fail_internal("there is no family \"", model_type, "\"");
}

std::string names_of_kind(FamilyKind kind) {
  return names_of_families("\"", [kind](const Family& family) { return family.kind == kind; });
}

std::optional<ModelHead> named_head(const ConfigFile& config) {
  const Family* family = family_of(config);
  const std::vector<std::string> named = config.texts("architectures");
  if (!family || named.empty()) return std::nullopt;
  const Architecture* own = find_item(family->architectures, named[0], &Architecture::name);
  return own ? std::optional(own->head) : std::nullopt;
}

NamePatterns with(NamePatterns patterns, const NamePatterns& own) {
  for (const NamePattern& pattern : own) {
    const auto same = [&](const NamePattern& other) {
      return other.ours == pattern.ours && (other.role == TensorRole::kCopy) == (pattern.role == TensorRole::kCopy);
    };
    const auto found = std::ranges::find_if(patterns, same);
    if (found == patterns.end()) patterns.push_back(pattern);
    else *found = pattern;
  }
  return patterns;
}

NamePatterns in_full(
    NamePatterns patterns, const std::string& prefix, const std::string& our_layers, const std::string& their_layers) {
  for (NamePattern& pattern : patterns) {
    if (pattern.ours.starts_with("*.")) {
      pattern.ours.replace(0, 2, our_layers);
      pattern.theirs = their_layers + pattern.theirs;
      replace_all(pattern.theirs, " ", " " + their_layers);
    }
    replace_all(pattern.theirs, "^", prefix);
  }
  return patterns;
}

void NameTable::add(const std::string& tensor, const std::string& parameter, TensorForm form, TensorRole role) {
  rows.push_back({tensor, parameter, form, role});
}

void NameTable::add(const Module& module, const NamePatterns& patterns, const NameSizes& sizes) {
  std::map<std::string, Shape> shapes;
  for (const ParameterSpec& spec : module.parameters()) shapes[spec.name] = spec.shape;
  std::set<std::string> done;  // what layers' names begin with
  for (const NamePattern& pattern : patterns) {
    const size_t star = pattern.ours.find('*');
    const std::string stem = pattern.ours.substr(0, star);
    if (star == stem.npos) add_layer(stem, tensors_of(pattern.theirs, 0, sizes), pattern, shapes, sizes);
    if (star == stem.npos || !done.insert(stem).second) continue;
    const auto has_layer = [&](const std::string& path) {
      const auto found = shapes.lower_bound(path);
      return found != shapes.end() && found->first.starts_with(path);
    };
    for (int64_t layer = 0; has_layer(stem + std::to_string(layer) + "."); ++layer)
      for (const NamePattern& part : patterns)
        if (part.ours.starts_with(stem + "*"))
          add_layer(numbered(part.ours, {layer}), tensors_of(part.theirs, layer, sizes), part, shapes, sizes);
  }
}

std::string NameTable::current(const std::string& name) const {
  for (const auto& [old_beginning, beginning] : old_beginnings)
    if (name.starts_with(old_beginning)) return beginning + name.substr(old_beginning.size());
  return name;
}

void NameTable::add_layer(const std::string& ours, const std::vector<std::string>& theirs, const NamePattern& pattern,
    const std::map<std::string, Shape>& shapes, const NameSizes& sizes) {
  for (const char* const ending : {"", ".weight", ".bias"}) {
    const bool is_bias = ending == std::string_view(".bias");
    const auto found = shapes.find(ours + ending);
    if (found == shapes.end() && pattern.role == TensorRole::kConstant && *ending != 0)
      rows.push_back({.tensor = theirs[0] + ending,
          .role = TensorRole::kConstant,
          .rows = sizes.width,
          .constant = is_bias ? 0.0F : 1.0F});
    if (found == shapes.end()) continue;
    const int64_t count = std::ssize(theirs), all = found->second[0];
    const bool are_of_attention =
        count == 3 && sizes.query_width > 0 && pattern.theirs.find('#') == pattern.theirs.npos;
    const int64_t first = are_of_attention ? sizes.query_width : all / count;
    for (int64_t i = 0, row = 0; i < count; ++i) {
      const std::string tensor = theirs[i] + ending;
      if (pattern.role == TensorRole::kCopy && contains(rows, tensor, &NameRow::tensor)) continue;
      const bool has_form = !is_bias || pattern.form == TensorForm::kByHeads;
      const int64_t part = count == 1 ? 0 : i == 0 ? first : (all - first) / (count - 1);
      rows.push_back({.tensor = tensor,
          .parameter = ours + ending,
          .form = has_form ? pattern.form : TensorForm::kSame,
          .role = pattern.role == TensorRole::kConstant ? TensorRole::kRequired : pattern.role,
          .first_row = row,
          .rows = part,
          .heads = pattern.form == TensorForm::kByHeads ? sizes.heads : 0});
      row += part;
    }
  }
}

constinit const Words<Activation> kActivations = kActivationWords;

int64_t integer_in(const ConfigFile& file, const std::string& key, const Range& range) {
  const int64_t value = file.integer(key);
  if (value < range.least || value > range.most) file.fail(quoted(key), " is ", value, ", out of range");
  return value;
}

size_t word_index(
    const ConfigFile& file, const std::string& key, const std::vector<const char*>& words, size_t standard) {
  if (!file.has(key)) return standard;
  const std::string word = file.text(key);
  for (size_t i = 0; i < words.size(); ++i)
    if (word == words[i]) return i;
  file.fail(quoted(key), " is ", quoted(word), ", Linnet supports ", joined(words));
}

double positive_of(const ConfigFile& file, const std::string& key, double standard) {
  const double value = file.number(key, standard);
  if (!(value > 0)) file.fail(quoted(key), " is not a positive number");
  return value;
}

double probability_of(const ConfigFile& file, const std::string& key, double standard) {
  const double value = file.number(key, standard);
  if (!(value >= 0 && value < 1)) file.fail(quoted(key), " is not a probability below 1");
  return value;
}

std::vector<bool> sliding_layers(const ConfigFile& file, int64_t layers, FunctionRef<bool(int64_t layer)> otherwise) {
  if (!file.has(kLayerTypes)) return mapped(layers, otherwise);
  const std::vector<std::string> types = file.texts(kLayerTypes);
  if (std::ssize(types) != layers) file.fail("\"layer_types\" does not name each layer once");
  return mapped(types, [&](const std::string& type) {
    if (type != kFullLayer && type != kSlidingLayer) file.fail("\"layer_types\" holds \"", type, "\"");
    return type == kSlidingLayer;
  });
}

void check_multiple(const ConfigFile& file, const char* key, int64_t value, const char* of, int64_t divisor) {
  if (value % divisor != 0) file.fail(quoted(key), " ", value, " is not a multiple of ", quoted(of), " ", divisor);
}
}  // namespace linnet
