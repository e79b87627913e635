#include "models/families/name_table.h"
#include "base/error.h"

namespace linnet {

void NameTable::add(const std::string& tensor, const std::string& parameter, TensorForm form, TensorRole role) {
  rows.push_back({tensor, parameter, form, role});
}

void NameTable::add_linear(const std::string& tensor, const std::string& parameter, TensorForm form, TensorRole role) {
  add(tensor + ".weight", parameter + ".weight", form, role);
  add(tensor + ".bias", parameter + ".bias", TensorForm::kSame, role);
}

void NameTable::add_stacked(const std::vector<std::string>& tensors, const std::vector<int64_t>& counts,
                            const std::string& parameter, bool bias) {
  if (tensors.size() != counts.size()) fail_internal("name table: counts for " + parameter);
  for (const char* part : {".weight", ".bias"}) {
    if (!bias && part == std::string(".bias")) continue;
    int64_t first = 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
      rows.push_back(
          {.tensor = tensors[i] + part, .parameter = parameter + part, .first_row = first, .rows = counts[i]});
      first += counts[i];
    }
  }
}

}  // namespace linnet
