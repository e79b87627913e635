// How a family of models calls its tensors in files, and which parameter of ours each is. One table serves both
// directions.
//
//   NameTable table;
//   table.add("wte.weight", "tokens.weight");
//   table.add_linear("h.0.mlp.c_fc", "layers.0.linear1", TensorForm::kTransposed);
//   table.add_stacked({"layer.0.query", "layer.0.key", "layer.0.value"}, {d, d, d}, "layers.0.self_attn.in_proj");
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace linnet {

enum class TensorForm {
  kSame,
  kTransposed,     // [in, out] in the file, [out, in] here: GPT-2's Conv1D
  kOneRow,         // [1, n] in the file, [n] here: Marian's final_logits_bias
  kByHeads,        // [heads, 3, size, ...] in the file, [3, heads, size, ...] here: GPT-NeoX's queries, keys, values
  kChannelsFirst,  // [out, in, height, width] in the file, [out, height, width, in] here: filters
};

enum class TensorRole {
  kRequired,
  kHead,      // of a task: where a folder has none, it keeps its initial values and is listed as new
  kOptional,  // of no task: where a folder has none, it keeps its initial values and is not written
  kAdapter,   // of a LoRA adapter: in files of its own, and in those of a model merged into a weight
              // (models/families/lora.h)
  kCopy,      // of a tied weight: may stand in a file, and is then the same as the parameter another row reads
  kConstant,  // no parameter of ours: [rows] times `constant` in files that the model can read (norms without affine)
};

struct NameRow {
  std::string tensor;     // in files
  std::string parameter;  // of ours
  TensorForm form = TensorForm::kSame;
  TensorRole role = TensorRole::kRequired;
  // The tensor is rows [first_row, first_row + rows) of the parameter; rows 0: the whole of it. Rows of the parameter
  // that no tensor covers (a padded vocabulary) are an error.
  int64_t first_row = 0, rows = 0;
  float constant = 0;
  int64_t heads = 0;  // of kByHeads
};

struct NameTable {
  // Files may have all names that begin with it or none, e.g. "transformer."; rows are written with it.
  std::string prefix;
  std::vector<NameRow> rows;
  // Endings that old files have: {".gamma", ".weight"} reads x.gamma as x.weight. Saved with the new name.
  std::vector<std::pair<std::string, std::string>> old_endings;
  // The same of beginnings: {"language_model.model.", "model."} reads the text part of a model of texts and pictures.
  std::vector<std::pair<std::string, std::string>> old_beginnings;
  // Patterns ('*': any characters) over names without the prefix. `computed`: buffers that the model computes itself,
  // not read and not written. `other_heads`: parts of the same family that this architecture does not have; not read,
  // not written, listed as unused.
  std::vector<std::string> computed, other_heads;
  // Folders within the model's whose files' tensors these rows name, too: "2_Dense/linear.weight".
  std::vector<std::string> folders;

  void add(const std::string& tensor, const std::string& parameter, TensorForm form = TensorForm::kSame,
           TensorRole role = TensorRole::kRequired);
  // .weight and .bias
  void add_linear(const std::string& tensor, const std::string& parameter, TensorForm form = TensorForm::kSame,
                  TensorRole role = TensorRole::kRequired);
  // Linear layers whose outputs are rows of one of ours, from the top: counts[i] rows from tensors[i]. Their .weight,
  // and with `bias` their .bias.
  void add_stacked(const std::vector<std::string>& tensors, const std::vector<int64_t>& counts,
                   const std::string& parameter, bool bias = true);
  void add_copy(const std::string& tensor, const std::string& parameter) {
    add(tensor, parameter, TensorForm::kSame, TensorRole::kCopy);
  }
};

}  // namespace linnet
