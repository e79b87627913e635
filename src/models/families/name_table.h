// Maps a family's tensor names in files to parameters, in both directions, by patterns:
//   NameTable table{.prefix = "transformer."};
//   table.add(module, {{"tokens", "transformer.wte"},
//                      {"layers.*.self_attn.in_proj", "transformer.h.*.attn.c_attn", TensorForm::kTransposed}});
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>
#include "models/nn/module.h"

namespace linnet {
enum class TensorForm {
  kSame,
  kTransposed,     // [in, out] in the file, [out, in] here: GPT-2's Conv1D
  kOneRow,         // [1, n] in the file, [n] here: Marian's final_logits_bias
  kByHeads,        // [heads, 3, size, ...] in the file, [3, heads, size, ...] here: GPT-NeoX
  kChannelsFirst,  // [out, in, height, width] in the file, [out, height, width, in] here: filters
};

enum class TensorRole {
  kRequired,
  kHead,      // of a task: if missing, it keeps its initial values and is listed as new
  kOptional,  // of no task: if missing, it keeps its initial values and is not written
  kAdapter,   // of a LoRA adapter, in its own files and merged into a weight's (models/families/lora.h)
  kCopy,      // of a tied weight: optional in a file, equal to the parameter that another row reads
  kConstant,  // no parameter: [rows] times `constant` in readable files (norms without affine)
};

struct NameRow {
  std::string tensor;     // in files
  std::string parameter;  // of ours
  TensorForm form = TensorForm::kSame;
  TensorRole role = TensorRole::kRequired;
  // The tensor is rows [first_row, first_row + rows) of the parameter; rows 0: all. Rows of the parameter that no
  // tensor covers (a padded vocabulary) are an error.
  int64_t first_row = 0, rows = 0;
  float constant = 0;
  int64_t heads = 0;  // of kByHeads
};

// A layer with weight and bias, or one parameter.
struct NamePattern {
  std::string ours;    // "tokens", "head.bias", "layers.*.norm1": '*' is the layer's number
  std::string theirs;  // in files; with spaces: consecutive rows of ours; '#': of each expert
  TensorForm form = TensorForm::kSame;
  // kCopy: only if no other tensor has that name. kConstant: a norm's weight and bias that the model lacks.
  TensorRole role = TensorRole::kRequired;
};
using NamePatterns = std::vector<NamePattern>;
// `patterns`, with those of `own` replacing others of the same parameter.
NamePatterns with(NamePatterns patterns, const NamePatterns& own);
// Expands '^' in file names to `prefix`, and "*." to the layers' beginnings.
NamePatterns in_full(
    NamePatterns patterns, const std::string& prefix, const std::string& our_layers, const std::string& their_layers);

// What parameter shapes do not tell.
struct NameSizes {
  int64_t query_width = 0;   // rows of the first of three tensors; 0: as the others
  int64_t heads = 0;         // of kByHeads
  int64_t width = 0;         // of kConstant
  int64_t experts = 0;       // what '#' stands for
  int64_t group_layers = 1;  // if `theirs` has two '*': layers per number of the first
};

struct NameTable {
  // Files have it before all names or none, e.g. "transformer."; it is written.
  std::string prefix;
  std::vector<NameRow> rows;
  // Endings in old files: {".gamma", ".weight"} reads x.gamma as x.weight. Saved with the new name.
  std::vector<std::pair<std::string, std::string>> old_endings;
  // Beginnings likewise: {"language_model.model.", "model."} reads the text part of a model of texts and pictures.
  std::vector<std::pair<std::string, std::string>> old_beginnings;
  // Patterns ('*': any characters) over names without the prefix. `computed`: buffers that the model computes itself,
  // not read and not written. `other_heads`: parts of the same family that this architecture does not have; not read,
  // not written, listed as unused.
  std::vector<std::string> computed, other_heads;
  // Folders within the model's whose files' tensors these rows name, too: "2_Dense/linear.weight".
  std::vector<std::string> folders;

  void add(const std::string& tensor, const std::string& parameter, TensorForm form = TensorForm::kSame,
      TensorRole role = TensorRole::kRequired);
  // The tensors of what the module has of these patterns, one layer after another.
  void add(const Module& module, const NamePatterns& patterns, const NameSizes& sizes = {});

 private:
  void add_layer(const std::string& ours, const std::vector<std::string>& theirs, const NamePattern& pattern,
      const std::map<std::string, Shape>& shapes, const NameSizes& sizes);
};
}  // namespace linnet
