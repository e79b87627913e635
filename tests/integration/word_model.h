// A golden model folder with a tokenizer, which the golden folders lack.
#pragma once
#include <string>
#include "integration/program.h"
#include "parsed_json.h"

namespace linnet::testing {
// Copies tests/golden/pretrained/NAME to FOLDER/NAME and adds a vocabulary of the words w0, w1, ... Returns the copy's
// path.
inline std::string make_word_model(const TemporaryFolder& folder, const std::string& name) {
  copy_folder(std::string(LINNET_GOLDEN) + "/" + name, folder / name);
  const int size = ParsedJson::parse(contents(folder / (name + "/config.json")))["vocab_size"];
  const char* special[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  std::string vocabulary;
  for (int id = 0; id < size; ++id)
    vocabulary += (name.starts_with("bert") && id < 5 ? special[id]
                      : id == 3                       ? "[UNK]"
                                                      : "w" + std::to_string(id)) +
                  std::string("\n");
  folder.write(name + "/vocab.txt", vocabulary);
  return folder / name;
}
}  // namespace linnet::testing
