#include "models/families/name_table.h"
#include <algorithm>
#include <set>
#include "base/text.h"

namespace linnet {
namespace {
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
}  // namespace

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
    const int64_t first = count == 3 && sizes.query_width > 0 ? sizes.query_width : all / count;
    for (int64_t i = 0, row = 0; i < count; ++i) {
      const std::string tensor = theirs[i] + ending;
      const auto is_same = [&](const NameRow& other) { return other.tensor == tensor; };
      if (pattern.role == TensorRole::kCopy && std::ranges::any_of(rows, is_same)) continue;
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
}  // namespace linnet
