// What to do where a path is no model that can be read.
#pragma once
#include <string>

namespace linnet {

// To be appended to an error about `path`: how to get a model folder of a name on the Hugging Face Hub ("org/name"), of
// a .gguf file or of PyTorch's weights. "" for other paths.
std::string missing_model_hint(const std::string& path);

}  // namespace linnet
